"""Config of rock-paper-scissors with an edge."""

from collections.abc import Sequence
from typing import Literal

from sparring.core.evaluation import EvaluationSettings, Evaluator
from sparring.core.interfaces import Game, Sandbox
from sparring.core.problem import Problem
from sparring.games.rules import MatchRules


class RpsRules(MatchRules):
    """Config of rock-paper-scissors in self-play, in which a win by rock pays more. It is the smallest game in which
    learning the best response to the current opponent leads round in a circle."""

    kind: Literal["rps"] = "rps"

    def game(self) -> Game:
        from sparring.games.rps.game import RpsGame

        return RpsGame(self)

    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator:
        from sparring.games.rps.evaluator import MixtureEvaluator

        return MixtureEvaluator(held_out)
