"""The sandbox under attack: one slot, so that the next honest job runs where the attack ran."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Set

import pytest

from sandbox_workers.languages import UnknownLanguage
from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import SandboxFailure, SandboxKind
from sparring.core.verdict import Limits, Status, Test, Verdict
from tests.attacks.not_held import NOT_HELD
from tests.sandboxes import kind  # noqa: F401  (a fixture)

WRONG, ERROR, SYNTAX = Status.WRONG_ANSWER, Status.RUNTIME_ERROR, Status.SYNTAX_ERROR
TIME, MEMORY, OUTPUT = Status.TIME_LIMIT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT
ANSWER = "assert f(1) == 2"
SHORT, PATIENT = {"wall_s": 1.0}, {"wall_s": 8.0}
LIMITS = Limits(cpu_s=0.5, wall_s=1.5, memory_mb=128, processes=16, file_mb=4, output_kb=16)
STARVED, STARVED_ATTEMPTS = "while waiting for the CPU", 3
AMPLE = {"cpu_s": 8.0, "wall_s": 16.0}
"""Of what an attack that is not about time may use, so that a slow machine ends it for the same reason as a fast one."""
WORKS = """
def works(act, *given, refused=OSError):
    try: act(*given); return True
    except refused: return False
"""
"""What a program may put before itself."""
LOOK = "import os\ndef look(): return os.listdir('.'), len([p for p in os.listdir('/proc') if p.isdigit()])"


def asked(table: Mapping[str, str | tuple], *end: object) -> dict[str, tuple]:
    """Returns rows of (program, test, deserved, limits that differ). In the table a row may lack its test, which is
    ANSWER then, and `end`, which all rows share."""
    rows: dict[str, tuple] = {}
    for name, row in table.items():
        program, *rest = (row,) if isinstance(row, str) else row
        test = () if rest and isinstance(rest[0], str) else (ANSWER,)
        rows[name] = (program, *test, *rest, *end)
    return rows


@pytest.fixture(scope="session")
def warm(kind: SandboxKind) -> Iterator[LocalSandbox]:  # noqa: F811
    run_id = f"attacks-{os.getpid()}"
    with LocalSandbox(kind, slots=1, limits=LIMITS, run_id=run_id, cache_size=0) as local:
        local.pauses_s = ()  # whatever fails is to be seen
        yield local


def judge(
    sandbox: LocalSandbox, program: str, *tests: Test, limits: Limits = LIMITS, language: str = "python"
) -> list[Verdict]:
    """Again where the machine was too busy: that is no attack's success, unless it comes each time."""
    attempts = 1
    while True:
        judging = sandbox.judge(program, tests, limits=limits, language=language)
        try:
            return asyncio.run(asyncio.wait_for(judging, 120))
        except UnknownLanguage as missing:
            pytest.skip(str(missing))
        except SandboxFailure as failure:
            if STARVED not in str(failure) or attempts == STARVED_ATTEMPTS:
                raise
        attempts += 1


@pytest.fixture
def attack(warm: LocalSandbox) -> Iterator[Callable[..., Verdict]]:
    """Judges (program, test, limits that differ). Afterwards an honest program and a wrong one must be judged
    rightly, and no file, no process and no loss of a sandbox be left."""
    (before,) = judge(warm, LOOK, "look()")
    replaced = warm.worker.replaced

    def attack(program: str, test: str, changed: Mapping[str, float] | None = None) -> Verdict:
        (verdict,) = judge(warm, program, test, limits=LIMITS.model_copy(update=changed))
        assert len(verdict.stdout) <= LIMITS.output_kb << 10
        (verdict.error + verdict.stdout + str(verdict.value)).encode()  # whatever logs it must be able to
        assert len(verdict.error) < 1000 and "\x1b" not in verdict.error
        return verdict

    yield attack
    verdicts = judge(warm, "def f(x): return x + 1", "assert f(1) == 2", "assert f(1) == 3", "f(41)")
    assert [str(verdict.status) for verdict in verdicts] == ["PASSED", "WRONG_ANSWER", "PASSED"]
    assert verdicts[2].value == "42"
    (after,) = judge(warm, LOOK, "look()")
    assert after.status is Status.PASSED and str(after.value).startswith("([], ")
    assert after.value == before.value
    assert warm.worker.replaced == replaced


@pytest.fixture
def convict(attack: Callable[..., Verdict], request: pytest.FixtureRequest) -> Callable[..., Verdict]:
    """Judges a program that is at fault: it gets a status that it deserves, and the test is not blamed for it. A test that is code
    may be fooled by what is in NOT_HELD, and its verdict says that it shared the program's interpreter."""

    def convict(
        program: str, test: str, deserved: Set[Status], changed: Mapping[str, float] | None = None
    ) -> Verdict:
        time = {} if Status.TIME_LIMIT in deserved else AMPLE
        verdict = attack(program, test, {**time, **(changed or {})})
        if verdict.isolation == "shared" and request.node.callspec.params["name"] in NOT_HELD:
            return verdict
        assert verdict.status in deserved, verdict
        assert not verdict.error.startswith("test: "), verdict
        return verdict

    return convict
