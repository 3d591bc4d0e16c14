"""Whose fault it is that a test ran out of time, on a busy machine and on an idle one."""

from dataclasses import dataclass

import pytest

from sandbox_workers.runner import wall as wall_module
from sandbox_workers.runner.wall import Wall

LIMIT_S = 8.0


@dataclass(eq=False)
class ScriptedChild:
    """Knows at each look what it is told beforehand."""

    delay_s: float = 0.0
    used_s: float = 0.0
    alone: bool = True
    pid: int | None = 7

    def cpu_s(self) -> float:
        return self.used_s

    def look(self) -> None:
        """All that there is to see it has already."""


class Clock:
    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(wall_module.time, "monotonic", lambda: clock.now)
    return clock


def run(clock: Clock, seconds: float, *children: ScriptedChild, delay_s: float, used_s: float) -> Wall:
    """A wall of which so many seconds have passed; the first child waited and worked for so long."""
    wall = Wall(children, LIMIT_S)  # pyright: ignore[reportArgumentType]
    clock.now += seconds
    children[0].delay_s += delay_s
    children[0].used_s += used_s
    return wall


def test_one_that_sleeps_has_its_time_and_no_second_try(clock: Clock) -> None:
    wall = run(clock, 8.2, ScriptedChild(), ScriptedChild(), delay_s=0.1, used_s=0.01)
    assert wall.left_s() < 0
    stop = wall.expired()
    assert stop.status == "TIME_LIMIT" and not stop.may_be_ours


def test_time_in_which_others_have_the_cpu_does_not_count(clock: Clock) -> None:
    """Eight spinners beside a program of 1.8 CPU seconds: after 8 s it had 1.2 of them."""
    wall = run(clock, 8.0, ScriptedChild(), ScriptedChild(), delay_s=6.8, used_s=1.2)
    assert wall.left_s() == pytest.approx(5.6)


def test_what_was_waited_for_before_does_not_count(clock: Clock) -> None:
    kept = ScriptedChild(delay_s=50.0, used_s=3.0)
    wall = run(clock, 8.0, kept, delay_s=0.5, used_s=0.1)
    assert wall.left_s() == pytest.approx(0.4)


def test_patience_ends_and_then_it_is_the_sandbox(clock: Clock) -> None:
    wall = run(clock, 23.9, ScriptedChild(), delay_s=23.0, used_s=0.5)
    assert wall.left_s() == pytest.approx(0.1)
    clock.now += 0.2
    assert wall.left_s() < 0
    assert wall.expired().status == "SANDBOX_ERROR"


@pytest.mark.parametrize("company", [0, 1])
def test_whoever_had_company_may_have_starved_itself(clock: Clock, company: int) -> None:
    pair = (ScriptedChild(alone=company != 0), ScriptedChild(alone=company != 1))
    wall = run(clock, 8.1, *pair, delay_s=8.0, used_s=0.0)
    assert wall.left_s() < 0
    stop = wall.expired()
    assert stop.status == "TIME_LIMIT" and stop.may_be_ours


def test_threads_of_its_own_take_no_time_from_it(clock: Clock) -> None:
    """Its first thread waited 6 s, in which its others ran."""
    wall = run(clock, 8.1, ScriptedChild(), delay_s=6.0, used_s=6.0)
    assert wall.left_s() < 0
    assert wall.expired().status == "TIME_LIMIT"


def test_one_that_was_not_even_forked_is_the_sandboxs(clock: Clock) -> None:
    wall = run(clock, 8.1, ScriptedChild(pid=None), delay_s=0.0, used_s=0.0)
    assert wall.expired().status == "SANDBOX_ERROR"
