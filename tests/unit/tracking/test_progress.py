"""What is said on a pipe and on a terminal."""

import fcntl
import io
import itertools
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from typing import Any

import pytest
from rich.console import Console

from sparring.core.play import PlayProgress
from sparring.tracking.progress import Display, counter, display

ROW: dict[str, Any] = {
    "step": 2, "stage": 1, "phase": "discriminator", "generator_reward": 0.5, "discriminator_reward": -0.25,
    "validity": 0.8125, "kill_rate": 0.25, "tokens_per_s": 1234.0, "seconds": {"total": 60.0},
}  # fmt: skip
WIDTHS = (40, 60, 80, 100, 130, 200)


class Shown:
    """A display on a pipe, or on a terminal of a width, and its clock."""

    def __init__(self, width: int | None = None) -> None:
        self.now, self._out = 100.0, io.StringIO()
        terminal = True if width else None
        self._console = Console(
            file=self._out, width=width or 160, force_terminal=terminal, color_system=None
        )
        self.display = Display(self._console, clock=lambda: self.now)

    @property
    def said(self) -> list[str]:
        return self._out.getvalue().splitlines()

    @property
    def live(self) -> list[str]:
        with self._console.capture() as drawn:
            self._console.print(self.display.lines())
        return drawn.get().splitlines()


@pytest.fixture
def pipe() -> Shown:
    return Shown()


def test_a_pipe_hears_less_and_less_of_a_phase_in_which_nothing_is_counted(pipe: Shown) -> None:
    pipe.display.phase("step 2: learning")
    for pipe.now in range(100, 1500):
        pipe.display.beat()
    assert pipe.said == [f"… step 2: learning, {s} s" for s in (15, 45, 105, 225, 525, 825, 1125)]
    pipe.display.phase("step 3: rollout")
    for pipe.now in range(1500, 1560):
        pipe.display.beat()
    assert pipe.said[7:] == [f"… step 3: rollout, {s} s" for s in (1, 31)], "each phase begins anew"


def test_a_pipe_hears_how_many_of_how_many_while_they_become_more(pipe: Shown) -> None:
    pipe.display.phase("step 2: rollout")
    for pipe.now in range(100, 300):
        if pipe.now <= 160:
            done = pipe.now - 100
            pipe.display.play(PlayProgress(done=done, expected=96, tokens=50 * done, seconds=float(done)))
        pipe.display.beat()
    heard = [(20, 20), (40, 40), (60, 60), (75, 60), (105, 60), (165, 60)]
    assert pipe.said == [
        f"… step 2: rollout, {now} s: {done} of 96 completions, 50 tokens/s, about {96 - done} s left"
        for now, done in heard
    ]


@pytest.mark.parametrize(
    ("done", "expected", "tokens", "said"),
    [
        (0, 96, 0, "0 of 96 completions"),  # before the first completion nobody knows the rate
        (1, 96, 9, "1 of 96 completions, 1 tokens/s, about 14 min left"),
        (1, 999, 9, "1 of 999 completions, 1 tokens/s, about 2.5 h left"),
        (97, 96, 9, "97 completions, 1 tokens/s"),  # nobody knows how many follow
    ],
)
def test_only_what_is_known_of_a_play_is_told(pipe: Shown, done: int, expected: int, tokens: int, said: str):
    pipe.display.phase("evaluation")
    pipe.display.play(PlayProgress(done=done, expected=expected, tokens=tokens, seconds=float(tokens)))
    pipe.now += 20
    pipe.display.beat()
    assert pipe.said == [f"… evaluation, 20 s: {said}"]


def test_what_was_counted_in_one_phase_is_not_told_in_the_next(pipe: Shown) -> None:
    pipe.display.play(PlayProgress(done=3, expected=9))
    pipe.display.phase("step 2: learning")
    pipe.now += 16
    pipe.display.beat()
    assert pipe.said == ["… step 2: learning, 16 s"]


def test_where_something_is_said_there_is_no_beat(pipe: Shown) -> None:
    for pipe.now in range(100, 200, 10):
        pipe.display.say("a line")
        pipe.display.beat()
    assert set(pipe.said) == {"a line"}


def test_what_looks_like_markup_is_said_as_it_is(pipe: Shown) -> None:
    pipe.display.say("assert f([1, 2], [red]) and [/]")
    assert pipe.said == ["assert f([1, 2], [red]) and [/]"]


def test_a_score_that_was_not_taken_at_both_ends_is_not_compared(pipe: Shown) -> None:
    before, after = {"pass_rate": 0.25}, {"pass_rate": 0.5, "pass_at_1": 0.5}
    pipe.display.summary(before, after, ("pass_rate", "pass_at_1"))
    said = "\n".join(pipe.said)
    assert "+0.250" in said and "pass at 1" not in said


@pytest.mark.parametrize("width", WIDTHS)
def test_the_live_lines_keep_bar_count_and_estimate_at_every_width(width: int) -> None:
    terminal = Shown(width)
    show = terminal.display
    assert terminal.live == ["starting, 0 s"]
    show.begin(total=14, done=1)
    show.phase("evaluation before the first step")
    (run,) = terminal.live
    assert " 1/14 -:--:-- evaluation" in run, "nobody knows how long a step takes"
    show.step(ROW)
    terminal.now += 10
    show.phase("step 3: learning (generator, discriminator)")
    (run,) = terminal.live
    assert "━" in run and " 2/14 0:11:50 step 3: " in run
    show.play(PlayProgress(done=37, expected=96, tokens=3700, seconds=74.0))
    run, play = terminal.live
    assert " 2/14 0:11:50 " in run and "━" in play and " 37/96 0:01:58 completions," in play
    assert ("50 tokens/s" in play) == (width >= 60)
    assert run.index("2/14") == play.index("7/96"), "the counts stand below each other"
    for line in terminal.live:
        assert len(line) <= width - 2, "at the edge a terminal would write ^C on the next line"
        assert line.rstrip().endswith(("…", " s", "tokens/s", ","))


@pytest.mark.parametrize("width", WIDTHS)
def test_done_steps_stay_on_a_terminal_and_end_between_words(width: int) -> None:
    terminal = Shown(width)
    terminal.display.begin(total=9, done=1)
    terminal.display.step(ROW)
    terminal.display.scores("after stage 1", {"pass_rate": 0.5, "kill_rate": 0.1}, ("pass_rate", "kill_rate"))
    whole = Shown()
    whole.display.begin(total=9, done=1)
    whole.display.step(ROW)
    whole.display.scores("no suites", {"pass_rate": 0.5}, ("pass_rate", "kill_rate"))
    whole.display.scores("after stage 1", {"pass_rate": 0.5, "kill_rate": 0.1}, ("pass_rate", "kill_rate"))
    words = " ".join(terminal.said).split()
    assert not set(words) - set(" ".join(whole.said).split()), "no word is broken"
    assert any("pass rate 0.500, no kill rate" in line for line in whole.said)
    assert words[:2] == ["step", "2/9"] and "60.0s" in words and "+0.50" in words
    assert ("tok/s" in words) == (width >= 130)
    assert all(len(line) <= width for line in terminal.said)


def test_the_estimate_goes_on_where_a_run_is_resumed_and_counts_evaluations() -> None:
    terminal = Shown(80)
    terminal.display.begin(total=14, done=4)
    for step in (5, 6):
        terminal.now += 90  # 30 of them for an evaluation
        terminal.display.step({**ROW, "step": step})
    assert " 6/14 0:10:00 " in terminal.live[0], "150 s for two steps, 8 to go"


def test_an_interrupted_live_line_is_gone_and_what_was_said_is_there_once() -> None:
    """Typed at a terminal of 60 columns."""
    program = """
import os, signal, time
from sparring.tracking.progress import display
try:
    with display() as show:
        show.begin(9, 1)
        show.phase('step 2: rollout')
        show.say('said once')
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
except KeyboardInterrupt:
    pass
"""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, stdout=theirs, env=os.environ | {"TERM": "xterm"})
    os.close(theirs)
    written = b""
    while True:
        try:
            written += os.read(ours, 4096)
        except OSError:  # the terminal is closed
            break
    assert process.wait(30) == 0
    os.close(ours)
    assert [line for line in on_screen(written.decode()) if line] == ["said once"]


def on_screen(written: str) -> list[str]:
    """The lines of a terminal after this was written to it, as far as rich moves its cursor: \\r, \\n, up, erase a line."""
    lines, row, column = [""], 0, 0
    for amount, command, character in re.findall(
        r"\x1b\[([^a-zA-Z]*)([a-zA-Z])|([^\x1b])", written, re.DOTALL
    ):
        if command == "A":
            row = max(0, row - int(amount or 1))
        elif command == "K":
            lines[row] = ""
        elif character == "\r":
            column = 0
        elif character == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif character:
            lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
            column += 1
    return lines


def test_the_display_ends_with_its_context(capsys) -> None:
    with display() as show:
        show.say("hello")
        assert any(thread.name == "heartbeat" for thread in threading.enumerate())
    assert all(thread.name != "heartbeat" for thread in threading.enumerate())
    assert capsys.readouterr().out == "hello\n"


def test_a_pipe_hears_of_a_count_from_time_to_time(capsys: pytest.CaptureFixture[str]) -> None:
    times = itertools.count(0.0, 9.0)
    with counter("problems", 10, clock=lambda: next(times)) as tick:
        for _ in range(10):
            tick()
    assert capsys.readouterr().out.splitlines() == [
        "3 of 10 problems, about 63 s left",
        "6 of 10 problems, about 36 s left",
        "9 of 10 problems, about 9 s left",
    ]
