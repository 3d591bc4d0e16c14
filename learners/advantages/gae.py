"""Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 11 and 16)."""

import torch


def gae(
    rewards_T: torch.Tensor, values_T: torch.Tensor, gamma: float, lam: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(advantages_T, returns_T) of one trajectory of T sampled tokens that ends with the episode.

    delta_t = r_t + gamma V_{t+1} - V_t with V_T = 0;  A_t = sum_l (gamma lam)^l delta_{t+l};  return = A + V.
    """
    following = torch.cat([values_T[1:], values_T.new_zeros(1)])
    deltas = rewards_T + gamma * following - values_T
    advantages = torch.empty_like(deltas)
    running = deltas.new_zeros(())
    for t in range(len(deltas) - 1, -1, -1):
        running = deltas[t] + gamma * lam * running
        advantages[t] = running
    return advantages, advantages + values_T
