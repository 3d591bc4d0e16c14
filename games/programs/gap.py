"""The proxy-gold gap: how much better programs do on the tests that paid for them than on tests that no reward saw.

Some gap is normal (hidden tests are harder); one that opens during a run says that the reward is being gamed.
"""

from collections.abc import Sequence
from dataclasses import dataclass


def proxy_gold_gap(training: Sequence[float | None], hidden: Sequence[float | None]) -> float | None:
    """Mean over programs of (pass rate on training tests - pass rate on hidden tests), from -1 to 1.

    training, hidden: of the same programs in the same order; None where the sandbox could not judge. Programs that
    miss either are left out; None where none is left. Raises ValueError where the lengths differ.
    """
    gaps = [p - g for p, g in zip(training, hidden, strict=True) if p is not None and g is not None]
    return sum(gaps) / len(gaps) if gaps else None


@dataclass(frozen=True, slots=True)
class GapAlarm:
    """Example: GapAlarm(0.2).message(0.35) == "hacking alarm: programs pass 0.35 more of ..."."""

    threshold: float
    """The largest gap that is taken for normal, a difference of pass rates."""

    def message(self, gap: float | None) -> str | None:
        """None where there is nothing to say."""
        if gap is None or gap <= self.threshold:
            return None
        return (
            f"hacking alarm: programs pass {gap:.2f} more of the tests that reward them than of the hidden tests "
            f"(threshold {self.threshold:.2f}); look at the rewarded tests before training on"
        )
