"""Converts a step's row of metrics to the flat names that trackers use, such as `generator/loss` and
`held_out/test_validity`, and computes the metrics `reward/*` and `mbpp_eval/*`."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.layers import leaves
from sparring.core.episode import Episode
from sparring.core.evaluation import Scores


def figures(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of a nested mapping by flat names. Values that are None or no numbers are left out.

    Example: {"step": 3, "phase": "generator", "generator": {"loss": 0.5}} -> {"step": 3.0, "generator/loss": 0.5}
    """
    return {key: float(value) for key, value in leaves(values, "/") if isinstance(value, int | float)}


def reward_figures(player: str, episodes: Sequence[Episode]) -> dict[str, float]:
    """Returns the metrics `reward/*`: the batch's mean reward of `player` and, in prediction games, the number of outputs
    that were predicted."""
    attempts = [t for e in episodes for t in e.trajectories]
    rewards = [t.reward for t in attempts if t.player == player and t.reward is not None]
    predicted = [t.components["predicted"] for t in attempts if "predicted" in t.components]
    found = {"reward/avg_batch_reward": sum(rewards) / len(rewards)} if rewards else {}
    return found | ({"reward/successful_predictions_count": sum(predicted)} if predicted else {})


def mbpp_figures(scores: Scores) -> dict[str, float]:
    """Returns the metrics `mbpp_eval/*`, for held-out problems from MBPP. Empty if the game has no pass rate."""
    if "generator_pass_rate" not in scores.values:
        return {}
    return {
        "mbpp_eval/pass_rate": scores.values["generator_pass_rate"],
        "mbpp_eval/problems_passed": float(sum(share == 1.0 for share in scores.tasks.values())),
    }
