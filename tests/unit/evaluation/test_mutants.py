import ast
import asyncio
from dataclasses import replace

import pytest

from sparring.core.interfaces import SandboxFailure
from sparring.core.problem import Problem
from sparring.core.verdict import Limits
from sparring.evaluation.mutants import Mutant, mutants, non_equivalent

EVERY = 10_000


def changed(source: str, operator: str) -> set[str]:
    """Bodies of the mutants of one operator, without the `def` line."""
    return {m.source.split("\n", 1)[1].strip() for m in mutants(source, EVERY, 1) if m.operator == operator}


@pytest.mark.parametrize(
    "body, operator, expected",
    [
        ("return a < b", "comparison", {"return a <= b", "return a >= b"}),
        ("return a >= b", "comparison", {"return a > b", "return a < b"}),
        ("return a == b", "comparison", {"return a != b"}),
        ("return a in b", "comparison", {"return a not in b"}),
        ("return a < b <= c", "comparison",
         {"return a <= b <= c", "return a >= b <= c", "return a < b < c", "return a < b > c"}),
        ("return a + b", "arithmetic", {"return a - b", "return a * b"}),
        ("a += b", "arithmetic", {"a -= b", "a *= b"}),
        ("return -a", "arithmetic", {"return +a"}),
        ("return a and b", "boolean", {"return a or b"}),
        ("return g(7)", "constant", {"return g(8)", "return g(6)"}),
        ("return a if b else c", "condition", {"return a if not b else c"}),
        ("return a if not b else c", "condition", {"return a if b else c"}),
        ("return [x for x in a if x]", "condition", {"return [x for x in a if not x]"}),
        ("g()\n    return a", "statement", {"return a", "g()"}),
        ("return a", "return", {"return None", "return 0", "return 1"}),
        ("return a[b:c]", "slice",
         {"return a[:c]", "return a[b + 1:c]", "return a[b:]", "return a[b:c - 1]"}),
        ("return a[:]", "slice", {"return a[1:]", "return a[:-1]"}),
        ("return a[::-1]", "slice", {"return a[:]", "return a[1::-1]", "return a[:-1:-1]"}),
    ],
)  # fmt: skip
def test_operators(body, operator, expected):
    assert changed(f"def f(a, b, c):\n    {body}\n", operator) == expected


def test_what_is_no_bug_is_left_alone():
    source = 'import math\ndef f(a):\n    """Text."""\n    return True, "1", 2.5, math.pi\n'
    assert {m.operator for m in mutants(source, EVERY, 1)} == {"return", "statement"}
    assert all("Text." in m.source and "import math" in m.source for m in mutants(source, EVERY, 1))


def test_mutants_that_are_no_programs_are_left_out():
    source = "def f(a):\n    try:\n        return a\n    finally:\n        g()\n"
    found = mutants(source, EVERY, 1)
    assert any("pass" in m.source for m in found)
    for mutant in found:
        ast.parse(mutant.source)


def test_lines_and_seeds():
    source = "def f(a):\n    b = a + 1\n    if b > 2:\n        return b\n    return a\n"
    every = mutants(source, EVERY, 1)
    assert [m.line for m in every if m.operator == "comparison"] == [3, 3]
    assert mutants(source, 4, 1) == mutants(source, 4, 1)
    assert len({tuple(m.source for m in mutants(source, 4, seed)) for seed in range(10)}) > 1
    assert mutants(source, 0, 1) == [] and mutants("x\n", EVERY, 1) != []


def test_a_source_that_does_not_parse_is_refused():
    with pytest.raises(SyntaxError):
        mutants("def f(:\n", 5, 1)


# ---------------------------------------------------------------------- in the sandbox
PROBLEM = Problem(
    id="positive",
    description="Return the sum of the positive integers in xs.",
    function_signature="def f(xs: list[int]) -> int:",
    baseline_tests=("assert f([1, 2]) == 3",),
    hidden_tests=("assert f([-1, 4]) == 4", "assert f([]) == 1"),
    reference_solution="def f(xs):\n    return sum(x for x in xs if x > 0)\n",
)


def mutant(condition: str) -> Mutant:
    source = f"def f(xs):\n    return sum(x for x in xs if {condition})\n"
    return Mutant(source=source, operator="comparison", line=2)


EQUIVALENT, BASELINE, HIDDEN, PROBED = map(mutant, ("x >= 0", "x > 1", "x > -2", "x > 0 and x != 9"))
ENDLESS = Mutant(source="def f(xs):\n    while True:\n        pass\n", operator="condition", line=2)


def bugs(sandbox, *candidates: Mutant, probes=()) -> list[Mutant]:
    return asyncio.run(non_equivalent(PROBLEM, candidates, sandbox, probes))


def problem_of(source: str, test: str, **more) -> Problem:
    return replace(PROBLEM, reference_solution=source, baseline_tests=(test,), hidden_tests=(), **more)


def test_a_slow_reference_has_the_time_that_its_problem_states(sandbox):
    wait = "def f(xs):\n    end = __import__('time').process_time() + {seconds}\n"
    wait += "    while __import__('time').process_time() < end: pass\n    return {result}\n"
    source = wait.format(seconds=0.8, result=1)
    slow = problem_of(source, "assert f([1]) == 1", limits=Limits(cpu_s=4))
    bug = Mutant(source=wait.format(seconds=0, result=2), operator="constant", line=4)
    assert asyncio.run(non_equivalent(slow, [bug], sandbox, limits=Limits(cpu_s=0.3))) == [bug]


def test_a_bug_shows_on_a_baseline_test_a_hidden_test_or_a_probe(sandbox):
    """The hidden test that the reference fails says nothing."""
    candidates = (EQUIVALENT, BASELINE, HIDDEN, PROBED, ENDLESS)
    assert bugs(sandbox, *candidates) == [BASELINE, HIDDEN, ENDLESS]
    assert bugs(sandbox, *candidates, probes=["f([9])"]) == [BASELINE, HIDDEN, PROBED, ENDLESS]


def test_a_mutant_that_never_ends_is_met_by_no_more_tests_than_show_it(breaking):
    probes = [f"f([{n}])" for n in range(2, 40)]
    assert bugs(breaking, ENDLESS, probes=probes) == [ENDLESS]
    assert [len(tests) for program, tests, *_ in breaking.jobs if program == ENDLESS.source] == [1]


def test_what_the_reference_needs_stands_before_its_mutants(sandbox):
    source = "def f(x): return floor(x) > 0"
    problem = problem_of(source, "assert f(1)", preamble="from math import floor")
    mutated = [replace(BASELINE, source=source.replace("> 0", condition)) for condition in ("> 1", ">= 0")]
    assert asyncio.run(non_equivalent(problem, mutated, sandbox)) == mutated[:1]


def test_a_mutant_that_could_not_be_judged_is_no_bug(breaking):
    breaking.on = {BASELINE.source}
    assert bugs(breaking, BASELINE, HIDDEN) == [HIDDEN]
    breaking.on = {PROBLEM.reference_solution}
    with pytest.raises(SandboxFailure):
        bugs(breaking, BASELINE)
