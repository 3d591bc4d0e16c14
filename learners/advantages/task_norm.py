"""Rewards measured against their own task's past: (R - mean) / std over all episodes of the task so far.

For tasks of unlike difficulty and games without groups. Mean and std are Welford's (1962), over the whole past with
equal weights: right for rewards that hold still, slow to follow a policy that learns fast.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_LEAST_STD = 1e-9
"""Below it rewards differ by rounding only."""


class TaskNormaliser:
    """Running mean and std of each task's rewards.

    A batch enters the statistics first and is normalised by them after (`RoleBaselines` does it the other way round).
    So a task's first batch has mean 0 and std 1 exactly and later ones nearly: reading first would pass the first
    batch through as it is. The price: a reward is measured against a mean that it is part of, by 1 / episodes.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[int, float, float]] = {}
        """(episodes, mean, sum of squared deviations)."""

    def mean(self, task_id: str) -> float:
        """0 before the first reward."""
        return self._tasks.get(task_id, (0, 0.0, 0.0))[1]

    def std(self, task_id: str) -> float:
        """The population's, without Bessel's correction; it is 0 before the second reward."""
        episodes, _, squares = self._tasks.get(task_id, (0, 0.0, 0.0))
        return (squares / episodes) ** 0.5 if episodes else 0.0

    def normalise(self, task_id: str, rewards_N: Sequence[float]) -> list[float]:
        """The rewards as numbers of std above the task's mean; all 0 while every reward so far was the same."""
        for reward in rewards_N:
            self._add(task_id, reward)
        mean, std = self.mean(task_id), self.std(task_id)
        if std < _LEAST_STD:
            return [0.0] * len(rewards_N)
        return [(reward - mean) / std for reward in rewards_N]

    def _add(self, task_id: str, reward: float) -> None:
        episodes, mean, squares = self._tasks.get(task_id, (0, 0.0, 0.0))
        off = reward - mean
        mean += off / (episodes + 1)
        self._tasks[task_id] = (episodes + 1, mean, squares + off * (reward - mean))

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"tasks": {task_id: list(known) for task_id, known in self._tasks.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._tasks = {task_id: (n, mean, squares) for task_id, (n, mean, squares) in state["tasks"].items()}
