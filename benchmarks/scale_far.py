"""Measures what distance costs: benchmarks.scale with the rollout actors on another Ray node, whose packets are
delayed.

    python -m benchmarks.scale_far                       no delay, and 50 ms in each direction; needs root
    python -m benchmarks.scale_far --delays-ms 0 10 200

Both nodes are network namespaces of this machine (benchmarks/far_nodes.py); delaying the packets takes processor time,
too.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.far_nodes import FAR, NEAR, NoNamespaces, namespaces
from benchmarks.report import ROOT, arguments, write

RAY = Path(sys.executable).parent / "ray"
PORT = 6379


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--delays-ms", type=int, nargs="+", default=[0, 50])
    parser.add_argument("--steps", type=int, default=6, help="of the most groups")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the nodes would outlive this
    words = ["--steps", str(options.steps), *(["--quick"] if options.quick else [])]
    figures: dict[str, Any] = {}
    try:
        for delay in options.delays_ms:
            figures |= {f"{key}_{delay}ms": value for key, value in measured(delay / 1000, words).items()}
    except NoNamespaces as reason:
        sys.exit(f"benchmarks.scale_far: {reason}")
    write(options.json, figures, {})


def measured(delay_s: float, words: Sequence[str]) -> dict[str, Any]:
    """Returns the figures of benchmarks.scale."""
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
    with namespaces(delay_s) as (near, far), tempfile.TemporaryDirectory(prefix="spar-") as folder:
        address, result = f"--address={NEAR}:{PORT}", Path(folder, "scale.json")

        def start(namespace: str, *rest: str) -> None:
            command = ["ip", "netns", "exec", namespace, str(RAY), "start", *rest, "--disable-usage-stats"]
            command.append(f"--object-store-memory={2 << 30}")
            # its processes inherit the output: subprocess.run would wait for them to close a pipe
            with Path(folder, "ray.log").open("w+") as log:
                done = subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=300)
                log.seek(0)
                if done.returncode:
                    sys.exit(f"no Ray node starts: {log.read()}")

        start(
            near, "--head", f"--port={PORT}", f"--node-ip-address={NEAR}", "--num-cpus=2", "--include-dashboard=false",
            f"--temp-dir={folder}",
        )  # fmt: skip
        start(far, address, f"--node-ip-address={FAR}", "--num-cpus=0", '--resources={"far": 1}')
        driver = ["ip", "netns", "exec", near, sys.executable, "-m", "benchmarks.scale", address, *words]
        subprocess.run([*driver, "--json", str(result)], cwd=ROOT, env=environment, check=True)
        return json.loads(result.read_text())["figures"]


if __name__ == "__main__":
    main()
