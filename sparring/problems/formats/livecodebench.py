"""Reads LiveCodeBench: contest problems with public and private tests, some of whole programs, some of one function.

The data set has no solutions, so `reference_solution` is empty.
"""

import base64
import io
import json
import pickle
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, field_validator

from sparring.core.problem import Problem
from sparring.core.verdict import Test
from sparring.problems.formats.outputs import LiveCodeBenchTest
from sparring.problems.formats.records import Entry, Record, problems_of
from sparring.problems.formats.sources import (
    HARNESS_IMPORTS,
    call_test,
    limits_for,
    method_of_solution,
    signature_of,
)
from sparring.problems.loader import parse_json

_CPU_S = 6.0
"""Seconds per test in the data set's own evaluation."""
_CASES = 'a JSON list of {"input", "output", "testtype": "stdin" or "functional"}'


class _LiveCodeBenchRecord(Record):
    question_id: str = Field(min_length=1, description='the question\'s id, such as "abc301_a"')
    question_title: str = Field(description="the question's title")
    question_content: str = Field(min_length=1, description="the question's text")

    @field_validator("contest_date", mode="before")
    @classmethod
    def _as_text(cls, date: object) -> object:
        return date.isoformat() if isinstance(date, datetime) else date  # as parquet files have it

    platform: str = Field(default="", description='where it was asked, such as "atcoder"')
    contest_date: str = Field(default="", description='an ISO date, such as "2023-05-13T00:00:00"')
    starter_code: str = Field(default="", description="the head of the function, or nothing")
    difficulty: str = Field(default="unknown", description='a word, such as "easy"')
    public_test_cases: str | list[Any] = Field(description=_CASES)
    private_test_cases: str | list[Any] = Field(description=f"{_CASES}, perhaps packed")
    metadata: str | dict[str, Any] = Field(default="{}", description='JSON such as {"func_name": "solve"}')


class _Case(BaseModel):
    input: str
    output: str
    testtype: Literal["stdin", "functional"]


_CASE_LIST = TypeAdapter(list[_Case])


def livecodebench(rows: Iterable[Entry]) -> list[Problem]:
    """Reads LiveCodeBench. Public tests are the baseline tests; public and private tests together are the evaluation tests, as
    in the official score.

    The tags are the platform and the day of the contest. Raises ProblemFileError.
    """
    return problems_of(rows, lambda entry: _problem(entry, entry.validated(_LiveCodeBenchRecord)))


def _problem(entry: Entry, question: _LiveCodeBenchRecord) -> Problem:
    metadata = entry.json("metadata", question.metadata, 'JSON such as {"func_name": "solve"}')
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    public, private = (
        [_test(entry, field, case, name) for case in _cases(entry, field, getattr(question, field))]
        for field in ("public_test_cases", "private_test_cases")
    )
    everything: Sequence[Test] = [*public, *private]
    if not everything:
        raise entry.fault("private_test_cases", "no tests, public or private", "at least one")
    signature = signature_of(question.starter_code, name) or f"def {name}(*args):" if name else ""
    return Problem(
        id=f"livecodebench/{question.question_id}",
        description=f"{question.question_title}\n\n{question.question_content}".strip(),
        function_signature=signature,
        baseline_tests=tuple(public),
        reference_solution="",
        difficulty=question.difficulty,
        tags=tuple(tag for tag in (question.platform, question.contest_date[:10]) if tag),
        hidden_tests=tuple(everything),
        limits=limits_for(everything, _CPU_S),
        preamble=HARNESS_IMPORTS,
        epilogue=method_of_solution(name) if name else "",
    )


def _test(entry: Entry, field: str, case: _Case, name: str | None) -> Test:
    if case.testtype == "stdin":
        return LiveCodeBenchTest(stdin=case.input, stdout=case.output)
    if not name:
        raise entry.fault(
            "metadata", "no func_name, but functional tests", 'JSON such as {"func_name": "solve"}'
        )
    lines = [line for line in case.input.split("\n") if line.strip()]
    arguments = [entry.json(field, line, "one JSON argument per line of an input") for line in lines]
    return call_test(
        name, arguments, [entry.json(field, case.output, "JSON as the output of a functional test")]
    )


def _cases(entry: Entry, field: str, text: str | list[Any]) -> list[_Case]:
    """Returns the test cases of a field. It holds a list, JSON, or, as for most private tests, base64 of a compressed pickle of a
    string of JSON."""
    try:
        value = parse_json(text) if isinstance(text, str) else text
    except json.JSONDecodeError:
        try:
            unpacked = unpickled_text(zlib.decompress(base64.b64decode(str(text), validate=True)))
        except (ValueError, zlib.error, pickle.UnpicklingError) as error:
            raise entry.fault(field, f"cannot be unpacked ({error})", _CASES) from None
        value = entry.json(field, unpacked, _CASES)
    try:
        return _CASE_LIST.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise entry.fault(field + place, first["msg"], _CASES) from None


class _TextUnpickler(pickle.Unpickler):
    """An unpickler without access to globals, so that a pickle cannot call anything."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle asks for {module_name}.{global_name}; only text is read")


def unpickled_text(packed: bytes) -> str:
    """Returns the string in a pickle. Raises pickle.UnpicklingError if the pickle holds anything else, before any of it
    runs."""
    try:
        value = _TextUnpickler(io.BytesIO(packed)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # malformed pickles raise many kinds of errors
        raise pickle.UnpicklingError(f"malformed pickle: {type(error).__name__}") from None
    if not isinstance(value, str):
        raise pickle.UnpicklingError(f"the pickle holds {type(value).__name__}; only text is read")
    return value
