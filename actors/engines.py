"""Inference engines in separate Ray actors: the actor, and the policy through which rollout actors call it."""

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
from sparring.core.episode import Completion
from sparring.core.interfaces import EngineFailure, Policy, Sampling
from sparring.core.weights import PublishReceipt, WeightUpdate, check_receipt, joined


def publish_seconds() -> Histogram:
    return Histogram(
        "sparring_publish_seconds",
        "Seconds from the call to the proof that the new weights act.",
        [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
        ("actor", "policy"),
    )


@contextlib.contextmanager
def warnings_heard() -> Iterator[list[str]]:
    """Collects the warnings that the `actors` package logs inside the context."""
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())
    logger = logging.getLogger("actors")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)


class EngineRestarted(EngineFailure):
    """Ray has restarted the engine after its process ended: it has the weights that the run started with."""


class EngineShell:
    """An async Ray actor with one engine, which serves all rollout actors. If its process ends, Ray restarts it; it then
    generates nothing until the driver has published the current weights to it and called `go_on`."""

    def __init__(
        self, build: Callable[[], Mapping[str, Policy]], tolerances: Mapping[str, float], name: str
    ) -> None:
        """tolerances: by policy, the tolerance of the probe (`probe_tolerance` of the engine settings)."""
        self._tolerances, self._name = tolerances, name
        with warnings_heard() as self._warnings:
            self._policies = build()
        self._publish_seconds = publish_seconds()
        self._failure: str | None = None
        """The message of the error that ended the engine."""
        self._up_to_date = asyncio.Event()
        if not ray.is_initialized() or not ray.get_runtime_context().was_current_actor_reconstructed:
            self._up_to_date.set()

    def __repr__(self) -> str:
        """Returns the actor's name in Ray's dashboard."""
        return self._name

    async def ready(self) -> list[str]:
        """Returns the warnings that were logged during construction: Ray does not show an actor's log to the driver."""
        return self._warnings

    @ray.method(concurrency_group="health")
    async def alive(self) -> None:
        """Returns at once, also while completions are generated. Raises EngineFailure if the engine has ended, EngineRestarted if
        the engine waits for `go_on`."""
        self._require_going()
        if not self._up_to_date.is_set():
            raise EngineRestarted("its process ended, and Ray began it anew")

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
        """Replaces the policy's weights and verifies them. Raises PublishError."""
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
"""Time between two calls to an engine that was lost."""


class RemotePolicy:
    """A policy on an engine in a separate actor. The driver publishes weights to that actor and closes it."""

    def __init__(self, name: str, engine: Any) -> None:
        self._name, self._engine, self._version = name, engine, 0

    @property
    def version(self) -> int:
        """Policy version of the last completion."""
        return self._version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        """Generates a completion. If the engine ends meanwhile, the call is repeated until the driver has had it restarted.
        Raises RayActorError if the engine will not come back."""
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
        """Does nothing: no learner shares the engine's GPUs."""

    async def close(self) -> None:
        """Does nothing: other rollout actors may still use the engine."""
