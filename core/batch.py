"""What a learner learns from."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.arrays import FLAGS, FLOATS, IDS, hold
from core.episode import FinishReason, Trajectory


class Said(NamedTuple):
    """A turn's completion, tokens `first` to before `end` of a transcript."""

    stage: int
    first: int
    end: int
    cut_off: bool
    """By its length limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """All tokens of a trajectory as one sequence of length T.

    Example (T=6): tokens=(9, 8, 1, 2, 7, 3), logprobs=(0, 0, -.1, -.2, 0, -.3), turns=((1, 2, 4, False), (2, 5, 6, False))
    """

    tokens: Sequence[int]
    logprobs: Sequence[float]
    """Behaviour log-probabilities; 0 where not sampled."""
    turns: tuple[Said, ...]

    def __post_init__(self) -> None:
        hold(self, tokens=IDS, logprobs=FLOATS)


def transcript_of(trajectory: Trajectory) -> Transcript:
    """Raises ValueError where a turn's prompt does not extend the turn before it."""
    tokens, logprobs, turns = array(IDS), array(FLOATS), []
    for turn in trajectory.turns:
        if turn.prompt_tokens[: len(tokens)] != tokens:
            raise ValueError(f"{trajectory.player}: the prompt of stage {turn.stage} rewrites earlier tokens")
        tokens.extend(turn.prompt_tokens[len(tokens) :])
        logprobs.frombytes(bytes(logprobs.itemsize * (len(tokens) - len(logprobs))))
        cut_off = turn.completion.finish_reason is FinishReason.LENGTH
        turns.append(Said(turn.stage, len(tokens), len(tokens) + len(turn.completion.tokens), cut_off))
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
    """True where the policy chose the token (prompt tokens and stage markers put in by the game: False), and mask_truncated
    does not leave it out. These are the steps of GAE, and carry value loss."""
    trained: Sequence[int]
    """True where the token carries policy loss: sampled, and of a stage under training."""
    logprobs: Sequence[float]
    """Behaviour log-probabilities; 0 where not sampled."""
    reward: float
    """Of the whole trajectory, as the estimator wants it (raw, or relative to its group)."""
    advantage: float | None
    """Critic-free estimators fill it in (reinforce_pp: the reward, which the learner normalises over the batch's tokens);
    None where the learner's critic estimates it (GAE)."""
    player: str = ""
    """Advantages are normalised among those of one player: a policy that plays against itself has several."""
    segments: tuple[int, ...] = ()
    """Sampled tokens of each turn, where GAE is to take a turn as one step; empty: it goes token by token."""

    def __post_init__(self) -> None:
        hold(self, tokens=IDS, sampled=FLAGS, trained=FLAGS, logprobs=FLOATS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    step: int
    """Number of this update, counted per policy from 1."""
    samples: tuple[Sample, ...]
    temperature: float
    """Sampling temperature that `logprobs` were taken under."""
    seed: int
    """Seed of the minibatch order."""


class Reading(NamedTuple):
    """Which tokens of a transcript are learnt from."""

    stages: tuple[int, ...] | None = None
    """Those under training; None: all."""
    turns: int | None = None
    """So many, from the first; None: all."""
    mask_truncated: bool = False
    """Completions that were cut off by their length limit are taken for tokens that nobody chose: what is missing may be to
    blame for the reward."""
    by_turn: bool = False
    """GAE takes each turn as one step."""


class SampleSpec(NamedTuple):
    """What makes a sample of a transcript that is elsewhere."""

    transcripts: Any
    """As in Episode."""
    index: int
    player: str
    reward: float
    advantage: float | None
    reading: Reading


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
    """A batch whose tokens are elsewhere: they need not pass through who puts it together."""

    step: int
    samples: tuple[SampleSpec, ...]
    temperature: float
    seed: int

    def batch(
        self, fetch: Callable[[list[Any]], Sequence[Sequence[Transcript]]] = lambda there: there
    ) -> Batch:
        """fetch: what their `transcripts` are the references of, all at once."""
        places = {id(spec.transcripts): spec.transcripts for spec in self.samples}
        found = dict(zip(places, fetch(list(places.values())), strict=True))
        return Batch(
            step=self.step,
            samples=tuple(make_sample(found[id(s.transcripts)][s.index], s) for s in self.samples),
            temperature=self.temperature,
            seed=self.seed,
        )
