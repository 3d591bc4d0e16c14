"""The driver as a Ray job, on two Ray nodes in network namespaces of this machine, joined by a cable: the one that judges
is killed and comes back, while steps are played ahead of the learners.

`ray start --head`, `ray job submit --working-dir .`, results in an absolute place."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from benchmarks import far_nodes
from tests.integration.conftest import ROLES, ROOT, Drive, eventually, require_synced, rows_of
from tests.integration.test_window import lags

RAY = Path(sys.executable).parent / "ray"
HEAD, JUDGE = far_nodes.NEAR, far_nodes.FAR
SHORT = (
    "--config", "toy", "--curriculum.stages", "[1]", "--curriculum.n-discriminator-steps", "1",
    "--curriculum.n-generator-steps", "1", "--curriculum.k-alternating-steps", "6",
    "--curriculum.problems-per-step", "4", "--curriculum.attempts", "4", "--rollout.actors", "1",
    "--evaluation.problems", "2", "--evaluation.bank-programs", "1", "--checkpoint.every", "4",
    "--sandbox.backend", "namespace", "--rollout.max-policy-lag", "1",
)  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.timeout(1200)]


class Node:
    """A Ray node in a network namespace, with Ray's files on a disk of its own: two nodes of one machine would take the
    working directory away from each other."""

    def __init__(self, drive: Drive, namespace: str, log: Path, environment: dict[str, str]) -> None:
        self.namespace, self.log, self._drive = namespace, log, drive
        self.environment = environment
        self.disk = Path(tempfile.mkdtemp(prefix="spar-"))
        self.place = [
            "ip", "netns", "exec", namespace, "unshare", "--mount", "sh", "-c",
            'mount --bind "$0" "$RAY_TMPDIR"; exec "$@"', str(self.disk),
        ]  # fmt: skip
        """A command that runs another one on the node."""

    def start(self, *options: str) -> None:
        """Tried again: Ray itself gives a node half a minute, which a busy machine may not have."""
        for _ in range(3):
            started = self._start(*options)
            eventually(lambda p=started: p.poll() is not None or self.is_up(), 120)
            if self.is_up():
                return
            self.power_off()
        pytest.fail(f"no Ray node starts: {self.log.read_text()}")

    def is_up(self) -> bool:
        return "Ray runtime started" in self.log.read_text()

    def _start(self, *options: str) -> subprocess.Popen:
        with self.log.open("w") as log:
            command = [
                *self.place, str(RAY), "start", "--block", *options,
                f"--object-store-memory={128 << 20}", "--disable-usage-stats",
            ]  # fmt: skip
            started = subprocess.Popen(
                command, cwd=self.log.parent, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._drive.started.append(started)
        return started

    def processes(self) -> dict[int, str]:
        """Command lines of all that run on it, by process id."""
        found = {}
        for pid in far_nodes.pids(self.namespace):
            with suppress(psutil.Error):
                found[pid] = " ".join(psutil.Process(pid).cmdline())
        return found

    def actors(self) -> set[str]:
        names = (re.match(r"ray::(\w+)", line) for line in self.processes().values())
        return {name[1] for name in names if name}

    def power_off(self) -> None:
        far_nodes.end_all(self.namespace)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace, *command],
            cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    try:
        with far_nodes.namespaces() as both:
            yield both
    except far_nodes.NoNamespaces as reason:
        if os.environ.get("SPARRING_REQUIRE_CLUSTER") == "1":
            pytest.fail(f"SPARRING_REQUIRE_CLUSTER=1: {reason}")
        pytest.skip(str(reason))


@pytest.fixture
def nodes(
    namespaces: tuple[str, str], drive: Drive, environment: dict[str, str], tmp_path: Path
) -> Iterator[tuple[Node, Node]]:
    """(the head with all but the sandbox, the node that judges), not yet started."""
    environment = {
        **environment,
        "HOME": str(tmp_path),
        "RAY_AUTH_MODE": "token",
        "PATH": f"{RAY.parent}{os.pathsep}{os.environ['PATH']}",
        "RAY_API_SERVER_ADDRESS": f"http://{HEAD}:8265",
        "RAY_health_check_period_ms": "500",  # a lost node is noticed in seconds, as on no real cluster
        "RAY_health_check_initial_delay_ms": "0",
    }
    made = subprocess.run(
        [str(RAY), "get-auth-token", "--generate"],
        env={**environment, "RAY_AUTH_MODE": "disabled"}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    head, judge = (
        Node(drive, name, tmp_path / f"{of}.log", environment)
        for name, of in zip(namespaces, ("head", "judge"), strict=True)
    )
    yield head, judge
    judge.power_off()
    head.power_off()
    for node in (head, judge):
        shutil.rmtree(node.disk, ignore_errors=True)
    eventually(lambda: all(p.poll() is not None for p in drive.started), 20)


def lists_jobs(head: Node) -> bool:
    """A busy machine may keep a command waiting."""
    with suppress(subprocess.TimeoutExpired):
        return head.run(str(RAY), "job", "list").returncode == 0
    return False


def test_the_judging_node_is_lost_and_comes_back(
    nodes: tuple[Node, Node], drive: Drive, small: tuple[str, ...], tmp_path: Path
) -> None:
    head, judge = nodes
    joins = (
        f"--address={HEAD}:6379",
        f"--node-ip-address={JUDGE}",
        "--num-cpus=0",
        '--resources={"sandbox": 1}',
    )
    head.start(
        "--head", "--port=6379", f"--node-ip-address={HEAD}", "--num-cpus=2",
        f"--dashboard-host={HEAD}", "--dashboard-port=8265",
    )  # fmt: skip
    judge.start(*joins)
    assert eventually(lambda: lists_jobs(head), 180)

    run = tmp_path / "output" / drive.name()
    named = [*small, *SHORT, "--output-dir", str(run.parent), "--run-name", run.name]
    command = ["python", "driver.py", *named]
    said = tmp_path / "job.log"
    with said.open("w") as log:
        job = subprocess.Popen(
            ["ip", "netns", "exec", head.namespace, str(RAY), "job", "submit", "--working-dir", ".", "--", *command],
            cwd=ROOT, env=head.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    drive.started.append(job)

    def there(what: str) -> bool:
        assert job.poll() is None, said.read_text()
        return what in said.read_text()

    def played() -> bool:
        assert job.poll() is None, said.read_text()
        return any(row["step"] for row in rows_of(run))

    assert eventually(played, 400), said.read_text()
    assert judge.actors() >= {"SandboxShell"} and not judge.actors() & {
        "RolloutShell",
        "Mailbox",
        "SchedulerActor",
    }
    assert (
        head.actors() >= {"RolloutShell", "Mailbox", "SchedulerActor"} and "SandboxShell" not in head.actors()
    )

    judge.power_off()
    assert eventually(
        lambda: there("lost a node: 0 of 1 units of the Ray resource 'sandbox' are left"), 60
    ), said.read_text()
    judge.start(*joins)
    job.wait(400)
    out = said.read_text()
    assert job.returncode == 0 and "are there again: the run goes on" in out, out
    assert "succeeded" in out and f"Ray at {HEAD}:6379" in out, out
    assert "SandboxShell" not in head.actors()
    first, *rows = rows_of(run)
    assert [row["step"] for row in rows] == [*range(1, 9)]
    results = json.loads((run / "training_results.json").read_text())
    assert results["held_out"]["after"].keys() >= {"generator_pass_rate", "test_validity"}
    # it met the loss, waited, and lost no attempt to it
    assert rows[0]["sandbox"]["infrastructure_failures"] == 0 < rows[-1]["sandbox"]["infrastructure_failures"]
    assert all(row["dropped"]["sandbox_failure"] == 0 for row in rows)

    # engines and learners worked at the same time
    require_synced([first, *rows], lag=1)
    for role in ROLES:
        assert max(lags(run, role)) == 1.0

    # what was uploaded is the working tree, not the virtual environment in it
    uploaded = list(head.disk.glob("ray/session_*/runtime_resources/working_dir_files/_ray_pkg_*/"))
    assert uploaded and all((d / "driver.py").is_file() and not (d / ".venv").exists() for d in uploaded)

    # without RAY_ADDRESS a run starts a Ray of its own, though a cluster answers on this machine
    shutil.rmtree(run)
    refused = drive.run(*named, "--rollout.cpus", "1000", place=head.place)
    assert refused.code == 2 and "have no room" in refused.err and "there are 1 nodes" in refused.err, (
        refused.err
    )
