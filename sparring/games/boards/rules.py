"""Configs of the board games, and the matches on which they are evaluated."""

from collections.abc import Sequence
from typing import Literal

from sparring.core.evaluation import EvaluationSettings, Evaluator
from sparring.core.interfaces import Game, Sandbox
from sparring.core.problem import Problem
from sparring.games.boards import kuhn
from sparring.games.rules import SEATS, MatchRules, match, matches

_OPPONENTS = {"tictactoe": ("random", "minimax"), "kuhn": ("random", "equilibrium")}
PROBE = "probe"
"""Tag of a placeholder problem that asks for one move at an information set."""


ILLEGAL = {"tictactoe": -2.0, "kuhn": -3.0}
"""Reward of an illegal move, which ends the match; the other player then earns 0. It is below the worst legal result: else
a player in a bad position would lose nothing by an illegal move, and learn to make no other moves."""


class BoardRules(MatchRules):
    def game(self) -> Game:
        from sparring.games.boards.game import BoardGame

        return BoardGame(self)

    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator:
        from sparring.games.boards.evaluator import MatchEvaluator

        return MatchEvaluator(held_out)

    def own_problems(self, evaluated: int) -> tuple[list[Problem], list[Problem]]:
        return super().own_problems(evaluated)[0], evaluation_matches(self.kind, evaluated)


class TicTacToeRules(BoardRules):
    """Config of tic-tac-toe in self-play."""

    kind: Literal["tictactoe"] = "tictactoe"


class KuhnRules(BoardRules):
    """Config of Kuhn poker in self-play."""

    kind: Literal["kuhn"] = "kuhn"


def evaluation_matches(kind: str, per_opponent: int) -> list[Problem]:
    """Returns matches on both sides against each fixed opponent; for Kuhn poker also its twelve information sets."""
    found = [
        each
        for opponent in _OPPONENTS[kind]
        for seat in SEATS
        for each in matches(kind, per_opponent, f"{seat}-{opponent}-", (seat, opponent))
    ]
    if kind == "kuhn":
        sets = [name for role in (0, 1) for name in kuhn.information_sets(role)]
        found += [match(kind, f"kuhn-at-{name}", (PROBE, name)) for name in sets]
    return found
