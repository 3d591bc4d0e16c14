"""REINFORCE leave-one-out (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740, eq. 8)."""

from collections.abc import Sequence
from statistics import fmean

from learners.advantages.grpo import has_signal


def rloo(rewards_G: Sequence[float]) -> list[float] | None:
    """R_i - mean of the *other* rewards of the group: unbiased, unlike a baseline that holds R_i itself.

    Equal to G / (G - 1) * (R_i - mean). None for a group without signal.
    """
    if not has_signal(rewards_G):
        return None
    count, mean = len(rewards_G), fmean(rewards_G)
    return [count / (count - 1) * (reward - mean) for reward in rewards_G]
