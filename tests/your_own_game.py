"""The game that docs/your_own_game.md builds, with the code of that page."""

import re
import sys
import types
from functools import cache
from pathlib import Path

from sparring.core.problem import Problem

PAGE = Path(__file__).parents[1] / "docs" / "your_own_game.md"
PROBLEMS = [
    {
        "id": name,
        "description": f"strings that are {name}",
        "function_signature": "def accepts(s: str) -> bool:",
        "baseline_tests": ["assert accepts('') is False"],
        "difficulty": "easy",
        "tags": [],
        "reference_solution": f"def accepts(s):\n    return s.{test}()\n",
    }
    for name, test in (
        ("digits", "isdigit"),
        ("letters", "isalpha"),
        ("upper case", "isupper"),
        ("blank", "isspace"),
    )
]


def source() -> str:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]


@cache
def module() -> types.ModuleType:
    made = types.ModuleType("games.regex")
    sys.modules[made.__name__] = made  # pydantic looks annotations up there
    exec(compile(source(), str(PAGE), "exec"), made.__dict__)
    return made


def problems() -> tuple[Problem, Problem]:
    first, second, *_ = (
        Problem(**{**entry, "baseline_tests": ()})
        for entry in PROBLEMS  # type: ignore[arg-type]
    )
    return first, second
