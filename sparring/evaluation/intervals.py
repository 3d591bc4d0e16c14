"""Means over seeds with 95% confidence intervals, and tables of them."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 0.975 quantile of Student's t distribution for 1 to 30 degrees of freedom."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    mean: float
    half_width: float
    """Half of the 95% confidence interval's width; infinite for one seed."""
    by_seed: Sequence[float]

    def __str__(self) -> str:
        digits = 3 if abs(self.mean) < 10 else 0
        return f"{self.mean:.{digits}f} ±{self.half_width:.{digits}f}"

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def interval(by_seed: Sequence[float]) -> Interval:
    """Returns the mean and its 95% confidence interval by Student's t, since the seeds are few."""
    n = len(by_seed)
    if n < 2:
        return Interval(mean=statistics.fmean(by_seed), half_width=float("inf"), by_seed=by_seed)
    t = _T_975[n - 2] if n - 2 < len(_T_975) else 1.96 + 2.4 / (n - 1)
    half_width = t * statistics.stdev(by_seed) / n**0.5
    return Interval(mean=statistics.fmean(by_seed), half_width=half_width, by_seed=by_seed)


def intervals(measured: Sequence[Mapping[str, float | None]]) -> dict[str, Interval]:
    """Returns the interval of each metric by name, over the seeds that have it. measured: the metrics of each seed."""
    known = {
        name: [value for of in measured if (value := of.get(name)) is not None]
        for of in measured
        for name in of
    }
    return {name: interval(by_seed) for name, by_seed in known.items() if by_seed}


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    print(f"\n{title}")
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
