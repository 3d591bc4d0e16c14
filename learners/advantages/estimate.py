"""Computes the rewards and advantages of a batch's samples from the rewards of its groups, with the configured
estimator."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from learners.advantages.dr_grpo import dr_grpo
from learners.advantages.grpo import grpo, has_signal
from learners.advantages.hierarchical_grpo import hierarchical_grpo
from learners.advantages.rae import RoleBaselines
from learners.advantages.reinforce_pp import reinforce_pp
from learners.advantages.rloo import rloo
from learners.advantages.task_norm import TaskNormaliser
from learners.settings import Gae, GroupEstimator, LearnerSettings, Rae, ReinforcePp

GroupCredit = list[tuple[float, float | None]]
"""(reward, advantage) of each sample of a group."""

OF_GROUPS: dict[str, Callable[[Sequence[float]], list[float] | None]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
}


class Advantages:
    """The advantage estimator of one policy, with the state that it keeps from batch to batch."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._estimator = estimator = settings.estimator
        self._baselines = RoleBaselines((estimator if estimator.kind == "rae" else Rae()).decay)
        self._tasks = TaskNormaliser()

    def credit(
        self, groups: Sequence[Sequence[float]], *, game: str, player: str, parents: Sequence[str] = ()
    ) -> list[GroupCredit | None]:
        """Returns the credit of each group; None for a zero-variance group, which is left out of the batch and counted.

        Critic-free estimators give one advantage per sample. gae gives none: the learner's critic estimates it token by
        token. With center_rewards each reward is taken relative to its group's mean, so that the critic need not know
        how hard a problem is.

        Args:
            game, player: Keys of rae's moving averages.
            parents: Problem of each group. For hierarchical_grpo it is what the groups branched from; normalise_rewards
                keeps a mean and std for each.
        """
        estimator = self._estimator
        if not isinstance(estimator, GroupEstimator) and estimator.normalise_rewards == "task":
            groups = [
                self._tasks.normalise(f"{player}/{parent}", rewards)
                for rewards, parent in zip(groups, parents, strict=True)
            ]
        advantages: Sequence[list[float] | None]
        match estimator:
            case Gae():
                return [
                    _centred(rewards) if estimator.center_rewards else _raw(rewards) for rewards in groups
                ]
            case ReinforcePp():
                advantages = reinforce_pp(groups) or [None] * len(groups)
            case Rae():
                rewards = [reward for group in groups for reward in group]
                flat = iter(self._baselines.advantages(game, player, rewards))
                advantages = [[next(flat) for _ in group] for group in groups]
            case GroupEstimator(kind="hierarchical_grpo"):
                advantages = _by_parent(groups, parents)
            case GroupEstimator(kind=name):
                advantages = [OF_GROUPS[name](rewards) for rewards in groups]
        return [
            list(zip(rewards, of_group, strict=True)) if of_group is not None else None
            for rewards, of_group in zip(groups, advantages, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Returns JSON-compatible values."""
        return {"baselines": self._baselines.state_dict(), "tasks": self._tasks.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._baselines.load_state_dict(state["baselines"])
        self._tasks.load_state_dict(state["tasks"])


def _by_parent(groups: Sequence[Sequence[float]], parents: Sequence[str]) -> list[list[float] | None]:
    advantages: list[list[float] | None] = [None] * len(groups)
    for parent in dict.fromkeys(parents):
        places = [place for place, name in enumerate(parents) if name == parent]
        for place, found in zip(places, hierarchical_grpo([groups[p] for p in places]), strict=True):
            advantages[place] = found
    return advantages


def _raw(rewards_G: Sequence[float]) -> GroupCredit:
    return [(reward, None) for reward in rewards_G]


def _centred(rewards_G: Sequence[float]) -> GroupCredit | None:
    if not has_signal(rewards_G):  # only the value head's noise would be left
        return None
    baseline = fmean(rewards_G)
    return [(reward - baseline, None) for reward in rewards_G]
