"""Board games as a section of the config, and the matches that stand in the place of problems."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from core.evaluation import EvaluationSettings, Evaluator
from core.interfaces import Game, Sandbox
from core.problem import Problem
from games.boards import kuhn
from games.rules import Need, Rules

SEATS = ("first", "second")
_OPPONENTS = {"tictactoe": ("random", "minimax"), "kuhn": ("random", "equilibrium")}
PROBE = "probe"
"""Tag of a problem that asks for one move at an information set."""


class BoardRules(Rules):
    illegal_reward: float = Field(default=-2.0, le=0)
    """Earned by an illegal move, which ends the match. Keep it below the worst legal result: else a player who stands
    badly loses nothing by it, and learns to make no other moves."""
    illegal_opponent_reward: float = Field(default=0.0, ge=0)
    """Earned by the other side then."""

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset()

    @property
    def seats(self) -> dict[str, str]:
        return dict.fromkeys(SEATS, "generator")

    def game(self) -> Game:
        from games.boards.game import BoardGame

        return BoardGame(self)

    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator:
        from games.boards.evaluator import MatchEvaluator

        return MatchEvaluator(held_out)

    def own_problems(self, evaluated: int) -> tuple[list[Problem], list[Problem]]:
        return training_matches(self.kind), evaluation_matches(self.kind, evaluated)

    def why(self, player: str, components: Mapping[str, float]) -> str:
        if components["illegal"]:
            return "made an illegal move (game.illegal_reward)"
        result = [name for name in ("win", "draw", "loss") if components[name]]
        return result[0] if result else "the other side made an illegal move (game.illegal_opponent_reward)"


class TicTacToeRules(BoardRules):
    """R1: self-play at tic-tac-toe."""

    kind: Literal["tictactoe"] = "tictactoe"


class KuhnRules(BoardRules):
    """R1: self-play at Kuhn poker."""

    kind: Literal["kuhn"] = "kuhn"
    illegal_reward: float = Field(default=-3.0, le=0)
    """As above; a called bet loses 2."""


def training_matches(kind: str, count: int = 64) -> list[Problem]:
    """Matches of a policy against itself. They differ in their seeds only."""
    return [_match(kind, f"{kind}-{number:03d}", ()) for number in range(count)]


def evaluation_matches(kind: str, per_opponent: int) -> list[Problem]:
    """Matches on both sides against each fixed opponent; for Kuhn poker its twelve information sets, too."""
    matches = [
        _match(kind, f"{kind}-{seat}-{opponent}-{number:03d}", (seat, opponent))
        for opponent in _OPPONENTS[kind]
        for seat in SEATS
        for number in range(per_opponent)
    ]
    if kind == "kuhn":
        sets = [name for role in (0, 1) for name in kuhn.information_sets(role)]
        matches += [_match(kind, f"kuhn-at-{name}", (PROBE, name)) for name in sets]
    return matches


def _match(kind: str, name: str, tags: tuple[str, ...]) -> Problem:
    return Problem(
        id=name, description=kind, function_signature="", baseline_tests=(), reference_solution="", tags=tags
    )
