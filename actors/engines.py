"""Inference engines in separate Ray actors: the actor, and the policy through which rollout actors call it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError

from actors.loading import LocalPolicy
from actors.watching import HEALTH, REPLACEMENTS
from sparring.core.episode import Completion
from sparring.core.interfaces import EngineFailure, Sampling
from sparring.core.weights import PublishReceipt, Weights


@contextlib.contextmanager
def warnings_heard() -> Iterator[list[str]]:
    """Collects the warnings that the `actors` package logs inside the context."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("actors")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


class EngineShell:
    """An async Ray actor with one engine, which serves all rollout actors. If its process ends, Ray restarts it, and it has the
    weights that it started with until rollout actors ask it to load others."""

    def __init__(self, build: Callable[[], Mapping[str, LocalPolicy]], name: str) -> None:
        with warnings_heard() as self._warnings:
            self._policies = build()
        self._name = name
        self._failure: str | None = None
        """The message of the error that ended the engine."""

    def __repr__(self) -> str:
        """Returns the actor's name in Ray's dashboard."""
        return self._name

    async def ready(self) -> list[str]:
        """Returns the warnings that were logged during construction: Ray does not show an actor's log to the driver."""
        return self._warnings

    @ray.method(concurrency_group="health")
    async def alive(self) -> None:
        """Returns at once, also while completions are generated. Raises EngineFailure if the engine has ended."""
        if self._failure is not None:
            raise EngineFailure(self._failure)

    async def generate(
        self, policy: str, order: int, prompt_tokens: Sequence[int], sampling: Sampling
    ) -> Completion:
        """Generates one completion. Raises EngineFailure if the engine has ended, or has restarted and not yet loaded weights
        for a request with this order or a later one (PlayRequest.order)."""
        if self._policies[policy].order < order:
            raise EngineFailure("Ray has restarted its process, and its weights are not loaded yet")
        with self._noting_its_end():
            return await self._policies[policy].generate(prompt_tokens, sampling)

    async def load(self, policy: str, weights: Weights | None, order: int) -> PublishReceipt | None:
        """See RolloutPolicy.load. The first of the rollout actors that name new weights has them loaded for all."""
        with self._noting_its_end():
            return await self._policies[policy].load(weights, order)

    @contextlib.contextmanager
    def _noting_its_end(self) -> Iterator[None]:
        """Raises EngineFailure if the engine has ended, now or before."""
        if self._failure is not None:
            raise EngineFailure(self._failure)
        try:
            yield
        except EngineFailure as error:
            self._failure = str(error)
            raise

    async def close(self) -> None:
        for policy in self._policies.values():
            await policy.close()


EngineActor: Any = ray.remote(**HEALTH, max_restarts=REPLACEMENTS)(EngineShell)
AGAIN_S = 1.0
"""Time between two calls to an engine that was lost."""


class RemotePolicy:
    """A policy on an engine in a separate actor, which the driver watches and closes. If the engine ends during a call, the
    call is repeated until the engine has been restarted, and has loaded the weights that it was last asked to load. Calls
    raise RayActorError if the engine will not come back."""

    def __init__(self, name: str, engine: Any) -> None:
        self._name, self._engine, self._version = name, engine, 0
        self._wanted: tuple[Weights | None, int] = (None, -1)
        """The arguments of the last `load`."""
        self._order = -1
        """The order up to which the engine has loaded weights."""

    @property
    def version(self) -> int:
        """Policy version of the last completion."""
        return self._version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        completion = await self._answer("generate", self._order, list(prompt_tokens), sampling)
        self._version = completion.version
        return completion

    async def load(self, weights: Weights | None, order: int) -> PublishReceipt | None:
        """See RolloutPolicy.load."""
        self._wanted = max((weights, order), self._wanted, key=itemgetter(1))
        receipt = await self._answer("load", weights, order)
        self._order = max(order, self._order)
        return receipt

    async def _answer(self, method: str, *arguments: Any) -> Any:
        while True:
            with contextlib.suppress(ActorUnavailableError, EngineFailure):
                return await getattr(self._engine, method).remote(self._name, *arguments)
            await asyncio.sleep(AGAIN_S)
            with contextlib.suppress(ActorUnavailableError, EngineFailure):
                await self._engine.load.remote(self._name, *self._wanted)

    async def sleep(self) -> None:
        """Does nothing: no learner shares the engine's GPUs."""

    async def close(self) -> None:
        """Does nothing: other rollout actors may still use the engine."""
