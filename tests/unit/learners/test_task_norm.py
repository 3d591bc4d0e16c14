"""Per-task normalisation, by hand."""

import json
from statistics import fmean, pstdev

import pytest

from learners.advantages.task_norm import TaskNormaliser


def test_the_first_batch_is_normalised_by_itself():
    normaliser = TaskNormaliser()
    assert normaliser.normalise("t", [1.0, 3.0]) == [-1.0, 1.0]
    assert (normaliser.mean("t"), normaliser.std("t")) == (2.0, 1.0)


def test_a_batch_enters_the_statistics_before_it_is_normalised():
    normaliser = TaskNormaliser()
    normaliser.normalise("t", [1.0, 3.0])
    history = [1.0, 3.0, 7.0]
    assert normaliser.normalise("t", [7.0]) == [pytest.approx((7 - fmean(history)) / pstdev(history))]


def test_tasks_are_kept_apart():
    normaliser = TaskNormaliser()
    normaliser.normalise("easy", [10.0, 12.0])
    assert normaliser.normalise("hard", [0.0, 1.0]) == [-1.0, 1.0]
    assert (normaliser.mean("never seen"), normaliser.std("never seen")) == (0.0, 0.0)


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -3.3, 1e9])
def test_equal_rewards_say_nothing(reward):
    normaliser = TaskNormaliser()
    assert normaliser.normalise("t", [reward] * 7) == [0.0] * 7
    assert normaliser.normalise("t", [reward]) == [0.0]
    assert normaliser.normalise("t", []) == []


def test_large_offsets_do_not_cost_precision():
    """The sum of squares would lose all digits here."""
    normaliser = TaskNormaliser()
    assert normaliser.normalise("t", [1e8 + 1, 1e8 + 3]) == pytest.approx([-1.0, 1.0])


def test_it_goes_on_from_its_state():
    first, second = TaskNormaliser(), TaskNormaliser()
    first.normalise("t", [0.0, 0.5, 1.0])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.normalise("t", [0.25]) == first.normalise("t", [0.25])
    assert second.state_dict() == first.state_dict()
