"""Reads MBPP: the whole set (JSON lines) and the sanitized set (a JSON array, with `prompt` instead of `text`)."""

from collections.abc import Iterable

from pydantic import AliasChoices, Field

from sparring.core.problem import Problem
from sparring.core.source import parse_or_none
from sparring.problems.formats.records import Entry, Record, problems_of
from sparring.problems.formats.sources import signature_under_test, unix_lines

SPLITS = {
    "prompt": range(1, 11),
    "test": range(11, 511),
    "validation": range(511, 601),
    "train": range(601, 975),
}
"""Task ids of the official splits."""


class _MbppRecord(Record):
    task_id: int = Field(description="the task's number")
    text: str = Field(
        min_length=1,
        validation_alias=AliasChoices("text", "prompt"),
        description="what the function shall do, as 'text' or (sanitized) 'prompt'",
    )
    code: str = Field(min_length=1, description="the reference solution")
    test_list: list[str] = Field(min_length=1, description='asserts, such as ["assert f(1) == 2"]')
    test_setup_code: str = Field(default="", description="source that each test needs")
    test_imports: list[str] = Field(
        default=[], description='imports that each test needs, such as ["import math"]'
    )
    test: str = Field(
        default="", description="source of the further tests of MBPP+, as the hub's file has them"
    )


def mbpp(rows: Iterable[Entry], *, split: str | None = None) -> list[Problem]:
    """Reads MBPP. `test_list` gives the baseline tests, which are also the evaluation tests; the rows of MBPP+ on the hub add
    `test`. The challenge tests are not used, since they are not part of the official score.

    Raises ProblemFileError.
    """

    def convert(entry: Entry) -> Problem | None:
        task = entry.validated(_MbppRecord)
        return _problem(entry, task) if split is None or task.task_id in SPLITS[split] else None

    return problems_of(rows, convert)


def _problem(entry: Entry, task: _MbppRecord) -> Problem:
    code = unix_lines(task.code)
    if parse_or_none(code) is None:
        raise entry.fault("code", "not valid Python", "the reference solution")
    signature = signature_under_test(code, task.test_list)
    if signature is None:
        raise entry.fault("test_list", "calls no function that 'code' defines", "asserts that call it")
    # The set-up code creates test data with the program's classes, so it is put before each test, not before the program.
    setup = "\n".join([*task.test_imports, unix_lines(task.test_setup_code)]).strip()
    tests = tuple(f"{setup}\n{test}" if setup else test for test in task.test_list)
    return Problem(
        id=f"mbpp/{task.task_id}",
        description=task.text.strip(),
        function_signature=signature,
        baseline_tests=tests,
        hidden_tests=(*tests, unix_lines(task.test)) if task.test.strip() else (),
        reference_solution=code,
    )
