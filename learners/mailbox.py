"""The mailbox between the driver and the Ray Train workers of one run. Imports no torch: its actor starts at once.

Batches and weights stay in Ray's object store, which may spill them to disk: the mailbox holds references, each in a list,
for Ray would fetch a bare one. It keeps a batch until a checkpoint beyond it is registered (`ray.train.report` returning does not mean that yet: only
the controller's callback does), for workers that replace dead ones to ask for it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ray
from ray import ObjectRef
from ray.util.metrics import Gauge

from core.batch import BatchSpec
from core.errors import RunFailed
from core.weights import WeightUpdate

if TYPE_CHECKING:
    import numpy as np

ANSWER_S = 20.0
"""Whoever waits for an answer has one by then, be it that there is none yet."""


class LearnerFailed(RunFailed):
    """The Ray Train run ended; it will not learn any more."""


Versions = dict[str, int]


class Mailbox:
    """Batches in, metrics and weights out, by policy. Every get waits on this side."""

    def __init__(self, name: str = "") -> None:
        """name: of the run."""
        self._name = name
        self._waiting = Gauge(
            "sparring_batches_kept",
            "Batches that wait for a learner, or for a checkpoint beyond them.",
            ("learner",),
        )
        self._changed = asyncio.Condition()
        self._batches: dict[tuple[str, int], list[ObjectRef[BatchSpec]]] = {}
        self._results: dict[str, tuple[int, Mapping[str, float], Any]] = {}
        self._saved: tuple[Versions, str] | None = None
        self._wanted: Versions | None = None
        """To be saved, before anybody learns beyond them."""
        self._stopped = False
        self._failure: RunFailed | None = None
        self._losses: list[str] = []
        """Of workers, which nobody has been told of yet."""
        self._halvings = 0
        """How often the workers that began last had to halve micro-batches."""
        self._kills = 0
        """Workers' ends for memory since then."""
        self._worker_pid = 0

    def __repr__(self) -> str:
        """Its name in Ray's dashboard."""
        return f"mailbox of {self._name}"

    async def put_batch(self, policy: str, step: int, batch: list[ObjectRef[BatchSpec]]) -> None:
        async with self._changed:
            self._batches[policy, step] = batch
            self._waiting.set(len(self._batches), {"learner": self._name})
            self._changed.notify_all()

    async def get_work(
        self, versions: Versions, saved: Versions | None
    ) -> tuple[str, list[ObjectRef[BatchSpec]]] | str | None:
        """For workers at these versions: the next (policy, batch), "save", or None to stop.

        saved: the versions that they have begun to save, or come from.
        """

        def work() -> tuple[str, list[ObjectRef[BatchSpec]]] | str | None:
            wanted = self._wanted if self._wanted != saved else None
            if wanted == versions:
                return "save"
            for policy, version in versions.items():
                first = wanted is not None and version == wanted[policy]
                if not first and (policy, version + 1) in self._batches:
                    return policy, self._batches[policy, version + 1]
            return None

        async with self._changed:
            await self._changed.wait_for(lambda: self._stopped or work() is not None)
            return work()

    async def put_part(self, part: Mapping[str, np.ndarray]) -> list[Any]:
        """Reference to a part of new weights, which is the mailbox's own: objects of a worker die with it."""
        return [ray.put(part)]

    async def put_result(self, policy: str, metrics: Mapping[str, float], update: WeightUpdate) -> None:
        """update: its tensors in parts that are here."""
        reference = ray.put(update)
        async with self._changed:
            self._results[policy] = update.version, metrics, reference
            self._changed.notify_all()

    async def get_result(self, policy: str, version: int) -> tuple[Mapping[str, float], list[Any]] | None:
        """None: not yet. Who asks is to ask again, and knows that somebody is here."""

        def there() -> bool:
            return policy in self._results and self._results[policy][0] == version

        async with self._changed:
            if not await self._within(lambda: self._failure is not None or there()):
                return None
            self._raise_failure()
            _, metrics, reference = self._results[policy]
            return metrics, [reference]

    async def _within(self, condition: Callable[[], bool]) -> bool:
        try:
            await asyncio.wait_for(self._changed.wait_for(condition), ANSWER_S)
        except TimeoutError:
            return False
        return True

    async def saved(self, versions: Versions, path: str) -> None:
        """A checkpoint is registered: batches up to it will never be asked for again."""
        async with self._changed:
            self._saved = versions, path
            if self._wanted == versions:
                self._wanted = None
            for policy, step in [key for key in self._batches if key[1] <= versions[key[0]]]:
                del self._batches[policy, step]
            self._waiting.set(len(self._batches), {"learner": self._name})
            self._changed.notify_all()

    async def want_save(self, versions: Versions) -> None:
        """Ask for a checkpoint of what the workers have learned when all batches that are here are done."""
        async with self._changed:
            if self._saved is None or self._saved[0] != versions:
                self._wanted = versions
                self._changed.notify_all()

    async def get_saved(self, versions: Versions) -> str | None:
        """Path of the checkpoint that want_save asked for, once it is registered; None: not yet, as in get_result."""

        def there() -> bool:
            return self._saved is not None and self._saved[0] == versions

        async with self._changed:
            if not await self._within(lambda: self._failure is not None or there()):
                return None
            if not there():
                self._raise_failure()
            assert self._saved is not None
            return self._saved[1]

    async def lost(self, by: str, *, for_memory: bool) -> None:
        """Workers ended, and others take their place; for_memory: they were killed for the memory that they used."""
        async with self._changed:
            self._losses.append(f"{by}; micro-batches are halved" if for_memory else by)
            self._kills += for_memory

    async def take_losses(self) -> list[str]:
        """Those since the last call."""
        taken, self._losses = self._losses, []
        return taken

    async def halvings(self, own: int) -> int:
        """How often workers that begin must have halved their micro-batches. own: how often the state that they begin from
        has."""
        self._halvings, self._kills = max(self._halvings, own) + self._kills, 0
        return self._halvings

    async def stop(self, failure: RunFailed | None = None) -> None:
        async with self._changed:
            self._stopped, self._failure = True, failure
            self._changed.notify_all()

    async def set_worker_pid(self, pid: int) -> None:
        self._worker_pid = pid

    async def get_worker_pid(self) -> int:
        """Process id of the worker of rank 0, for operators and fault tests."""
        return self._worker_pid

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


MailboxActor: Any = ray.remote(Mailbox)
