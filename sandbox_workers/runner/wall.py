"""The wall clock of a test. It stands still while other processes have the CPU that the test's processes want."""

import time
from collections.abc import Iterable

from .child import Child
from .stop import Stop

PATIENCE = 3
"""Longest time to wait for a test, as a multiple of its limit."""
PAUSE_S = 0.5
"""Time by which the supervisor is hardly late on a busy machine, seconds."""
SMALL_DELAY = 0.1
"""Share of the limit. A test that waited less than this for a CPU was not delayed by it, so it is not retried."""


class Wall:
    """A clock that starts on construction.

    It stands still only if all processes are alone (Child.alone): what a program starts can take the CPU from it, and
    hide that it did.
    """

    def __init__(self, children: Iterable[Child], limit_s: float) -> None:
        self._limit_s = limit_s
        self.cpu_before = {child: child.cpu_s() for child in children}
        """CPU seconds of each child when the clock started."""
        self._delay_before = {child: child.delay_s for child in children}
        self._started = time.monotonic()

    def stand_still(self, late_s: float) -> None:
        """Takes notice of how much later than due the supervisor went on, seconds. If that is long, the whole machine may
        have been paused, and the test with it."""
        if late_s > PAUSE_S:
            self._started += late_s

    def left_s(self) -> float:
        """Returns the seconds until the limit is exceeded."""
        left = self._started + self._limit_s - time.monotonic()
        if left > 0:
            return left
        for child in self.cpu_before:
            child.look()
        return left + min(self._stolen_s(), (PATIENCE - 1) * self._limit_s)

    def expired(self) -> Stop:
        """Returns the stop that follows if no time is left."""
        error = f"more than {self._limit_s:g} s by the clock"
        not_begun = any(child.pid is None for child in self.cpu_before)
        if not_begun or self._stolen_s() >= (PATIENCE - 1) * self._limit_s:
            return Stop("SANDBOX_ERROR", f"{error}, while waiting for the CPU")
        return Stop("TIME_LIMIT", error, may_be_ours=self._delay_s() >= SMALL_DELAY * self._limit_s)

    def _delay_s(self) -> float:
        """Returns how long one of the processes has waited for a CPU, seconds."""
        return max(child.delay_s - before for child, before in self._delay_before.items())

    def _stolen_s(self) -> float:
        """Returns how much of that wait other processes caused, seconds. The test's processes may have waited for each
        other, but then one of them ran."""
        if not all(child.alone for child in self.cpu_before):
            return 0.0
        used_s = sum(child.cpu_s() - before for child, before in self.cpu_before.items())
        return max(0.0, self._delay_s() - used_s)
