"""Role baselines, by hand."""

import json

import pytest

from learners.advantages.rae import RoleBaselines


def test_the_baseline_is_read_before_it_is_updated():
    baselines = RoleBaselines(0.95)
    assert baselines.advantages("kuhn", "first", [1.0, 3.0]) == [1.0, 3.0]
    assert baselines.advantages("kuhn", "first", [1.0]) == [pytest.approx(1.0 - 2.0)]


def test_the_average_is_corrected_for_its_start_at_zero():
    """b <- .5 b + .5 mean: after means 4 and 1 it is 1.5, divided by 1 - .5^2."""
    baselines = RoleBaselines(0.5)
    baselines.advantages("g", "r", [4.0])
    assert baselines.baseline("g", "r") == pytest.approx(4.0)
    baselines.advantages("g", "r", [1.0])
    assert baselines.baseline("g", "r") == pytest.approx(1.5 / 0.75)


def test_it_remembers_as_many_trajectories_whatever_the_batch():
    """b <- .5 b + .5 R four times, or a batch of four: the past before them weighs .5^4 either way."""
    one_by_one, at_once = RoleBaselines(0.5), RoleBaselines(0.5)
    for baselines in (one_by_one, at_once):
        baselines.advantages("g", "r", [8.0])
    for _ in range(4):
        one_by_one.advantages("g", "r", [0.0])
    at_once.advantages("g", "r", [0.0] * 4)
    assert at_once.baseline("g", "r") == pytest.approx(one_by_one.baseline("g", "r"))
    assert at_once.baseline("g", "r") == pytest.approx(4.0 * 0.5**4 / (1 - 0.5**5))


def test_games_and_roles_are_kept_apart():
    baselines = RoleBaselines(0.9)
    baselines.advantages("kuhn", "first", [1.0])
    assert baselines.baseline("kuhn", "second") == baselines.baseline("tic-tac-toe", "first") == 0.0


def test_draws_count():
    baselines = RoleBaselines(0.9)
    baselines.advantages("g", "r", [1.0, 0.0, 0.0, -1.0])
    assert baselines.baseline("g", "r") == 0.0
    baselines.advantages("g", "r", [1.0, 0.0])
    assert baselines.baseline("g", "r") > 0


def test_no_rewards_are_no_batch():
    baselines = RoleBaselines(0.9)
    baselines.advantages("g", "r", [2.0])
    assert baselines.advantages("g", "r", []) == []
    assert baselines.baseline("g", "r") == pytest.approx(2.0)


def test_the_state_goes_through_json():
    baselines, again = RoleBaselines(0.9), RoleBaselines(0.9)
    for rewards in ([1.0], [0.0, 0.5]):
        baselines.advantages("g", "r", rewards)
    again.load_state_dict(json.loads(json.dumps(baselines.state_dict())))
    assert again.baseline("g", "r") == baselines.baseline("g", "r")
    assert again.advantages("g", "r", [1.0]) == baselines.advantages("g", "r", [1.0])
    assert again.state_dict() == baselines.state_dict()
