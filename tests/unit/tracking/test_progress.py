"""What is said on a pipe and on a terminal."""

import io
import threading

import pytest
from rich.console import Console
from rich.progress import Progress

from tracking.progress import Display, display

ROW = {"step": 2, "stage": 1, "phase": "generator", "generator_reward": 0.5, "seconds": {"total": 1.5}}


class Pipe:
    """What a display says on one, and its clock."""

    def __init__(self) -> None:
        self.now, self._out = 100.0, io.StringIO()
        self.display = Display(Console(file=self._out, width=160), clock=lambda: self.now)

    @property
    def said(self) -> list[str]:
        return self._out.getvalue().splitlines()


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def test_a_long_phase_is_heard_of_before_twenty_seconds_are_over(pipe: Pipe) -> None:
    pipe.display.phase("step 12: rollout")
    for pipe.now in range(100, 180):
        pipe.display.beat()
    assert pipe.said[0] == "… step 12: rollout, 15 s"
    assert len(pipe.said) == 79 // 15


def test_where_something_is_said_there_is_no_beat(pipe: Pipe) -> None:
    for pipe.now in range(100, 200, 10):
        pipe.display.say("a line")
        pipe.display.beat()
    assert set(pipe.said) == {"a line"}


def test_a_beat_tells_the_time_of_its_phase_not_of_the_silence(pipe: Pipe) -> None:
    pipe.now = 110.0
    pipe.display.phase("evaluation")
    pipe.now = 117.0
    pipe.display.beat()
    assert pipe.said == ["… evaluation, 7 s"]


def test_before_any_phase_it_is_starting(pipe: Pipe) -> None:
    pipe.now += 16
    pipe.display.beat()
    assert pipe.said == ["… starting, 16 s"]


def test_what_looks_like_markup_is_said_as_it_is(pipe: Pipe) -> None:
    pipe.display.say("assert f([1, 2], [red]) and [/]")
    assert pipe.said == ["assert f([1, 2], [red]) and [/]"]


def test_a_score_that_was_not_taken_at_both_ends_is_not_compared(pipe: Pipe) -> None:
    pipe.display.summary(
        {"pass_rate": 0.25}, {"pass_rate": 0.5, "pass_at_1": 0.5}, ("pass_rate", "pass_at_1")
    )
    said = "\n".join(pipe.said)
    assert "+0.250" in said and "pass at 1" not in said


def test_a_terminal_has_one_live_line_with_the_phase() -> None:
    progress = Progress(console=Console(file=io.StringIO(), force_terminal=True))
    task = progress.add_task("", total=None, phase="starting")
    show = Display(progress.console, progress, task)
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
