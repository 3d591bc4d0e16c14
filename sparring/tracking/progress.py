"""Shows the progress of a run. A terminal has live lines: one for the run and one for its current long part. Other outputs
get one line per step and, while nothing else is printed, a line from time to time. The run's log gets all lines, too, except
the live ones."""

import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sparring.core.play import PlayProgress
from sparring.tracking.run_log import shown

_COLUMNS = (("validity", "valid", ".2f"), ("kill_rate", "kill", ".2f"), ("tokens_per_s", "tok/s", ".0f"))
_REWARD = "_reward"
_SILENCES_S = (15.0, 30.0, 60.0, 120.0, 300.0)
"""Times without a line after which a pipe gets a status line. Within one phase the intervals grow."""
_COUNTED_S = 20.0
"""The same time if completions have been finished since the last line."""
_LOOK_S = 1.0
_BAR, _MARGIN = 20, 2
"""Width of a bar, and number of columns that stay empty at the right edge, since the terminal writes ^C there."""


def say(text: str) -> None:
    """Prints a line and logs it. For callers that have no display."""
    print(text, flush=True)
    shown.info(text)


class Display:
    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._total = self._done = 0
        self._timed: tuple[float, int] | None = None
        """Time at which the first step of this process began, and the number of the step before it."""
        self._phase = "starting"
        self._play: PlayProgress | None = None
        self._beats = 0
        """Number of status lines in this phase since the last one that reported new completions."""
        self._told = 0
        """Number of completions that the last status line reported."""
        self._phase_began = self._spoke = self._stepped = self._heard = clock()

    def begin(self, total: int, done: int) -> None:
        """Sets the number of steps. total: steps of the run; done: steps that the checkpoint already contains."""
        self._total, self._done = total, done

    def phase(self, name: str) -> None:
        """Begins a phase, such as "step 12: rollout"."""
        self._phase, self._phase_began = name, self._clock()
        self._play, self._beats, self._told = None, 0, 0

    def play(self, progress: PlayProgress) -> None:
        """Sets the progress of the episodes that are played in this phase."""
        self._play, self._heard = progress, self._clock()

    def beat(self) -> None:
        """Prints a status line if nothing has been printed for some time (_COUNTED_S, _SILENCES_S). If there are no
        live lines, a thread calls this about every second."""
        now, done = self._clock(), self._play.done if self._play is not None else 0
        counted = done != self._told
        silence = _COUNTED_S if counted else _SILENCES_S[min(self._beats, len(_SILENCES_S) - 1)]
        if now - self._spoke < silence:
            return
        self._beats, self._told = 0 if counted else self._beats + 1, done
        of_play = f": {_told(self._play)}" if self._play is not None else ""
        self.say(f"… {self._phase}, {now - self._phase_began:.0f} s{of_play}")

    def say(self, text: str) -> None:
        self._print(text)
        shown.info(text)

    def _print(self, text: str) -> None:
        """Prints a line. A terminal wraps it between words; a pipe gets it unwrapped."""
        self._spoke = self._clock()
        self._console.print(text, highlight=False, soft_wrap=not self._console.is_terminal, markup=False)

    def step(self, row: Mapping[str, Any]) -> None:
        """Prints the line of a finished training step. On a terminal, columns that do not fit its width are left out."""
        now, step = self._clock(), row["step"]
        before, self._done, self._stepped = self._done, step, now
        if self._timed is None:  # set after the others: another thread draws meanwhile
            self._timed = now - row["seconds"]["total"], before
        line, width = _step_line(row, self._total), self._console.width
        shown.info(line)
        for left_out in ("tokens_per_s", "phase", "stage") if self._console.is_terminal else ():
            if len(line) <= width:
                break
            row = {**row, left_out: None}
            line = _step_line(row, self._total)
        self._print(line)

    def scores(self, title: str, scores: Mapping[str, float], keys: Sequence[str]) -> None:
        figures = ", ".join(
            f"{key.replace('_', ' ')} {scores[key]:.3f}" if key in scores else f"no {key.replace('_', ' ')}"
            for key in keys
        )
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

    # ------------------------------------------------------------------ the live lines of a terminal
    def lines(self) -> RenderableType:
        """Returns the live lines: bar, count and time left of the run and, during a rollout, of the rollout. The text after
        them is shortened to the remaining width."""
        now, room = self._clock(), self._console.width - _MARGIN
        doing = f"{self._phase}, {now - self._phase_began:.0f} s"
        if not self._total:
            return Text(textwrap.shorten(doing, room, placeholder=" …"))
        rows: list[tuple[int, int | None, float | None, str]] = [
            (self._done, self._total, self._left(now), doing)
        ]
        if (play := self._play) is not None:
            left = play.left_s
            left = left if left is None else max(0.0, left - (now - self._heard))
            rows.append((play.done, play.known_total, left, f"completions{_rate(play)}"))
        bar = min(_BAR, room // 4)
        table = Table.grid(padding=(0, 1))
        for justify in ("left", "right", "left", "left"):
            table.add_column(no_wrap=True, justify=justify)
        counts = [f"{done}/{total}" if total else str(done) for done, total, *_ in rows]
        lefts = [_clock_time(left) for _, _, left, _ in rows]
        room -= bar + max(map(len, counts)) + max(map(len, lefts)) + 3
        for (done, total, _, words), count, left in zip(rows, counts, lefts, strict=True):
            drawn = ProgressBar(total=total, completed=done, width=bar, pulse=total is None)
            said = textwrap.shorten(words, max(room, 2), placeholder=" …")
            table.add_row(drawn, Text(count, "green"), Text(left, "cyan"), Text(said, "dim"))
        return Constrain(table, self._console.width - _MARGIN)

    def _left(self, now: float) -> float | None:
        """Returns the estimated seconds until the run's last step is done, evaluations between steps included. None if no
        step has been timed yet."""
        if self._timed is None:
            return None
        began, before = self._timed
        each = (self._stepped - began) / (self._done - before)
        return max(0.0, each * (self._total - self._done) - (now - self._stepped))


def _step_line(row: Mapping[str, Any], total: int) -> str:
    rewards = [
        f"{key.removesuffix(_REWARD)} {value:+.2f}"
        for key, value in row.items()
        if key.endswith(_REWARD) and value is not None
    ]
    figures = [f"{label} {row[key]:{style}}" for key, label, style in _COLUMNS if row.get(key) is not None]
    stage = f"stage {row['stage']} " if row["stage"] else ""
    phase = f"{row['phase']:<13} " if row["phase"] else ""
    said = " ".join(rewards + figures)
    return f"step {row['step']}/{total} {stage}{phase}{said} {row['seconds']['total']:.1f}s"


def _told(play: PlayProgress) -> str:
    """Formats the progress of a rollout.

    Example: 37 of 96 completions, 52 tokens/s, about 4 min left
    """
    of = f" of {play.known_total}" if play.known_total else ""
    left = f", {_about(play.left_s)} left" if play.left_s is not None else ""
    return f"{play.done}{of} completions{_rate(play)}{left}"


def _rate(play: PlayProgress) -> str:
    return f", {play.tokens / play.seconds:.0f} tokens/s" if play.tokens and play.seconds else ""


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def _clock_time(seconds: float | None) -> str:
    return "-:--:--" if seconds is None else str(timedelta(seconds=round(seconds)))


@contextmanager
def display() -> Iterator[Display]:
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    show = Display(console)
    if not sys.stdout.isatty():
        with _beating(show):
            yield show
        return
    with Live(get_renderable=show.lines, console=console, transient=True):
        yield show


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
def counter(
    title: str, total: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Shows a progress bar on a terminal, and a line from time to time elsewhere. The caller calls the yielded function after
    each finished part."""
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    is_terminal = sys.stdout.isatty()
    began = spoke = clock()
    done = 0

    def tick() -> None:
        nonlocal done, spoke
        done, now = done + 1, clock()
        progress.advance(task)
        if not is_terminal and now - spoke >= _COUNTED_S:
            spoke = now
            left = _about((now - began) / done * (total - done))
            print(f"{done} of {total} {title}, {left} left", flush=True)

    with Progress(*columns, transient=True, disable=not is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield tick
