"""Where a run's wall-clock goes."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psutil

from core.tracing import Span


class Clock:
    """Gives every second since the process began to one of the run's parts: none is left over.

    Example:
        clock.lap("startup"); play(); clock.split({"sandbox": 1.5}, "rollout"); learn(); clock.lap("learn")
    """

    def __init__(self, now: Callable[[], float] = time.time, began: float | None = None) -> None:
        """began: when the first part did, by `now`; None: when this process did."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.listener: Callable[[Iterable[Span]], None] | None = None
        """Is told of each part as it ends."""
        self._now = now
        self._last = psutil.Process().create_time() if began is None else began

    @property
    def last(self) -> float:
        """When the last lap was, by `now`."""
        return self._last

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def lap(self, part: str) -> None:
        """What has passed since the last lap was `part`."""
        self.split({}, part)

    def split(self, parts: Mapping[str, float], rest: str, spans: Iterable[Span] = ()) -> None:
        """Of what has passed since the last lap, these parts took their seconds, and `rest` the others. spans: what
        went on meanwhile, for the listener."""
        now = self._now()
        if self.listener is not None:
            self.listener([(rest, self._last, now), *spans])
        for part, seconds in parts.items():
            self.seconds[part] += seconds
        self.seconds[rest] += now - self._last - sum(parts.values())
        self._last = now

    def since(self, mark: Mapping[str, float]) -> dict[str, float]:
        """Seconds by part since `mark`, an earlier copy of `seconds`; and their total."""
        passed = {part: seconds - mark.get(part, 0.0) for part, seconds in self.seconds.items()}
        return {part: s for part, s in passed.items() if s} | {"total": sum(passed.values())}

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"seconds": dict(self.seconds)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The seconds of a run's earlier half are its own, too."""
        for part, seconds in state["seconds"].items():
            self.seconds[part] += seconds
