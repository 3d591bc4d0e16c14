"""Reads BigCodeBench (arXiv:2406.15877): functions that use libraries, each with a unittest case."""

from collections.abc import Iterable

from pydantic import Field

from sparring.core.problem import Problem
from sparring.problems.formats.humaneval import checked_signature, helpers
from sparring.problems.formats.records import Entry, Record, problems_of
from sparring.problems.formats.sources import unix_lines


class _BigCodeBenchRecord(Record):
    task_id: str = Field(min_length=1, description='the task\'s id, such as "BigCodeBench/0"')
    instruct_prompt: str = Field(min_length=1, description="the task in words")
    code_prompt: str = Field(min_length=1, description="the program's imports and the function's head")
    canonical_solution: str = Field(min_length=1, description="the function's body")
    entry_point: str = Field(min_length=1, description="the function's name")
    test: str = Field(min_length=1, description="a module with a unittest case")


def bigcodebench(rows: Iterable[Entry]) -> list[Problem]:
    """Reads BigCodeBench. The description is the prompt of BigCodeBench-Instruct. The unittest case is one test. As in the
    benchmark's own harness, programs get what `code_prompt` has before the function.

    Raises ProblemFileError.
    """
    return problems_of(rows, lambda entry: _problem(entry, entry.validated(_BigCodeBenchRecord)))


def _problem(entry: Entry, task: _BigCodeBenchRecord) -> Problem:
    prompt = unix_lines(task.code_prompt)
    solution = prompt + unix_lines(task.canonical_solution)
    return Problem(
        id=task.task_id,
        description=task.instruct_prompt.strip(),
        function_signature=checked_signature(entry, solution, task.entry_point),
        baseline_tests=(unix_lines(task.test),),
        reference_solution=solution,
        preamble=helpers(prompt, task.entry_point),
    )
