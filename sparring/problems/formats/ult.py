"""Reads UnLeakedTestBench (arXiv:2508.00408): functions for which tests are to be written."""

from collections.abc import Iterable

from pydantic import Field

from sparring.core.problem import Problem
from sparring.core.source import parse_or_none
from sparring.problems.formats.records import Entry, Record, problems_of
from sparring.problems.formats.sources import signature_of, unix_lines

_DESCRIPTION = """\
{description}

The function under test:
```python
{code}
```"""


class _UltRecord(Record):
    task_id: str | int = Field(description="the function's number")
    func_name: str = Field(min_length=1, description="the function's name")
    code: str = Field(min_length=1, description="source that defines it")
    prompt: str = Field(default="", description="what it does")


def ult(rows: Iterable[Entry]) -> list[Problem]:
    """Reads UnLeakedTestBench. As in the benchmark's own prompt, the description contains the function's source. The
    problems have no tests: those in ULT_Lite's file (`test_list`) were written by a model, and most of them do not hold.

    Raises ProblemFileError.
    """
    return problems_of(rows, lambda entry: _problem(entry, entry.validated(_UltRecord)))


def _problem(entry: Entry, function: _UltRecord) -> Problem:
    code = unix_lines(function.code).strip() + "\n"
    if parse_or_none(code) is None:
        raise entry.fault("code", "not valid Python", "source that defines the function")
    signature = signature_of(code, function.func_name)
    if signature is None:
        raise entry.fault("func_name", "'code' does not define it", "the function's name")
    return Problem(
        id=f"ult/{function.task_id}",
        description=_DESCRIPTION.format(description=function.prompt.strip(), code=code.rstrip()).strip(),
        function_signature=signature,
        baseline_tests=(),
        reference_solution=code,
    )
