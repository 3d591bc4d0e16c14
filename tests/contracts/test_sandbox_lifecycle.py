"""What becomes of sandboxes when their owner ends, cleanly or not; and of workers that are killed."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray

from actors.watching import end
from sandbox_workers.backends import choose_backend
from sandbox_workers.jobs import BackendDied, Job, SandboxUnavailable
from sandbox_workers.local import LocalSandbox
from sandbox_workers.pool import start_pool
from sparring.core.verdict import Limits
from tests.integration.conftest import containers_of, eventually
from tests.ray_clusters import own_ray
from tests.sandboxes import require

ROOT = Path(__file__).parents[2]
OWNER = """
import asyncio, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
sys.path.insert(0, {root!r})
from sandbox_workers.local import LocalSandbox
sandbox = LocalSandbox({kind!r}, run_id={run!r})
assert asyncio.run(sandbox.judge("def f(): return 1", ["assert f() == 1"]))[0].passed
print("judged", flush=True)
{then}
"""


def start_owner(kind: str, run: str, then: str) -> subprocess.Popen:
    script = OWNER.format(root=str(ROOT), kind=kind, run=run, then=then)
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None and owner.stdout.readline() == "judged\n"
    return owner


@pytest.mark.parametrize(
    "ending",
    [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None],
    ids=["SIGKILL", "SIGTERM", "SIGINT", "exit"],
)
def test_no_container_outlives_its_owner(ending: signal.Signals | None) -> None:
    require("docker")
    run = f"test-{uuid.uuid4().hex[:8]}"
    owner = start_owner("docker", run, "time.sleep(60)" if ending else "sandbox.close()")
    if ending is not None:
        assert containers_of(run) == 1
        owner.send_signal(ending)
    owner.wait(30)
    assert eventually(lambda: containers_of(run) == 0, 10)


def test_closing_is_silent() -> None:
    """In development mode, as in any from Python 3.13 on, what is closed in the wrong order says so on stderr."""
    require("docker")
    owner = OWNER.format(root=str(ROOT), kind="docker", run=uuid.uuid4().hex, then="sandbox.close()")
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-c", owner],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "judged\n", "")


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_no_namespace_outlives_its_owner(ending: signal.Signals) -> None:
    require("namespace")
    owner = start_owner("namespace", f"test-{uuid.uuid4().hex[:8]}", "time.sleep(60)")
    children = Path(f"/proc/{owner.pid}/task/{owner.pid}/children")
    pids = children.read_text().split() + [
        pid
        for task in Path(f"/proc/{owner.pid}/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]
    assert pids
    owner.send_signal(ending)
    owner.wait(30)

    def gone(pid: str) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    assert eventually(lambda: all(gone(pid) for pid in pids), 10)


def test_a_sandbox_removes_orphans_and_not_the_living() -> None:
    require("docker")
    from sandbox_workers.backends import image_tag
    from sandbox_workers.docker_backend import LABEL, OWNER_LABEL, RUN_LABEL, connect, process_identity

    client, run = connect(), f"test-{uuid.uuid4().hex[:8]}"
    living = process_identity(os.getpid())
    assert living is not None
    dead = ":".join([*living.split(":")[:2], "1"])  # the same pid, started at another time
    elsewhere = "another-host:1:1"
    made = [
        client.containers.create(image_tag(), labels={LABEL: "1", RUN_LABEL: run, OWNER_LABEL: owner})
        for owner in (living, dead, elsewhere)
    ]
    try:
        LocalSandbox("docker").close()
        left = {c.id for c in client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={run}"})}
        assert left == {made[0].id, made[2].id}
    finally:
        for container in (made[0], made[2]):
            container.remove(force=True)


@pytest.mark.parametrize("kind", ["docker", "namespace"])
def test_a_killed_sandbox_is_replaced(kind: str) -> None:
    require(kind)
    with LocalSandbox(kind, run_id=f"test-{uuid.uuid4().hex[:8]}") as sandbox:  # type: ignore[arg-type]
        worker = sandbox.worker
        for attempt in range(2):
            backend = worker._lease.backend  # type: ignore[union-attr]
            if kind == "docker":
                backend._container.kill()  # type: ignore[attr-defined]
            else:
                outer = backend._process.pid  # type: ignore[attr-defined]
                inner = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
                os.kill(int(inner[0]), signal.SIGKILL)  # init of its pid namespace
            verdicts = asyncio.run(asyncio.wait_for(sandbox.judge(f"def f(): return {attempt}", ["f()"]), 30))
            assert verdicts[0].value == str(attempt)
        assert worker.replaced == 2


@pytest.mark.parametrize("kind", ["docker", "namespace", "process"])
def test_replaced_sandboxes_leave_no_descriptors(kind: str) -> None:
    require(kind)
    run = f"test-{uuid.uuid4().hex[:8]}"

    def replace_some(count: int) -> int:
        for number in range(count):
            with LocalSandbox(kind, run_id=f"{run}-{number}") as sandbox:  # type: ignore[arg-type]
                assert asyncio.run(sandbox.judge("def f(): return 1", ["f()"]))[0].passed
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    gc.disable()  # what is not closed stays
    try:
        before = replace_some(2)
        assert eventually(lambda: replace_some(1) <= before, 30)
    finally:
        gc.enable()


def test_a_killed_actor_costs_no_verdict() -> None:
    require("auto")
    with own_ray(resources={"sandbox": 1}):
        with pytest.raises(SandboxUnavailable, match="resource 'sandbox'"):
            start_pool(3, run_id="too-many", end=end)
        run = f"test-{uuid.uuid4().hex[:8]}"
        pool = start_pool(1, slots=2, run_id=run, limits=Limits(cpu_s=1, wall_s=5), end=end)
        client = pool.client()

        async def kill_in_between() -> list:
            slow = "import time\ndef f(x): time.sleep(0.5); return x"
            wanted = [asyncio.ensure_future(client.judge(slow, [f"f({n})"])) for n in range(4)]
            await asyncio.sleep(0.3)
            os.kill(ray.get(pool.actors[0].pid.remote()), signal.SIGKILL)
            return await asyncio.wait_for(asyncio.gather(*wanted), 60)

        verdicts = asyncio.run(kill_in_between())
        assert [v[0].value for v in verdicts] == ["0", "1", "2", "3"]
        assert client.stats()["retries"] >= 1
        pool.shutdown()
        if "Docker containers" in pool.description:
            assert eventually(lambda: containers_of(run) == 0, 10)


@pytest.mark.parametrize("kind", ["docker", "namespace"])
def test_closing_under_a_batch_ends_its_wait(kind: str) -> None:
    """The descriptors of a closed sandbox may be another's by the time the answer is read: 1 in 16 waited for ever."""
    require(kind)
    choice = choose_backend(kind)  # type: ignore[arg-type]
    job = Job(program="def f(): return 1", tests=("f()",), limits=Limits())
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        attempts = 8 if kind == "docker" else 20  # a container takes a second to start
        for attempt in range(attempts):
            backend = choice.open(slots=1, index=0, run_id=f"test-{uuid.uuid4().hex[:8]}", memory_mb=512)
            backend.start()
            with ThreadPoolExecutor(1) as thread:
                batch = thread.submit(backend.judge_batch, [job])
                time.sleep(attempt * 16e-3 / attempts)
                backend.close()
                assert isinstance(batch.exception(timeout=20), BackendDied | None)
    finally:
        sys.setswitchinterval(interval)
