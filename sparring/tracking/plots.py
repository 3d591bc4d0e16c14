"""Draws learning_curves.png from a run's metrics."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]


def plot_learning_curves(rows: Rows, path: Path, shown: Sequence[str], players: Sequence[str]) -> None:
    """Writes the picture of `learning_curves`."""
    save_figure(learning_curves(rows, shown, players), path)


def save_figure(figure: "Figure", path: Path) -> None:
    draft = path.with_name(f".{path.name}.draft")
    figure.savefig(draft, dpi=120, format="png")
    os.replace(draft, path)  # so that a viewer never reads a half-written picture


def learning_curves(rows: Rows, shown: Sequence[str], players: Sequence[str]) -> "Figure":
    """Draws the held-out scores named by `shown` on the left, and the players' training rewards on the right, by step.
    Every second stage is shaded."""
    from matplotlib.figure import Figure  # takes half a second; pyplot would need a display and keep state

    figure = Figure(figsize=(12, 4.5))
    held_out, training = figure.subplots(1, 2)
    evaluations = [row for row in rows if "held_out" in row]
    for key in shown:
        points = [(row["step"], row["held_out"][key]) for row in evaluations if key in row["held_out"]]
        if points:
            held_out.plot(*zip(*points, strict=True), marker="o", label=key.replace("_", " "))
    held_out.set(title="held out", xlabel="step", ylim=(0, max(1, held_out.get_ylim()[1])))
    for player in players:
        key = f"{player}_reward"
        points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
        if points:
            training.plot(*zip(*points, strict=True), label=f"{player} reward", linewidth=1)
    training.set(title="training rewards (against a moving opponent)", xlabel="step")
    for axis in (held_out, training):
        axis.xaxis.get_major_locator().set_params(integer=True)
        _shade_stages(axis, rows)
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    return figure


def _shade_stages(axis: Any, rows: Rows) -> None:
    inside = axis.get_xaxis_transform()  # y from 0 at the lower frame to 1 at the upper one
    for index, stage in enumerate(sorted({row["stage"] for row in rows if row.get("stage")})):
        steps = [row["step"] for row in rows if row.get("stage") == stage]
        if index % 2 == 0:
            axis.axvspan(min(steps) - 0.5, max(steps) + 0.5, color="0.93", zorder=0)
        axis.text(min(steps), 0.98, f" stage {stage}", va="top", fontsize=7, color="0.4", transform=inside)
