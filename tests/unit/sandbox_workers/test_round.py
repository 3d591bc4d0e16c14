"""Which limit a round names where several are passed."""

from typing import Any

import pytest

from sandbox_workers.runner import round as round_module
from sandbox_workers.runner.round import Round


class ScriptedProgram:
    """Holds much, and all of its time is over; nobody knows before the next look."""

    pid, alone, delay_s = 7, True, 0.0
    looks = 0

    def __init__(self, until_look_s: float) -> None:
        self._until_look_s = until_look_s

    def cpu_s(self) -> float:
        return 0.0

    def until_look_s(self) -> float:
        return self._until_look_s

    def look(self) -> None:
        self.looks += 1

    def holds_more_than(self, memory_mb: int) -> bool:
        assert memory_mb == 100
        return self.looks > 0


class Running(Round):
    def __init__(self, program: Any, limits: dict[str, float]) -> None:
        nobody: Any = None
        super().__init__(nobody, nobody, limits)
        self.program = program
        self._start_clock(program)

    def _is_over(self) -> bool:
        return self.stop is not None


class Poll:
    """A poll in which nothing happens, on a machine that is paused during the first poll."""

    def __init__(self, paused_s: float) -> None:
        self.now, self._paused_s = 100.0, paused_s

    def poll(self, timeout_ms: float) -> list:
        self.now += timeout_ms / 1000 + self._paused_s
        self._paused_s = 0.0
        return []


@pytest.mark.parametrize(
    ("wall_s", "until_look_s", "status"),
    [
        (9.0, 1.0, None),
        (9.0, 0.0, "MEMORY_LIMIT"),
        (0.0, 1.0, "MEMORY_LIMIT"),  # it was the wall that looked
        (0.0, 0.0, "MEMORY_LIMIT"),
    ],
)
def test_memory_is_judged_by_every_look(wall_s: float, until_look_s: float, status: str | None) -> None:
    program = ScriptedProgram(until_look_s)
    played = Running(program, {"cpu_s": 1.0, "wall_s": wall_s, "memory_mb": 100})
    played._check()
    assert (played.stop.status if played.stop else None) == status


@pytest.mark.parametrize("paused_s", [0.0, 0.3, 30.0])
def test_the_clock_stands_still_while_the_machine_is_paused(
    monkeypatch: pytest.MonkeyPatch, paused_s: float
) -> None:
    poll, program = Poll(paused_s), ScriptedProgram(0.1)
    monkeypatch.setattr(round_module.time, "monotonic", lambda: poll.now)
    monkeypatch.setattr(round_module.select, "poll", lambda: poll)
    monkeypatch.setattr(program, "holds_more_than", lambda memory_mb: False)
    played = Running(program, {"cpu_s": 1.0, "wall_s": 5.0, "memory_mb": 200})
    played._watch({})
    assert played.stop is not None and played.stop.status == "TIME_LIMIT"
    taken_s = poll.now - 100.0
    assert 5.0 <= taken_s - (paused_s if paused_s > 1 else 0.0) < 5.2
