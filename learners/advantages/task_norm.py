"""Normalises rewards by their own task's history: (R - mean) / std over all episodes of the task so far.

Useful for tasks of different difficulty and for games without groups. Mean and std are computed by Welford's method
(1962), over the whole history with equal weights. This is right for stationary rewards, but follows a policy that
learns fast only slowly.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_LEAST_STD = 1e-9
"""A std below this means that rewards differ by rounding only."""


class TaskNormaliser:
    """Running mean and std of each task's rewards.

    A batch enters the statistics first and is then normalised by them (`RoleBaselines` does it the other way round). So
    the first batch of a task has exactly mean 0 and std 1, and later batches nearly do; if the statistics were read
    first, the first batch would pass unchanged. The disadvantage: a reward is part of the mean that it is compared
    with, with weight 1 / episodes.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[int, float, float]] = {}
        """(episodes, mean, sum of squared deviations)."""

    def mean(self, task_id: str) -> float:
        """Returns the mean of the task's rewards; 0 before the first reward."""
        return self._tasks.get(task_id, (0, 0.0, 0.0))[1]

    def std(self, task_id: str) -> float:
        """Returns the population's std, without Bessel's correction; 0 before the second reward."""
        episodes, _, squares = self._tasks.get(task_id, (0, 0.0, 0.0))
        return (squares / episodes) ** 0.5 if episodes else 0.0

    def normalise(self, task_id: str, rewards_N: Sequence[float]) -> list[float]:
        """Adds the rewards to the statistics, and returns how many std each lies above the task's mean; all 0 while
        every reward so far was the same."""
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
        """Returns JSON-compatible values."""
        return {"tasks": {task_id: list(known) for task_id, known in self._tasks.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._tasks = {task_id: (n, mean, squares) for task_id, (n, mean, squares) in state["tasks"].items()}
