"""Loads a model at its first request, and closes it when it has not been requested for a while.

At most `at_once` models are loaded. To load another one, the unused model that was used longest ago is closed; if all are in
use, the request waits. Models are loaded one after another. The module uses asyncio only; `start` defines what a model is.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class ClosableModel(Protocol):
    @property
    def dead(self) -> bool:
        """Whether the model can no longer answer; the next request then loads it again."""
        ...

    async def close(self) -> None: ...


L = TypeVar("L", bound=ClosableModel)


@dataclass(slots=True, eq=False)
class CachedModel(Generic[L]):
    loading: asyncio.Task[L]
    users: int = 0
    used: float = 0.0
    """Value of time.monotonic() when the last request ended."""

    @property
    def idle(self) -> bool:
        return not self.users and self.loading.done()

    @property
    def useless(self) -> bool:
        """Whether the model failed to load, or is dead."""
        task = self.loading
        return task.done() and (task.cancelled() or task.exception() is not None or task.result().dead)


class ModelCache(Generic[L]):
    """The loaded models. An async context manager, at whose end all models are closed."""

    def __init__(self, start: Callable[[str], Awaitable[L]], *, at_once: int, idle_s: float) -> None:
        self._start, self._at_once, self._idle_s = start, at_once, idle_s
        self._places: dict[str, CachedModel[L]] = {}
        self._room, self._load_one = asyncio.Lock(), asyncio.Lock()
        self._freed = asyncio.Event()

    def __contains__(self, name: str) -> bool:
        return name in self._places

    async def __aenter__(self) -> "ModelCache[L]":
        self._sweeper = asyncio.create_task(self._sweep())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sweeper.cancel()
        for place in self._places.values():
            place.loading.cancel()
        await asyncio.gather(*map(_close, self._places.values()))
        self._places.clear()

    @contextlib.asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[L]:
        """Yields the model, which is loaded if it is not. Raises what `start` raises; the next request then tries again."""
        place = self._places.get(name)
        # useless: it died while no request used it. locked: another model waits for room, and its turn comes first
        if place is None or place.useless or self._room.locked():
            place = await self._make(name)
        place.users += 1
        try:
            yield await asyncio.shield(place.loading)
        finally:
            place.users -= 1
            place.used = time.monotonic()
            if place.useless and self._places.get(name) is place:
                await asyncio.shield(_close(self._places.pop(name)))
            self._freed.set()

    async def _make(self, name: str) -> CachedModel[L]:
        async with self._room:
            if name in self._places and self._places[name].useless:
                await _closed(self._places.pop(name))
            if name not in self._places:
                while len(self._places) >= self._at_once:
                    idle = [(place.used, n) for n, place in self._places.items() if place.idle]
                    if idle:
                        await _closed(self._places.pop(min(idle)[1]))
                    else:
                        self._freed.clear()
                        await self._freed.wait()
                self._places[name] = CachedModel(asyncio.create_task(self._load(name)))
            return self._places[name]

    async def _load(self, name: str) -> L:
        async with self._load_one:
            try:
                return await self._start(name)
            finally:
                self._freed.set()  # the client may have disconnected, and the model is unused

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._idle_s))
            async with self._room:  # no model is loaded until the closed ones have freed their memory
                since = time.monotonic() - self._idle_s
                for name, place in list(self._places.items()):  # they may change while one is closed
                    if place.idle and place.used < since and self._places.get(name) is place:
                        await _close(self._places.pop(name))


async def _closed(place: CachedModel[L]) -> None:
    """Waits until the model is closed, even if the waiting task is cancelled: its memory is free only then."""
    closing, cancelled = asyncio.create_task(_close(place)), None
    while not closing.done():
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _close(place: CachedModel[L]) -> None:
    loaded = (await asyncio.gather(place.loading, return_exceptions=True))[0]
    if not isinstance(loaded, BaseException):
        try:
            await loaded.close()
        except Exception:  # a request for another model must not fail with it
            logging.getLogger(__name__).exception("a model could not be closed")
