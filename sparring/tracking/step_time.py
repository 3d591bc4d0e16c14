"""Reports once, after the first steps, which parts of a step take how much time."""

from collections import Counter
from collections.abc import Mapping

_AFTER = 3
"""Number of steps after which the line is shown."""
_WAITS = 0.25
"""If rollouts wait for the judge for at least this share of the time, the line says so."""
_NAMES = {
    "rollout": "rollouts",
    "sandbox": "waiting for the judge",
    "learn": "learning",
    "publish": "publishing",
}


class StepTime:
    def __init__(self, slots: int) -> None:
        """slots: the config key `sandbox.slots`."""
        self._slots = slots
        self._steps = 0
        self._seconds: Counter[str] = Counter()

    def add(self, seconds: Mapping[str, float]) -> str | None:
        """Adds the field `seconds` of a step's row. Returns a line for the user after the third step of this process, else
        None.

        Example: time of the first 3 steps: rollouts 52%, learning 41%, publishing 4%, waiting for the judge 3%
        """
        self._steps += 1
        self._seconds.update(seconds)
        total = self._seconds["total"]
        if self._steps != _AFTER or not total:
            return None
        shares = sorted(
            ((self._seconds[part] / total, name) for part, name in _NAMES.items() if self._seconds[part]),
            reverse=True,
        )
        line = f"time of the first {_AFTER} steps: " + ", ".join(f"{name} {s:.0%}" for s, name in shares)
        if self._seconds["sandbox"] / total >= _WAITS:
            line += f". Rollouts wait for the judge: raise sandbox.slots ({self._slots}), or add nodes"
        return line
