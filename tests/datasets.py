"""Small files in the formats of public data sets, and helpers for the tests of their readers."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparring.core.problem import Problem
from sparring.problems.formats import load_dataset
from sparring.problems.loader import ProblemFileError

DATA = Path(__file__).parent / "unit" / "problems" / "data"


def load(name: str, format: str, **options) -> dict[str, Problem]:
    return {problem.id: problem for problem in load_dataset(DATA / name, format, **options)}


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def error_of(path: Path, format: str, **options) -> str:
    with pytest.raises(ProblemFileError) as caught:
        load_dataset(path, format, **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(f"{path}: ")


def written(folder: Path, *entries: object, name: str = "set.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def problem_file(path: Path, problems: Sequence[Problem]) -> Path:
    """Writes a file of Python problems as a user would write it (format problems), and returns its path."""
    keys = (
        "id", "description", "function_signature", "baseline_tests", "hidden_tests", "reference_solution", "difficulty",
        "tags",
    )  # fmt: skip
    entries = [{key: getattr(problem, key) for key in keys} for problem in problems]
    path.write_text(json.dumps({"problems": entries}))
    return path


def outcome(program: str, test: Any) -> str:
    """Runs a test in this process and returns its outcome; the files hold trusted code only."""
    namespace: dict = {}
    limit = sys.getrecursionlimit()  # which a harness may raise
    try:
        exec(program, namespace)
        try:
            exec(test, namespace)
        except Exception as error:
            return type(error).__name__
        return "passed"
    finally:
        sys.setrecursionlimit(limit)


def without(row: dict, field: str) -> dict:
    return {name: value for name, value in row.items() if name != field}
