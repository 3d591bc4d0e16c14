"""Policy, KL and value losses over the trained tokens of a micro-batch, flattened to N. All losses are per token; the
learner weights and sums them."""

from dataclasses import dataclass
from typing import Literal

import torch

Objective = Literal["ppo", "gspo", "cispo"]
KlEstimator = Literal["k1", "k2", "k3"]
LOG_RATIO = 20.0
"""Log ratios are clamped to this magnitude, as in verl and SkyRL. Beyond e^88 the gradient in fp32 is NaN, even if the
ratio is clipped."""
K3_MOST = 10.0
"""Maximum of k3 at one token, as in verl and SkyRL. Its exponential would otherwise outweigh all other tokens of a
batch."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """The loss of each token. `clipped_N` and `approximate_kl_N` carry no gradient."""

    loss_N: torch.Tensor
    clipped_N: torch.Tensor
    """1 if clipping takes effect: the token has no gradient (cispo: it has another weight)."""
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
    """Returns the negated objective of each token.

    Args:
        sequences_N: Number of the sequence that each token belongs to, 0 to B - 1.

    Sources:
        ppo: Schulman et al. 2017, arXiv:1707.06347, eq. 7; dual clip: Ye et al. 2020, arXiv:1912.09729, eq. 4.
        gspo: Zheng et al. 2025, arXiv:2507.18071, eq. 5-7. The ratio of a sequence is the geometric mean of its tokens'
            ratios. The loss is written token by token (eq. 14), so that a token's weight multiplies the token's own
            gradient.
        cispo: MiniMax-M1 2025, arXiv:2506.13585, eq. 4-5.
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
    """Returns, for each token, the mean of the values over its sequence."""
    size = int(sequences_N.max()) + 1 if len(sequences_N) else 0
    sums = values_N.new_zeros(size).index_add(0, sequences_N, values_N)
    counts = values_N.new_zeros(size).index_add(0, sequences_N, torch.ones_like(values_N))
    return (sums / counts.clamp(min=1))[sequences_N]


def kl(
    logprobs_N: torch.Tensor, reference_logprobs_N: torch.Tensor, estimator: KlEstimator = "k3"
) -> torch.Tensor:
    """Returns estimates of KL(policy || reference) at tokens sampled from the policy. With d = log ref - log pi, they
    are k1 = -d, k2 = d^2 / 2 and k3 = e^d - d - 1, at most K3_MOST (Schulman, "Approximating KL divergence"). k1 and k3
    are unbiased except for that bound; k2 and k3 are never negative."""
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
    """Returns the squared error (verl has a factor of one half). With `clip`, returns the larger of this error and the
    error of the value clamped to within `clip` of the old value (PPO's reference implementation, openai/baselines
    ppo2)."""
    error = (values_N - returns_N).square()
    if clip is None:
        return error
    held = old_values_N + (values_N - old_values_N).clamp(-clip, clip)
    return torch.maximum(error, (held - returns_N).square())


def importance_weights(
    proximal_logprobs_N: torch.Tensor, behaviour_logprobs_N: torch.Tensor, cap: float
) -> torch.Tensor:
    """Returns min(pi_proximal / pi_behaviour, cap): each token's weight in decoupled PPO (Hilton et al. 2022,
    arXiv:2110.00641, eq. 7), truncated (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training")."""
    return (proximal_logprobs_N - behaviour_logprobs_N).exp().clamp(max=cap)
