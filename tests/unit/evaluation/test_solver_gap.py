import asyncio
import json
from collections.abc import Sequence

import pytest

from configs.load import ConfigError, load_run
from core.episode import Episode, Trajectory
from core.evaluation import EvaluationSettings, Scores, hacking_alarm
from core.problem import Problem
from core.verdict import Limits
from games.programs.code_execution import CodeExecutionRules
from games.programs.code_golf import CodeGolfRules
from games.programs.evaluator import SolverEvaluator, proxy_gold_gap
from games.programs.game import SolverRules
from games.programs.unit_tests import UnitTestsRules
from problems.formats import load_dataset

LIMITS = Limits(cpu_s=0.2, wall_s=3.0)
RIGHT, SPECIAL, WRONG = (f"def f(n): return {v}" for v in ("n * 2", "{0: 0, 1: 2}.get(n)", "7"))


FIRST_TWO = UnitTestsRules(max_tests=2, sandbox_limits=LIMITS)
EVERY, NONE = CodeGolfRules(sandbox_limits=LIMITS), CodeExecutionRules(sandbox_limits=LIMITS)


def problem(name: str, hidden: tuple[str, ...] = ("assert f(2) == 4", "assert f(1) == 2")) -> Problem:
    return Problem(
        id=name,
        description="Double n.",
        function_signature="def f(n):",
        baseline_tests=("assert f(0) == 0", "assert f(1) == 2", "assert f(5) == 10"),
        hidden_tests=hidden,
        reference_solution=RIGHT,
    )


def episode(name: str, *programs: str) -> Episode:
    attempts = [
        Trajectory(player="generator", attempt=i, turns=[], artifact=p, reward=0.5, components={"base": 0.25})
        for i, p in enumerate(programs)
    ]
    return Episode(problem_id=name, trajectories=attempts)


def score(
    sandbox, problems: Sequence[Problem], *played: Sequence[Episode], rules: SolverRules = FIRST_TWO
) -> Scores:
    settings = EvaluationSettings.model_construct(samples=len(played) - 1, temperature=1.0, pass_at=(1, 2))
    evaluator = SolverEvaluator(problems, sandbox, rules, settings)
    return asyncio.run(evaluator.scores(played, None))


def test_scores_by_hand(sandbox):
    """SPECIAL passes both rewarded tests and one of two hidden ones."""
    greedy = [episode("a", RIGHT), episode("b", SPECIAL)]
    sampled = [episode("a", RIGHT, WRONG), episode("b", WRONG, WRONG)]
    scores = score(sandbox, [problem("a"), problem("b")], greedy, sampled)
    assert scores.values == {
        "generator_pass_rate": 0.5,
        "generator_test_rate": 0.75,
        "pass_at_1": 0.25,
        "pass_at_2": 0.5,
        "sampled_reward": 0.5,
        "reward": 0.5,
        "base": 0.25,
        "unjudged": 0.0,
        "proxy_gold_gap": 0.25,
    }
    assert scores.combined == 0.5 and scores.tasks == {"a": 1.0, "b": 0.5}


def test_the_gap_is_of_the_tests_that_pay(sandbox):
    """The third baseline test fails: with it SPECIAL passes 2 of 3 of the paying tests, 1 of 2 of the hidden ones."""
    every = score(sandbox, [problem("b")], [episode("b", SPECIAL)], rules=EVERY)
    assert every.values["proxy_gold_gap"] == pytest.approx(2 / 3 - 1 / 2)


def test_without_hidden_tests_or_paying_ones_there_is_no_gap(sandbox):
    shown = score(sandbox, [problem("b", hidden=())], [episode("b", SPECIAL)])
    unpaid = score(sandbox, [problem("b")], [episode("b", SPECIAL)], rules=NONE)
    assert "proxy_gold_gap" not in shown.values | unpaid.values


def test_what_could_not_be_judged_is_in_no_mean(breaking):
    breaking.on = {WRONG}
    scores = score(breaking, [problem("a"), problem("b")], [episode("a", RIGHT), episode("b", WRONG)])
    assert scores.values["generator_pass_rate"] == 1.0 and scores.values["unjudged"] == 1.0
    assert scores.values["proxy_gold_gap"] == 0.0 and scores.tasks == {"a": 1.0}


# ---------------------------------------------------------------------- in a run
@pytest.mark.parametrize(
    ("recipe", "changes", "gap"),
    [
        ("unit_tests_lua", (), True),
        ("code_golf", (), True),
        ("grpo_code_execution", ("--no-game.gate-on-tests",), False),
        ("grpo_code_execution", ("--game.gate-on-tests",), True),
    ],
)
def test_the_gap_is_measured_where_tests_pay(sandbox, recipe, changes, gap):
    config = load_run(["--config", recipe, *changes])[0].to_config()
    evaluator = config.game.evaluator([problem("b")], sandbox, config.evaluation)
    scores = asyncio.run(evaluator.scores([[episode("b", SPECIAL)], [episode("b", SPECIAL)]], None))
    assert ("proxy_gold_gap" in scores.values) is gap


def test_a_gap_alarm_that_cannot_ring_is_refused():
    for recipe in ("embedded", "spiral_kuhn", "output_prediction"):
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
    for program, gap in ((by_heart, 1.0), ("p=lambda g:[r[::-1]for r in g]", 0.0)):
        scores = score(sandbox, [known], [episode("task007", program)], rules=EVERY)
        assert scores.values["proxy_gold_gap"] == gap


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
