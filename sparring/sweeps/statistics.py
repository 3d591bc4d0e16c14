"""Statistics over the figures of several runs. Pure functions; sparring/evaluation/intervals.py has the intervals over seeds."""

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

from sparring.evaluation.intervals import Interval, interval

Curve = Sequence[tuple[int, float]]
"""(step, value), by step."""


def steps_to(curve: Curve, threshold: float, mode: str = "max") -> int | None:
    """Returns the first step at which the value is at least (mode min: at most) the threshold, or None."""
    sign = 1 if mode == "max" else -1
    return next((step for step, value in curve if sign * value >= sign * threshold), None)


def band(curves: Sequence[Curve]) -> list[tuple[int, Interval]]:
    """Returns (step, interval) for each step at which every curve has a value."""
    values = [dict(curve) for curve in curves]
    shared = sorted(set.intersection(*(set(of) for of in values))) if values else []
    return [(step, interval([of[step] for of in values])) for step in shared]


def thirds(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns the means of the first and of the last third, or None if there are fewer than two values."""
    if len(values) < 2:
        return None
    size = max(1, len(values) // 3)
    return statistics.fmean(values[:size]), statistics.fmean(values[-size:])


def falls(means: Sequence[float]) -> list[int]:
    """Returns the positions at which a mean is below the one before it; empty if performance never falls."""
    return [place for place, (low, high) in enumerate(pairwise(means), start=1) if high < low]


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Returns Pearson's correlation, or None if one of the two does not vary."""
    if len(xs) < 2 or len(set(xs)) < 2 or len(set(ys)) < 2:
        return None
    try:
        return max(-1.0, min(1.0, statistics.correlation(xs, ys)))
    except statistics.StatisticsError:  # they vary by less than floating-point precision
        return None


def correlation_range(r: float, n: int) -> tuple[float, float]:
    """Returns the 95% interval of a correlation of n pairs, by Fisher's transformation; (-1, 1) if n is below 4."""
    if n < 4:
        return -1.0, 1.0
    if abs(r) == 1:
        return r, r
    centre, width = math.atanh(r), 1.96 / math.sqrt(n - 3)
    return math.tanh(centre - width), math.tanh(centre + width)


def by_tag(tasks: Mapping[str, float], tags: Mapping[str, Sequence[str]]) -> dict[str, list[float]]:
    """Returns the tasks' figures by tag; a task without tags is left out."""
    found: dict[str, list[float]] = {}
    for task, value in tasks.items():
        for tag in tags.get(task, ()):
            found.setdefault(tag, []).append(value)
    return found
