"""Scores of one policy's programs, by hand."""

import asyncio
import json
from dataclasses import replace

import pytest

from configs.load import ConfigError, load_run
from sparring.core.episode import Episode, Trajectory
from sparring.core.evaluation import EvaluationSettings, hacking_alarm
from sparring.core.problem import Problem
from sparring.core.verdict import Limits
from sparring.games.programs.code_execution import CodeExecutionRules
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.games.programs.evaluator import SolverEvaluator, proxy_gold_gap
from sparring.games.programs.game import SolverGame, SolverRules
from sparring.games.programs.unit_tests import UnitTestsRules
from sparring.problems.formats import load_dataset
from tests.playing import play, reader
from tests.recorded import DOUBLE as OF_RUNS

LIMITS = Limits(cpu_s=0.3, wall_s=5.0)


def problem(name: str, slope: int) -> Problem:
    return replace(
        OF_RUNS,
        id=name,
        baseline_tests=(f"assert f(1) == {slope}",),
        hidden_tests=tuple(f"assert f({n}) == {n * slope}" for n in (0, 1, 2, -3)),
        reference_solution=f"def f(n): return n * {slope}",
    )


PROBLEMS = [problem("double", 2), problem("triple", 3)]
DOUBLE, TRIPLE = (p.reference_solution for p in PROBLEMS)
LUCKY = "def f(n): return abs(n) * 2"
"""Three of double's four tests."""
NOTHING_PAYS = CodeExecutionRules(sandbox_limits=LIMITS)
FIRST_TWO = UnitTestsRules(max_tests=2, sandbox_limits=LIMITS)


def evaluator(sandbox, samples=0, rules: SolverRules = NOTHING_PAYS, problems=PROBLEMS) -> SolverEvaluator:
    settings = EvaluationSettings.model_construct(samples=samples, temperature=0.7)
    return SolverEvaluator(problems, sandbox, rules, settings)


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


def test_what_is_asked_for(breaking):
    (greedy,) = evaluator(breaking).requests(None)
    assert greedy.problems == tuple(PROBLEMS)
    assert (greedy.attempts, greedy.temperatures) == ({"generator": 1}, {"generator": 0.0})
    again, sampled = evaluator(breaking, samples=5).requests(None)
    assert again == greedy and sampled.address != greedy.address
    assert (sampled.attempts, sampled.temperatures) == ({"generator": 5}, {"generator": 0.7})
    assert evaluator(breaking).bank_request() is None
    assert evaluator(breaking, samples=4).shown == ("generator_pass_rate", "pass_at_1", "pass_at_4")
    assert evaluator(breaking).shown == ("generator_pass_rate",)


def test_of_a_game_that_was_played(breaking):
    """The program that passes the one baseline test and not the hidden ones: the reward does not see it."""
    game = SolverGame(UnitTestsRules())
    greedy = [play(game, p, [reader("generator", [LUCKY])], breaking) for p in PROBLEMS]
    found = scores(evaluator(breaking), greedy)
    assert found.values["reward"] == 1.0 and found.values["generator_pass_rate"] == 0.0
    assert found.values["pass_rate"] == 0.5 and found.tasks == {"double": 0.75, "triple": 0.25}


# ---------------------------------------------------------------------- the gap between what pays and what is hidden
SPECIAL = "def f(n): return {0: 0, 1: 2}.get(n)"
"""Passes the first two of GAPPED's three baseline tests, and one of its two hidden ones."""
GAPPED = replace(
    PROBLEMS[0],
    baseline_tests=("assert f(0) == 0", "assert f(1) == 2", "assert f(5) == 10"),
    hidden_tests=("assert f(2) == 4", "assert f(1) == 2"),
)


def greedy_scores(sandbox, rules: SolverRules, problem: Problem, programs: list[str]) -> dict[str, float]:
    """Of one program for each of as many problems like this one."""
    problems = [replace(problem, id=str(i)) for i in range(len(programs))]
    greedy = [episode(p, (program, 0.5, {})) for p, program in zip(problems, programs, strict=True)]
    return scores(evaluator(sandbox, rules=rules, problems=problems), greedy).values


@pytest.mark.parametrize(
    ("rules", "problem", "programs", "gap"),
    [
        (FIRST_TWO, GAPPED, [SPECIAL], 1 - 1 / 2),
        (FIRST_TWO, GAPPED, [DOUBLE, SPECIAL], (1 - 1 / 2) / 2),
        (CodeGolfRules(sandbox_limits=LIMITS), GAPPED, [SPECIAL], 2 / 3 - 1 / 2),
        (NOTHING_PAYS, GAPPED, [SPECIAL], None),
        (FIRST_TWO, replace(GAPPED, hidden_tests=()), [SPECIAL], None),
    ],
    ids=["two tests pay", "of two programs", "golf: all pay", "nothing pays", "nothing is hidden"],
)
def test_the_gap_is_of_the_tests_that_pay(sandbox, rules, problem, programs, gap):
    found = greedy_scores(sandbox, rules, problem, programs)
    assert found.get("proxy_gold_gap") == (gap if gap is None else pytest.approx(gap))


def test_what_could_not_be_judged_is_in_no_gap(breaking):
    breaking.on = {SPECIAL}
    found = greedy_scores(breaking, FIRST_TWO, GAPPED, [DOUBLE, SPECIAL])
    assert (found["proxy_gold_gap"], found["unjudged"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("recipe", "changes", "gap"),
    [
        ("unit_tests_lua", (), True),
        ("code_golf", (), True),
        ("grpo_code_execution", ("--no-game.gate-on-tests",), False),
        ("grpo_code_execution", ("--game.gate-on-tests",), True),
    ],
)
def test_a_run_measures_the_gap_where_tests_pay(sandbox, recipe, changes, gap):
    config = load_run(["--config", recipe, *changes])[0].to_config()
    of_the_run = config.game.evaluator([GAPPED], sandbox, config.evaluation)
    played = [episode(GAPPED, (SPECIAL, 0.5, {}))]
    assert ("proxy_gold_gap" in scores(of_the_run, played, played).values) is gap


def test_a_gap_alarm_that_cannot_ring_is_refused():
    for recipe in ("toy", "spiral_kuhn", "output_prediction"):
        with pytest.raises(ConfigError, match=r"evaluation.gap_alarm has no effect"):
            load_run(["--config", recipe, "--evaluation.gap-alarm", "0.1"])
    assert load_run(["--config", "unit_tests_lua", "--evaluation.gap-alarm", "0.1"])


def test_what_knows_the_shown_grids_by_heart_is_told_apart_by_the_hidden_ones(sandbox, tmp_path):
    pairs = [{"input": [[n, 0]], "output": [[0, n]]} for n in range(1, 9)]
    task = {"train": pairs[:1], "test": pairs[1:2], "arc-gen": pairs[2:]}
    (tmp_path / "task007.json").write_text(json.dumps(task))
    (known,) = load_dataset(tmp_path, "grids_hidden")
    assert (len(known.baseline_tests), len(known.hidden_tests)) == (5, 3)
    by_heart = "p=lambda g:[[0,g[0][0]*(g[0][0]<6)]]"
    rules = CodeGolfRules(sandbox_limits=LIMITS)
    for program, gap in ((by_heart, 1.0), ("p=lambda g:[r[::-1]for r in g]", 0.0)):
        assert greedy_scores(sandbox, rules, known, [program])["proxy_gold_gap"] == gap


def test_the_gap_is_of_the_same_programs_and_of_those_that_were_judged():
    assert proxy_gold_gap([1.0, 0.5, 1.0], [0.5, 0.5, 0.0]) == pytest.approx(0.5)
    assert proxy_gold_gap([0.0], [1.0]) == -1
    assert proxy_gold_gap([1.0, None, 1.0], [0.0, 0.0, None]) == 1
    assert proxy_gold_gap([None], [1.0]) is None and proxy_gold_gap([], []) is None
    with pytest.raises(ValueError):
        proxy_gold_gap([1.0], [])


def test_the_alarm_is_raised_above_the_threshold_only():
    assert [hacking_alarm(gap, 0.25) for gap in (0.25, -1.0, None)] == [None] * 3
    message = hacking_alarm(0.3, 0.25)
    assert message and "0.30" in message and "0.25" in message and "\n" not in message
