"""Reads HumanEval. A task is a function's head and docstring, to be completed, and one test that calls `check(candidate)`."""

import ast
from collections.abc import Iterable

from pydantic import Field

from sparring.core.problem import Problem
from sparring.core.source import parse_or_none
from sparring.problems.formats.records import Entry, Record, problems_of
from sparring.problems.formats.sources import signature_of


class Task(Record):
    """The common fields of HumanEval and HumanEval+."""

    task_id: str = Field(min_length=1, description='the task\'s id, such as "HumanEval/0"')
    prompt: str = Field(min_length=1, description="the function's head and docstring")
    entry_point: str = Field(min_length=1, description="the function's name")
    canonical_solution: str = Field(min_length=1, description="the function's body")


class _Tested(Task):
    test: str = Field(min_length=1, description="source that defines check(candidate)")


def humaneval(rows: Iterable[Entry]) -> list[Problem]:
    """Reads HumanEval. The description is the unchanged prompt, which is Python source. Raises ProblemFileError."""
    return problems_of(rows, lambda entry: _problem(entry, entry.validated(_Tested)))


def _problem(entry: Entry, task: _Tested) -> Problem:
    return Problem(
        id=task.task_id,
        description=task.prompt.strip(),
        function_signature=checked_signature(entry, task.prompt + task.canonical_solution, task.entry_point),
        baseline_tests=(check_test(task, task.test),),
        reference_solution=task.prompt + task.canonical_solution,
        preamble=helpers(task.prompt, task.entry_point),
    )


def checked_signature(entry: Entry, source: str, entry_point: str) -> str:
    """Returns the signature of the entry point in the prompt with the solution. Raises ProblemFileError if this is not a program
    that defines it."""
    if parse_or_none(source) is None:
        raise entry.fault(
            "canonical_solution", "no valid Python after the prompt", "the rest of the function"
        )
    signature = signature_of(source, entry_point)
    if signature is None:
        raise entry.fault("entry_point", "neither prompt nor solution defines it", "the function's name")
    return signature


def check_test(task: Task, test: str) -> str:
    """Returns the official test with the prompt's helper functions, so that the test does not depend on the program's."""
    return f"{helpers(task.prompt, task.entry_point)}{test.strip()}\n\ncheck({task.entry_point})\n"


def helpers(prompt: str, entry_point: str) -> str:
    """Returns the source of the prompt's statements besides the entry point and strings: imports, other functions, constants.
    Some tests use them, and an answer may omit them."""
    tree = parse_or_none(prompt) or parse_or_none(
        f"{prompt.rstrip()}\n    pass\n"
    )  # the head may have no body
    kept = [
        node
        for node in (tree.body if tree else ())
        if getattr(node, "name", None) != entry_point
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    return "".join(f"{ast.unparse(node)}\n\n" for node in kept)
