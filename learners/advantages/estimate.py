"""Advantages of one group, by the estimator's name."""

from collections.abc import Sequence

from learners.advantages.grpo import grpo


def group_advantages(estimator: str, rewards_G: Sequence[float]) -> Sequence[float | None] | None:
    """One advantage per sample; None for a group without signal. With gae each is None: the learner's value
    head estimates them token by token."""
    if estimator == "gae":
        return [None] * len(rewards_G)
    return grpo(rewards_G)
