"""What a person sees while a run goes on: one live line on a terminal, elsewhere one line per step and, where nothing
else is said, one every few seconds. All of it goes into the run's log, too."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from tracking.run_log import shown

_COLUMNS = (("validity", "valid", ".2f"), ("kill_rate", "kill", ".2f"), ("tokens_per_s", "tok/s", ".0f"))
_REWARD = "_reward"
_SILENCE_S = 15.0
"""After so long without a line, a pipe is told what is going on."""
_LOOK_S = 1.0


def say(text: str) -> None:
    """For what is said where no display is at hand."""
    print(text, flush=True)
    shown.info(text)


class Display:
    def __init__(
        self,
        console: Console,
        progress: Progress | None = None,
        task: TaskID | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """progress, task: the live line of a terminal."""
        self._console, self._progress, self._task, self._clock = console, progress, task, clock
        self._total = 0
        self._phase = "starting"
        self._phase_began = self._spoke = clock()

    def begin(self, total: int, done: int) -> None:
        """total: steps of the run; done: steps that a checkpoint already has."""
        self._total = total
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=total, completed=done, description="")

    def phase(self, name: str) -> None:
        """What is going on from now on, such as "step 12: rollout"."""
        self._phase, self._phase_began = name, self._clock()
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, phase=name)

    def beat(self) -> None:
        """Called every second or so where there is no live line: breaks a long silence."""
        now = self._clock()
        if now - self._spoke >= _SILENCE_S:
            self.say(f"… {self._phase}, {now - self._phase_began:.0f} s")

    def say(self, text: str) -> None:
        self._spoke = self._clock()
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)
        shown.info(text)

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
        line = f"step {row['step']}/{self._total} {text} {row['seconds']['total']:.1f}s"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=row["step"], description=text)
            shown.info(line)
        else:
            self.say(line)

    def scores(self, title: str, scores: Mapping[str, float], keys: Sequence[str]) -> None:
        figures = ", ".join(f"{key.replace('_', ' ')} {scores[key]:.3f}" for key in keys)
        self.say(f"{title}: {figures} (held out)")

    def summary(self, before: Mapping[str, float], after: Mapping[str, float], keys: Sequence[str]) -> None:
        table = Table(title="held out", title_justify="left")
        for column in ("", "before", "after", "change"):
            table.add_column(column, justify="left" if not column else "right")
        for key in (key for key in keys if key in before and key in after):  # a resumed run may take others
            name, change = key.replace("_", " "), after[key] - before[key]
            table.add_row(name, f"{before[key]:.3f}", f"{after[key]:.3f}", f"{change:+.3f}")
            shown.info(f"{name} {before[key]:.3f} -> {after[key]:.3f} (held out)")
        self._console.print(table)


@contextmanager
def display() -> Iterator[Display]:
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    if not sys.stdout.isatty():
        show = Display(console)
        with _beating(show):
            yield show
        return
    columns = (
        BarColumn(20),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TextColumn("[dim]{task.fields[phase]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=None, phase="starting")
        yield Display(console, progress, task)


@contextmanager
def _beating(show: Display) -> Iterator[None]:
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_LOOK_S):
            show.beat()

    heart = threading.Thread(target=beat, name="heartbeat", daemon=True)
    heart.start()
    try:
        yield
    finally:
        ended.set()
        heart.join()


@contextmanager
def counter(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, nothing elsewhere; to be called after each part."""
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, disable=not sys.stdout.isatty()) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)
