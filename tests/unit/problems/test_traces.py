"""Warm-start texts for users' problems."""

from pathlib import Path

import pytest

from core.problem import Problem
from problems.loader import load_problems
from problems.traces import render_suite, render_trace

PROBLEMS = load_problems(Path(__file__).parents[3] / "problems" / "example_problems.json")

SIGN = Problem(
    id="sign",
    description="Return -1, 0 or 1,\nas n is negative, zero or positive.",
    function_signature="def sign(n: int) -> int:",
    baseline_tests=("assert sign(-3) == -1", "assert sign(0) == 0", "x = 4\nassert sign(x) == 1"),
    reference_solution="def sign(n):\n    if n < 0:\n        return -1\n    elif n > 0:\n        return 1\n    return 0",
)


def test_five_stages_of_a_small_problem():
    informal, structured, pseudocode, constraints, code = render_trace(SIGN)
    assert informal == (
        "Return -1, 0 or 1, as n is negative, zero or positive.\n"
        "I write sign with 2 conditions.\n"
        "For example, sign(-3) gives -1.\n"
        "For example, sign(0) gives 0.\n"
    )
    assert structured == (
        "1. define sign(n)\n"
        "1.1. if n < 0\n"
        "1.1.1. return -1\n"
        "1.2. otherwise, if n > 0\n"
        "1.2.1. return 1\n"
        "1.3. return 0\n"
    )
    assert pseudocode == (
        "FUNCTION sign(n)\n"
        "    IF n < 0 THEN\n"
        "        RETURN -1\n"
        "    ELSE IF n > 0 THEN\n"
        "        RETURN 1\n"
        "    RETURN 0\n"
    )
    assert constraints == (
        "inputs: n is int\nreturns: int\nmust handle: negative numbers, zero\nloops nest 0 deep\n"
    )
    assert code == SIGN.reference_solution + "\n"


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_every_example_has_a_trace_and_a_suite(problem):
    stages = render_trace(problem)
    assert len(stages) == 5
    assert all(stage.strip() and stage.endswith("\n") for stage in stages)
    assert stages[4] == problem.reference_solution
    assert render_suite(problem, max_tests=3).count("\n") == 3
    calls = render_suite(problem, max_tests=3, input_only=True).splitlines()
    assert all(call.startswith(f"{problem.entry_point}(") for call in calls)


@pytest.mark.parametrize(
    "source",
    [
        "f = lambda x: x",
        "class Box:\n    pass\n\nasync def f(x):\n    return x",
        "def f(x):\n    try:\n        return g(x)\n    except ValueError:\n        raise\n    finally:\n        pass",
        "def f(x):\n    match x:\n        case 1:\n            return 2\n        case _:\n            return 3",
        "def f(x):\n    for y in x:\n        break\n    else:\n        del y\n    with a as b:\n        x[0]: int\n    return",
        "int f(int x) { return x; }",
    ],
)
def test_unusual_references_are_retold_too(source):
    problem = Problem(
        id="odd",
        description="Anything.",
        function_signature="def f(*x, **y)",
        baseline_tests=("for i in (1, 2):\n    assert f(i)",),
        reference_solution=source,
    )
    assert all(stage.strip() for stage in render_trace(problem))


def test_suite_puts_each_test_on_one_line():
    assert render_suite(SIGN, max_tests=9) == (
        "assert sign(-3) == -1\nassert sign(0) == 0\nx = 4; assert sign(x) == 1\n"
    )
    assert render_suite(SIGN, max_tests=2, input_only=True) == "sign(-3)\nsign(0)\n"
