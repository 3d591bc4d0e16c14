"""The Ray shell of the sandbox: worker actors on nodes with the resource `sandbox`, and the way to them."""

import contextlib
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from core.verdict import Limits, Verdict
from sandbox_workers.backends import Choice, Kind, choose_backend
from sandbox_workers.client import SandboxClient, WorkerLost
from sandbox_workers.jobs import Job, SandboxUnavailable
from sandbox_workers.worker import SandboxWorker

BATCHES_PER_WORKER = 4
START_TIMEOUT_S = 120.0
IDLE_S = 60.0
"""After as many seconds without jobs, a worker beyond the base closes its sandbox."""
RESTARTS = 100
"""Of one actor, over a run."""
_ACTOR: dict[str, Any] = {
    "num_cpus": 0,
    "resources": {"sandbox": 1},
    "max_restarts": RESTARTS,
    "max_concurrency": BATCHES_PER_WORKER + 1,
}


class SandboxShell:
    """A SandboxWorker as an actor. The choice is made here: nodes differ in what they can run."""

    def __init__(
        self,
        kind: Kind,
        runtime: str | None,
        slots: int,
        index: int,
        run_id: str,
        memory_mb: int,
        idle_s: float | None,
        trusted: bool,
    ) -> None:
        self._choice = choose_backend(kind, runtime, trusted=trusted)
        if self._choice.kind == "docker":
            from sandbox_workers.docker_backend import connect, remove_orphans

            with contextlib.closing(connect()) as client:
                remove_orphans(client)
        self._worker = SandboxWorker(
            partial(self._choice.open, slots=slots, index=index, run_id=run_id, memory_mb=memory_mb),
            idle_s=idle_s,
        )

    def choice(self) -> Choice:
        return self._choice

    def pid(self) -> int:
        return os.getpid()

    def judge(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        return self._worker.judge(jobs)

    def stats(self) -> dict[str, float]:
        stats = self._worker.stats()
        return {name: getattr(stats, name) for name in type(stats).__slots__}

    def close(self) -> None:
        self._worker.close()


SandboxActor: Any = ray.remote(SandboxShell)


class RayTransport:
    """Actors as workers: all judge batches; those beyond the base may be waiting for a node."""

    def __init__(self, actors: Sequence[Any], base: int, version: str) -> None:
        self._actors = list(actors)
        self._base = base
        self._version = version

    @property
    def size(self) -> int:
        return len(self._actors)

    @property
    def base(self) -> int:
        return self._base

    async def wait_ready(self, worker: int) -> None:
        try:
            choice = await self._actors[worker].choice.remote()
        except RayActorError as error:
            raise WorkerLost(f"sandbox worker {worker} does not start: {type(error).__name__}") from None
        if choice.version != self._version:
            raise WorkerLost(f"sandbox worker {worker} has another sandbox: {choice.description}")

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        try:
            return await self._actors[worker].judge.remote(jobs)
        except RayTaskError:  # raised by the worker: the caller's to see
            raise
        except RayError as error:
            raise WorkerLost(f"sandbox worker {worker} lost its answer: {type(error).__name__}") from None


class SandboxPool:
    """The running workers. `client()` gives what the games call, and travels to other actors."""

    def __init__(self, actors: Sequence[Any], base: int, choice: Choice, limits: Limits | None) -> None:
        self.actors = list(actors)
        self._base = base
        up_to = f" to {len(self.actors)}" if len(self.actors) > base else ""
        self.description = f"{base}{up_to} x {choice.description}"
        self._choice = choice
        self._limits = limits

    def client(self, *, cache_size: int = 100_000) -> SandboxClient:
        """A client of all workers, with a cache of its own."""
        transport = RayTransport(self.actors, self._base, self._choice.version)
        return SandboxClient(
            transport, version=self._choice.version, limits=self._limits, cache_size=cache_size
        )

    def stats(self) -> dict[str, float]:
        """Sums over the workers that answer: jobs, infrastructure_failures, backends_replaced, busy_s."""
        total: dict[str, float] = {}
        for actor in self.actors:
            try:
                stats: dict[str, float] = ray.get(actor.stats.remote(), timeout=10)
            except (RayActorError, GetTimeoutError):
                continue
            for name, value in stats.items():
                total[name] = total.get(name, 0) + value
        return total

    def shutdown(self) -> None:
        """Close the sandboxes, then end the actors; a sandbox whose worker does not answer ends with it."""
        closing = [actor.close.remote() for actor in self.actors]
        ray.wait(closing, num_returns=len(closing), timeout=15)
        for actor in self.actors:
            ray.kill(actor, no_restart=True)


def start_pool(
    size: int,
    *,
    max_size: int | None = None,
    kind: Kind = "auto",
    runtime: str | None = None,
    slots: int = 2,
    run_id: str,
    limits: Limits | None = None,
    trusted: bool = False,
) -> SandboxPool:
    """Start `size` workers of `slots` slots each and wait until all are ready.

    Up to `max_size` more join when their nodes are there (Ray's autoscaler sees their demand), start their sandbox
    when the first ones have too much to do, and close it when idle. `trusted`: see choose_backend.

    Raises:
        SandboxUnavailable: no node has the resource `sandbox`, or no sandbox can run there.
    """
    available = ray.cluster_resources().get("sandbox", 0)
    if available < size:
        raise SandboxUnavailable(
            f"{size} sandbox workers need as many units of the Ray resource 'sandbox', "
            f"the cluster has {available:g}: "
            f"ray start --resources '{{\"sandbox\": {size}}}'"
        )
    memory_mb = max(512, (limits or Limits()).memory_mb)
    actors = [
        SandboxActor.options(**_ACTOR).remote(
            kind, runtime, slots, index, run_id, memory_mb, None if index < size else IDLE_S, trusted
        )
        for index in range(max(size, max_size or 0))
    ]
    try:
        choices = ray.get([actor.choice.remote() for actor in actors[:size]], timeout=START_TIMEOUT_S)
    except (RayActorError, GetTimeoutError) as error:
        for actor in actors:
            ray.kill(actor, no_restart=True)
        cause = (
            str(error).strip().splitlines()[-1] if isinstance(error, RayActorError) else "no answer in time"
        )
        raise SandboxUnavailable(f"sandbox workers do not start: {cause}") from None
    if len({choice.version for choice in choices}) > 1:
        found = sorted({choice.description for choice in choices})
        for actor in actors:
            ray.kill(actor, no_restart=True)
        raise SandboxUnavailable(
            f"the nodes differ in their sandboxes; set the kind explicitly: {'; '.join(found)}"
        )
    return SandboxPool(actors, size, choices[0], limits)
