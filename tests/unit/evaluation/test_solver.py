"""Scores of one policy's programs, by hand."""

import asyncio

import pytest

from core.episode import Episode, Trajectory
from core.evaluation import EvaluationSettings
from core.problem import Problem
from core.verdict import Limits
from games.programs.code_execution import CodeExecutionRules
from games.programs.evaluator import SolverEvaluator
from games.programs.game import SolverGame
from games.programs.unit_tests import UnitTestsRules
from tests.playing import play, reader

LIMITS = Limits(cpu_s=0.3, wall_s=5.0)


def problem(name: str, slope: int) -> Problem:
    return Problem(
        id=name,
        description=f"Return {slope} times n.",
        function_signature="def f(n):",
        baseline_tests=(f"assert f(1) == {slope}",),
        hidden_tests=tuple(f"assert f({n}) == {n * slope}" for n in (0, 1, 2, -3)),
        reference_solution=f"def f(n): return n * {slope}",
    )


PROBLEMS = [problem("double", 2), problem("triple", 3)]
DOUBLE, TRIPLE = (p.reference_solution for p in PROBLEMS)
LUCKY = "def f(n): return abs(n) * 2"
"""Three of double's four tests."""


def evaluator(sandbox, samples=0, pass_at=(1,)) -> SolverEvaluator:
    settings = EvaluationSettings.model_construct(samples=samples, temperature=0.7, pass_at=pass_at)
    return SolverEvaluator(PROBLEMS, sandbox, CodeExecutionRules(sandbox_limits=LIMITS), settings)


def episode(problem: Problem, *attempts: tuple[str, float | None, dict[str, float]]) -> Episode:
    made = [
        Trajectory(player="generator", attempt=i, turns=[], artifact=a, reward=r, components=c)
        for i, (a, r, c) in enumerate(attempts)
    ]
    return Episode(problem_id=problem.id, trajectories=made)


def scores(evaluator, *played):
    return asyncio.run(evaluator.scores(played, None))


def test_greedy_scores_are_of_the_hidden_tests_and_the_reward_is_the_games(breaking):
    greedy = [
        episode(PROBLEMS[0], (LUCKY, 2.0, {"solved": 1.0, "format": 1.0})),
        episode(PROBLEMS[1], (TRIPLE, 0.5, {"solved": 0.0})),
    ]
    found = scores(evaluator(breaking), greedy)
    assert found.values == pytest.approx(
        {
            "generator_pass_rate": 0.5,
            "generator_test_rate": 0.875,
            "reward": 1.25,
            "solved": 0.5,
            "format": 0.5,  # what an attempt does not name is 0
            "unjudged": 0.0,
        }
    )
    assert found.combined == found.values["reward"]
    assert found.tasks == {"double": 0.75, "triple": 1.0}


# R3, property 35: aggregate metric correctness.
def test_what_the_sandbox_could_not_judge_is_in_no_mean(breaking):
    breaking.on = {DOUBLE}
    greedy = [
        episode(PROBLEMS[0], (DOUBLE, None, {"sandbox_failure": 1.0})),
        episode(PROBLEMS[1], (TRIPLE, 2.0, {"solved": 1.0})),
    ]
    sampled = [
        episode(PROBLEMS[0], (DOUBLE, None, {}), (LUCKY, 0.0, {})),
        episode(PROBLEMS[1], (DOUBLE, None, {}), (DOUBLE, None, {})),
    ]
    found = scores(evaluator(breaking, samples=2), greedy, sampled)
    assert found.values == {
        "generator_pass_rate": 1.0,
        "generator_test_rate": 1.0,
        "reward": 2.0,
        "solved": 1.0,
        "pass_at_1": 0.0,  # of LUCKY alone
        "sampled_reward": 0.0,
        "unjudged": 4.0,
    }
    assert found.tasks == {"triple": 1.0}


def test_pass_at_k_by_hand(breaking):
    greedy = [episode(p, ("", 0.0, {})) for p in PROBLEMS]
    sampled = [
        episode(PROBLEMS[0], *[(a, 1.0, {}) for a in (DOUBLE, LUCKY, LUCKY, "1 / 0")]),
        episode(PROBLEMS[1], *[(a, 0.0, {}) for a in (DOUBLE, "", "def f(n)", LUCKY)]),
    ]
    found = scores(evaluator(breaking, samples=4, pass_at=(1, 2, 4)), greedy, sampled).values
    assert [found[f"pass_at_{k}"] for k in (1, 2, 4)] == pytest.approx([0.125, 0.25, 0.5])
    assert (found["sampled_reward"], found["reward"]) == (0.5, 0.0)
    assert found["generator_pass_rate"] == 0.0


def test_pass_at_k_needs_k_judged_programs(breaking):
    breaking.on = {"broken"}
    greedy = [episode(p, ("", 0.0, {})) for p in PROBLEMS]
    sampled = [
        episode(PROBLEMS[0], (DOUBLE, 0.0, {}), ("broken", None, {})),
        episode(PROBLEMS[1], (TRIPLE, 0.0, {}), (LUCKY, 0.0, {})),
    ]
    found = scores(evaluator(breaking, samples=2, pass_at=(1, 2)), greedy, sampled).values
    assert (found["pass_at_1"], found["pass_at_2"], found["unjudged"]) == (0.75, 1.0, 1.0)


def test_nothing_judged_scores_nothing(breaking):
    breaking.on = {"x"}
    greedy = [episode(p, ("x", None, {"sandbox_failure": 1.0})) for p in PROBLEMS]
    found = scores(evaluator(breaking), greedy)
    assert found.values == {
        "generator_pass_rate": 0.0,
        "generator_test_rate": 0.0,
        "reward": 0.0,
        "unjudged": 2.0,
    }
    assert found.tasks == {}


def test_what_is_asked_for(breaking):
    (greedy,) = evaluator(breaking).requests(None)
    assert greedy.problems == tuple(PROBLEMS)
    assert (greedy.attempts, greedy.temperatures) == ({"generator": 1}, {"generator": 0.0})
    again, sampled = evaluator(breaking, samples=5).requests(None)
    assert again == greedy and sampled.address != greedy.address
    assert (sampled.attempts, sampled.temperatures) == ({"generator": 5}, {"generator": 0.7})
    assert evaluator(breaking).bank_request() is None
    assert evaluator(breaking, samples=4, pass_at=(1, 4)).shown == (
        "generator_pass_rate",
        "pass_at_1",
        "pass_at_4",
    )
    assert evaluator(breaking).shown == ("generator_pass_rate",)


def test_of_a_game_that_was_played(breaking):
    """The program that passes the one baseline test and not the hidden ones: the reward does not see it."""
    game = SolverGame(UnitTestsRules())
    greedy = [play(game, p, [reader("generator", [LUCKY])], breaking) for p in PROBLEMS]
    found = scores(evaluator(breaking), greedy)
    assert found.values["reward"] == 1.0 and found.values["generator_pass_rate"] == 0.0
    assert found.values["pass_rate"] == 0.5 and found.tasks == {"double": 0.75, "triple": 0.25}
