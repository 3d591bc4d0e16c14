"""Reads KodCode (arXiv:2503.02951): questions, each with a solution and a module of pytest functions that import it."""

import ast
import logging
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from pydantic import AliasChoices, Field

from sparring.core.problem import Problem
from sparring.core.source import parse_or_none
from sparring.problems.formats.records import Entry, Record, problems_of
from sparring.problems.formats.sources import signature_of, signature_under_test, unix_lines

log = logging.getLogger(__name__)


class _TestedFunction(Record):
    function_name: str = Field(default="", description="the function's name")


class _KodCodeRecord(Record):
    question_id: str = Field(min_length=1, description='the question\'s id, such as "Prefill_1_I"')
    question: str = Field(min_length=1, description="the question's text")
    solution: str = Field(min_length=1, description="the reference solution")
    test: str = Field(
        min_length=1,
        validation_alias=AliasChoices("test", "test_code"),
        description="a module of pytest functions",
    )
    test_info: list[_TestedFunction] = Field(default=[], description='a list of {"function_name"}')
    gpt_difficulty: str = Field(default="unknown", description='a word, such as "easy"')
    subset: str = Field(default="", description="the part of the data set")


def kodcode(rows: Iterable[Entry]) -> list[Problem]:
    """Reads KodCode. Each pytest function or class is a baseline test, with the module's other statements. Functions that pytest
    would give arguments (fixtures, `parametrize`) are left out. So are questions without any other test, and the log states their
    number.

    Raises ProblemFileError.
    """
    problems = problems_of(rows, lambda entry: _problem(entry, entry.validated(_KodCodeRecord)))
    kept = [problem for problem in problems if problem.baseline_tests]
    if len(kept) < len(problems):
        log.warning(
            "kodcode: %d of %d questions have no test without arguments: left out",
            len(problems) - len(kept),
            len(problems),
        )
    return kept


def _problem(entry: Entry, question: _KodCodeRecord) -> Problem:
    solution = unix_lines(question.solution)
    if parse_or_none(solution) is None:
        raise entry.fault("solution", "not valid Python", "the reference solution")
    tree = parse_or_none(unix_lines(question.test))
    if tree is None:
        raise entry.fault("test", "not valid Python", "a module of pytest functions")
    tests = tuple(_tests(tree))
    named = (signature_of(solution, of.function_name) for of in question.test_info if of.function_name)
    return Problem(
        id=f"kodcode/{question.question_id}",
        description=question.question.strip(),
        function_signature=next(filter(None, named), None) or signature_under_test(solution, tests) or "",
        baseline_tests=tests,
        reference_solution=solution,
        difficulty=question.gpt_difficulty,
        tags=(question.subset,) if question.subset else (),
    )


def _tests(tree: ast.Module) -> Iterator[str]:
    """Yields a test for each function and class that pytest collects, with the statements of the module that it does not collect."""
    called = _names(tree.body)
    statements = [node for node in tree.body if not _runs_the_module(node)]
    tests = [node for node in statements if _is_test(node) and not _wants_arguments(node)]
    # a function with arguments that another one calls is no test
    others = [
        node for node in statements if not _is_test(node) or (_wants_arguments(node) and node.name in called)
    ]
    for test in tests:
        # the sandbox may have no pytest, and many modules import it for functions that are left out
        needed = (
            others if "pytest" in _names([*others, test]) else [n for n in others if not _imports_pytest(n)]
        )
        yield ast.unparse(ast.Module([*needed, test], []))


def _names(nodes: Iterable[ast.stmt]) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    if isinstance(node, ast.ClassDef):
        is_case = any(ast.unparse(base).endswith("TestCase") for base in node.bases)
        return (is_case or node.name.startswith("Test")) and any(_is_test(method) for method in node.body)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def _wants_arguments(node: ast.stmt) -> bool:
    """Returns whether pytest would give arguments to this function, or to a test method of this class."""
    if isinstance(node, ast.ClassDef):
        return any(_is_test(method) and _parameters(method) > 1 for method in node.body)
    return _parameters(node) > 0


def _parameters(node: ast.stmt) -> int:
    """Returns the number of a function's parameters without a default."""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    positional = [*node.args.posonlyargs, *node.args.args]
    return len(positional) - len(node.args.defaults)


def _runs_the_module(node: ast.stmt) -> bool:
    """Returns whether this is `if __name__ == "__main__": ...`."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _imports_pytest(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) and [alias.name for alias in node.names] == ["pytest"]
