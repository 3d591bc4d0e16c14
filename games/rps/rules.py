"""Rock-paper-scissors with an edge as a section of the config."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from core.evaluation import EvaluationSettings, Evaluator
from core.interfaces import Game, Sandbox
from core.problem import Problem
from games.rules import MatchRules


class RpsRules(MatchRules):
    """Self-play at rock-paper-scissors, where a win by rock pays more: the smallest game in which answering the opponent
    of today leads round in a circle."""

    kind: Literal["rps"] = "rps"
    edge: float = Field(default=2.0, ge=1)
    """Reward of a win by rock; other wins pay 1."""
    illegal_reward: float = Field(default=-3.0, le=0)
    """Earned by an answer that is no move; the other side then earns nothing. Keep it below -edge."""

    def game(self) -> Game:
        from games.rps.game import RpsGame

        return RpsGame(self)

    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator:
        from games.rps.evaluator import MixtureEvaluator

        return MixtureEvaluator(held_out, self.edge)
