"""Code golf: its rewards by hand, then with programs that really run."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from sparring.core.problem import Problem
from sparring.core.verdict import Limits, Status, Verdict
from sparring.games.program_scores import JudgedProgram
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.games.programs.game import SolverGame
from sparring.games.programs.golf_rewards import GolfRules, fault_of, golf_reward, kaggle_score, utf8_bytes
from tests.playing import Letters, play, reader, with_tests

RULES = GolfRules(
    pass_weight=2.0,
    length_weight=1.0,
    length_scale=50,
    syntax_error_penalty=1.0,
    runtime_error_penalty=0.75,
    limit_penalty=0.5,
)


@pytest.mark.parametrize(
    ("passed", "size", "reward"),
    [
        (0, 10, 0.0),
        (1, 10, 0.5),
        (3, 10, 1.5),
        (3, 10_000, 1.5),  # length counts for solutions only
        (4, 50, 2.5),
        (4, 150, 2.25),
        (4, 0, 3.0),
    ],
)
def test_correct_first_then_short(passed, size, reward):
    assert golf_reward(passed, 4, size, RULES)[0] == pytest.approx(reward)


@pytest.mark.parametrize(
    ("fault", "reward"),
    [
        (Status.SYNTAX_ERROR, -1.0),
        (Status.RUNTIME_ERROR, -0.75),
        (Status.TIME_LIMIT, -0.5),
        (Status.MEMORY_LIMIT, -0.5),
        (Status.OUTPUT_LIMIT, -0.5),
        (Status.WRONG_ANSWER, 0.0),
        (None, 0.0),
    ],
)
def test_a_fault_costs_a_program_that_passes_nothing(fault, reward):
    earned, components = golf_reward(0, 4, 10, RULES, fault)
    assert earned == reward and components["penalty"] == -reward
    assert golf_reward(1, 4, 10, RULES, fault)[0] == 0.5


def test_the_competitions_score():
    assert kaggle_score(True, 60) == 2440.0
    assert kaggle_score(True, 2500) == kaggle_score(True, 9999) == 1.0
    assert kaggle_score(False, 60) == 0.0


def test_length_is_in_bytes():
    assert utf8_bytes("é€😀") == 9
    assert utf8_bytes("\ud800") == 3


def test_the_fault_is_the_first_that_is_more_than_a_wrong_answer():
    statuses = (Status.PASSED, Status.WRONG_ANSWER, Status.TIME_LIMIT, Status.RUNTIME_ERROR)
    assert fault_of(Verdict(status=status) for status in statuses) is Status.TIME_LIMIT
    assert fault_of(Verdict(status=status) for status in statuses[:2]) is None


def test_a_sandbox_failure_is_no_reward():
    with pytest.raises(AssertionError):
        golf_reward(0, 4, 10, RULES, Status.SANDBOX_ERROR)


@pytest.mark.parametrize("key", ["pass_weight", "length_weight", "length_scale", "limit_penalty", "unknown"])
def test_rules_are_checked(key):
    with pytest.raises(ValidationError, match=key):
        GolfRules(**{key: -1})


# ---------------------------------------------------------------------- played
PROBLEM = Problem(
    id="task001",
    description="[[1,2]] -> [[2,1]]",
    function_signature="def p(grid):",
    baseline_tests=("assert p([[1, 2]]) == [[2, 1]]", "assert p([[3, 3], [0, 1]]) == [[3, 3], [1, 0]]"),
    reference_solution="p=lambda g:[r[::-1]for r in g]",
)
SHORT = "p=lambda g:[r[::-1]for r in g]"
LONG = "def p(g):\n    return [list(reversed(row)) for row in g]"
HALF = "p=lambda g:[[2,1]]"


def game(**rules) -> SolverGame:
    return SolverGame(CodeGolfRules(sandbox_limits=Limits(cpu_s=0.3, wall_s=6.0), **rules))


def test_rewards_by_hand(sandbox):
    rules = GolfRules(pass_weight=2.0, length_weight=1.0, length_scale=10)
    programs = [SHORT, LONG, HALF, "p=lambda g:g", "p=lambda g:g[9]", "p=lambda g:", "p=1\nwhile 1:0", ""]
    episode = play(game(rewards=rules), PROBLEM, [reader("generator", programs)], sandbox)
    assert [t.reward for t in episode.trajectories] == pytest.approx(
        [2 + 10 / (10 + len(SHORT)), 2 + 10 / (10 + len(LONG)), 1.0, 0.0, -0.5, -1.0, -0.5, -0.5]
    )
    assert [t.components["bytes"] for t in episode.trajectories] == [len(p) for p in programs]
    assert [t.components["kaggle_score"] for t in episode.trajectories[:3]] == [
        2500 - len(SHORT),
        2500 - len(LONG),
        0.0,
    ]


def test_neither_fences_nor_blanks_around_the_program_count(sandbox):
    texts = [f"Shorter:\n```python\n{SHORT}\n\n```\n", f"\n\n{SHORT}\n\n"]
    episode = play(game(), PROBLEM, [reader("generator", texts)], sandbox)
    assert [t.artifact for t in episode.trajectories] == [SHORT, SHORT]
    assert [t.components["bytes"] for t in episode.trajectories] == [30.0, 30.0]


def test_bytes_are_counted_not_characters(sandbox):
    program = "é='€'\n" + SHORT
    (attempt,) = play(game(), PROBLEM, [reader("generator", [program])], sandbox).trajectories
    assert attempt.components["bytes"] == len(SHORT) + 9 and attempt.components["solved"] == 1.0


def test_a_grid_that_is_changed_in_place_stays_this_tests_own(sandbox):
    """A program that spoils its input spoils no later test's."""
    same = with_tests(PROBLEM, *["assert p([[1, 2]]) == [[2, 1]]"] * 3)
    program = "def p(g):\n for r in g:r.reverse()\n return g"
    (attempt,) = play(game(), same, [reader("generator", [program])], sandbox).trajectories
    assert attempt.components["solved"] == 1.0


# ---------------------------------------------------------------------- the best one so far
def test_the_best_known_program_is_shown_where_that_is_wanted():
    for shown, rules in ((False, {}), (True, {"show_best": True})):
        message = game(**rules).rules.message(PROBLEM, (SHORT, LONG))
        assert (SHORT in message.full) == (SHORT in message.brief) == shown
        assert (f"{len(SHORT)} bytes" in message.full) == shown
        assert LONG not in message.full + message.brief
    nothing_known = game(show_best=True).rules.message(PROBLEM, ())
    assert nothing_known == game().rules.message(PROBLEM, ())


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("show_best", [False, True])
def test_no_prompt_is_longer_than_the_longest(full, show_best):
    style, size = Letters(full=full), 1500
    played = game(show_best=show_best)
    longest = played.longest(PROBLEM, "generator", style, size)
    for known in ((), ("x",), ("x" * size,)):
        assert len(style.say((), played.rules.message(PROBLEM, known))) + size <= longest


def test_the_scores_are_of_what_solves_its_task():
    programs = [
        JudgedProgram(program=p, test_rate=float(s is Status.PASSED), status=s)
        for p, s in (("p=1", Status.PASSED), ("p=int", Status.PASSED), ("p", Status.WRONG_ANSWER))
    ]
    assert CodeGolfRules().further_scores(programs) == {"kaggle_score": 2497.0 + 2495.0, "bytes": 4.0}
    assert CodeGolfRules().further_scores(programs[2:]) == {"kaggle_score": 0}


def test_what_is_no_grid_task_is_refused():
    assert "function p(grid)" in (
        CodeGolfRules().refuse(replace(PROBLEM, function_signature="def f(n):")) or ""
    )
