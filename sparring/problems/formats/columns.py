"""Reads any other data set of Python problems with asserts. `fields` maps the fields of a problem to the set's columns."""

import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sparring.core.problem import Problem
from sparring.problems.formats.records import SUFFIXES, Entry, entries
from sparring.problems.formats.sources import signature_under_test
from sparring.problems.loader import ProblemFileError, kind_of

FIELDS = (
    "id", "description", "function_signature", "baseline_tests",
    "reference_solution", "difficulty", "tags", "hidden_tests",
)  # fmt: skip
_NEEDED = ("description", "baseline_tests")


def columns(path: Path, *, fields: Mapping[str, str], split: str | None = None) -> list[Problem]:
    """Returns the problems of a local file, or, if `path` is "owner/name" and no file, of that data set on the hub.

    Tests are a list of strings, or one string, which may be a JSON list. Without a column for the id, the id is the
    problem's place in the file; without a column for the signature, it is the signature of the solution's function that
    the tests call.

    Raises ProblemFileError.
    """
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise ProblemFileError(
            f"{path}: fields: unknown field {unknown[0]!r}; use some of {', '.join(FIELDS)}"
        )
    missing = [field for field in _NEEDED if field not in fields]
    if missing:
        raise ProblemFileError(f"{path}: fields: no column for {missing[0]!r}; name the data set's column")
    is_hub_id = not path.exists() and path.suffix not in SUFFIXES and len(path.parts) == 2
    if split is not None and not is_hub_id:
        raise ProblemFileError(f"{path}: a file has no splits; leave out the split {split!r}")
    rows = _hub_entries(path, split or "train") if is_hub_id else entries(path, "fields")
    return [_problem(entry, fields) for entry in rows]


def _hub_entries(name: Path, split: str) -> Iterator[Entry]:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise ProblemFileError(
            f"{name}: no such file, and loading it from the hub needs datasets; run: pip install datasets"
        ) from None
    try:
        rows = datasets.load_dataset(name.as_posix(), split=split)
    except Exception as error:  # the library raises many kinds of errors
        reason = " ".join(str(error).split())[:200]
        raise ProblemFileError(
            f"{name}: the hub's data set cannot be loaded ({reason}); check name and split"
        ) from None
    for index, row in enumerate(rows):
        yield Entry(path=name, index=index, raw=dict(row), format="fields")


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
    signature = _text(entry, fields, values, "function_signature")
    tags = values.get("tags") or ()
    difficulty = values.get("difficulty")
    return Problem(
        id=str(values["id"]) if "id" in values else f"{entry.path.stem}/{entry.index}",
        description=_text(entry, fields, values, "description").strip(),
        function_signature=signature or signature_under_test(reference, baseline or hidden) or "",
        baseline_tests=baseline,
        reference_solution=reference,
        difficulty=difficulty if isinstance(difficulty, str | int) else "unknown",
        tags=(tags,) if isinstance(tags, str) else tuple(map(str, tags)),
        hidden_tests=hidden,
    )


def _text(entry: Entry, fields: Mapping[str, str], values: Mapping[str, Any], field: str) -> str:
    value = values.get(field) or ""
    if not isinstance(value, str):
        raise entry.fault(fields[field], f"found {kind_of(value)}", f"a string, for {field!r}")
    return value


def _tests(entry: Entry, column: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = None
        value = parsed if isinstance(parsed, list) else [value] if value.strip() else []
    if not isinstance(value, list) or not all(isinstance(test, str) for test in value):
        raise entry.fault(column, f"found {kind_of(value)}", 'asserts, such as ["assert f(1) == 2"]')
    return tuple(value)
