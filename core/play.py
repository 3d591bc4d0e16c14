"""What the rollout actors are asked to play, and what they answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.episode import Episode
from core.interfaces import Branching
from core.problem import Problem
from core.tracing import Span

GENERATOR, DISCRIMINATOR = POLICIES = ("generator", "discriminator")
"""The policies; whose players are so named are the policy's of that name."""


@dataclass(frozen=True, kw_only=True)
class PlayRequest:
    """What to play. Seeds follow from (run seed, *address, problem, player, attempt, stage)."""

    address: tuple[int | str, ...]
    problems: tuple[Problem, ...]
    attempts: Mapping[str, int]
    """By player, as are the temperatures."""
    temperatures: Mapping[str, float]
    memory: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    past: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """By problem and player: see Player."""
    branching: Mapping[str, Branching] = field(default_factory=dict)
    """By player; the others play their attempts apart."""
    once: bool = False
    """Nobody is told what failed and asked again, whatever the rules say (attempts_per_episode)."""


@dataclass(frozen=True, kw_only=True)
class PlayResult:
    episodes: list[Episode]
    sandbox: dict[str, float]
    """The sandbox client's counters since the start."""
    played_again: int = 0
    """Problems that were lost with who played them, and begun anew."""
    replaced: int = 0
    """Problems that were played in place of such as nothing is learnt from (Schedule.dynamic_sampling)."""
    spans: list[Span] = field(default_factory=list)
    """ "generate" while any completion was in flight, "sandbox" while only judging was; of several actors, "rollout 0:
    generate"."""
