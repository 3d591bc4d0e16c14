"""Plots of a sweep: learning curves with their intervals, and the settings beside each other."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparring.evaluation.intervals import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 12
"""Maximum number of settings in one plot of curves."""
Curves = Mapping[str, Mapping[str, Sequence[tuple[int, Interval]]]]


def learning_curves(curves: Curves, metric: str) -> "Figure":
    """Plots the result of reports.curves: validation on the left, training on the right, a line for each setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5))
    axes = dict(zip(("validation", "training"), figure.subplots(1, 2), strict=True))
    for setting, parts in list(curves.items())[:_MOST]:
        for part, axis in axes.items():
            if not parts[part]:
                continue
            steps = [step for step, _ in parts[part]]
            means = [found.mean for _, found in parts[part]]
            (line,) = axis.plot(steps, means, label=setting, marker="o" if part == "validation" else None)
            widths = [found.half_width if len(found.by_seed) > 1 else 0.0 for _, found in parts[part]]
            low, high = zip(*((m - w, m + w) for m, w in zip(means, widths, strict=True)), strict=True)
            axis.fill_between(steps, low, high, alpha=0.15, color=line.get_color())
    some = f" ({_MOST} of {len(curves)} settings)" if len(curves) > _MOST else ""
    axes["validation"].set(title=f"validation: {metric}{some}", xlabel="step")
    axes["training"].set(title="training: mean reward", xlabel="step")
    for axis in axes.values():
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7)
    figure.tight_layout()
    return figure


def settings_beside(after: Mapping[str, Interval], metric: str) -> "Figure":
    """Plots the metric of each setting with its interval, and each run as a dot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.2 + 0.35 * len(after)))
    axis = figure.subplots()
    for place, found in enumerate(after.values()):
        width = found.half_width if len(found.by_seed) > 1 else 0.0
        axis.errorbar(found.mean, place, xerr=width, fmt="o", capsize=4, color="C0")
        axis.plot(list(found.by_seed), [place] * len(found.by_seed), ".", color="0.6", zorder=0)
    axis.set_yticks(range(len(after)), labels=list(after))
    axis.set_ylim(len(after) - 0.5, -0.5)  # the first setting at the top, half a row of room at both ends
    axis.set(xlabel=metric, title=f"{metric}: mean, 95% interval, runs")
    axis.grid(alpha=0.3)
    figure.tight_layout()
    return figure
