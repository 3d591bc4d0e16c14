"""The games there are: their rules by kind, and the game of given rules."""

from typing import Annotated

from pydantic import Field

from core.interfaces import Game
from games.board_games import BoardGame, KuhnRules, TicTacToeRules
from games.code_execution import CodeExecutionGame, CodeExecutionRules
from games.code_golf import CodeGolfGame, CodeGolfRules
from games.multistage import MultistageGame, MultistageRules
from games.output_prediction import OutputPredictionGame, OutputPredictionRules
from games.unit_tests import UnitTestsGame, UnitTestsRules

GameRules = Annotated[
    MultistageRules
    | CodeExecutionRules
    | OutputPredictionRules
    | UnitTestsRules
    | CodeGolfRules
    | TicTacToeRules
    | KuhnRules,
    Field(discriminator="kind"),
]


def build_game(rules: GameRules) -> Game:
    match rules:
        case MultistageRules():
            return MultistageGame(rules)
        case CodeExecutionRules():
            return CodeExecutionGame(rules)
        case OutputPredictionRules():
            return OutputPredictionGame(rules)
        case UnitTestsRules():
            return UnitTestsGame(rules)
        case CodeGolfRules():
            return CodeGolfGame(rules)
        case TicTacToeRules() | KuhnRules():
            return BoardGame(rules)
