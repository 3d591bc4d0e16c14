"""What the readers share."""

import asyncio
from dataclasses import replace

import pytest

from sandbox_workers.jobs import is_data
from sandbox_workers.runner.data_tests import read
from sparring.core.verdict import Limits, OutputTest, Status, Verdict
from sparring.problems.formats.sources import (
    call_test,
    limits_for,
    signature_of,
    signature_under_test,
    with_signature,
)
from sparring.problems.references import validate_references
from tests.playing import a_problem


@pytest.mark.parametrize(
    ("source", "signature"),
    [
        ("def f(a, b=2, *c, d: int, **e) -> str: pass", "def f(a, b=2, *c, d: int, **e) -> str:"),
        ("class S:\n    def f(self, x): pass", "def f(x):"),
        ("class S:\n    def f(self, x: List[int]) -> int:\n        ", "def f(x: List[int]) -> int:"),
        ("async def f(x): pass", "def f(x):"),
        ("def g(x): pass", None),
        ("def f(x", None),
        ("", None),
    ],
)
def test_signatures(source, signature) -> None:
    assert signature_of(source, "f") == signature


@pytest.mark.parametrize("length", [2, 50_000])
def test_a_call_with_values_in_json_is_data(length) -> None:
    test = call_test("f", [list(range(length))], [[1.5] * length])
    assert is_data(test) and not read(test).keeps


def test_the_function_under_test_is_the_outermost_that_is_called() -> None:
    source = "def inner(x): pass\ndef outer(x, y): pass"
    assert (
        signature_under_test(source, ["x = 3", "assert len(outer(inner(1), 2)) == 1"]) == "def outer(x, y):"
    )
    assert signature_under_test(source, ["assert other(1)"]) is None


@pytest.mark.parametrize(
    ("tests", "signature"),
    [
        (["assert sorted(add(2, 3)) == [5]", "assert add(0, 0) == 0"], "def add(x1, x2):"),
        (["assert outer(inner(1)) == 1"], "def outer(x1):"),
        (["assert f(1) == 1", "assert f(1, 2) == 1"], "def f(*args, **kwargs):"),
        (["assert f(n=1) == 1"], "def f(*args, **kwargs):"),
        (["from math import isclose\ndef check(g):\n    assert isclose(g(1), 1)\ncheck(f)", "assert f() is f"], "def f():"),
        (["assert x == 1", "not Python"], ""),
        ([], ""),
        (["s = Stack([1])\nassert s.top() == 1"], ""),
    ],
)  # fmt: skip
def test_a_function_without_a_signature_is_the_one_that_the_tests_call(tests, signature) -> None:
    problem = a_problem(function_signature="", baseline_tests=tuple(tests), reference_solution="")
    assert with_signature(problem).function_signature == signature
    assert with_signature(replace(problem, function_signature="def g():")).function_signature == "def g():"


def test_limits_have_room_for_the_expected_output() -> None:
    assert limits_for(["assert f(1)", OutputTest(stdout="x" * 1000)]) is None
    limits = limits_for([OutputTest(stdout="x" * 2**20)], memory_mb=1)
    assert limits is not None
    assert (limits.output_kb, limits.memory_mb, limits.cpu_s) == (2049, 32, Limits().cpu_s)


def test_references_are_judged_in_their_language_and_limits() -> None:
    asked = []

    class Recording:
        async def judge(self, program, tests, *, limits=None, run=0, language="python"):
            asked.append((program, limits, language))
            return [Verdict(status=Status.PASSED) for _ in tests]

    limits = Limits(cpu_s=9, wall_s=30)
    problems = [
        a_problem(id="a", reference_solution="print(1)", language="lua", limits=limits),
        a_problem(id="b", reference_solution=""),
        a_problem(id="c", reference_solution="print(1)"),
    ]
    asyncio.run(validate_references(problems, Recording(), "x"))  # type: ignore[arg-type]
    assert asked == [("print(1)", limits, "lua"), ("print(1)", None, "python")]
