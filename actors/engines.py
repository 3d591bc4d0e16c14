"""Engines in actors of their own: the Ray shell around what a rollout actor else holds itself, and how it is spoken to."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError
from ray.util.metrics import Histogram

from actors.watching import HEALTH, REPLACEMENTS
from core.episode import Completion
from core.interfaces import EngineFailure, Policy, Sampling
from core.weights import PublishReceipt, WeightUpdate, check_receipt, joined


def publish_seconds() -> Histogram:
    return Histogram(
        "sparring_publish_seconds",
        "Seconds from the call to the proof that the new weights act.",
        [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
        ("actor", "policy"),
    )


@contextlib.contextmanager
def warnings_heard() -> Iterator[list[str]]:
    """Those of this package, as they come."""
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())
    logger = logging.getLogger("actors")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)


class BegunAnew(EngineFailure):
    """By Ray, after its process had ended: it has the weights that the run started with."""


class EngineShell:
    """Async actor: one engine, for all rollout actors. Where it ends, Ray begins it anew; it generates once the driver has
    given it the weights that it should have, and said so."""

    def __init__(
        self, build: Callable[[], Mapping[str, Policy]], tolerances: Mapping[str, float], name: str
    ) -> None:
        """tolerances: of the probe, by policy."""
        self._tolerances, self._name = tolerances, name
        with warnings_heard() as self._warnings:
            self._policies = build()
        self._publish_seconds = publish_seconds()
        self._failure: str | None = None
        """What it ended by."""
        self._up_to_date = asyncio.Event()
        if not ray.is_initialized() or not ray.get_runtime_context().was_current_actor_reconstructed:
            self._up_to_date.set()

    def __repr__(self) -> str:
        """Its name in Ray's dashboard."""
        return self._name

    async def ready(self) -> list[str]:
        """What its parts warned of while they started: Ray keeps an actor's log to itself."""
        return self._warnings

    @ray.method(concurrency_group="health")
    async def alive(self) -> None:
        """Answers while it generates. Raises EngineFailure where it has ended, BegunAnew where it waits for `go_on`."""
        self._require_going()
        if not self._up_to_date.is_set():
            raise BegunAnew("its process ended, and Ray began it anew")

    async def go_on(self) -> None:
        self._up_to_date.set()

    async def generate(self, policy: str, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        await self._up_to_date.wait()
        self._require_going()
        with self._noting_its_end():
            return await self._policies[policy].generate(prompt_tokens, sampling)

    def _require_going(self) -> None:
        if self._failure is not None:
            raise EngineFailure(self._failure)

    @contextlib.contextmanager
    def _noting_its_end(self) -> Iterator[None]:
        try:
            yield
        except EngineFailure as error:
            self._failure = str(error)
            raise

    async def publish(self, policy: str, update: WeightUpdate) -> PublishReceipt:
        """Raises PublishError."""
        began = time.perf_counter()
        update = joined(update, await asyncio.gather(*update.parts))
        with self._noting_its_end():
            receipt = await self._policies[policy].load_weights(update)
        check_receipt(update, receipt, self._tolerances[policy])
        self._publish_seconds.observe(time.perf_counter() - began, {"actor": repr(self), "policy": policy})
        return receipt

    async def close(self) -> None:
        for policy in self._policies.values():
            await policy.close()


EngineActor: Any = ray.remote(**HEALTH, max_restarts=REPLACEMENTS)(EngineShell)
AGAIN_S = 1.0
"""Until an engine that is lost is asked again."""


class RemotePolicy:
    """A policy on an engine in an actor of its own. The driver publishes to that actor, and closes it."""

    def __init__(self, name: str, engine: Any) -> None:
        self._name, self._engine, self._version = name, engine, 0

    @property
    def version(self) -> int:
        """Of the last completion."""
        return self._version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        """Once more where the engine ends meanwhile: the driver sees to it. Raises RayActorError where it will not come back."""
        while True:
            try:
                completion = await self._engine.generate.remote(self._name, list(prompt_tokens), sampling)
            except (ActorUnavailableError, EngineFailure):
                await asyncio.sleep(AGAIN_S)
                continue
            self._version = completion.version
            return completion

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        return await self._engine.publish.remote(self._name, update)

    async def sleep(self) -> None:
        """No learner is on its GPUs."""

    async def close(self) -> None:
        """Others may speak to it."""
