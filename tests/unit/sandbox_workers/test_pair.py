"""Who is blamed where a limit is passed."""

from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_workers.runner import pair as pair_module
from sandbox_workers.runner.pair import Pair
from sandbox_workers.runner.peer import ASKING, TESTING


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
    monkeypatch: pytest.MonkeyPatch, seen: list[bytes], blamed: bool
) -> None:
    """A look at list(f(1)) with an endless f found the test between two questions 1 time in 25."""
    nobody: Any = None
    pair = Pair(nobody, nobody, nobody, {}, inert=False)
    monkeypatch.setattr(pair, "test", SimpleNamespace(pid=1), raising=False)
    looks = iter(seen)
    monkeypatch.setattr(pair_module.kernel, "name_of", lambda pid: next(looks))
    assert pair._test_is_to_blame() is blamed
