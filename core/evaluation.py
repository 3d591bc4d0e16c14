"""What an evaluation of any game is: what is played, and the scores that come of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated, Any, Protocol, Self

from pydantic import Field, model_validator

from core.episode import Episode
from core.play import PlayRequest
from core.settings import Settings

EVALUATION_PROBLEMS = 100
"""Held-out problems, where nothing else is said."""


class EvaluationSettings(Settings):
    enabled: bool = True
    """false: no held-out problem is judged or played, at no time. The run then has no scores and no checkpoints/best, and
    the other keys of this section have no effect."""
    every: int | None = Field(default=None, ge=1)
    """Steps between evaluations, besides those at the start and at the end of each stage."""
    problems: int | None = Field(default=None, ge=1)
    """Held-out problems per evaluation (the first ones of the file); at a board, matches per opponent and side. None:
    100, on a GPU below 24 GiB 40."""
    samples: int = Field(default=0, ge=0)
    """Sampled programs per held-out problem, for pass@k; 0: greedy ones only."""
    temperature: float = Field(default=1.0, gt=0)
    """Of the sampled programs."""
    pass_at: tuple[Annotated[int, Field(ge=1)], ...] = (1,)
    """The k of pass@k, none above `samples`."""
    bank_programs: int = Field(default=4, ge=1)
    """Programs of the initial generator per held-out problem, the fixed yardstick: with test suites the wrong ones,
    on which every discriminator's kill rate is measured; else all, which every opponent meets."""
    suites: int = Field(default=2, ge=1)
    """Test suites per held-out problem."""
    gap_alarm: float = Field(default=0.3, ge=0, le=1)
    """An evaluation warns where held-out programs pass so much larger a share of the tests that the game rewards than of
    the hidden tests (proxy_gold_gap), where there are any: a gap that opens says that the reward is being gamed. 1 never
    warns."""

    best_by: str | None = None
    """The held-out score by which checkpoints/best is chosen, the higher the better (such as generator_pass_rate or
    test_validity). None: the game's own measure; with test suites 0.7 pass rate + 0.3 validity."""

    @model_validator(mode="after")
    def _samples_suffice(self) -> Self:
        if not self.samples:
            self.refuse_changed(("temperature", "pass_at"), "has no effect while samples is 0")
        elif max(self.pass_at, default=0) > self.samples:
            raise ValueError(
                f"pass_at {max(self.pass_at)} needs as many samples (samples is {self.samples}): give more, or "
                f"--evaluation.pass-at 1,{self.samples}"
            )
        return self


@dataclass(frozen=True, slots=True)
class Scores:
    """Held-out scores by name, and the one number by which a checkpoint is the best."""

    values: dict[str, float]
    combined: float
    tasks: dict[str, float] = field(default_factory=dict)
    """How each problem went, where a problem can be solved: share of its evaluation tests passed."""
    programs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By problem, for the record: the greedy program, its status, and what the first test that it fails says."""


class Evaluator(Protocol):
    """Of one game, for a whole run: the same held-out problems and seeds every time."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The scores that people are shown."""
        ...

    def bank_request(self) -> PlayRequest | None:
        """What the untrained players are to play once, as a yardstick for later; None where there is none."""
        return None

    @property
    def shows_bank(self) -> bool:
        """Whether the bank's programs are in what is played for the scores, so that they must be there before."""
        return False

    async def bank_of(self, episodes: Sequence[Episode]) -> Any:
        """The yardstick, plain JSON; never asked for where there is no request."""

    def requests(self, bank: Any) -> list[PlayRequest]: ...

    async def scores(self, played: Sequence[Sequence[Episode]], bank: Any) -> Scores:
        """played: the episodes of each request. What the sandbox could not judge is left out of the means and counted
        as `unjudged`."""
        ...


def mean(values: Sequence[float]) -> float:
    """0 of nothing."""
    return fmean(values) if values else 0.0


def hacking_alarm(gap: float | None, threshold: float) -> str | None:
    """What to warn of where the held-out score proxy_gold_gap is above evaluation.gap_alarm; None where of nothing."""
    if gap is None or gap <= threshold:
        return None
    return (
        f"hacking alarm: programs pass {gap:.2f} more of the tests that reward them than of the hidden tests "
        f"(threshold {threshold:.2f}); look at the rewarded tests before training on"
    )
