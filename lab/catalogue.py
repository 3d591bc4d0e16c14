"""Maps each game to the demonstrations for its toy models."""

from collections.abc import Callable, Mapping
from typing import Any

from lab import boards, code_execution, grid_tasks, lua, multistage, prediction, rps
from lab.lessons import Lesson
from lab.settings import WarmUp
from sparring.games.rules import Rules
from sparring.problems.loader import ProblemFileError

_LESSONS: Mapping[str, Callable[[Any, str, WarmUp], Lesson]] = {
    "multistage": multistage.lesson,
    "code_execution": code_execution.lesson,
    "unit_tests": lua.lesson,
    "output_prediction": prediction.lesson,
    "code_golf": grid_tasks.lesson,
    "tictactoe": boards.lesson,
    "kuhn": boards.lesson,
    "rps": rps.lesson,
}
"""For each kind of game config: a function that maps (game config, policy name, settings) to the demonstrations that the
policy is trained on before play."""


def lesson_for(rules: Rules, role: str, settings: WarmUp) -> Lesson:
    """Returns the demonstrations for a policy of the game. Raises ProblemFileError if the game has no toy model."""
    if rules.kind not in _LESSONS:
        raise ProblemFileError(f"game {rules.kind} has no toy model")
    return _LESSONS[rules.kind](rules, role, settings)
