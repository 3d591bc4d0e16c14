"""What a learner learns from."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from core.arrays import FLAGS, FLOATS, IDS, hold
from core.episode import FinishReason, Trajectory


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


def sample_from(
    trajectory: Trajectory,
    advantage: float | None,
    trained_stages: Sequence[int] | None,
    *,
    reward: float | None = None,
    mask_truncated: bool = False,
    by_turn: bool = False,
) -> Sample:
    """Concatenate the trajectory's turns. trained_stages None trains every stage; reward is what the estimator made of
    the trajectory's own (None: that as it is); mask_truncated takes completions that were cut off by their length limit
    for tokens that nobody chose: what is missing may be to blame for the reward; by_turn has GAE take each turn as one
    step.

    Raises ValueError where a turn's prompt does not extend the turn before it.
    """
    tokens, sampled, trained, logprobs = array(IDS), array(FLAGS), array(FLAGS), array(FLOATS)
    segments: list[int] = []
    for turn in trajectory.turns:
        if turn.prompt_tokens[: len(tokens)] != tokens:
            raise ValueError(f"{trajectory.player}: the prompt of stage {turn.stage} rewrites earlier tokens")
        added = len(turn.prompt_tokens) - len(tokens)
        completion = turn.completion
        length = len(completion.tokens)
        chosen = not (mask_truncated and completion.finish_reason is FinishReason.LENGTH)
        learns = chosen and (trained_stages is None or turn.stage in trained_stages)
        tokens.extend(turn.prompt_tokens[len(tokens) :])
        tokens.extend(completion.tokens)
        for flags, flag in ((sampled, chosen), (trained, learns)):
            flags.frombytes(bytes(added) + bytes([flag]) * length)
        logprobs.frombytes(bytes(logprobs.itemsize * added))
        logprobs.extend(completion.logprobs if chosen else array(FLOATS, bytes(logprobs.itemsize * length)))
        segments += [length] if chosen and length else []
    assert trajectory.reward is not None, "an unjudged trajectory never becomes a sample"
    return Sample(
        tokens=tokens,
        sampled=sampled,
        trained=trained,
        logprobs=logprobs,
        reward=trajectory.reward if reward is None else reward,
        advantage=advantage,
        player=trajectory.player,
        segments=tuple(segments) if by_turn else (),
    )
