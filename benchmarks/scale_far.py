"""What distance costs: benchmarks.scale, whose rollout actors are on another Ray node, over a cable that delays each packet.

    python -m benchmarks.scale_far                       no delay, and 50 ms in each direction; only root can make nodes
    python -m benchmarks.scale_far --delays-ms 0 10 200

Both nodes are network namespaces of this machine (benchmarks/far_nodes.py); a cable that delays takes processor time of it, too.
"""

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.far_nodes import FAR, NEAR, namespaces
from benchmarks.report import ROOT, arguments, publish

RAY = Path(sys.executable).parent / "ray"
PORT = 6379


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--delays-ms", type=int, nargs="+", default=[0, 50])
    parser.add_argument("--steps", type=int, default=6, help="of the most groups")
    options = parser.parse_args()
    words = ["--steps", str(options.steps), *(["--quick"] if options.quick else [])]
    figures: dict[str, Any] = {}
    for delay in options.delays_ms[-1:] if options.quick else options.delays_ms:
        figures |= {f"{key}_{delay}ms": value for key, value in measured(delay / 1000, words).items()}
    publish(options.json, figures, {})


def measured(delay_s: float, words: Sequence[str]) -> dict[str, Any]:
    """Figures of benchmarks.scale."""
    with namespaces(delay_s) as (near, far), tempfile.TemporaryDirectory(prefix="spar-") as folder:
        result = Path(folder, "scale.json")
        environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}

        def start(namespace: str, *rest: str) -> None:
            command = ["ip", "netns", "exec", namespace, str(RAY), "start", *rest, "--disable-usage-stats"]
            store = f"--object-store-memory={2 << 30}"
            # its processes keep what is inherited: no pipe that would be waited for
            with Path(folder, "ray.log").open("w+") as log:
                done = subprocess.run(
                    [*command, store], env=environment, stdout=log, stderr=log, check=False, timeout=300
                )
                log.seek(0)
                if done.returncode:
                    sys.exit(f"no Ray node starts: {log.read()}")

        head = [
            "--head",
            f"--port={PORT}",
            f"--node-ip-address={NEAR}",
            "--num-cpus=2",
            "--include-dashboard=false",
        ]
        start(near, *head, f"--temp-dir={folder}")
        start(
            far,
            f"--address={NEAR}:{PORT}",
            f"--node-ip-address={FAR}",
            "--num-cpus=0",
            '--resources={"far": 1}',
        )
        driver = [
            "ip",
            "netns",
            "exec",
            near,
            sys.executable,
            "-m",
            "benchmarks.scale",
            "--address",
            f"{NEAR}:{PORT}",
        ]
        subprocess.run([*driver, *words, "--json", str(result)], cwd=ROOT, env=environment, check=True)
        return json.loads(result.read_text())["figures"]


if __name__ == "__main__":
    main()
