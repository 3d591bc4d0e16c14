"""REINFORCE++ (Hu 2025, arXiv:2501.03262, section 3.2): one normalisation over the whole batch, no groups."""

from collections.abc import Sequence
from statistics import fmean, pstdev

from learners.advantages.grpo import has_signal

_EPSILON = 1e-8


def reinforce_pp(rewards_of_groups: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """(R - mean) / (std + eps) over all samples of one policy's batch, whatever group they come from.

    None where all rewards of the batch are equal.
    """
    rewards = [reward for group in rewards_of_groups for reward in group]
    if not has_signal(rewards):
        return None
    mean, std = fmean(rewards), pstdev(rewards)
    return [[(reward - mean) / (std + _EPSILON) for reward in group] for group in rewards_of_groups]
