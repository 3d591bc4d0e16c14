"""Which limit a round names where several are passed."""

from typing import Any

import pytest

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
    def _is_over(self) -> bool:
        return self.stop is not None


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
    nobody: Any = None
    program: Any = ScriptedProgram(until_look_s)
    played = Running(nobody, nobody, {"cpu_s": 1.0, "wall_s": wall_s, "memory_mb": 100})
    played.program = program
    played._start_clock(program)
    played._check()
    assert (played.stop.status if played.stop else None) == status
