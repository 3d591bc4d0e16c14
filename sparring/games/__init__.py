"""The games. Each game has a config section (sparring/games/rules.py), an implementation that plays it, rewards and an evaluator.

Of Sparring's packages, this one imports `core` only: the caller injects policies, tokenizers and the sandbox.
"""

from typing import Annotated, Literal

from pydantic import Field

from sparring.core.settings import default_kind
from sparring.games.boards.rules import KuhnRules, TicTacToeRules
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from sparring.games.prediction.rules import OutputPredictionRules
from sparring.games.programs.code_execution import CodeExecutionRules
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.games.programs.game import SolverGame
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


def in_stages(stages: int | None, attempts: int) -> MultistageGame:
    """Returns the game in which a program is written stage by stage, for use outside of a training run.

    Args:
        stages: number of reasoning stages, see MultistageRules.
        attempts: maximum number of programs that are written one after another, see MultistageRules.attempts_per_episode.
    """
    return MultistageGame(MultistageRules(stages=stages, attempts_per_episode=attempts))


def at_one_go(answer_format: Literal["direct", "reasoning"], attempts: int) -> SolverGame:
    """Returns the game in which a program is written in one turn, for use outside of a training run. attempts: as for
    `in_stages`."""
    return SolverGame(UnitTestsRules(answer_format=answer_format, attempts_per_episode=attempts))
