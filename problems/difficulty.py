"""Difficulty from what a model solves, and the problems that it can learn from."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from core.problem import Problem

_RATES = (0.2, 0.4, 0.6, 0.8)


def difficulty_from_pass_rate(rate: float) -> int:
    """1 for a pass rate of at least 0.8, 2 from 0.6, 3 from 0.4, 4 from 0.2, 5 below. Raises ValueError outside 0..1."""
    if not 0 <= rate <= 1:
        raise ValueError(f"a pass rate is between 0 and 1, not {rate}")
    return 5 - bisect_right(_RATES, rate)


def keep_learnable(problems: Sequence[Problem], pass_rates: Mapping[str, float]) -> list[Problem]:
    """Problems that are neither never nor always solved.

    An offline filter: where all attempts fare alike, advantages are 0 and nothing is learnt. A problem without a
    rate is kept.
    """
    return [p for p in problems if 0 < pass_rates.get(p.id, 0.5) < 1]
