"""What follows if a process of a pair was killed."""

from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_workers.runner import kernel
from sandbox_workers.runner.pair import TEST_RESIDENT_MB, Pair
from sandbox_workers.runner.stop import killed_for_memory


@pytest.fixture
def pair() -> Pair:
    nobody: Any = None
    return Pair(nobody, nobody, nobody, {}, [])


SMALL, LARGE = (TEST_RESIDENT_MB - 100) << 10, (TEST_RESIDENT_MB + 100) << 10


@pytest.mark.parametrize(
    ("alone", "within_limits", "status"),
    [
        (True, True, "SANDBOX_ERROR"),  # it fell for what others took
        (True, False, "MEMORY_LIMIT"),
        (False, True, "MEMORY_LIMIT"),  # its children may have taken it, faster than anybody looked
        (False, False, "MEMORY_LIMIT"),
    ],
)
def test_only_a_process_without_company_was_killed_for_others(
    alone: bool, within_limits: bool, status: str
) -> None:
    child: Any = SimpleNamespace(alone=alone)
    stop = killed_for_memory(child, within_limits)
    assert stop.status == status and stop.may_be_ours is (status == "SANDBOX_ERROR")


@pytest.mark.parametrize(
    ("program_alone", "peak_kib", "status"),
    [
        (True, LARGE, "MEMORY_LIMIT"),  # it held what the program had sent
        (False, SMALL, "MEMORY_LIMIT"),  # the program's children filled the rest
        (True, SMALL, "SANDBOX_ERROR"),
    ],
)
def test_whose_memory_it_was_that_an_evaluator_was_killed_for(
    monkeypatch: pytest.MonkeyPatch, pair: Pair, program_alone: bool, peak_kib: int, status: str
) -> None:
    monkeypatch.setattr(kernel, "oom_kills", lambda: pair._oom_before + 1)
    program = SimpleNamespace(alone=program_alone, look=lambda: None)
    monkeypatch.setattr(pair, "program", program, raising=False)
    test = SimpleNamespace(alone=True, end=[-9, 0.1, peak_kib])
    monkeypatch.setattr(pair, "test", test, raising=False)
    stop = pair._end_of_test()
    assert stop.status == status
