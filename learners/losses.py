"""Policy and value losses over the trained tokens of a minibatch, flattened to N."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Sums over the N tokens, to be divided by the minibatch's token count."""

    loss: torch.Tensor
    clipped: torch.Tensor
    approximate_kl: torch.Tensor


def clipped_surrogate(
    logprobs_N: torch.Tensor,
    old_logprobs_N: torch.Tensor,
    advantages_N: torch.Tensor,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """PPO's clipped objective, negated (Schulman et al. 2017, arXiv:1707.06347, eq. 7), summed.

    approximate_kl is k3, (r - 1) - log r, of KL(old || new).
    """
    log_ratio = logprobs_N - old_logprobs_N
    ratio = log_ratio.exp()
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high)
    objective = torch.minimum(ratio * advantages_N, bounded * advantages_N)
    with torch.no_grad():
        clipped = ((ratio - bounded).abs() > 0).float().sum()
        approximate_kl = (ratio - 1 - log_ratio).sum()
    return PolicyLoss(-objective.sum(), clipped, approximate_kl)


def kl_k3(logprobs_N: torch.Tensor, reference_logprobs_N: torch.Tensor) -> torch.Tensor:
    """Per-token estimate of KL(policy || reference) at tokens drawn from the policy: e^d - d - 1 with
    d = log ref - log pi (Schulman, "Approximating KL divergence", k3). Non-negative, unbiased."""
    difference = reference_logprobs_N - logprobs_N
    return difference.exp() - difference - 1
