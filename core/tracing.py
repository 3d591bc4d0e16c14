"""Where the time of concurrent work goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

Span = tuple[str, float, float]
"""What went on, from when to when, in seconds of time.time()."""


class Occupancy:
    """Wall-clock seconds in which at least one piece of work of a kind was in flight.

    Kinds have an order; a moment counts for the first kind that is busy, so the seconds add up to busy time.
    """

    def __init__(self, *kinds: str) -> None:
        self._running = dict.fromkeys(kinds, 0)
        self._seconds = dict.fromkeys(kinds, 0.0)
        self._since = time.perf_counter()
        self._epoch = time.time() - self._since
        self._spans: list[Span] = []

    @contextmanager
    def working(self, kind: str) -> Iterator[None]:
        self._settle()
        self._running[kind] += 1
        try:
            yield
        finally:
            self._settle()
            self._running[kind] -= 1

    def take(self) -> dict[str, float]:
        """Seconds by kind since the last take."""
        self._settle()
        seconds, self._seconds = self._seconds, dict.fromkeys(self._seconds, 0.0)
        return seconds

    def take_spans(self) -> list[Span]:
        """The same as stretches of time."""
        self._settle()
        spans, self._spans = self._spans, []
        return spans

    def _settle(self) -> None:
        now = time.perf_counter()
        busy = next((kind for kind, count in self._running.items() if count), None)
        if busy is not None:
            self._seconds[busy] += now - self._since
            began, ended = self._epoch + self._since, self._epoch + now
            if self._spans and self._spans[-1][0] == busy and self._spans[-1][2] == began:
                began = self._spans.pop()[1]
            self._spans.append((busy, began, ended))
        self._since = now
