"""Maps each game to its embedded problems and demonstrations. A new game that is to run without a data set adds a row
here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparring.core.problem import Problem
from sparring.embedded import boards, code_execution, grid_tasks, lua, multistage, prediction, rps
from sparring.embedded.lessons import Lesson
from sparring.embedded.problems import Split, embedded_problems
from sparring.embedded.settings import Numbers, WarmStartSettings
from sparring.games.rules import Rules
from sparring.problems.loader import ProblemFileError


@dataclass(frozen=True, slots=True)
class Row:
    lesson: Callable[[Any, str, WarmStartSettings], Lesson]
    """Maps (game config, policy name, settings) to the demonstrations that the policy is trained on before play."""
    problems: Callable[[Split], list[Problem]] | None
    """Returns the embedded problems of a split; None if the game makes its own problems."""
    function: str = "f"
    """Name of the function that every program of this game defines."""


_ROWS: Mapping[str, Row] = {
    "multistage": Row(multistage.lesson, embedded_problems),
    "code_execution": Row(code_execution.lesson, embedded_problems),
    "unit_tests": Row(lua.lesson, lua.lua_problems),
    "output_prediction": Row(prediction.lesson, prediction.prediction_problems),
    "code_golf": Row(grid_tasks.lesson, grid_tasks.grid_problems, function="p"),
    "tictactoe": Row(boards.lesson, None),
    "kuhn": Row(boards.lesson, None),
    "rps": Row(rps.lesson, None),
}
"""The rows by kind of the game config."""


def problems_of(kind: str, split: Split, numbers: Numbers) -> list[Problem]:
    """Returns the embedded problems of a game and split. Raises ProblemFileError if the game has none.

    Args:
        numbers: size of the numbers in the problems of the multi-stage game; other games ignore it.
    """
    row = _ROWS.get(kind)
    if row is None or row.problems is None:
        raise ProblemFileError(
            f"problems.kind embedded: game {kind} has no embedded problems; give problems.file"
        )
    return embedded_problems(split, numbers) if kind == "multistage" else row.problems(split)


def describe_model(kind: str | None, numbers: Numbers) -> str:
    """Returns a description of an embedded model for its users, with an example of a problem that it can solve after
    training.

    Args:
        kind: kind of the game; None if it is not known.
        numbers: see problems_of.
    """
    example = _example(kind, numbers)
    such = f', such as "{example}"' if example else ""
    return (
        "This is an embedded model of 0.4M parameters: it shows that training works, and is of no other use. "
        f"It understands only texts of one kind{such}."
    )


def function_of(kind: str | None) -> str:
    """Returns the name of the function that the programs of the game's embedded models define. kind: see
    describe_model."""
    return _ROWS[kind].function if kind is not None and kind in _ROWS else "f"


def _example(kind: str | None, numbers: Numbers) -> str:
    """Returns an example problem text; empty if the game has no embedded problems."""
    if kind in ("multistage", "code_execution", "unit_tests"):
        return f"Return the sum of the above {613 if numbers == 'large' else 6} numbers in xs."
    row = _ROWS.get(kind or "")
    return row.problems("train")[0].description if row and row.problems else ""


def lesson_for(rules: Rules, role: str, settings: WarmStartSettings) -> Lesson:
    """Returns the demonstrations for a policy of the game. Raises ProblemFileError if the game has no embedded model."""
    if rules.kind not in _ROWS:
        raise ProblemFileError(
            f"{role}.model embedded: game {rules.kind} has no embedded model; give a directory or a hub id"
        )
    return _ROWS[rules.kind].lesson(rules, role, settings)
