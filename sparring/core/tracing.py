"""Measures the time that concurrent work takes, by kind of work."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

Span = tuple[str, float, float]
"""(name of the work, begin, end), in seconds of time.time()."""


class BusyTimer:
    """Records the spans of time in which at least one piece of work of a kind was in flight.

    If several kinds are busy at the same time, the time counts for the first of them in the order of `kinds`, so spans do
    not overlap.
    """

    def __init__(self, *kinds: str) -> None:
        self._running = dict.fromkeys(kinds, 0)
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

    def spans(self) -> list[Span]:
        """Returns the spans in order of time. A span's name is its kind."""
        self._settle()
        return list(self._spans)

    def _settle(self) -> None:
        now = time.perf_counter()
        busy = next((kind for kind, count in self._running.items() if count), None)
        if busy is not None:
            began, ended = self._epoch + self._since, self._epoch + now
            if self._spans and self._spans[-1][0] == busy and self._spans[-1][2] == began:
                began = self._spans.pop()[1]
            self._spans.append((busy, began, ended))
        self._since = now


def seconds_of(kind: str, spans: Iterable[Span], since: float = 0.0) -> float:
    """Returns the seconds after `since` in which work of a kind was in flight. If several places did such work, returns the
    maximum over the places.

    Spans are named by the kind or by "place: kind". They may overlap; overlapping time of one place is counted once.
    """
    seconds: dict[str, float] = defaultdict(float)
    until: dict[str, float] = defaultdict(lambda: since)
    for name, began, ended in sorted(spans, key=lambda span: span[1]):
        if name == kind or name.endswith(f": {kind}"):
            seconds[name] += max(0.0, ended - max(began, until[name]))
            until[name] = max(ended, until[name])
    return max(seconds.values(), default=0.0)
