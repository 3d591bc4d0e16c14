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


@pytest.mark.parametrize(
    ("tests", "stop", "loaded", "rounds"),
    [
        (16, OURS, True, 16 + MOST_RETRIES),
        (3, THEIRS, True, 3),
        (16, BROKEN, True, 1),  # else each of the others would wait for three times its limit
        (4, THEIRS, False, 1),
    ],
    ids=["doubt in each test", "no doubt", "the sandbox fails one test", "it cannot be loaded"],
)
def test_a_job_whose_tests_all_end_alike_is_tried_so_often(
    monkeypatch: pytest.MonkeyPatch, tests: int, stop: Stop, loaded: bool, rounds: int
) -> None:
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
    assert [verdict.status for verdict in verdicts] == [stop.status] * tests
    assert len(started) == rounds


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
