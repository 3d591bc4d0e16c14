"""From the rewards of one group to what each of its samples learns from, by the estimator's name."""

from collections.abc import Sequence
from statistics import fmean

from learners.advantages.grpo import grpo
from learners.settings import LearnerSettings


def group_credit(
    settings: LearnerSettings, rewards_G: Sequence[float]
) -> list[tuple[float, float | None]] | None:
    """(reward, advantage) of each sample; None for a group without signal.

    grpo: rewards as they are, one advantage per sample. gae: the advantage is None, the learner's value head
    estimates it token by token; with center_rewards each reward is taken relative to its group's mean, so that
    the value head need not know how hard a problem is.
    """
    if settings.estimator == "grpo":
        advantages = grpo(rewards_G)
        return list(zip(rewards_G, advantages, strict=True)) if advantages is not None else None
    baseline = 0.0
    if settings.center_rewards:
        baseline = fmean(rewards_G)
        if max(rewards_G) - min(rewards_G) < 1e-9:  # what is left would be the value head's noise
            return None
    return [(reward - baseline, None) for reward in rewards_G]
