"""REINFORCE++ (Hu 2025, arXiv:2501.03262, section 3.2): one normalisation over the whole batch, no groups.

Over its tokens, not its samples: what a long answer earned counts for each of its tokens. The batch's tokens are the
learner's (`learners/targets.py`, whiten); here rewards stay what they are.
"""

from collections.abc import Sequence

from learners.advantages.grpo import has_signal


def reinforce_pp(rewards_of_groups: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """The reward of each sample of one player's batch, whatever group it comes from; None where all are equal."""
    if not has_signal([reward for group in rewards_of_groups for reward in group]):
        return None
    return [list(group) for group in rewards_of_groups]
