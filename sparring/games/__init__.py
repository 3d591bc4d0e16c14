"""The games. Each game has a config section (sparring/games/rules.py), an implementation that plays it, rewards and an evaluator.

Of Sparring's packages, this one imports `core` only: the caller injects policies, tokenizers and the sandbox.
"""

from typing import Annotated

from pydantic import Field

from sparring.core.settings import default_kind
from sparring.games.boards.rules import KuhnRules, TicTacToeRules
from sparring.games.multistage.rules import MultistageRules
from sparring.games.prediction.rules import OutputPredictionRules
from sparring.games.programs.code_execution import CodeExecutionRules
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.games.programs.unit_tests import UnitTestsRules
from sparring.games.rps.rules import RpsRules

USUAL = MultistageRules()
"""The default game config."""

GameRules = Annotated[
    MultistageRules
    | CodeExecutionRules
    | OutputPredictionRules
    | UnitTestsRules
    | CodeGolfRules
    | RpsRules
    | TicTacToeRules
    | KuhnRules,
    Field(discriminator="kind"),
    default_kind(USUAL.kind),
]
"""The config of any game; the key `kind` selects the class. This union is the only list of games."""
