"""Reads any other data set of Python problems with asserts. `fields` maps the fields of a problem to the set's columns."""

import ast
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparring.core.problem import Problem
from sparring.core.source import parse_or_none, unchecked
from sparring.problems.formats.records import Entry, problems_of
from sparring.problems.formats.sources import signature_under_test
from sparring.problems.loader import ProblemFileError, kind_of

FIELDS = (
    "id", "description", "function_signature", "baseline_tests",
    "reference_solution", "difficulty", "tags", "hidden_tests",
)  # fmt: skip
_NEEDED = ("description", "baseline_tests")


def columns(rows: Iterable[Entry], *, fields: Mapping[str, str]) -> list[Problem]:
    """Returns the problems of any data set.

    Tests are a list of strings, or one string, which may be a list in JSON or Python. Without a column for the id, the id is the
    problem's place in the data set; without a column for the signature, it is the signature of the solution's function that
    the tests call.

    Raises ProblemFileError.
    """
    return problems_of(rows, lambda entry: _problem(entry, fields))


def check_fields(path: Path, fields: Mapping[str, str]) -> None:
    """Raises ProblemFileError if a field is unknown or one that is needed is missing."""
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise ProblemFileError(
            f"{path}: fields: unknown field {unknown[0]!r}; use some of {', '.join(FIELDS)}"
        )
    missing = [field for field in _NEEDED if field not in fields]
    if missing:
        raise ProblemFileError(f"{path}: fields: no column for {missing[0]!r}; name the data set's column")


def _problem(entry: Entry, fields: Mapping[str, str]) -> Problem:
    for field, column in fields.items():
        if column not in entry.raw:
            raise entry.fault(
                column, "missing", f"a column for {field!r}; columns are {', '.join(entry.raw)}"
            )
    values = {field: entry.raw[column] for field, column in fields.items()}
    baseline = _tests(entry, fields["baseline_tests"], values["baseline_tests"])
    hidden = _tests(entry, fields["hidden_tests"], values["hidden_tests"]) if "hidden_tests" in fields else ()
    if not baseline and not hidden:
        raise entry.fault(fields["baseline_tests"], "no tests", "at least one assert")
    reference = _text(entry, fields, values, "reference_solution")
    if parse_or_none(reference) is None:
        raise entry.fault(fields["reference_solution"], "not Python", "a solution in Python 3")
    if not (description := _text(entry, fields, values, "description").strip()):
        raise entry.fault(fields["description"], "an empty text", "a text that states the task")
    signature = _text(entry, fields, values, "function_signature")
    tags = values.get("tags") or ()
    difficulty = values.get("difficulty")
    if isinstance(difficulty, float) and difficulty.is_integer():  # pandas, if some are missing
        difficulty = int(difficulty)
    return Problem(
        id=str(values["id"]) if "id" in values else f"{entry.path.stem}/{entry.index}",
        description=description,
        function_signature=signature or signature_under_test(reference, baseline or hidden) or "",
        baseline_tests=baseline,
        reference_solution=reference,
        difficulty=difficulty if isinstance(difficulty, str | int) else "unknown",
        tags=tuple(map(str, tags)) if isinstance(tags, list | tuple) else (str(tags),),
        hidden_tests=hidden,
    )


def _text(entry: Entry, fields: Mapping[str, str], values: Mapping[str, Any], field: str) -> str:
    value = values.get(field) or ""
    if not isinstance(value, str):
        raise entry.fault(fields[field], f"found {kind_of(value)}", f"a string, for {field!r}")
    return value


def _tests(entry: Entry, column: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        parsed = None
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                parsed = read(value)
                break
        value = parsed if isinstance(parsed, list) else [value] if value.strip() else []
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(test, str) for test in value):
        raise entry.fault(column, f"found {kind_of(value)}", 'asserts, such as ["assert f(1) == 2"]')
    for test in value:
        if (tree := parse_or_none(test)) is None:
            raise entry.fault(
                column, f"{test!r:.80}, which is not Python", "an assert, such as 'assert f(1) == 2'"
            )
        if (loose := unchecked(tree)) is not None:
            raise entry.fault(
                column, f"{loose!r:.80} checks nothing", "an assert, such as 'assert f(1) == 2'"
            )
    return tuple(value)
