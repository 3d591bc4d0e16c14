"""The evaluator of a run's game."""

from collections.abc import Sequence

from configs.sections import EVALUATION_PROBLEMS, EvaluationSettings
from core.interfaces import Sandbox
from core.problem import Problem
from evaluation.evaluator import Evaluator
from evaluation.matches import MatchEvaluator
from evaluation.multistage import MultistageEvaluator
from evaluation.prediction import PredictionEvaluator
from evaluation.solver import SolverEvaluator
from games.board_games import KuhnRules, TicTacToeRules
from games.choice import GameRules
from games.code_execution import CodeExecutionRules
from games.multistage import MultistageRules
from games.output_prediction import OutputPredictionRules
from games.unit_tests import UnitTestsRules


def build_evaluator(
    rules: GameRules, settings: EvaluationSettings, held_out: Sequence[Problem], sandbox: Sandbox
) -> Evaluator:
    problems = held_out[: settings.problems or EVALUATION_PROBLEMS]
    match rules:
        case TicTacToeRules() | KuhnRules():
            return MatchEvaluator(held_out)
        case MultistageRules():
            return MultistageEvaluator(
                problems, sandbox, rules.sandbox_limits, settings.suites, settings.bank_programs
            )
        case OutputPredictionRules():
            return PredictionEvaluator(problems, settings.bank_programs)
        case _:
            return SolverEvaluator(
                problems,
                sandbox,
                rules.sandbox_limits,
                samples=settings.samples,
                temperature=settings.temperature,
                pass_at=settings.pass_at,
                rewarded_tests=_rewarded_tests(rules),
            )


def _rewarded_tests(rules: GameRules) -> int | None:
    """See SolverEvaluator."""
    match rules:
        case UnitTestsRules(max_tests=count):
            return count
        case CodeExecutionRules(gate_on_tests=False):
            return 0
        case _:
            return None
