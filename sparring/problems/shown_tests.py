"""Puts some of each problem's tests at the end of its description, as MBPP (arXiv:2108.07732) and EvalPlus prompt for programs."""

from collections.abc import Sequence
from dataclasses import replace

from sparring.core.problem import Problem
from sparring.problems.loader import ProblemFileError


def with_shown_tests(problems: Sequence[Problem], count: int) -> list[Problem]:
    """Returns the problems, each with its first `count` baseline tests in its description. Only tests that are source code
    are shown. Raises ProblemFileError if no problem has such a test."""
    if count and problems and not any(problem.baseline_asserts for problem in problems):
        raise ProblemFileError("shown_tests: no problem has a test that is source code; leave it out")
    return [_showing(problem, problem.baseline_asserts[:count]) for problem in problems]


def _showing(problem: Problem, tests: Sequence[str]) -> Problem:
    if not tests:
        return problem
    return replace(problem, description="\n".join((problem.description, "For example:", *tests)))
