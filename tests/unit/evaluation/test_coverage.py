"""Coverage of a reference by tests, against coverage.py's own count."""

import asyncio
import contextlib
import sys
from dataclasses import replace
from pathlib import Path

import coverage as coverage_py
import pytest

from sparring.core.verdict import Limits
from sparring.evaluation.coverage import Coverage, coverage, instrumented
from tests.recorded import DOUBLE

PROGRAMS = {
    "branches": '''"""Text of a module."""
from __future__ import annotations
import math

LIMIT = 3

def f(xs, most=LIMIT):
    """Text of a function,
    on two lines."""
    total = 0
    for x in xs:
        if x < 0:
            continue
        elif x > most:
            break
        total += math.floor(x)
    else:
        total = -total
    while total > 10:
        total -= 1; total -= 1
    return total
''',
    "errors": """import threading

class Tree:
    size: int = 0

    def grow(self, by):
        self.size += by
        return self

def f(x, y=1):
    global last
    last = x
    try:
        with threading.Lock():
            return 1 // x
    except (ZeroDivisionError, TypeError):
        found = Tree().grow(y)
    finally:
        last = None
    while True:
        if found.size > 2:
            return found.size
        found.grow(1)
""",
    "straight": "def f(x):\n    return x\n",
    "mutated": """def f(xs):
    for x in xs:
        if x > 1:
            xs.append(x - 1)
    return (lambda y: y)(xs)
""",
}
TESTS = {
    "branches": ["assert f([1]) == -1", "assert f([-1, 9]) == 0", "assert f([3] * 9) == -27", "f([-3, -30])"],
    "errors": ["assert f(0) == 3", "f([], 'x')", "f([], y=4)", "assert f(1) == 1"],
    "straight": ["f(1)"],
    "mutated": ["assert f([3]) == [3, 2, 1]", "f([])"],
}


def counted(source: str, tests: list[str], place: Path) -> Coverage:
    """By coverage.py."""
    file = place / "program.py"
    file.write_text(source, "utf-8")
    recorder = coverage_py.Coverage(branch=True, data_file=None, include=[str(file)], config_file=False)
    outer = sys.gettrace()  # of `make coverage`
    recorder.start()
    names: dict = {"__name__": "program"}
    exec(compile(source, str(file), "exec"), names)
    for test in tests:
        with contextlib.suppress(Exception):
            exec(test, names)
    recorder.stop()
    sys.settrace(outer)
    _, lines, _, missing, _ = recorder.analysis2(str(file))
    branches = recorder.branch_stats(str(file)).values()
    every = sum(total for total, _ in branches)
    taken = sum(taken for _, taken in branches)
    return Coverage(lines=1 - len(missing) / len(lines), branches=taken / every if every else None)


def covered(sandbox, source: str, tests: list[str]) -> Coverage | None:
    problem = replace(DOUBLE, baseline_tests=(), reference_solution=source)
    return asyncio.run(coverage(problem, tests, sandbox, Limits(cpu_s=1.0)))


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name in PROGRAMS for number in range(len(TESTS[name]) + 1)]
)
def test_lines_and_branches_are_those_of_coverage_py(name: str, number: int, sandbox, tmp_path: Path) -> None:
    source, tests = PROGRAMS[name], TESTS[name][:number]
    ours, theirs = covered(sandbox, source, tests), counted(source, tests, tmp_path)
    assert ours is not None
    assert ours.lines == pytest.approx(theirs.lines)
    assert ours.branches == (None if theirs.branches is None else pytest.approx(theirs.branches))


def test_a_test_that_never_ends_leaves_what_the_others_cover(sandbox) -> None:
    source = "def f(x):\n    while x:\n        pass\n    return x\n"
    assert covered(sandbox, source, ["f(0)", "f(1)"]) == covered(sandbox, source, ["f(0)"])


def test_what_the_sandbox_could_not_judge_is_not_counted(breaking) -> None:
    source = PROGRAMS["straight"]
    breaking.on = {instrumented(source)[0]}
    assert covered(breaking, source, ["f(1)"]) is None


def test_an_instrumented_program_behaves_like_the_program(sandbox) -> None:
    for name, source in PROGRAMS.items():
        calls = [test for test in TESTS[name] if test.startswith("f(")]
        runs = [
            asyncio.run(sandbox.judge(program, calls, limits=Limits(cpu_s=1.0)))
            for program in (source, instrumented(source)[0])
        ]
        program, changed = ([(verdict.status, verdict.value) for verdict in run] for run in runs)
        assert program == changed
