"""The training data of a learner: transcripts, samples and batches."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparring.core.arrays import FLAGS, FLOATS, IDS, hold
from sparring.core.episode import FinishReason, Trajectory


class CompletionSpan(NamedTuple):
    """The place of one turn's completion in a transcript: the tokens [first, end)."""

    stage: int
    first: int
    end: int
    cut_off: bool
    """Whether the completion was cut off by its length limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """All tokens of a trajectory as one sequence of length T.

    Example (T=6): tokens=(9, 8, 1, 2, 7, 3), logprobs=(0, 0, -.1, -.2, 0, -.3), turns=((1, 2, 4, False), (2, 5, 6, False))
    """

    tokens: Sequence[int]
    logprobs: Sequence[float]
    """Behaviour log-probabilities; 0 for tokens that were not sampled."""
    turns: tuple[CompletionSpan, ...]

    def __post_init__(self) -> None:
        hold(self, tokens=IDS, logprobs=FLOATS)


def transcript_of(trajectory: Trajectory) -> Transcript:
    """Joins the turns of a trajectory. Raises ValueError if a turn's prompt does not extend the turn before it."""
    tokens, logprobs, turns = array(IDS), array(FLOATS), []
    for turn in trajectory.turns:
        if turn.prompt_tokens[: len(tokens)] != tokens:
            raise ValueError(f"{trajectory.player}: the prompt of stage {turn.stage} rewrites earlier tokens")
        tokens.extend(turn.prompt_tokens[len(tokens) :])
        logprobs.frombytes(bytes(logprobs.itemsize * (len(tokens) - len(logprobs))))
        cut_off = turn.completion.finish_reason is FinishReason.LENGTH
        turns.append(
            CompletionSpan(turn.stage, len(tokens), len(tokens) + len(turn.completion.tokens), cut_off)
        )
        tokens.extend(turn.completion.tokens)
        logprobs.extend(turn.completion.logprobs)
    return Transcript(tokens=tokens, logprobs=logprobs, turns=tuple(turns))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One trajectory as one token sequence of length T.

    Example (T=5): tokens=(9, 4, 2, 7, 1), sampled=(F, F, T, T, T), trained=(F, F, F, T, T)
    """

    tokens: Sequence[int]
    sampled: Sequence[int]
    """True if the policy sampled the token and mask_truncated does not exclude it; False for prompt tokens and for stage
    markers that the game inserts. These tokens are the steps of GAE and carry value loss."""
    trained: Sequence[int]
    """True if the token carries policy loss: it is sampled and belongs to a stage under training."""
    logprobs: Sequence[float]
    """Behaviour log-probabilities; 0 for tokens that were not sampled."""
    reward: float
    """Reward of the whole trajectory, in the form that the estimator needs (raw, or relative to its group)."""
    advantage: float | None
    """Advantage from a critic-free estimator (reinforce_pp: the reward, which the learner normalises over the batch's
    tokens); None if the learner's critic estimates it (GAE)."""
    player: str = ""
    """Player of the trajectory. Advantages are normalised per player, since a policy that plays against itself has
    several players."""
    segments: tuple[int, ...] = ()
    """Number of sampled tokens of each turn, if GAE takes a turn as one step; empty if it takes a token as one step."""

    def __post_init__(self) -> None:
        hold(self, tokens=IDS, sampled=FLAGS, trained=FLAGS, logprobs=FLOATS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    step: int
    """Number of this update, counted per policy from 1."""
    samples: tuple[Sample, ...]
    temperature: float
    """Sampling temperature under which `logprobs` were computed."""
    seed: int
    """Seed of the minibatch order."""


class TokenSelection(NamedTuple):
    """The choice of the transcript's tokens that the policy learns from."""

    stages: tuple[int, ...] | None = None
    """Stages under training; None: all stages."""
    turns: int | None = None
    """Number of turns that are used, counted from the first; None: all turns."""
    mask_truncated: bool = False
    """If true, completions that were cut off by their length limit count as not sampled, since the missing rest may be
    the cause of the reward."""
    by_turn: bool = False
    """If true, GAE takes each turn as one step."""


class SampleSpec(NamedTuple):
    """A sample without its tokens. `make_sample` combines it with its transcript into a Sample."""

    transcripts: Any
    """The transcripts of several trajectories, or a reference to them: see Episode.transcripts."""
    index: int
    """Index of this sample's transcript in `transcripts`."""
    player: str
    reward: float
    advantage: float | None
    reading: TokenSelection


def make_sample(transcript: Transcript, spec: SampleSpec) -> Sample:
    reading = spec.reading
    turns = transcript.turns[: reading.turns]
    length = turns[-1].end if turns else 0
    sampled, trained, logprobs = bytearray(length), bytearray(length), array(FLOATS, bytes(8 * length))
    segments = []
    for stage, first, end, cut_off in turns:
        if first == end or (cut_off and reading.mask_truncated):
            continue
        sampled[first:end] = chosen = b"\1" * (end - first)
        if reading.stages is None or stage in reading.stages:
            trained[first:end] = chosen
        logprobs[first:end] = array(FLOATS, transcript.logprobs[first:end])
        segments.append(end - first)
    return Sample(
        tokens=transcript.tokens[:length],
        sampled=array(FLAGS, bytes(sampled)),
        trained=array(FLAGS, bytes(trained)),
        logprobs=logprobs,
        reward=spec.reward,
        advantage=spec.advantage,
        player=spec.player,
        segments=tuple(segments) if reading.by_turn else (),
    )


@dataclass(frozen=True, kw_only=True)
class BatchSpec:
    """A batch without its tokens, so that the tokens need not pass through the driver, which composes the batch."""

    step: int
    samples: tuple[SampleSpec, ...]
    temperature: float
    seed: int

    def batch(
        self, fetch: Callable[[list[Any]], Sequence[Sequence[Transcript]]] = lambda there: there
    ) -> Batch:
        """Returns the batch with its tokens.

        fetch: resolves the references in the samples' `transcripts`, all of them in one call.
        """
        places = {id(spec.transcripts): spec.transcripts for spec in self.samples}
        found = dict(zip(places, fetch(list(places.values())), strict=True))
        return Batch(
            step=self.step,
            samples=tuple(make_sample(found[id(s.transcripts)][s.index], s) for s in self.samples),
            temperature=self.temperature,
            seed=self.seed,
        )
