"""What the rollout actors are asked to play, and what they answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from core.episode import Episode
from core.interfaces import Branching
from core.problem import Problem
from core.tracing import Span

GENERATOR, DISCRIMINATOR = POLICIES = ("generator", "discriminator")
"""The policies; whose players are so named are the policy's of that name."""
PLAY: ContextVar[object] = ContextVar("PLAY", default=None)
"""Which request is played: plays that an actor has at the same time meet in its engines."""


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
    recorded: Mapping[str, Any] | None = None
    """Of play for training: what its rows in episodes.jsonl begin with. Its trajectories are answered without what is in
    these rows or only a learner reads: whoever puts a step together sees what each earned."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Tells the requests apart that an actor plays at the same time."""
        return *self.address, self.problems[0].id


@dataclass(frozen=True, kw_only=True)
class PlayProgress:
    """How far the play of a request has come.

    Example: PlayProgress(done=37, expected=96, tokens=4096, seconds=80.0)
    """

    done: int = 0
    """Completions that are finished."""
    expected: int = 0
    """Completions of the whole request; attempts that are repeated and long matches take more."""
    tokens: int = 0
    """Tokens of the finished completions."""
    seconds: float = 0.0
    """Seconds from the begin of the play to the last finished completion."""

    @property
    def known_total(self) -> int | None:
        """None once there are more completions than were expected."""
        return self.expected if self.done <= self.expected else None

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest takes at the rate so far. None if that is unknown."""
        if not self.done or self.known_total is None:
            return None
        return self.seconds * (self.expected - self.done) / self.done

    def __add__(self, other: PlayProgress) -> PlayProgress:
        """Returns the progress of two parts of a request that are played at the same time."""
        return PlayProgress(
            done=self.done + other.done,
            expected=self.expected + other.expected,
            tokens=self.tokens + other.tokens,
            seconds=max(self.seconds, other.seconds),
        )


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of play for training. Turns that attempts share are counted once."""

    prompts: int = 0
    cached: int = 0
    """Of the prompts': those whose keys and values the engine had already."""
    sampled: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By player, and version of the weights."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompts=self.prompts + other.prompts,
            cached=self.cached + other.cached,
            sampled=self.sampled + other.sampled,
        )


def usage_of(episodes: Iterable[Episode]) -> Usage:
    """Of such as have their turns."""
    attempts = [t for e in episodes for t in e.trajectories]
    # attempts that branch share some
    turns = {id(turn): (t.player, turn) for t in attempts for turn in t.turns}
    sampled: Counter[tuple[str, int]] = Counter()
    for player, turn in turns.values():
        for version, count in turn.completion.versions():
            sampled[player, version] += count
    return Usage(
        prompts=sum(len(turn.prompt_tokens) for _, turn in turns.values()),
        cached=sum(turn.completion.cached for _, turn in turns.values()),
        sampled=sampled,
    )


@dataclass(frozen=True, kw_only=True)
class PlayResult:
    episodes: list[Episode]
    sandbox: dict[str, float]
    """The sandbox client's counters since the start."""
    played_again: int = 0
    """Problems that were lost with who played them, and begun anew."""
    replaced: int = 0
    """Problems that were played in place of such as nothing is learnt from (Schedule.dynamic_sampling)."""
    usage: Usage = field(default_factory=Usage)
    spans: list[Span] = field(default_factory=list)
    """ "generate" while any completion was in flight, "sandbox" while only judging was; of several actors, "rollout 0:
    generate"."""
