"""What a person sees while a run goes on: one live line on a terminal, one line per step elsewhere."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

_COLUMNS = (("validity", "valid", ".2f"), ("kill_rate", "kill", ".2f"), ("tokens_per_s", "tok/s", ".0f"))
_REWARD = "_reward"


class Display:
    def __init__(self, console: Console, progress: Progress | None, task: TaskID | None, total: int) -> None:
        self._console, self._progress, self._task, self._total = console, progress, task, total

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def step(self, row: Mapping[str, Any]) -> None:
        """A step is done."""
        rewards = [
            f"{key.removesuffix(_REWARD)} {value:+.2f}"
            for key, value in row.items()
            if key.endswith(_REWARD) and value is not None
        ]
        figures = [
            f"{label} {row[key]:{style}}" for key, label, style in _COLUMNS if row.get(key) is not None
        ]
        stage = f"stage {row['stage']} " if row["stage"] else ""
        text = f"{stage}{row['phase']:<13} {' '.join(rewards + figures)}"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=row["step"], description=text)
        else:
            self.say(f"step {row['step']}/{self._total} {text} {row['seconds']['total']:.1f}s")

    def scores(self, title: str, scores: Mapping[str, float], shown: Sequence[str]) -> None:
        figures = ", ".join(f"{key.replace('_', ' ')} {scores[key]:.3f}" for key in shown)
        self.say(f"{title}: {figures} (held out)")

    def summary(self, before: Mapping[str, float], after: Mapping[str, float], shown: Sequence[str]) -> None:
        table = Table(title="held out", title_justify="left")
        for column in ("", "before", "after", "change"):
            table.add_column(column, justify="left" if not column else "right")
        for key in shown:
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


@contextmanager
def counter(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, nothing elsewhere; to be called after each part."""
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, disable=not sys.stdout.isatty()) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)
