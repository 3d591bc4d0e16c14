"""Waiting for actors that may die, or be stopped without dying: Ray tells of the first, and never of the second."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ray
from ray._private.state import actors
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

LOOK_S = 5.0
"""Between two looks whether somebody who works is still there."""
SILENCE_S = 60.0
"""Who has not said within this that it is there, which takes no work, is stopped."""
START_S = 1800.0
"""Who has not loaded its models within this will not: its node is gone, or nobody has room."""
CLOSE_S = 20.0
"""For all actors together, at the end of a run."""
REPLACEMENTS = 3
"""Of one actor, over a run: what is lost again and again ends it, with its last words."""
HEALTH: dict[str, Any] = {"concurrency_groups": {"health": 1}}
"""Options of an actor that can be watched: its `alive` has a thread of its own, and answers while it works."""


GONE = (ActorDiedError, OutOfMemoryError)
"""Errors of a call to an actor that will not come back. OutOfMemoryError: Ray's memory monitor killed it. Catch these to
give the actor up."""
DIED = (RayActorError, OutOfMemoryError)
"""Errors of a call to an actor that has died or cannot be reached for now; Ray may restart it. Catch these to ask again."""


class Silent(Exception):
    """An actor that does not answer, and has not died."""


def answer(reference: Any, *watched: Any, meanwhile: Callable[[], None] = lambda: None) -> Any:
    """What a call comes to, however long it takes, while the actors that it needs are there. meanwhile: is called at each
    look.

    Raises:
        Silent: one of them is not, and has not died.
        RayError: as ray.get does.
    """
    while not ray.wait([reference], timeout=LOOK_S)[0]:
        meanwhile()
        require_alive(watched)
    return ray.get(reference)


def require_alive(actors: Iterable[Any]) -> None:
    """Raises Silent, and one of DIED where one has died."""
    asked = {actor.alive.remote(): actor for actor in actors}
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=SILENCE_S)
    ray.get(answered)
    if silent:
        raise Silent(f"{asked[silent[0]]} has not answered for {SILENCE_S:g} s")


def end(actor: Any, *, again: bool = False) -> None:
    """Of an actor that may be stopped. Ray asks its process to end, and takes it for ended where it cannot connect to it: it
    would be there for ever, with its CPUs and GPUs. again: Ray is to begin it anew."""
    known = actors(actor._actor_id.hex())
    ray.kill(actor, no_restart=not again)
    if known and (node := known["Address"]["NodeID"]):
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        ray.remote(num_cpus=0, max_retries=0)(_end_process).options(scheduling_strategy=there).remote(
            known["Pid"]
        )


def _end_process(pid: int) -> None:
    with contextlib.suppress(OSError):  # it has ended
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(pid, signal.SIGKILL)
