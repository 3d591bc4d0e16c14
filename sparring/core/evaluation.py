"""The interface of a game's held-out evaluation: its settings, the play that it requests, and its scores."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Protocol, Self

from pydantic import Field, model_validator

from sparring.core.episode import Episode
from sparring.core.play import PlayRequest
from sparring.core.settings import Settings

EVALUATION_PROBLEMS = 100
"""Default number of held-out problems."""


class EvaluationSettings(Settings):
    enabled: bool = True
    """false: held-out problems are never played or judged. The run then has no scores and no checkpoints/best, and the
    other keys of this section have no effect."""
    every: int | None = Field(default=None, ge=1)
    """Number of training steps between evaluations. The start of the run and the end of each stage are always evaluated."""
    problems: int | None = Field(default=None, ge=1)
    """Number of held-out problems per evaluation (the first ones of the file); in board games, number of matches per
    opponent and side. None: 100, or 40 on a GPU with less than 20 GiB."""
    samples: int = Field(default=0, ge=0)
    """Number of sampled programs per held-out problem, for pass@1 and pass@samples; 0: greedy programs only."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of the sampled programs."""
    bank_programs: int = Field(default=4, ge=1)
    """Number of programs that the untrained generator writes per held-out problem. They are the fixed baseline programs: in
    games with test suites the wrong ones, on which every discriminator's kill rate is measured; in other games all of
    them, which every opponent plays against."""
    suites: int = Field(default=2, ge=1)
    """Number of test suites per held-out problem."""
    gap_alarm: float = Field(default=0.3, ge=0, le=1)
    """Threshold of the reward-hacking warning: an evaluation warns if the share of the rewarded tests that held-out
    programs pass exceeds their share of the hidden tests by more than this (proxy_gold_gap). A growing gap means that
    programs exploit the reward. 1 never warns; without hidden tests there is no warning."""

    best_by: str | None = None
    """Name of the held-out score by which checkpoints/best is chosen (such as generator_pass_rate or test_validity); higher
    is better. None: the game's own measure; in games with test suites, 0.7 * pass rate + 0.3 * validity."""

    @model_validator(mode="after")
    def _has_samples(self) -> Self:
        if not self.samples:
            self.refuse_changed(("temperature",), "has no effect while samples is 0")
        return self

    @property
    def pass_at(self) -> tuple[int, ...]:
        """The values of k for pass@k."""
        return tuple(sorted({1, self.samples} - {0}))


@dataclass(frozen=True, slots=True)
class Scores:
    """Held-out scores by name, and the number by which the best checkpoint is chosen."""

    values: dict[str, float]
    """A mean over nothing, such as a kill rate if no program was wrong, is missing."""
    combined: float | None
    """None if nothing of which it is made was measured: the checkpoint is not the best then."""
    tasks: dict[str, float] = field(default_factory=dict)
    """Share of the evaluation tests that were passed, by problem, if the game has problems that can be solved."""
    missing: tuple[str, ...] = ()
    """Names of the game's scores that are missing."""
    programs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The greedy program, its status, and the message of the first test that it fails, by problem. For the record only."""


class Evaluator(Protocol):
    """The evaluator of one game for a whole run. Every evaluation uses the same held-out problems and seeds."""

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of the scores that are displayed to the user."""
        ...

    def bank_request(self) -> PlayRequest | None:
        """Returns what the untrained policies play once to write the baseline programs, or None if the game needs none."""
        return None

    @property
    def shows_bank(self) -> bool:
        """Whether the evaluation plays against the baseline programs, so that they must exist before it begins."""
        return False

    async def bank_of(self, episodes: Sequence[Episode]) -> Any:
        """Returns the baseline programs as plain JSON. Never called if `bank_request` returns None."""

    def requests(self, bank: Any) -> list[PlayRequest]: ...

    async def scores(self, played: Sequence[Sequence[Episode]], bank: Any) -> Scores:
        """Returns the scores. Trajectories that the sandbox could not judge are left out of the means and counted as
        `unjudged`.

        played: the episodes of each request.
        """
        ...


def mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def scores_of(
    values: Mapping[str, float | None],
    weights: Mapping[str, float],
    tasks: Mapping[str, float] | None = None,
    programs: Mapping[str, dict[str, Any]] | None = None,
) -> Scores:
    """Returns the scores.

    Args:
        values: None for a mean over nothing.
        weights: the combined score is the sum of these scores, each times its weight; without those that are missing.
    """
    known = {name: value for name, value in values.items() if value is not None}
    terms = [weight * known[name] for name, weight in weights.items() if name in known]
    missing = tuple(name for name in values if name not in known)
    return Scores(known, sum(terms) if terms else None, dict(tasks or {}), missing, dict(programs or {}))


def hacking_alarm(gap: float | None, threshold: float) -> str | None:
    """Returns a warning if `gap`, the held-out score proxy_gold_gap, exceeds evaluation.gap_alarm, else None."""
    if gap is None or gap <= threshold:
        return None
    return (
        f"hacking alarm: programs pass {gap:.2f} more of the tests that reward them than of the hidden tests "
        f"(threshold {threshold:.2f}); look at the rewarded tests before training on"
    )
