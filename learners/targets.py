"""The targets that each sampled token of a batch is learned from: advantages, and returns for the critic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from learners.advantages.gae import gae
from learners.settings import LearnerSettings
from sparring.core.batch import Sample

_NO_SPREAD = 1e-6
"""Standard deviation of advantages that count as equal."""


@dataclass(slots=True)
class Targets:
    """The targets of one sample, for its S sampled tokens in order."""

    advantages_S: torch.Tensor
    logprobs_S: torch.Tensor | None = None
    """The learner's own log-probabilities before the first update; None if nothing needs them, or the batch is one update."""
    returns_S: torch.Tensor | None = None
    """None for critic-free estimators, as is values_S."""
    values_S: torch.Tensor | None = None


def needs_first_pass(settings: LearnerSettings, samples: int) -> bool:
    """Returns whether the targets of so many samples depend on what the learner's networks say before the first update, and
    that update does not compute it by itself, as it does if it is the only one and there is no critic."""
    if settings.estimator.kind == "gae":
        return True
    return bool(settings.importance_cap) and (settings.epochs > 1 or samples > settings.minibatch_samples)


def over_the_batch(settings: LearnerSettings) -> bool:
    """Returns whether advantages are normalised over the batch's tokens."""
    return settings.estimator.kind in ("gae", "reinforce_pp")


def targets_of(
    sample: Sample,
    settings: LearnerSettings,
    *,
    logprobs_S: torch.Tensor | None = None,
    values_S: torch.Tensor | None = None,
    penalties_S: torch.Tensor | None = None,
) -> Targets:
    """Returns the targets of one sample.

    Args:
        penalties_S: Penalties that are subtracted from the tokens' rewards.

    Raises:
        ValueError: There are no values, and the sample has no advantage.
    """
    if values_S is None:
        if sample.advantage is None:
            raise ValueError(f"estimator {settings.estimator.kind} needs samples with advantages")
        return Targets(torch.full((sum(sample.sampled),), float(sample.advantage)), logprobs_S)
    rewards = torch.zeros_like(values_S)
    rewards[-1] = sample.reward
    if penalties_S is not None:
        rewards -= penalties_S
    gamma, lam = settings.gae.gamma, settings.gae.lam
    if sample.segments:
        advantages, returns = macro_gae(rewards, values_S, sample.segments, gamma, lam)
    else:
        advantages, returns = gae(rewards, values_S, gamma, lam)
    return Targets(advantages, logprobs_S, returns, values_S)


def macro_gae(
    rewards_S: torch.Tensor, values_S: torch.Tensor, segments: Sequence[int], gamma: float, lam: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes GAE with segments of tokens as single steps (options: Sutton et al. 1999).

    A segment's reward is the sum over its tokens, and its value is the value of its first token. All its tokens get the
    segment's advantage, and all their values are trained towards the segment's return.
    """
    counts = torch.tensor(segments, device=rewards_S.device)
    first = counts.cumsum(0) - counts
    rewards = torch.stack([part.sum() for part in rewards_S.split(list(segments))])
    advantages, returns = gae(rewards, values_S[first], gamma, lam)
    return advantages.repeat_interleave(counts), returns.repeat_interleave(counts)


def whiten(samples: Sequence[Sample], targets: Mapping[int, Targets]) -> None:
    """Normalises the advantages, in place, to zero mean and unit variance over the trained tokens that one player has
    in the batch. This is usual in PPO and REINFORCE++ (GRPO normalises over groups). If several players were normalised
    together, each player's advantages would depend on how the others fare."""
    of_player: dict[str, list[int]] = {}
    for i in targets:
        of_player.setdefault(samples[i].player, []).append(i)
    for indices in of_player.values():
        pooled = torch.cat([targets[i].advantages_S[_trained_of_sampled(samples[i])] for i in indices])
        mean = pooled.mean()
        std = pooled.std() if len(pooled) > 1 else torch.ones(())
        scale = 1 / (std + 1e-6) if std > _NO_SPREAD else 0.0  # else the mean's rounding would be scaled up
        for i in indices:
            targets[i].advantages_S = (targets[i].advantages_S - mean) * scale


def _trained_of_sampled(sample: Sample) -> torch.Tensor:
    return torch.tensor([bool(t) for t, s in zip(sample.trained, sample.sampled, strict=True) if s])
