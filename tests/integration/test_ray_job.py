"""The driver as a Ray job: `ray start --head`, `ray job submit --working-dir .`, results in an absolute place."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RAY = Path(sys.executable).parent / "ray"
SHRUNKEN = (
    "--config", "toy", "--curriculum.stages", "1", "--curriculum.n-discriminator-steps", "0",
    "--curriculum.n-generator-steps", "0", "--curriculum.k-alternating-steps", "1",
    "--curriculum.problems-per-step", "4", "--curriculum.attempts", "4",
    "--evaluation.bank-programs", "2", "--evaluation.suites", "1",
)  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.timeout(1200)]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, outside 10002-19999, where Ray's workers take theirs."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for each in sockets:
        each.close()
    return [p for p in ports if not 10002 <= p <= 19999] or free_ports(count)


def ray(environment: dict[str, str], *arguments: object, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(RAY), *map(str, arguments)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


@pytest.fixture
def head(drive, environment: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which `ray` reaches a cluster of this test's own: one node, with a token."""
    mine = {
        **environment,
        "HOME": str(tmp_path),
        "RAY_AUTH_MODE": "token",
        "PATH": f"{RAY.parent}{os.pathsep}{os.environ['PATH']}",
    }
    made = ray({**mine, "RAY_AUTH_MODE": "disabled"}, "get-auth-token", "--generate", timeout=120)
    assert made.returncode == 0, made.stderr
    gcs, dashboard, agent, metrics, client = free_ports(5)
    mine |= {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}", "GCS_PORT_OF_TEST": str(gcs)}
    with (tmp_path / "head.log").open("w") as log:
        process = subprocess.Popen(
            [
                str(RAY), "start", "--head", "--block", "--num-cpus=2", '--resources={"sandbox": 1}',
                "--node-ip-address=127.0.0.1", f"--port={gcs}", f"--ray-client-server-port={client}",
                "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}",
                f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}",
                f"--object-store-memory={256 << 20}", "--disable-usage-stats",
            ],
            cwd=tmp_path, env=mine, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    drive.started.append(process)
    yield mine
    process.send_signal(signal.SIGTERM)  # --block: ends what it started, and no other Ray of this machine
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def test_a_submitted_job_trains(
    drive, head: dict[str, str], small: tuple[str, ...], tmp_path: Path, environment: dict[str, str]
) -> None:
    for _ in range(60):
        if ray(head, "job", "list", timeout=120).returncode == 0:
            break
    run = tmp_path / "output" / drive.name()
    command = [
        "python",
        "driver.py",
        *small,
        *SHRUNKEN,
        "--output-dir",
        str(run.parent),
        "--run-name",
        run.name,
    ]
    done = ray(head, "job", "submit", "--working-dir", ".", "--", *command, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout
    # this cluster, and none that the driver started; Ray names the node by the machine's address
    assert re.search(rf"Ray at \S+:{head['GCS_PORT_OF_TEST']}\b", done.stdout), done.stdout
    results = json.loads((run / "training_results.json").read_text())
    assert results["held_out"]["after"].keys() >= {"generator_pass_rate", "test_validity", "kill_rate"}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1]
    # what was uploaded is the working tree, not the virtual environment in it
    uploaded = list(
        Path(environment["RAY_TMPDIR"]).glob("ray/session_*/runtime_resources/working_dir_files/_ray_pkg_*/")
    )
    assert uploaded and all((d / "driver.py").is_file() and not (d / ".venv").exists() for d in uploaded)

    # without RAY_ADDRESS a run starts a Ray of its own, though a cluster answers on this machine
    shutil.rmtree(run)
    refused = drive.run(
        *small, *SHRUNKEN, "--rollout.cpus", "1000", "--output-dir", tmp_path, "--run-name", run.name
    )
    assert refused.code == 2 and "have no room" in refused.err, refused.err
