"""The sandbox under attack: one slot, so that the next honest job runs where the attack ran."""

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest

from core.verdict import Limits, Status, Verdict
from sandbox_workers.backends import choose_backend
from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.local import LocalSandbox

LIMITS = Limits(cpu_s=0.5, wall_s=1.5, memory_mb=128, processes=16, file_mb=4, output_kb=16)
LOOK = "import os\ndef look(): return os.listdir('.'), len([p for p in os.listdir('/proc') if p.isdigit()])"


@pytest.fixture(scope="session", params=["docker", "namespace"])
def warm(request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    try:
        choose_backend(request.param)
    except SandboxUnavailable as missing:
        if request.param == "docker" and os.environ.get("SPARRING_REQUIRE_DOCKER") == "1":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    run_id = f"attacks-{os.getpid()}"
    with LocalSandbox(request.param, slots=1, limits=LIMITS, run_id=run_id, cache_size=0) as local:
        yield local


def judge(sandbox: LocalSandbox, program: str, *tests: str) -> list[Verdict]:
    return asyncio.run(asyncio.wait_for(sandbox.judge(program, tests), 40))


@pytest.fixture
def attack(warm: LocalSandbox) -> Iterator[Callable[[str, str], Verdict]]:
    """Judges (program, test). Afterwards an honest program and a wrong one must be judged rightly, and no file,
    no process and no loss of a sandbox be left."""
    (before,) = judge(warm, LOOK, "look()")
    failures = warm.stats()["infrastructure_failures"]
    yield lambda program, test: judge(warm, program, test)[0]
    verdicts = judge(warm, "def f(x): return x + 1", "assert f(1) == 2", "assert f(1) == 3", "f(41)")
    assert [str(verdict.status) for verdict in verdicts] == ["PASSED", "WRONG_ANSWER", "PASSED"]
    assert verdicts[2].value == "42"
    (after,) = judge(warm, LOOK, "look()")
    assert after.status is Status.PASSED and str(after.value).startswith("([], ")
    assert after.value == before.value
    assert warm.stats()["infrastructure_failures"] == failures
