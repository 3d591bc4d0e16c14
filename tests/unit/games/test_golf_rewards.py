"""Rewards of code golf, by hand."""

import pytest
from pydantic import ValidationError

from sparring.core.verdict import Status, Verdict
from sparring.games.programs.golf_rewards import GolfRules, fault_of, golf_reward, kaggle_score, utf8_bytes

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
