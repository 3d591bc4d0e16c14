"""REINFORCE leave-one-out (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740, eq. 8)."""

from collections.abc import Sequence
from statistics import fmean

from learners.advantages.grpo import has_signal


def rloo(rewards_G: Sequence[float]) -> list[float] | None:
    """Returns R_i - mean of the *other* rewards of the group, which is unbiased, unlike a baseline that contains R_i
    itself.

    It equals G / (G - 1) * (R_i - mean). Returns None for a zero-variance group.
    """
    if not has_signal(rewards_G):
        return None
    count, mean = len(rewards_G), fmean(rewards_G)
    return [count / (count - 1) * (reward - mean) for reward in rewards_G]
