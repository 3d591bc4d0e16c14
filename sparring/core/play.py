"""The requests to the rollout actors, and their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from sparring.core.episode import Episode
from sparring.core.interfaces import Branching
from sparring.core.problem import Problem
from sparring.core.tracing import Span
from sparring.core.weights import PublishReceipt, Weights

GENERATOR, DISCRIMINATOR = POLICIES = ("generator", "discriminator")
"""Names of the policies. A player with one of these names is played by the policy of that name."""
PLAY: ContextVar[object] = ContextVar("PLAY", default=None)
"""Identifies the request that the current coroutine plays, since an engine may serve several requests at the same time."""


@dataclass(frozen=True, kw_only=True)
class PlayRequest:
    """A request to play problems. Seeds are derived from (run seed, *address, problem, player, attempt, stage)."""

    address: tuple[int | str, ...]
    problems: tuple[Problem, ...]
    attempts: Mapping[str, int]
    """Number of attempts per problem, by player."""
    temperatures: Mapping[str, float]
    """Sampling temperature, by player."""
    weights: Mapping[str, Weights] = field(default_factory=dict)
    """Weights that the policies play with: an engine that has others loads them first. Policies without an entry play with
    the weights that their engines started with."""
    order: int = 0
    """Number of requests that the run's RayRollouts has begun before. An engine that plays several requests at the same time
    keeps the weights of the one that was begun last."""
    memory: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Earlier programs, by problem id: see Game.play."""
    past: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """See Player.past; by problem id and player."""
    branching: Mapping[str, Branching] = field(default_factory=dict)
    """Branching by player. Players without an entry play their attempts independently."""
    once: bool = False
    """If true, no failed attempt is followed by another one, whatever the game's attempts_per_episode is."""
    recorded: Mapping[str, Any] | None = None
    """Set for play that is trained on: the first fields of its rows in episodes.jsonl. The result then holds trajectories
    without the data that is in these rows or that only a learner reads; their rewards remain, for the driver."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies the request among the requests that an actor plays at the same time."""
        return *self.address, self.problems[0].id


@dataclass(frozen=True, kw_only=True)
class PlayProgress:
    """The progress of a request's play.

    Example: PlayProgress(done=37, expected=96, tokens=4096, seconds=80.0)
    """

    done: int = 0
    """Number of finished completions."""
    expected: int = 0
    """Number of completions of the whole request. Repeated attempts and long matches take more."""
    tokens: int = 0
    """Number of tokens in the finished completions."""
    seconds: float = 0.0
    """Seconds from the beginning of the play to the last finished completion."""

    @property
    def known_total(self) -> int | None:
        """The expected number of completions, or None if more completions than expected are finished."""
        return self.expected if self.done <= self.expected else None

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the play ends, at the rate so far, or None if they are unknown."""
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
    """Number of tokens in play for training. Turns that attempts share are counted once."""

    prompts: int = 0
    cached: int = 0
    """Number of prompt tokens whose keys and values were in the engine's prefix cache."""
    sampled: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Number of sampled tokens, by player and policy version."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompts=self.prompts + other.prompts,
            cached=self.cached + other.cached,
            sampled=self.sampled + other.sampled,
        )


def usage_of(episodes: Iterable[Episode]) -> Usage:
    """Returns the token usage of episodes whose trajectories hold their turns."""
    attempts = [t for e in episodes for t in e.trajectories]
    # attempts that branch share turns
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
    """Number of problems that were lost with their rollout actor and played again from the beginning."""
    replaced: int = 0
    """Number of further problems that were played because of zero-variance groups (Schedule.dynamic_sampling)."""
    receipts: Mapping[str, Sequence[PublishReceipt]] = field(default_factory=dict)
    """By policy, the receipts of its engines for the weights that they played with. Empty for weights that the engines
    started with."""
    usage: Usage = field(default_factory=Usage)
    spans: list[Span] = field(default_factory=list)
    """Spans named "generate" while any completion was in flight, "sandbox" while only judging was, and "publish" while weights
    were loaded beside neither. With several actors the names are "rollout 0: generate" and so on."""
