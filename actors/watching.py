"""Waits for Ray actors that may die or hang. Ray reports an actor that has died, but never one that hangs."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray._private.state import actors, state
from ray.core.generated.gcs_pb2 import WorkerTableData  # pyright: ignore[reportAttributeAccessIssue]
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

LOOK_S = 5.0
"""Time between two checks whether a working actor is alive."""
SILENCE_S = 60.0
"""An actor that has not answered a call that takes no work within this time hangs."""
START_S = 1800.0
"""Maximum time for an actor to load its models. An actor that takes longer never will: its node is gone, or no node has the
resources that it needs."""
CLOSE_S = 20.0
"""Time for all actors together to close at the end of a run."""
REPLACEMENTS = 3
"""Maximum number of replacements of one actor in a run. If it is lost once more, the run ends with its last error."""
HEALTH: dict[str, Any] = {"concurrency_groups": {"health": 1}}
"""Ray options of an actor that can be watched: its method `alive` has a separate concurrency group, so that it answers while
the actor works."""


GONE = (ActorDiedError, OutOfMemoryError)
"""Errors of a call to an actor that will not come back. OutOfMemoryError: Ray's memory monitor killed it. Catch these to
give the actor up."""
DIED = (RayActorError, OutOfMemoryError)
"""Errors of a call to an actor that has died or cannot be reached for now; Ray may restart it. Catch these to ask again."""


class ActorHung(Exception):
    """An actor does not answer, and has not died."""


def answer(reference: Any, *watched: Any, meanwhile: Callable[[], None] = lambda: None) -> Any:
    """Returns the result of a call, however long it takes, as long as the watched actors are alive.

    Args:
        watched: the actors that the call needs.
        meanwhile: is called each time before the actors are checked.

    Raises:
        ActorHung: if a watched actor does not answer, and has not died.
        RayError: as ray.get does.
    """
    while not ray.wait([reference], timeout=LOOK_S)[0]:
        meanwhile()
        require_alive(watched)
    return ray.get(reference)


def require_alive(actors: Iterable[Any]) -> None:
    """Raises ActorHung if an actor does not answer, and one of DIED if an actor has died."""
    asked = {actor.alive.remote(): actor for actor in actors}
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=SILENCE_S)
    ray.get(answered)
    if silent:
        raise ActorHung(f"{asked[silent[0]]} has not answered for {SILENCE_S:g} s")


class ActorProcess(NamedTuple):
    """The process in which an actor runs now."""

    restarts: int
    """How often Ray has restarted the actor."""
    node: str
    pid: int

    def exit_detail(self) -> str:
        """Returns what Ray has noted about the end of this process, "" if nothing. The errors of calls to an actor that Ray
        restarts do not have it."""
        rows = map(WorkerTableData.FromString, state._connect_and_get_accessor().get_worker_table())
        own = (self.node, self.pid)
        return next(
            (row.exit_detail for row in rows if (row.worker_address.node_id.hex(), row.pid) == own), ""
        )


def process_of(actor: Any) -> ActorProcess | None:
    """Returns None if the actor has no process now."""
    known = actors(actor._actor_id.hex())
    if known.get("State") != "ALIVE":
        return None
    return ActorProcess(known["NumRestarts"], known["Address"]["NodeID"], known["Pid"])


def restarts_of(actor: Any) -> int:
    """Returns how often Ray has restarted an actor, or has begun to."""
    return int(actors(actor._actor_id.hex()).get("NumRestarts", 0))


def end(actor: Any, *, again: bool = False) -> None:
    """Ends an actor that may hang. Ray only asks the actor's process to end, and takes it for ended if it cannot connect to
    it. The process would then stay for ever, with its CPUs and GPUs, so it is killed as well. again: whether Ray restarts
    the actor."""
    known = actors(actor._actor_id.hex())
    ray.kill(actor, no_restart=not again)
    if known and (node := known["Address"]["NodeID"]):
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        ray.remote(num_cpus=0, max_retries=0)(_end_process).options(scheduling_strategy=there).remote(
            known["Pid"]
        )


def _end_process(pid: int) -> None:
    with contextlib.suppress(OSError):  # the process has ended already
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(pid, signal.SIGKILL)
