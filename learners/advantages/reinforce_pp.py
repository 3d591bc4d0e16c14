"""REINFORCE++ (Hu 2025, arXiv:2501.03262, section 3.2): one normalisation over the whole batch, without groups.

The normalisation is over the batch's tokens, not its samples: the reward of a long answer counts for each of its
tokens. The learner does it (`learners/targets.py`, whiten); this module leaves the rewards as they are.
"""

from collections.abc import Sequence

from learners.advantages.grpo import has_signal


def reinforce_pp(rewards_of_groups: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """Returns the reward of each sample of one player's batch, whatever its group; None if all rewards are equal."""
    if not has_signal([reward for group in rewards_of_groups for reward in group]):
        return None
    return [list(group) for group in rewards_of_groups]
