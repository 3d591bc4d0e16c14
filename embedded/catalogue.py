"""What the embedded world has for each game: a row each. A new game that wants to run without data adds one here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.problem import Problem
from embedded import boards, code_execution, grid_tasks, lua, multistage, prediction, rps
from embedded.lessons import Lesson
from embedded.problems import Split, embedded_problems
from embedded.settings import Numbers, WarmStartSettings
from games.rules import Rules
from problems.loader import ProblemFileError


@dataclass(frozen=True, slots=True)
class Row:
    lesson: Callable[[Any, str, WarmStartSettings], Lesson]
    """(the game's rules, the policy's name, settings) -> what that policy is shown before it plays."""
    problems: Callable[[Split], list[Problem]] | None
    """None: the game brings its own."""
    function: str = "f"
    """Name of the function that every program defines."""


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
"""By the kind of the game's rules."""


def problems_of(kind: str, split: Split, numbers: Numbers) -> list[Problem]:
    """A split of the game's embedded problems. numbers: of the multi-stage game's. Raises ProblemFileError."""
    row = _ROWS.get(kind)
    if row is None or row.problems is None:
        raise ProblemFileError(
            f"problems.kind embedded: game {kind} has no embedded problems; give problems.file"
        )
    return embedded_problems(split, numbers) if kind == "multistage" else row.problems(split)


def describe_model(kind: str | None, numbers: Numbers) -> str:
    """Says to the users of an embedded model what it is, and gives a problem's text that it can solve after a run.

    Args:
        kind: of its game; None if that is not known.
        numbers: see problems_of.
    """
    example = _example(kind, numbers)
    such = f', such as "{example}"' if example else ""
    return (
        "This is an embedded model of 0.4M parameters: it shows that training works, and is of no other use. "
        f"It understands only texts of one kind{such}."
    )


def function_of(kind: str | None) -> str:
    """Name of the function that the programs of the game's embedded models define. kind: as in describe_model."""
    return _ROWS[kind].function if kind is not None and kind in _ROWS else "f"


def _example(kind: str | None, numbers: Numbers) -> str:
    """Empty for a game that brings its own problems."""
    if kind in ("multistage", "code_execution", "unit_tests"):
        return f"Return the sum of the above {613 if numbers == 'large' else 6} numbers in xs."
    row = _ROWS.get(kind or "")
    return row.problems("train")[0].description if row and row.problems else ""


def lesson_for(rules: Rules, role: str, settings: WarmStartSettings) -> Lesson:
    """What a policy is shown of the game. Raises ProblemFileError."""
    if rules.kind not in _ROWS:
        raise ProblemFileError(
            f"{role}.model embedded: game {rules.kind} has no embedded model; give a directory or a hub id"
        )
    return _ROWS[rules.kind].lesson(rules, role, settings)
