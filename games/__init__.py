"""The games: each a room with its rules (its face to the house: games/rules.py), its play, its rewards, its evaluator.

Imports core only: policies, prompts' tokenizers and the sandbox are injected.
"""

from typing import Annotated, Literal

from pydantic import Field

from core.settings import kind_unless_said
from games.boards.rules import KuhnRules, TicTacToeRules
from games.multistage.game import MultistageGame
from games.multistage.rules import MultistageRules
from games.prediction.rules import OutputPredictionRules
from games.programs.code_execution import CodeExecutionRules
from games.programs.code_golf import CodeGolfRules
from games.programs.game import SolverGame
from games.programs.unit_tests import UnitTestsRules
from games.rps.rules import RpsRules

USUAL = MultistageRules()
"""Where nothing is said."""

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
    kind_unless_said(USUAL.kind),
]
"""All that there are. The only list."""


def in_stages(stages: int | None, attempts: int) -> MultistageGame:
    """In which a program is written stage by stage, outside of a run. stages: see MultistageRules. attempts: one after
    another."""
    return MultistageGame(MultistageRules(stages=stages, attempts_per_episode=attempts))


def at_one_go(answer_format: Literal["direct", "reasoning"], attempts: int) -> SolverGame:
    """In which a program is written in one turn."""
    return SolverGame(UnitTestsRules(answer_format=answer_format, attempts_per_episode=attempts))
