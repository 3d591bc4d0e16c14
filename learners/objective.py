"""The loss of one micro-batch, as its part of the minibatch's."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from learners.critic import Critic
from learners.losses import importance_weights, kl, policy_loss, value_loss
from learners.packing import MicroBatch, Row
from learners.settings import LearnerSettings
from learners.targets import Targets
from learners.tuning import Tuning

WATCHED = 16
"""While the loss does not need it, KL to the warm start is measured on one sequence of so many."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much a whole minibatch holds, over all workers."""

    samples: int
    trained: int
    """Tokens that carry policy loss."""
    sampled: int
    """Tokens that carry value loss."""


@dataclass(slots=True)
class Part:
    """What one micro-batch adds."""

    loss: torch.Tensor
    sums: dict[str, float] = field(default_factory=dict)
    """For the log: over the trained tokens, but value_loss over the sampled ones."""
    mismatches_P: torch.Tensor | None = None
    """|learner's - engine's log-probability| of the trained tokens."""


def micro_loss(
    micro: MicroBatch,
    targets: Mapping[int, Targets],
    policy: Tuning,
    critic: Critic | None,
    settings: LearnerSettings,
    temperature: float,
    size: Size,
    measure_kl: bool,
) -> Part:
    """measure_kl: score the reference even where the loss does not need it, on a share of the sequences."""
    trained_of_sampled = micro.trained_N[micro.sampled_N]
    scores = policy.score(
        micro.row,
        micro.sampled_N if critic else micro.trained_N,
        temperature,
        entropy_gradient=settings.entropy_coefficient > 0,
    )
    logprobs, entropy = scores.logprobs_P, scores.entropy_P
    if critic:
        logprobs, entropy = logprobs[trained_of_sampled], entropy[trained_of_sampled]
    behaviour = old = micro.logprobs_N[micro.trained_N]
    if settings.importance_cap is not None:
        old = _sampled(targets, micro, "logprobs_S")[trained_of_sampled]
    sequences = micro.sequences_N[micro.trained_N]
    policy_part = policy_loss(
        logprobs,
        old,
        _sampled(targets, micro, "advantages_S")[trained_of_sampled],
        sequences,
        objective=settings.objective,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        dual_clip=settings.dual_clip,
    )
    per_token = policy_part.loss_N
    if settings.importance_cap is not None:
        per_token = per_token * importance_weights(old, behaviour, settings.importance_cap)
    if settings.entropy_coefficient:
        per_token = per_token - settings.entropy_coefficient * entropy
    sums = {
        "policy_loss": policy_part.loss_N.sum().item(),
        "clip_fraction": policy_part.clipped_N.sum().item(),
        "approximate_kl": policy_part.approximate_kl_N.sum().item(),
        "entropy": entropy.sum().item(),
    }
    in_loss = settings.kl.kind == "loss"
    if in_loss or measure_kl:
        row, trained_N = (micro.row, micro.trained_N) if in_loss else _first_share(micro)
        reference = policy.score_reference(row, trained_N, temperature).logprobs_P
        here = logprobs[: len(reference)]
        sums |= {
            "kl_to_warm_start": kl(here.detach(), reference).sum().item(),
            "kl_tokens": float(len(reference)),
        }
        if settings.kl.kind == "loss":
            per_token = per_token + settings.kl.coefficient * kl(here, reference, settings.kl.estimator)
    loss = (per_token * _weights(micro, sequences, settings, size)).sum()
    if critic:
        errors = _value_errors(critic, micro, targets, scores.hidden_PH, settings)
        sums["value_loss"] = errors.item()
        loss = loss + errors / size.sampled
    return Part(loss, sums, (logprobs.detach() - behaviour).abs())


def _value_errors(
    critic: Critic,
    micro: MicroBatch,
    targets: Mapping[int, Targets],
    hidden_PH: torch.Tensor,
    settings: LearnerSettings,
) -> torch.Tensor:
    values = critic(micro.row, micro.sampled_N, hidden_PH)
    old_values, returns = (_sampled(targets, micro, name) for name in ("values_S", "returns_S"))
    return value_loss(values, old_values, returns, settings.gae.value_clip).sum()


def _first_share(micro: MicroBatch) -> tuple[Row, torch.Tensor]:
    """A sixteenth of the row's sequences: enough to watch KL by, at 2% of an update's work."""
    lengths = micro.row.lengths[: -(-len(micro.row.lengths) // WATCHED)]
    end = sum(lengths)
    return Row(micro.row.tokens_N[:end], micro.row.positions_N[:end], lengths), micro.trained_N[:end]


def _sampled(targets: Mapping[int, Targets], micro: MicroBatch, name: str) -> torch.Tensor:
    """One field of the targets, over all sampled tokens of the micro-batch."""
    return torch.cat([getattr(targets[i], name) for i in micro.indices]).to(micro.logprobs_N.device)


def _weights(
    micro: MicroBatch, sequences_P: torch.Tensor, settings: LearnerSettings, size: Size
) -> torch.Tensor | float:
    """What each trained token's loss counts for in the minibatch's."""
    match settings.loss_normaliser:
        case "token":
            return 1.0 / size.trained
        case "sequence":
            counts = torch.bincount(sequences_P, minlength=len(micro.indices))
            return 1.0 / (size.samples * counts[sequences_P])
        case "constant":
            assert settings.max_loss_tokens is not None
            return 1.0 / (size.samples * settings.max_loss_tokens)
