"""What is said on a pipe and on a terminal."""

import io
import threading

import pytest
from rich.console import Console
from rich.progress import Progress

from tracking.progress import Display, display

ROW = {"step": 2, "stage": 1, "phase": "generator", "generator_reward": 0.5, "seconds": {"total": 1.5}}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def on_a_pipe(clock: Clock) -> tuple[Display, io.StringIO]:
    out = io.StringIO()
    return Display(Console(file=out, width=160), clock=clock), out


def test_a_long_phase_is_heard_of_before_twenty_seconds_are_over(clock) -> None:
    show, out = on_a_pipe(clock)
    show.phase("step 12: rollout")
    for clock.now in range(100, 180):
        show.beat()
    said = out.getvalue().splitlines()
    assert said[0] == "… step 12: rollout, 15 s"
    assert len(said) == 79 // 15


def test_where_something_is_said_there_is_no_beat(clock) -> None:
    show, out = on_a_pipe(clock)
    for clock.now in range(100, 200, 10):
        show.say("a line")
        show.beat()
    assert set(out.getvalue().splitlines()) == {"a line"}


def test_a_beat_tells_the_time_of_its_phase_not_of_the_silence(clock) -> None:
    show, out = on_a_pipe(clock)
    assert out.getvalue() == ""
    clock.now = 110.0
    show.phase("evaluation")
    clock.now = 117.0
    show.beat()
    assert out.getvalue() == "… evaluation, 7 s\n"


def test_before_any_phase_it_is_starting(clock) -> None:
    show, out = on_a_pipe(clock)
    clock.now += 16
    show.beat()
    assert out.getvalue() == "… starting, 16 s\n"


def test_what_looks_like_markup_is_said_as_it_is(clock) -> None:
    show, out = on_a_pipe(clock)
    show.say("assert f([1, 2], [red]) and [/]")
    assert out.getvalue() == "assert f([1, 2], [red]) and [/]\n"


def test_a_terminal_has_one_live_line_with_the_phase(clock) -> None:
    progress = Progress(console=Console(file=io.StringIO(), force_terminal=True))
    task = progress.add_task("", total=None, phase="starting")
    show = Display(progress.console, progress, task, clock)
    show.begin(total=9, done=1)
    show.phase("step 2: rollout")
    show.step(ROW)
    live = progress.tasks[0]
    assert (live.total, live.completed, live.fields["phase"]) == (9, 2, "step 2: rollout")
    assert "generator +0.50" in live.description


def test_the_display_ends_with_its_context(capsys) -> None:
    with display() as show:
        show.say("hello")
        assert any(thread.name == "heartbeat" for thread in threading.enumerate())
    assert all(thread.name != "heartbeat" for thread in threading.enumerate())
    assert capsys.readouterr().out == "hello\n"
