"""Who is blamed where a limit is passed."""

from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_workers.runner import kernel
from sandbox_workers.runner.calls import ASKING, TESTING
from sandbox_workers.runner.pair import TEST_RESIDENT_MB, Pair
from sandbox_workers.runner.stop import killed_for_memory


@pytest.fixture
def pair() -> Pair:
    nobody: Any = None
    return Pair(nobody, nobody, nobody, {}, [])


@pytest.mark.parametrize(
    ("seen", "blamed"),
    [
        ([TESTING] * 5, True),
        ([ASKING] * 5, False),
        ([TESTING, ASKING, ASKING, TESTING, ASKING], False),
        ([ASKING, TESTING, TESTING, ASKING, TESTING], True),
        ([b""] * 5, False),  # it is gone
    ],
)
def test_the_test_is_blamed_by_what_it_mostly_does(
    monkeypatch: pytest.MonkeyPatch, pair: Pair, seen: list[bytes], blamed: bool
) -> None:
    """A look at list(f(1)) with an endless f found the test between two questions 1 time in 25."""
    monkeypatch.setattr(pair, "test", SimpleNamespace(pid=1), raising=False)
    looks = iter(seen)
    monkeypatch.setattr(kernel, "name_of", lambda pid: next(looks))
    assert pair._test_is_to_blame() is blamed


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
    assert (stop.status, stop.by_test) == (status, False)
