"""Draws the version of an opponent: the current one, a past one that is a fair match, or any past one.

Prioritized fictitious self-play (PFSP) after Vinyals et al. 2019, "Grandmaster level in StarCraft II using multi-agent
reinforcement learning", methods: a past version is drawn with probability proportional to f(x), and x is the learner's
probability of winning against it. Left out: exploiters, which are agents that are trained against a single other agent.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Self

from pydantic import Field, model_validator

from sparring.core.seeding import derive_seed
from sparring.core.settings import Settings

_PRIOR, _MEMORY, _FLOOR = 0.5, 0.8, 0.01


class OpponentMix(Settings):
    """Probabilities of the kinds of opponents."""

    current: float = Field(default=1.0, ge=0, le=1)
    pfsp: float = Field(default=0.0, ge=0, le=1)
    """Probability of a past version that is a fair match. What is left to 1 is the probability of a past version that is
    drawn uniformly."""

    @model_validator(mode="after")
    def _shares_of_one(self) -> Self:
        if self.current + self.pfsp > 1:
            raise ValueError("current and pfsp are shares: together they must be at most 1")
        return self


def pfsp_weights(chances: Sequence[float]) -> list[float]:
    """Returns f(x) = x (1 - x) of each probability of winning, which prefers opponents that are about as strong, but at
    least 0.01, so that every version can be drawn again."""
    return [max(_FLOOR, x * (1 - x)) for x in chances]


class Opponents:
    """The past versions of one policy, with the learner's estimated probability of winning against each."""

    def __init__(self, mix: OpponentMix, keep: int | None, seed: int) -> None:
        """keep: number of versions that are kept, as a uniform sample of all added versions (see past.WrongPrograms); None:
        all."""
        self._mix, self._keep, self._seed = mix, keep, seed
        self._chances: dict[int, float] = {}

    @property
    def versions(self) -> tuple[int, ...]:
        """The past versions in ascending order."""
        return tuple(sorted(self._chances))

    def add(self, version: int) -> None:
        self._chances.setdefault(version, _PRIOR)
        ranked = sorted(self._chances, key=lambda v: derive_seed(self._seed, "version", v))
        self._chances = {v: self._chances[v] for v in ranked[: self._keep]}

    def draw(self, *address: int | str) -> int | None:
        """Returns a past version, or None for the current one. The draw depends on the address and the recorded state only."""
        rng = Random(derive_seed(self._seed, "opponent", *address))
        mix = self._mix
        (kind,) = rng.choices(
            ("current", "pfsp", "history"), (mix.current, mix.pfsp, 1 - mix.current - mix.pfsp)
        )
        versions = self.versions
        if kind == "current" or not versions:
            return None
        if kind == "history":
            return rng.choice(versions)
        weights = pfsp_weights([self._chances[v] for v in versions])
        return rng.choices(versions, weights)[0]

    def record(self, version: int, won: float) -> None:
        """Updates the learner's probability of winning against a version. Older games lose weight, since the learner changes.

        won: share of the games that the learner won; a draw counts half.
        """
        if version in self._chances:
            self._chances[version] = _MEMORY * self._chances[version] + (1 - _MEMORY) * won

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain JSON."""
        return {"chances": list(self._chances.items())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._chances = dict(state["chances"])
