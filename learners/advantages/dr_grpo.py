"""GRPO without its two biases (Liu et al. 2025, "Understanding R1-Zero-like training", arXiv:2503.20783, section 3)."""

from collections.abc import Sequence
from statistics import fmean

from learners.advantages.grpo import has_signal


def dr_grpo(rewards_G: Sequence[float]) -> list[float] | None:
    """Returns R - mean over one group, without division by the std, which would favour problems that are nearly solved
    or nearly hopeless. The other half of Dr.GRPO is `loss_normaliser: constant`. Returns None for a zero-variance
    group."""
    if not has_signal(rewards_G):
        return None
    mean = fmean(rewards_G)
    return [reward - mean for reward in rewards_G]
