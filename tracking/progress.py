"""What a person sees while a run goes on: one live line on a terminal, one line per step elsewhere."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

_COLUMNS = (
    ("generator_reward", "G", ".2f"),
    ("discriminator_reward", "D", ".2f"),
    ("validity", "valid", ".2f"),
    ("kill_rate", "kill", ".2f"),
    ("tokens_per_s", "tok/s", ".0f"),
)


class Display:
    def __init__(self, console: Console, progress: Progress | None, task: TaskID | None, total: int) -> None:
        self._console, self._progress, self._task, self._total = console, progress, task, total

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def step(self, row: Mapping[str, Any]) -> None:
        """A step is done."""
        figures = " ".join(
            f"{label} {row[key]:{style}}" for key, label, style in _COLUMNS if row.get(key) is not None
        )
        text = f"stage {row['stage']} {row['phase']:<13} {figures}"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=row["step"], description=text)
        else:
            self.say(f"step {row['step']}/{self._total} {text} {row['seconds']['total']:.1f}s")

    def scores(self, title: str, scores: Mapping[str, float]) -> None:
        self.say(
            f"{title}: generator pass rate {scores['generator_pass_rate']:.3f}, "
            f"test validity {scores['test_validity']:.3f}, kill rate {scores['kill_rate']:.3f} (held out)"
        )

    def summary(self, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        table = Table(title="held-out problems", title_justify="left")
        for column in ("", "before", "after", "change"):
            table.add_column(column, justify="left" if not column else "right")
        for key in ("generator_pass_rate", "test_validity", "kill_rate"):
            change = after[key] - before[key]
            table.add_row(key.replace("_", " "), f"{before[key]:.3f}", f"{after[key]:.3f}", f"{change:+.3f}")
        self._console.print(table)


@contextmanager
def display(total: int, done: int) -> Iterator[Display]:
    """total: steps of the run; done: steps that a checkpoint already has."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    if not sys.stdout.isatty():
        yield Display(console, None, None, total)
        return
    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=total, completed=done)
        yield Display(console, progress, task, total)
