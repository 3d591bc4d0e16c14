"""What ends a run of which actors are lost again and again."""

import pytest
from ray.exceptions import OutOfMemoryError, RayActorError

from actors.rollout import _given_up
from sparring.core.errors import OutOfMemory, RunFailed
from tests.unit.core.test_endings import KILLED


@pytest.mark.parametrize(
    ("error", "kind"), [(RayActorError(), RunFailed), (OutOfMemoryError(KILLED), OutOfMemory)]
)
def test_the_part_and_what_it_was_lost_by_are_told(error: Exception, kind: type[RunFailed]) -> None:
    given_up = _given_up("rollout actor 3", 4, error)
    assert type(given_up) is kind
    assert "rollout actor 3" in str(given_up) and type(error).__name__ in str(given_up)
    assert ("engine." in str(given_up)) == (kind is OutOfMemory)
