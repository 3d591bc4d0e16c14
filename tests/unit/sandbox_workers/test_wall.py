"""Whose fault it is that a test ran out of time, on a busy machine and on an idle one."""

from dataclasses import dataclass

import pytest

from sandbox_workers.runner import wall as wall_module
from sandbox_workers.runner.wall import Wall


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


# the children, what passes by the clock, delay and CPU time of the first; the time left, or the stop and whether it may
# be the sandbox's fault
WALLS = {
    "one sleeps": ([{}, {}], 8.2, 0.1, 0.01, None, ("TIME_LIMIT", False)),
    # Eight spinners beside a program of 1.8 CPU seconds: after 8 s it had 1.2 of them.
    "others have the CPU": ([{}, {}], 8.0, 6.8, 1.2, 5.6, None),
    "one has waited before": ([{"delay_s": 50.0, "used_s": 3.0}], 8.0, 0.5, 0.1, 0.4, None),
    "patience is near its end": ([{}], 23.9, 23.0, 0.5, 0.1, None),
    "patience has ended": ([{}], 24.1, 23.0, 0.5, None, ("SANDBOX_ERROR", False)),
    "the first may have starved itself": ([{"alone": False}, {}], 8.1, 8.0, 0.0, None, ("TIME_LIMIT", True)),
    "the second may have starved it": ([{}, {"alone": False}], 8.1, 8.0, 0.0, None, ("TIME_LIMIT", True)),
    "its first thread waits while its others run": ([{}], 8.1, 6.0, 6.0, None, ("TIME_LIMIT", True)),
    "it was not even forked": ([{"pid": None}], 8.1, 0.0, 0.0, None, ("SANDBOX_ERROR", False)),
}


@pytest.mark.parametrize("name", WALLS)
def test_time_in_which_others_have_the_cpu_does_not_count(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    known, seconds, delay_s, used_s, left_s, stop = WALLS[name]
    children = [ScriptedChild(**child) for child in known]
    now = 100.0
    monkeypatch.setattr(wall_module.time, "monotonic", lambda: now)
    wall = Wall(children, limit_s=8.0)  # pyright: ignore[reportArgumentType]
    now += seconds
    children[0].delay_s += delay_s
    children[0].used_s += used_s
    if left_s is not None:
        assert wall.left_s() == pytest.approx(left_s)
    else:
        assert wall.left_s() < 0
        stopped = wall.expired()
        assert (stopped.status, stopped.may_be_ours) == stop
