"""Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 11 and 16)."""

from itertools import accumulate

import torch


def gae(
    rewards_T: torch.Tensor, values_T: torch.Tensor, gamma: float, lam: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (advantages_T, returns_T) of one trajectory of T sampled tokens that ends with the episode.

    delta_t = r_t + gamma V_{t+1} - V_t with V_T = 0;  A_t = sum_l (gamma lam)^l delta_{t+l};  return = A + V.

    The sum is computed from the end, A_t = delta_t + gamma lam A_{t+1}, over Python floats: tensor operations for each
    token would take over ten times as long.
    """
    following = torch.cat([values_T[1:], values_T.new_zeros(1)])
    deltas = (rewards_T + gamma * following - values_T).tolist()
    backwards = accumulate(reversed(deltas), lambda later, delta: delta + gamma * lam * later)
    advantages = values_T.new_tensor(list(backwards)[::-1])
    return advantages, advantages + values_T
