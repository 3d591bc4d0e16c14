"""How often a slot tries again."""

from typing import Any

import pytest

from sandbox_workers.runner import supervisor
from sandbox_workers.runner.judged import Judged
from sandbox_workers.runner.stop import MOST_RETRIES, Stop
from sandbox_workers.runner.supervisor import Slot

OURS = Stop("TIME_LIMIT", "more than 8 s by the clock", may_be_ours=True)
THEIRS = Stop("TIME_LIMIT", "more than 2 s of CPU")
BROKEN = Stop("SANDBOX_ERROR", "more than 8 s by the clock, while waiting for the CPU")


def judged(monkeypatch: pytest.MonkeyPatch, tests: int, stop: Stop, loaded: bool = True) -> tuple[list, int]:
    """Statuses of a job in which each test ends with this stop, and how many rounds were started."""
    started = []

    class ScriptedPair:
        def __init__(self, *_: Any) -> None:
            self.stop, self.loaded = stop, loaded
            started.append(self)

        def judge(self, program: str) -> list[Judged]:
            return []

        def judged(self, stop: Stop) -> Judged:
            return Judged(stop.status)

    monkeypatch.setattr(supervisor, "Pair", ScriptedPair)
    slot: Any = object.__new__(Slot)
    slot.zygotes, slot.evaluators, slot.settings = {"program": None}, None, None
    asked = [[f"assert f({n}) == {n}", False, "text", "", None] for n in range(tests)]
    verdicts = slot.judge(
        {"program": "", "tests": asked, "limits": {}, "language": None, "refuses_code": False}
    )
    return [verdict.status for verdict in verdicts], len(started)


def test_a_program_that_gives_doubt_in_each_test_is_tried_again_in_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert judged(monkeypatch, 16, OURS) == (["TIME_LIMIT"] * 16, 16 + MOST_RETRIES)


@pytest.mark.parametrize(("never_asked", "isolation"), [(False, "shared"), (True, "separate")])
def test_a_test_that_never_asks_is_not_run_as_code(
    monkeypatch: pytest.MonkeyPatch, never_asked: bool, isolation: str
) -> None:
    """As code nothing would notice that. What its error says does not decide it."""
    slot: Any = object.__new__(Slot)
    failed = Judged("RUNTIME_ERROR", error="test: NeverAsked: or not", never_asked=never_asked)
    answers = {True: failed, False: Judged("PASSED", isolation="shared")}
    monkeypatch.setattr(slot, "_judge", lambda job, chosen, data: [answers[data]] * len(chosen))
    (verdict,) = slot.judge(
        {"tests": [["", False, "reference", "", None]], "language": None, "refuses_code": False}
    )
    assert verdict.isolation == isolation


def test_without_doubt_there_is_no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, 3, THEIRS) == (["TIME_LIMIT"] * 3, 3)


def test_where_the_sandbox_failed_one_test_it_says_so_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of them would wait for three times its limit."""
    assert judged(monkeypatch, 16, BROKEN) == (["SANDBOX_ERROR"] * 16, 1)


def test_what_cannot_be_loaded_fares_alike_with_every_test(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, 4, THEIRS, loaded=False) == (["TIME_LIMIT"] * 4, 1)
