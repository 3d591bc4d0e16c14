"""The mailbox between the driver and the Ray Train workers of one run. Imports no torch, so its actor starts at once.

Batches and weights stay in Ray's object store, which may spill them to disk. The mailbox holds references, each in a
list, because Ray would fetch a bare reference. It keeps each batch until a checkpoint that includes the batch is
registered, so that workers that replace dead ones can request it again. When `ray.train.report` returns, the checkpoint
may not be registered yet; only the controller's callback confirms it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ray
from ray import ObjectRef
from ray.util.metrics import Gauge

from sparring.core.batch import BatchSpec
from sparring.core.errors import RunFailed
from sparring.core.weights import WeightUpdate

if TYPE_CHECKING:
    import numpy as np

ANSWER_S = 20.0
"""Maximum time in seconds until a caller that waits gets an answer, which may be None: there is no result yet."""


class LearnerFailed(RunFailed):
    """The Ray Train run has ended and will not learn any more."""


Versions = dict[str, int]


class Mailbox:
    """Takes batches, and returns metrics and weights, by policy. A method that gets something waits within the actor until it is there."""

    def __init__(self, name: str = "") -> None:
        """Creates an empty mailbox. `name` is the name of the run."""
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
        """Versions that the workers must save before they learn from later batches."""
        self._stopped = False
        self._failure: RunFailed | None = None
        self._losses: list[str] = []
        """Descriptions of lost workers that take_losses has not returned yet."""
        self._halvings = 0
        """Number of micro-batch halvings with which the newest workers began."""
        self._ends_for_memory = 0
        """Number of times since then that workers ended because memory ran out."""
        self._limits: dict[str, int] = {}

    def __repr__(self) -> str:
        """Returns the name that Ray's dashboard shows."""
        return f"mailbox of {self._name}"

    async def put_batch(self, policy: str, step: int, batch: list[ObjectRef[BatchSpec]]) -> None:
        async with self._changed:
            self._batches[policy, step] = batch
            self._waiting.set(len(self._batches), {"learner": self._name})
            self._changed.notify_all()

    async def get_work(
        self, versions: Versions, saved: Versions | None
    ) -> tuple[str, list[ObjectRef[BatchSpec]]] | str | None:
        """Returns the next (policy, batch) for workers at these versions, "save", or None to stop.

        Args:
            versions: Present versions of the workers.
            saved: Versions that the workers have begun to save, or with which they began.
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
        """Stores a part of new weights and returns a reference to it. The mailbox owns the object, because the objects
        of a worker die with the worker."""
        return [ray.put(part)]

    async def put_result(self, policy: str, metrics: Mapping[str, float], update: WeightUpdate) -> None:
        """Stores the result of an update. put_part has stored the tensors of `update` before, in parts."""
        reference = ray.put(update)
        async with self._changed:
            self._results[policy] = update.version, metrics, reference
            self._changed.notify_all()

    async def get_result(self, policy: str, version: int) -> tuple[Mapping[str, float], list[Any]] | None:
        """Returns (metrics, [reference to the WeightUpdate]), or None if there is no result yet. After None the caller
        asks again; the answer shows that the mailbox is alive."""

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
        """Records that a checkpoint is registered. Batches up to it will never be requested again."""
        async with self._changed:
            self._saved = versions, path
            if self._wanted == versions:
                self._wanted = None
            for policy, step in [key for key in self._batches if key[1] <= versions[key[0]]]:
                del self._batches[policy, step]
            self._waiting.set(len(self._batches), {"learner": self._name})
            self._changed.notify_all()

    async def want_save(self, versions: Versions) -> None:
        """Requests a checkpoint at these versions. The workers save it when they have reached them, before they learn
        from later batches."""
        async with self._changed:
            if self._saved is None or self._saved[0] != versions:
                self._wanted = versions
                self._changed.notify_all()

    async def get_saved(self, versions: Versions) -> str | None:
        """Returns the path of the checkpoint that want_save requested once it is registered, or None if it is not
        registered yet (see get_result)."""

        def there() -> bool:
            return self._saved is not None and self._saved[0] == versions

        async with self._changed:
            if not await self._within(lambda: self._failure is not None or there()):
                return None
            if not there():
                self._raise_failure()
            assert self._saved is not None
            return self._saved[1]

    async def lost(self, by: str, *, for_memory: bool, limits: Mapping[str, int] = {}) -> None:
        """Records that workers ended and that others replace them.

        Args:
            by: Why they ended.
            for_memory: Whether they ended because memory ran out, and did not say at what.
            limits: Maximum number of tokens of the next workers' micro-batches, by policy.
        """
        async with self._changed:
            self._losses.append(f"{by}; micro-batches are halved" if for_memory or limits else by)
            for policy, tokens in limits.items():
                self._limits[policy] = min(tokens, self._limits.get(policy, tokens))
            self._ends_for_memory += for_memory

    async def take_losses(self) -> list[str]:
        """Returns the losses since the last call."""
        taken, self._losses = self._losses, []
        return taken

    async def halvings(self, own: int) -> int:
        """Returns how often workers that begin must have halved their micro-batches.

        Args:
            own: Number of halvings in the state that they begin with.
        """
        self._halvings, self._ends_for_memory = max(self._halvings, own) + self._ends_for_memory, 0
        return self._halvings

    async def limits(self) -> dict[str, int]:
        """Returns the maximum numbers of tokens of micro-batches, by policy, that `lost` was told of."""
        return self._limits

    async def stop(self, failure: RunFailed | None = None) -> None:
        async with self._changed:
            self._stopped, self._failure = True, failure
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


MailboxActor: Any = ray.remote(Mailbox)
