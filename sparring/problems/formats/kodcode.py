"""Reads KodCode (arXiv:2503.02951): questions, each with a solution and a module of pytest functions that import it."""

import ast
import logging
from collections.abc import Iterable, Iterator

from pydantic import Field

from sparring.core.problem import Problem
from sparring.problems.formats.records import Entry, Record
from sparring.problems.formats.sources import parse_python, signature_of, signature_under_test, unix_lines

log = logging.getLogger(__name__)


class _Function(Record):
    function_name: str = Field(default="", description="the function's name")


class _Question(Record):
    question_id: str = Field(min_length=1, description='the question\'s id, such as "Prefill_1_I"')
    question: str = Field(min_length=1, description="the question's text")
    solution: str = Field(min_length=1, description="the reference solution")
    test: str = Field(min_length=1, description="a module of pytest functions")
    test_info: list[_Function] = Field(default=[], description='a list of {"function_name"}')
    gpt_difficulty: str = Field(default="unknown", description='a word, such as "easy"')
    subset: str = Field(default="", description="the part of the data set")


def kodcode(rows: Iterable[Entry]) -> list[Problem]:
    """Reads KodCode. Each pytest function is a baseline test, together with the module's other statements. Functions that pytest
    would give arguments (fixtures, parametrize) cannot be judged. Questions that have others only are left out, and the log states
    their number.

    Raises ProblemFileError.
    """
    problems = [_problem(entry, entry.validated(_Question)) for entry in rows]
    kept = [problem for problem in problems if problem.baseline_tests]
    if len(kept) < len(problems):
        log.warning(
            "kodcode: %d of %d questions have no test function without arguments: left out",
            len(problems) - len(kept),
            len(problems),
        )
    return kept


def _problem(entry: Entry, question: _Question) -> Problem:
    solution = unix_lines(question.solution)
    if parse_python(solution) is None:
        raise entry.fault("solution", "not valid Python", "the reference solution")
    tree = parse_python(unix_lines(question.test))
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
    """Yields a test for each test function and each class of tests, with all statements of the module that are no tests."""
    is_test = [_is_test(node) for node in tree.body]
    others = [node for node, test in zip(tree.body, is_test, strict=True) if not test]
    for node, test in zip(tree.body, is_test, strict=True):
        if test and not _wants_arguments(node):
            yield ast.unparse(ast.Module([*others, node], []))


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.lower().startswith("test")


def _wants_arguments(node: ast.stmt) -> bool:
    """Returns whether pytest would give arguments to this function, or to a test method of this class."""
    if isinstance(node, ast.ClassDef):
        methods = [method for method in node.body if isinstance(method, ast.FunctionDef) and _is_test(method)]
        return any(len(method.args.args) > 1 for method in methods)
    return isinstance(node, ast.FunctionDef) and bool(node.args.args)
