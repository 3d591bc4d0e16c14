"""Draws learning_curves.png from a run's metrics."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def plot_learning_curves(
    rows: Sequence[Mapping[str, Any]], path: Path, shown: Sequence[str], players: Sequence[str]
) -> None:
    """Draws the held-out scores named by `shown` on the left, and the players' training rewards on the right, by step.
    Stages are shaded."""
    from matplotlib.figure import Figure  # takes half a second; pyplot would need a display and keep state

    figure = Figure(figsize=(12, 4.5))
    held_out, training = figure.subplots(1, 2)
    evaluations = [row for row in rows if "held_out" in row]
    for key in shown:
        points = [(row["step"], row["held_out"][key]) for row in evaluations if key in row["held_out"]]
        held_out.plot(*zip(*points, strict=True), marker="o", label=key.replace("_", " "))
    held_out.set(title="held out", xlabel="step", ylim=(0, max(1, held_out.get_ylim()[1])))
    for player in players:
        key = f"{player}_reward"
        points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
        if points:
            training.plot(*zip(*points, strict=True), label=f"{player} reward", linewidth=1)
    training.set(title="training rewards (against a moving opponent)", xlabel="step")
    for axis in (held_out, training):
        _shade_stages(axis, rows)
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    draft = path.with_name(f".{path.name}.draft")
    figure.savefig(draft, dpi=120, format="png")
    os.replace(draft, path)  # so that a viewer never reads a half-written picture


def _shade_stages(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    for stage in sorted({row["stage"] for row in rows if row.get("stage")}):
        steps = [row["step"] for row in rows if row.get("stage") == stage]
        if stage % 2:
            axis.axvspan(min(steps) - 0.5, max(steps) + 0.5, color="0.93", zorder=0)
        axis.text(min(steps), axis.get_ylim()[1], f" stage {stage}", va="top", fontsize=7, color="0.4")
