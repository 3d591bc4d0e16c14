"""Waiting for actors that may die, or be stopped without dying: Ray tells of the first, and never of the second."""

from collections.abc import Iterable
from typing import Any

import ray

LOOK_S = 5.0
"""Between two looks whether somebody who works is still there."""
SILENCE_S = 60.0
"""Who has not said within this that it is there, which takes no work, is stopped."""
START_S = 1800.0
"""Who has not loaded its models within this will not: its node is gone, or nobody has room."""
REPLACEMENTS = 3
"""Of one actor, over a run: what is lost again and again ends it, with its last words."""
HEALTH: dict[str, Any] = {"concurrency_groups": {"health": 1}}
"""Options of an actor that can be watched: its `alive` has a thread of its own, and answers while it works."""


class Silent(Exception):
    """An actor that does not answer, and has not died."""


def in_words(error: Exception) -> str:
    """What became of an actor, without Ray's advice."""
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {(str(cause).strip().splitlines() or [''])[0]}"


def answer(reference: Any, *watched: Any) -> Any:
    """What a call comes to, however long it takes, while the actors that it needs are there.

    Raises:
        Silent: one of them is not, and has not died.
        RayError: as ray.get does.
    """
    while not ray.wait([reference], timeout=LOOK_S)[0]:
        require_alive(watched)
    return ray.get(reference)


def require_alive(actors: Iterable[Any]) -> None:
    """Raises Silent, and RayActorError where one has died."""
    asked = {actor.alive.remote(): actor for actor in actors}
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=SILENCE_S)
    ray.get(answered)
    if silent:
        raise Silent(f"{asked[silent[0]]} has not answered for {SILENCE_S:g} s")
