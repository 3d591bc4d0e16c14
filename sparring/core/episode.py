"""The records of play: completions, turns, trajectories, episodes.

The dataclasses have no slots: pickle sets the slots of a dataclass one by one in Python, which is slow, and the driver
unpickles all episodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from sparring.core.arrays import FLOATS, IDS, hold

OUTCOME_CHARACTERS = {"test": 1000, "error": 200}
"""Maximum length of an outcome's texts. A test of a suite is at most game.input_limits.chars long, and its expected value."""


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Tokens that a policy sampled, with the log-probability of each under the sampling distribution.

    Example: Completion(tokens=(41, 7, 1), logprobs=(-0.2, -1.1, -0.01), version=3, finish_reason="stop")

    As in Turn and Sample, values per token are held as arrays (sparring/core/arrays.py).
    """

    tokens: Sequence[int]
    """Sampled token ids, including the stop token."""
    logprobs: Sequence[float]
    """Log-softmax of logits / temperature at each sampled id; same length as tokens."""
    version: int
    """Oldest policy version that sampled one of the tokens."""
    finish_reason: FinishReason
    cached: int = 0
    """Number of prompt tokens whose keys and values were in the engine's prefix cache."""
    later: tuple[tuple[int, int], ...] = ()
    """Policy versions that were published during the generation: (version, index of the first token that it sampled)."""

    def __post_init__(self) -> None:
        hold(self, tokens=IDS, logprobs=FLOATS)
        assert len(self.tokens) == len(self.logprobs)

    def versions(self) -> Iterator[tuple[int, int]]:
        """Yields (version, number of tokens that it sampled)."""
        spans = [(self.version, 0), *self.later]
        for (version, first), (_, end) in zip(spans, [*spans[1:], (0, len(self.tokens))], strict=True):
            yield version, end - first


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One completion of one player."""

    stage: int
    """Reasoning stage of the generator, counted from 1; in games without stages, the player's move, counted from 0."""
    prompt_tokens: Sequence[int]
    completion: Completion
    text: str
    """The completion, decoded for people and parsers. It is never tokenized again."""

    def __post_init__(self) -> None:
        hold(self, prompt_tokens=IDS)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one test, which explains to users why an attempt earned its reward.

    Example:
        Outcome(test="assert f(1) == 3", owner="discriminator #0", status="WRONG_ANSWER")    # under a program
        Outcome(test="assert f(1) == 3", status="valid", kills=(2, 5))                       # in a suite
    """

    test: str
    """Source of the test. All texts in this class are cut off after OUTCOME_CHARACTERS."""
    owner: str = ""
    """Author of the test; empty if the attempt wrote the test itself."""
    status: str
    """The verdict's status, if the attempt is a program; the test's own status (such as "valid"), if it is a suite."""
    error: str = ""
    counts: bool = True
    """Whether the reward takes the test into account."""
    shared: bool = False
    """Whether the test ran in the program's interpreter: see sparring.core.verdict.Verdict.isolation."""
    kills: tuple[int, ...] = ()
    """Attempts whose programs fail this test."""

    def __post_init__(self) -> None:
        for name, most in OUTCOME_CHARACTERS.items():
            text = getattr(self, name)
            if len(text) > most:
                object.__setattr__(self, name, text[:most] + "…")


class TranscriptRef(NamedTuple):
    """A summary that stands for a trajectory's turns and outcomes when they were left with the rollout actor."""

    index: int
    """Index of the trajectory's transcript in `Episode.transcripts`."""
    tokens: int
    """Number of sampled tokens."""
    shared_tests: tuple[bool, ...]
    """See `Trajectory.shared_tests`."""


@dataclass(kw_only=True)
class Trajectory:
    """One player's part of an episode in one attempt: its turns in order, and the reward.

    Each turn's prompt extends the turn before it (prompt + completion + new prompt tokens), so a
    trajectory is one token sequence.
    """

    player: str
    attempt: int
    turns: list[Turn]
    reward: float | None = None
    """None until the trajectory is judged. If the sandbox fails, it stays None, and the trajectory is dropped."""
    components: dict[str, float] = field(default_factory=dict)
    """The parts of the reward by name, for the log."""
    artifact: str = ""
    """The result of the attempt: a program, or a test suite."""
    number: int = 1
    """Number of the attempt in its conversation, in games in which another attempt follows a failed one
    (attempts_per_episode). Attempts after the first hold only their own turn."""
    place: tuple[int, int] | None = None
    """(prefix, branch) if attempts branch (interfaces.Branching)."""
    outcomes: tuple[Outcome, ...] = ()
    """The result of each test, if the game has tests."""
    valid_tests: Mapping[str, float] = field(default_factory=dict)
    """CPU milliseconds by source of each valid test, if the artifact is a test suite."""
    group: str = ""
    """Attempts of one player in one episode that have the same `group` share a baseline."""
    kept: TranscriptRef | None = None
    """Set if the trajectory was played for training: turns, outcomes and valid_tests then stayed in the rollout actor
    (sparring/core/play.py)."""

    @property
    def token_count(self) -> int:
        return self.kept.tokens if self.kept else sum(len(turn.completion.tokens) for turn in self.turns)

    @property
    def shared_tests(self) -> tuple[bool, ...]:
        """Returns, for each test that counts, whether it ran in the program's interpreter."""
        return self.kept.shared_tests if self.kept else tuple(o.shared for o in self.outcomes if o.counts)

    def without_turns(self, index: int) -> "Trajectory":
        """Returns the trajectory without its turns, outcomes and valid_tests. index: see TranscriptRef."""
        return Trajectory(
            player=self.player,
            attempt=self.attempt,
            turns=[],
            reward=self.reward,
            components=self.components,
            artifact=self.artifact,
            number=self.number,
            place=self.place,
            group=self.group,
            kept=TranscriptRef(index, self.token_count, self.shared_tests),
        )

    @property
    def is_cut_off(self) -> bool:
        """Whether one of the turns was cut off by its token limit (max_tokens)."""
        return any(turn.completion.finish_reason is FinishReason.LENGTH for turn in self.turns)

    @property
    def version(self) -> int:
        """Oldest policy version among the turns."""
        return min(turn.completion.version for turn in self.turns)


@dataclass(frozen=True, kw_only=True)
class Mistakes:
    """Wrong programs, and tests that failed programs, of one episode. Later episodes use them again (Player.past)."""

    programs: tuple[str, ...] = ()
    """Distinct programs that pass at least one valid test and fail at least one."""
    tests: Mapping[str, bool] = field(default_factory=dict)
    """Whether a program failed the test, by the test's source as it was written. Holds the new tests that failed a program
    and all tests of earlier episodes that were used again."""


@dataclass(kw_only=True)
class Episode:
    """One play of one problem: all attempts of all players. The attempts of one player have the same problem and the same
    opponents; those with the same `group` share a baseline."""

    problem_id: str
    trajectories: list[Trajectory]
    mistakes: Mistakes = Mistakes()
    rows: bytes = b""
    """The attempts as lines of episodes.jsonl, if the episode was played for training."""
    transcripts: Any = None
    """Transcripts (sparring/core/batch.py), if the episode was played for training: a sequence that holds those of this episode's
    trajectories among others, or a reference to such a sequence after `sealed` (sparring/core/arrays.py)."""

    def judged(self, player: str) -> list[Trajectory]:
        """Returns the player's judged attempts."""
        return [t for t in self.trajectories if t.player == player and t.reward is not None]

    def groups(self, player: str) -> list[list[Trajectory]]:
        """Returns the player's judged attempts, grouped by the baseline that they share."""
        found: dict[str, list[Trajectory]] = {}
        for trajectory in self.judged(player):
            found.setdefault(trajectory.group, []).append(trajectory)
        return list(found.values())

    def dropped(self) -> Iterator[Trajectory]:
        return (t for t in self.trajectories if t.reward is None)
