"""The rollout actor, a Ray actor around EpisodeRunner."""

from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray.util.metrics import Gauge

from actors.engines import warnings_heard
from actors.episodes import EpisodeRunner
from actors.settings import ENGINE_ENVIRONMENT
from actors.watching import HEALTH
from sparring.core.arrays import sealed
from sparring.core.play import PlayProgress, PlayRequest, PlayResult

REMEMBERED = 64
"""Number of requests whose progress an actor remembers. It exceeds the number of requests played at the same time."""


def runtime_env(device: str) -> dict[str, Any]:
    """Returns Ray's runtime environment for an actor that holds engines."""
    return {"env_vars": ENGINE_ENVIRONMENT if device == "cpu" else {"VLLM_LOGGING_LEVEL": "ERROR"}}


class RolloutShell:
    """An async Ray actor that plays many episodes at once on its engines."""

    def __init__(self, build: Callable[[int], EpisodeRunner], index: int = 0) -> None:
        self._index = index
        with warnings_heard() as self._warnings:
            self._runner = build(index)
        self._playing = 0
        self._progress: dict[Any, PlayProgress] = {}
        self._in_flight = Gauge(
            "sparring_problems_in_flight", "Problems whose episodes are being played.", ("actor",)
        )

    def __repr__(self) -> str:
        """Returns the actor's name in Ray's dashboard."""
        return f"rollout {self._index}"

    async def ready(self) -> list[str]:
        """Returns the warnings that were logged during construction: Ray does not show an actor's log to the driver."""
        return self._warnings

    @ray.method(concurrency_group="health")
    async def alive(self) -> None:
        """Returns at once, also while episodes are played."""

    @ray.method(concurrency_group="health")
    async def progress(self, key: Any) -> PlayProgress | None:
        """Returns the progress of the request with this key, also once it is done. None if it has not begun."""
        return self._progress.get(key)

    async def sleep(self) -> None:
        await self._runner.sleep()

    @ray.method(num_returns=2)
    async def play(self, request: PlayRequest) -> tuple[PlayResult, Any]:
        """Plays a request. The caller gets two references: to the result, and to the sealed transcripts."""
        key = request.key
        if len(self._progress) >= REMEMBERED:
            self._progress.pop(next(iter(self._progress)))
        self._count(len(request.problems))
        try:
            result, transcripts = await self._runner.play(request, partial(self._progress.__setitem__, key))
            return result, sealed(transcripts)
        finally:
            self._count(-len(request.problems))

    def _count(self, change: int) -> None:
        self._playing += change
        self._in_flight.set(self._playing, {"actor": repr(self)})

    async def close(self) -> None:
        await self._runner.close()


RolloutActor: Any = ray.remote(**HEALTH)(RolloutShell)
