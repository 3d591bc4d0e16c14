import asyncio
from dataclasses import replace

import pytest

from sparring.core.verdict import Limits, OutputTest, Status
from sparring.games.program_scores import (
    JudgedProgram,
    judge_program,
    judge_programs,
    pass_rates,
    program_scores,
    share_passed,
    status_counts,
)
from tests.recorded import DOUBLE

LIMITS = Limits(cpu_s=0.2, wall_s=3.0)
RIGHT, HALF, SLOW, BROKEN = (
    f"def f(n):\n    {body}\n"
    for body in ("return n * 2", "return n + 2", "while True: pass", "return 1 / 0")
)
PROBLEM = replace(
    DOUBLE, baseline_tests=("assert f(0) == 0",), hidden_tests=("assert f(2) == 4", "assert f(3) == 6")
)


P = JudgedProgram(program="p", test_rate=1.0, status=Status.PASSED)
W = JudgedProgram(program="w", test_rate=0.5, status=Status.WRONG_ANSWER)
X = JudgedProgram(program="x", test_rate=None, status=Status.SANDBOX_ERROR)


# ---------------------------------------------------------------------- judging
def test_a_program_has_the_status_of_the_first_test_that_it_fails(sandbox):
    programs = {"double": [RIGHT, HALF, SLOW, BROKEN, ""]}
    found = asyncio.run(judge_programs(sandbox, programs, [PROBLEM], LIMITS))["double"]
    assert [p.test_rate for p in found] == [1.0, 0.5, 0.0, 0.0, 0.0]
    statuses = [Status.PASSED, Status.WRONG_ANSWER, Status.TIME_LIMIT, Status.RUNTIME_ERROR]
    assert [p.status for p in found[:4]] == statuses
    assert [p.solved for p in found] == [True, False, False, False, False]
    assert found[0].error == "" and "ZeroDivisionError" in found[3].error


def test_other_tests_can_be_asked_for(sandbox):
    assert asyncio.run(share_passed(sandbox, HALF, PROBLEM, LIMITS, PROBLEM.baseline_tests)) == 0.0


def test_a_problems_own_limits_are_used(sandbox):
    slow = "import time\nwhile time.process_time() < 0.6: pass\nprint(1)"
    short = replace(DOUBLE, baseline_tests=(OutputTest(stdout="1"),))
    long = replace(short, limits=Limits(cpu_s=3.0, wall_s=9.0))
    outcomes = [asyncio.run(judge_program(sandbox, slow, p, LIMITS)).status for p in (short, long)]
    assert outcomes == [Status.TIME_LIMIT, Status.PASSED]


def test_what_the_sandbox_cannot_judge_has_no_rate(breaking):
    breaking.on = {RIGHT}
    found = asyncio.run(judge_program(breaking, RIGHT, PROBLEM, LIMITS))
    assert (found.test_rate, found.status, found.error) == (None, Status.SANDBOX_ERROR, "broken")


# ---------------------------------------------------------------------- scores
def test_scores_by_hand():
    """pass@2 of (3 judged, 1 solves) is 1 - C(2, 2) / C(3, 2); the second problem has too few judged programs."""
    scores = program_scores({"a": [P], "b": [W], "c": [X]}, {"a": [P, W, W], "b": [P, X, X]}, (1, 2))
    assert scores == {
        "generator_pass_rate": 0.5,
        "generator_test_rate": 0.75,
        "unjudged": 3.0,
        "pass_at_1": pytest.approx((1 / 3 + 1) / 2),
        "pass_at_2": pytest.approx(2 / 3),
    }


def test_nothing_judged_scores_nothing_and_without_samples_there_is_no_pass_at_k():
    nothing = {"generator_pass_rate": None, "generator_test_rate": None, "unjudged": 2.0, "pass_at_1": None}
    assert program_scores({"a": [X]}, {"a": [X]}, (1,)) == nothing
    assert program_scores({"a": [P]}, {}, (1,)).keys() == nothing.keys() - {"pass_at_1"}


def test_pass_rates_and_statuses():
    assert pass_rates({"a": [P, W, X, P], "b": [X], "c": [W]}) == {"a": pytest.approx(2 / 3), "c": 0.0}
    assert status_counts({"a": [W, P], "b": [W]}) == {"WRONG_ANSWER": 2, "PASSED": 1}
