"""The games: each a room with its rules (its face to the house: games/rules.py), its play, its rewards, its evaluator.

Imports core only: policies, prompts' tokenizers and the sandbox are injected.
"""

from typing import Annotated

from pydantic import Field

from core.settings import kind_unless_said
from games.boards.rules import KuhnRules, TicTacToeRules
from games.multistage.rules import MultistageRules
from games.prediction.rules import OutputPredictionRules
from games.programs.code_execution import CodeExecutionRules
from games.programs.code_golf import CodeGolfRules
from games.programs.unit_tests import UnitTestsRules

GameRules = Annotated[
    MultistageRules
    | CodeExecutionRules
    | OutputPredictionRules
    | UnitTestsRules
    | CodeGolfRules
    | TicTacToeRules
    | KuhnRules,
    Field(discriminator="kind"),
    kind_unless_said("multistage"),
]
"""All that there are. The only list."""
