"""Attributes a run's wall-clock time to its parts."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psutil

from sparring.core.tracing import Span


class Clock:
    """Assigns every second since the start of the process to exactly one part of the run.

    Example:
        clock.lap("startup"); play(); clock.split({"sandbox": 1.5}, "rollout"); learn(); clock.lap("learn")
    """

    def __init__(self, now: Callable[[], float] = time.time, began: float | None = None) -> None:
        """began: start of the first part, as a time of `now`. Default: start of this process."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.listener: Callable[[Iterable[Span]], None] | None = None
        """Optional: is called with the spans of each part when the part ends."""
        self._now = now
        self._last = psutil.Process().create_time() if began is None else began

    @property
    def last(self) -> float:
        """Returns the time of the last lap, as a time of `now`."""
        return self._last

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def lap(self, part: str) -> None:
        """Assigns the time since the last lap to `part`."""
        self.split({}, part)

    def split(self, parts: Mapping[str, float], rest: str, spans: Iterable[Span] = ()) -> None:
        """Divides the time since the last lap: `parts` get the given seconds, `rest` gets the remaining time.

        Args:
            spans: passed on to the listener, besides the span of `rest`.
        """
        now = self._now()
        if self.listener is not None:
            self.listener([(rest, self._last, now), *spans])
        for part, seconds in parts.items():
            self.seconds[part] += seconds
        self.seconds[rest] += now - self._last - sum(parts.values())
        self._last = now

    def since(self, mark: Mapping[str, float]) -> dict[str, float]:
        """Returns the seconds per part since `mark`, an earlier copy of `seconds`, and their total."""
        passed = {part: seconds - mark.get(part, 0.0) for part, seconds in self.seconds.items()}
        return {part: s for part, s in passed.items() if s} | {"total": sum(passed.values())}

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain JSON."""
        return {"seconds": dict(self.seconds)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Adds the seconds that the run took before it was resumed."""
        for part, seconds in state["seconds"].items():
            self.seconds[part] += seconds
