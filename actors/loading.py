"""A policy whose engine is in this process, and which loads the weights that a request names."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from sparring.core.episode import Completion
from sparring.core.interfaces import Actor, Policy, Sampling
from sparring.core.weights import PublishReceipt, Weights, WeightUpdate, check_receipt, joined


class RolloutPolicy(Actor, Protocol):
    """A policy on one engine, as an EpisodeRunner plays with it."""

    async def load(self, weights: Weights | None, order: int) -> PublishReceipt | None:
        """Has the engine load the weights unless it has them, and verifies them. Requests that are being played go on with
        the new weights.

        Args:
            weights: None: the engine keeps the weights that it started with.
            order: PlayRequest.order. Weights of an earlier request than the last one are not loaded any more.

        Returns the receipt of the weights that the engine has, or None if these are the ones that it started with. Raises
        PublishError if the verification fails.
        """
        ...

    async def sleep(self) -> None: ...

    async def close(self) -> None: ...


class LocalPolicy:
    """A policy whose engine is in this process."""

    def __init__(self, policy: Policy, tolerance: float) -> None:
        """tolerance: of the probe's log-probabilities (`probe_tolerance` of the engine settings)."""
        self._policy, self._tolerance = policy, tolerance
        self._receipt: PublishReceipt | None = None
        """The receipt of the weights that the engine has."""
        self.order = -1
        """PlayRequest.order of the last request whose weights the engine has; -1: of none."""
        self._lock = asyncio.Lock()

    @property
    def version(self) -> int:
        return self._policy.version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        return await self._policy.generate(prompt_tokens, sampling)

    async def load(self, weights: Weights | None, order: int) -> PublishReceipt | None:
        """See RolloutPolicy.load."""
        async with self._lock:
            if order < self.order:
                return self._receipt
            if weights is not None and (self._receipt is None or self._receipt.version != weights.version):
                self._receipt = None  # if this fails, the engine may have some of the new weights
                update = await _fetched(weights.update)
                receipt = await self._policy.load_weights(update)
                check_receipt(update, receipt, self._tolerance)
                self._receipt = receipt
            self.order = order
            return self._receipt

    async def sleep(self) -> None:
        await self._policy.sleep()

    async def close(self) -> None:
        await self._policy.close()


async def _fetched(update: Any) -> WeightUpdate:
    """Returns the update with its tensors. update: the update, or an awaitable reference to it, as its parts are."""
    if not isinstance(update, WeightUpdate):
        update = await update
    return joined(update, await asyncio.gather(*update.parts)) if update.parts else update
