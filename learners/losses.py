"""Policy, KL and value losses over the trained tokens of a micro-batch, flattened to N. All are per token: the learner
weighs and sums them."""

from dataclasses import dataclass
from typing import Literal

import torch

Objective = Literal["ppo", "gspo", "cispo"]
KlEstimator = Literal["k1", "k2", "k3"]
LOG_RATIO = 20.0
"""Log ratios are held within this, as in verl and SkyRL: beyond e^88 fp32 has no gradient but NaN, even of a ratio that is
clipped."""
K3_MOST = 10.0
"""Of k3 at one token, as there: its exponential would outweigh all other tokens of a batch."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Per token; `clipped` and `approximate_kl` carry no gradient."""

    loss_N: torch.Tensor
    clipped_N: torch.Tensor
    """1 where clipping decides: the token has no gradient (cispo: has another weight)."""
    approximate_kl_N: torch.Tensor
    """k3, (r - 1) - log r, of KL(old || new)."""


def policy_loss(
    logprobs_N: torch.Tensor,
    old_logprobs_N: torch.Tensor,
    advantages_N: torch.Tensor,
    sequences_N: torch.Tensor,
    *,
    objective: Objective = "ppo",
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> PolicyLoss:
    """The negated objective of each token.

    Args:
        sequences_N: which sequence each token belongs to, 0 to B - 1.

    Sources:
        ppo: Schulman et al. 2017, arXiv:1707.06347, eq. 7; dual clip: Ye et al. 2020, arXiv:1912.09729, eq. 4.
        gspo: Zheng et al. 2025, arXiv:2507.18071, eq. 5-7, the ratio of a sequence being the geometric mean of its
        tokens' ratios; written token by token (eq. 14), so that a token's weight is that of its own gradient. cispo:
        MiniMax-M1 2025, arXiv:2506.13585, eq. 4-5.
    """
    log_ratio = logprobs_N - old_logprobs_N
    with torch.no_grad():
        held = log_ratio.clamp(-LOG_RATIO, LOG_RATIO)
        approximate_kl = held.exp() - 1 - held
    if objective == "gspo":
        log_ratio = _mean_of_sequence(log_ratio.detach(), sequences_N) + (logprobs_N - logprobs_N.detach())
    ratio = log_ratio.clamp(-LOG_RATIO, LOG_RATIO).exp()
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high)
    if objective == "cispo":
        clipped = (ratio.detach() != bounded.detach()).float()
        return PolicyLoss(-bounded.detach() * advantages_N * logprobs_N, clipped, approximate_kl)
    gain = torch.minimum(ratio * advantages_N, bounded * advantages_N)
    clipped = (gain < ratio * advantages_N).detach().float()
    if dual_clip is not None:
        gain = torch.where(advantages_N < 0, torch.maximum(gain, dual_clip * advantages_N), gain)
    return PolicyLoss(-gain, clipped, approximate_kl)


def _mean_of_sequence(values_N: torch.Tensor, sequences_N: torch.Tensor) -> torch.Tensor:
    """Each token's value replaced by the mean over its sequence."""
    size = int(sequences_N.max()) + 1 if len(sequences_N) else 0
    sums = values_N.new_zeros(size).index_add(0, sequences_N, values_N)
    counts = values_N.new_zeros(size).index_add(0, sequences_N, torch.ones_like(values_N))
    return (sums / counts.clamp(min=1))[sequences_N]


def kl(
    logprobs_N: torch.Tensor, reference_logprobs_N: torch.Tensor, estimator: KlEstimator = "k3"
) -> torch.Tensor:
    """Estimates of KL(policy || reference) at tokens drawn from the policy, with d = log ref - log pi: k1 = -d,
    k2 = d^2 / 2, k3 = e^d - d - 1 (Schulman, "Approximating KL divergence"), at most K3_MOST. k1 and k3 are unbiased but
    for that bound, k2 and k3 are never negative."""
    difference = reference_logprobs_N - logprobs_N
    if estimator == "k1":
        return -difference
    if estimator == "k2":
        return difference.square() / 2
    held = difference.clamp(-LOG_RATIO, LOG_RATIO)
    return (held.exp() - held - 1).clamp(max=K3_MOST)


def value_loss(
    values_N: torch.Tensor, old_values_N: torch.Tensor, returns_N: torch.Tensor, clip: float | None
) -> torch.Tensor:
    """Squared error (verl puts a half before it); with `clip` the larger of it and that of the value held within `clip`
    of the old one (PPO's reference implementation, openai/baselines ppo2)."""
    error = (values_N - returns_N).square()
    if clip is None:
        return error
    held = old_values_N + (values_N - old_values_N).clamp(-clip, clip)
    return torch.maximum(error, (held - returns_N).square())


def importance_weights(
    proximal_logprobs_N: torch.Tensor, behaviour_logprobs_N: torch.Tensor, cap: float
) -> torch.Tensor:
    """min(pi_proximal / pi_behaviour, cap): what decoupled PPO (Hilton et al. 2022, arXiv:2110.00641, eq. 7) weighs
    each token by, truncated (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training")."""
    return (proximal_logprobs_N - behaviour_logprobs_N).exp().clamp(max=cap)
