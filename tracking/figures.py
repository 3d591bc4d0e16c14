"""A step's row as the flat names that trackers draw: `generator/loss`, `held_out/test_validity`, and R1's own names."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.layers import leaves
from core.episode import Episode
from core.evaluation import Scores


def figures(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a nested mapping; what is no number, and what is not known, is left out.

    Example: {"step": 3, "phase": "generator", "generator": {"loss": 0.5}} -> {"step": 3.0, "generator/loss": 0.5}
    """
    return {key: float(value) for key, value in leaves(values, "/") if isinstance(value, int | float)}


def reward_figures(player: str, episodes: Sequence[Episode]) -> dict[str, float]:
    """R1's `reward/*`: the batch's mean reward of the player that the generator trains as; in games of prediction, how
    many outputs were predicted."""
    attempts = [t for e in episodes for t in e.trajectories]
    rewards = [t.reward for t in attempts if t.player == player and t.reward is not None]
    predicted = [t.components["predicted"] for t in attempts if "predicted" in t.components]
    found = {"reward/avg_batch_reward": sum(rewards) / len(rewards)} if rewards else {}
    return found | ({"reward/successful_predictions_count": sum(predicted)} if predicted else {})


def mbpp_figures(scores: Scores) -> dict[str, float]:
    """R1's `mbpp_eval/*`, of held-out problems that are MBPP's; nothing in a game that has no pass rate."""
    if "generator_pass_rate" not in scores.values:
        return {}
    return {
        "mbpp_eval/pass_rate": scores.values["generator_pass_rate"],
        "mbpp_eval/problems_passed": float(sum(share == 1.0 for share in scores.tasks.values())),
    }
