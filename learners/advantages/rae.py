"""Role-conditioned advantage estimation (Liu et al. 2025, SPIRAL, arXiv:2506.24119, section 3.3): a baseline per game
and player, for games without groups."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any


class RoleBaselines:
    """Exponential moving averages of the rewards of each (game, player), corrected for their start at zero.

    The baseline is read before the batch updates it, so a batch is compared with earlier batches only. The average
    remembers as many trajectories as the paper's, which is updated with each trajectory. Within a batch, however, all
    trajectories have equal weight, because the order in which they ended means nothing. Draws count like any other
    outcome. Nothing is divided by a std, least of all by one over several players.
    """

    def __init__(self, decay: float) -> None:
        """`decay` is the weight of the past at each trajectory, alpha in the paper (0.95 there)."""
        self._decay = decay
        self._averages: dict[tuple[str, str], tuple[float, int]] = {}
        """(uncorrected average, trajectories seen)."""

    def baseline(self, game: str, player: str) -> float:
        """Returns the expected reward; 0 before the first batch."""
        average, seen = self._averages.get((game, player), (0.0, 0))
        return average / (1 - self._decay**seen) if seen else 0.0

    def advantages(self, game: str, player: str, rewards_N: Sequence[float]) -> list[float]:
        """Returns R - b for one batch of one player, and then updates b with the batch's mean."""
        if not rewards_N:
            return []
        baseline = self.baseline(game, player)
        average, seen = self._averages.get((game, player), (0.0, 0))
        past = self._decay ** len(rewards_N)
        average = past * average + (1 - past) * fmean(rewards_N)
        self._averages[game, player] = (average, seen + len(rewards_N))
        return [reward - baseline for reward in rewards_N]

    def state_dict(self) -> dict[str, Any]:
        """Returns JSON-compatible values."""
        return {"averages": [[*key, *value] for key, value in self._averages.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._averages = {(game, player): (average, n) for game, player, average, n in state["averages"]}
