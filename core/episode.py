"""What happened: completions, turns, trajectories, episodes.

Without slots: pickle sets those of a dataclass one by one in Python, and the driver unpickles all episodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from core.arrays import FLOATS, IDS, hold

OUTCOME_CHARACTERS = 200


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Tokens a policy sampled, with the log-probability of each under the sampling distribution.

    Example: Completion(tokens=(41, 7, 1), logprobs=(-0.2, -1.1, -0.01), version=3, finish_reason="stop")

    As in Turn and Sample, what there is of each token is held as an array (core/arrays.py).
    """

    tokens: Sequence[int]
    """Sampled ids, the stop token included."""
    logprobs: Sequence[float]
    """Same length as tokens: log-softmax of logits / temperature at the sampled id."""
    version: int
    """Of the policy's weights: the oldest that sampled a token of it."""
    finish_reason: FinishReason
    cached: int = 0
    """Tokens of the prompt whose keys and values the engine had already."""
    later: tuple[tuple[int, int], ...] = ()
    """Versions that were published while it went on, each with the number of its first token."""

    def __post_init__(self) -> None:
        hold(self, tokens=IDS, logprobs=FLOATS)
        assert len(self.tokens) == len(self.logprobs)

    def versions(self) -> Iterator[tuple[int, int]]:
        """(version, how many tokens it sampled)."""
        spans = [(self.version, 0), *self.later]
        for (version, first), (_, end) in zip(spans, [*spans[1:], (0, len(self.tokens))], strict=True):
            yield version, end - first


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One completion of one player."""

    stage: int
    """Reasoning stage of the generator, from 1; in games without stages the number of the player's move, from 0."""
    prompt_tokens: Sequence[int]
    completion: Completion
    text: str
    """The completion, decoded for people and parsers; never retokenised."""

    def __post_init__(self) -> None:
        hold(self, prompt_tokens=IDS)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one test did, for people who ask why an attempt earned what it earned.

    Example:
        Outcome(test="assert f(1) == 3", owner="discriminator #0", status="WRONG_ANSWER")    # under a program
        Outcome(test="assert f(1) == 3", status="valid", kills=(2, 5))                       # in a suite
    """

    test: str
    """As all texts here, cut off after OUTCOME_CHARACTERS."""
    owner: str = ""
    """Whose test it is; empty where the attempt wrote it itself."""
    status: str
    """Of a program under the test: the verdict's. Of a test in a suite: what became of it."""
    error: str = ""
    counts: bool = True
    """False where the reward leaves it out."""
    shared: bool = False
    """The test ran in the program's interpreter: core.verdict.Verdict.isolation."""
    kills: tuple[int, ...] = ()
    """Attempts whose programs fail this test."""

    def __post_init__(self) -> None:
        for name in ("test", "error"):
            text = getattr(self, name)
            if len(text) > OUTCOME_CHARACTERS:
                object.__setattr__(self, name, text[:OUTCOME_CHARACTERS] + "…")


class Kept(NamedTuple):
    """What is known of a trajectory's turns where they are not."""

    index: int
    """Of its transcript, among the episode's."""
    tokens: int
    """Sampled ones."""


@dataclass(kw_only=True)
class Trajectory:
    """One player's trainable view of one attempt: its turns in order and what they earned.

    Each turn's prompt extends the turn before it (prompt + completion + new prompt tokens), so a
    trajectory is one token sequence.
    """

    player: str
    attempt: int
    turns: list[Turn]
    reward: float | None = None
    """None until judged; stays None when the sandbox failed: such a trajectory is dropped, never trained on."""
    components: dict[str, float] = field(default_factory=dict)
    """Every part of the reward, for the log."""
    artifact: str = ""
    """What the attempt made: a program, or a test suite."""
    number: int = 1
    """Of a conversation in which a failed attempt is followed by another (attempts_per_episode); one after the first has
    but its own turn."""
    place: tuple[int, int] | None = None
    """(prefix, branch) where attempts branch (interfaces.Branching)."""
    outcomes: tuple[Outcome, ...] = ()
    """What each test did, where the game has tests."""
    valid_tests: Mapping[str, float] = field(default_factory=dict)
    """Of a test suite: the source of each test that the reference confirms -> the CPU milliseconds that it needs."""
    group: str = ""
    """Attempts of one player in one episode share a baseline where this is the same."""
    kept: Kept | None = None
    """Where it was played for training: turns, outcomes and valid_tests stayed with who played it (core/play.py)."""

    @property
    def token_count(self) -> int:
        return self.kept.tokens if self.kept else sum(len(turn.completion.tokens) for turn in self.turns)

    def without_turns(self, index: int) -> "Trajectory":
        """index: see Kept."""
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
            kept=Kept(index, self.token_count),
        )

    @property
    def is_cut_off(self) -> bool:
        """Whether a turn of it ended for want of tokens (max_tokens)."""
        return any(turn.completion.finish_reason is FinishReason.LENGTH for turn in self.turns)

    @property
    def version(self) -> int:
        """Oldest version of the weights among the turns."""
        return min(turn.completion.version for turn in self.turns)


@dataclass(frozen=True, kw_only=True)
class Mistakes:
    """What was got wrong in an episode, for later ones to meet again (Player.past)."""

    programs: tuple[str, ...] = ()
    """Distinct ones that pass a valid test and fail another."""
    tests: Mapping[str, bool] = field(default_factory=dict)
    """Tests as they were written -> whether some program failed them: those that killed one, and all that were met
    again."""


@dataclass(kw_only=True)
class Episode:
    """One play of one problem: all attempts of all players. The attempts of one player share problem
    and opponents; they are the Group that shares a baseline."""

    problem_id: str
    trajectories: list[Trajectory]
    mistakes: Mistakes = Mistakes()
    rows: bytes = b""
    """Of play for training: its attempts as lines of episodes.jsonl."""
    transcripts: Any = None
    """Of play for training: its trajectories' among others, a sequence of core/batch.py's, or a reference to a sealed one."""

    def judged(self, player: str) -> list[Trajectory]:
        """The player's judged attempts."""
        return [t for t in self.trajectories if t.player == player and t.reward is not None]

    def groups(self, player: str) -> list[list[Trajectory]]:
        """The player's judged attempts by the baseline that they share."""
        found: dict[str, list[Trajectory]] = {}
        for trajectory in self.judged(player):
            found.setdefault(trajectory.group, []).append(trajectory)
        return list(found.values())

    def dropped(self) -> Iterator[Trajectory]:
        return (t for t in self.trajectories if t.reward is None)
