"""What an evaluation of any game is: what is played, and the scores that come of it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from actors.episodes import PlayRequest, PlayResult
from core.episode import Episode

Play = Callable[[PlayRequest], PlayResult]


@dataclass(frozen=True, slots=True)
class Scores:
    """Held-out scores by name, and the one number by which a checkpoint is the best."""

    values: dict[str, float]
    combined: float
    tasks: dict[str, float] = field(default_factory=dict)
    """How each problem went, where a problem can be solved: share of its evaluation tests passed."""


class Evaluator(Protocol):
    """Of one game, for a whole run: the same held-out problems and seeds every time."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The scores that people are shown."""
        ...

    def bank_request(self) -> PlayRequest | None:
        """What the untrained players are to play once, as a yardstick for later; None where there is none."""
        ...

    async def bank_of(self, episodes: Sequence[Episode]) -> Any:
        """The yardstick, plain JSON."""
        ...

    def requests(self, bank: Any) -> list[PlayRequest]: ...

    async def scores(self, played: Sequence[Sequence[Episode]], bank: Any) -> Scores:
        """played: the episodes of each request. What the sandbox could not judge is left out of the means and counted
        as `unjudged`."""
        ...


def mean(values: Sequence[float]) -> float:
    """0 of nothing."""
    return fmean(values) if values else 0.0


def save_bank(path: Path, bank: Any) -> None:
    path.write_text(json.dumps(bank, indent=0))


def load_bank(path: Path) -> Any:
    return json.loads(path.read_text())
