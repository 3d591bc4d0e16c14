"""Derives difficulty from a model's pass rates, and selects the problems from which the model can learn."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from sparring.core.problem import Problem

_RATES = (0.2, 0.4, 0.6, 0.8)


def difficulty_from_pass_rate(rate: float) -> int:
    """Returns 1 for a pass rate of at least 0.8, 2 from 0.6, 3 from 0.4, 4 from 0.2, and 5 below. Raises ValueError if the
    rate is outside 0..1."""
    if not 0 <= rate <= 1:
        raise ValueError(f"a pass rate is between 0 and 1, not {rate}")
    return 5 - bisect_right(_RATES, rate)


def keep_learnable(problems: Sequence[Problem], pass_rates: Mapping[str, float]) -> list[Problem]:
    """Returns the problems that are solved sometimes, but not always.

    This is an offline filter: if all attempts earn the same reward, advantages are 0 and nothing is learnt. A problem
    without a pass rate is kept.
    """
    return [p for p in problems if 0 < pass_rates.get(p.id, 0.5) < 1]
