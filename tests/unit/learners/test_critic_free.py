"""The critic-free estimators beside GRPO, by hand."""

import pytest

from learners.advantages.dr_grpo import dr_grpo
from learners.advantages.estimate import Advantages
from learners.advantages.reinforce_pp import reinforce_pp
from learners.advantages.rloo import rloo
from learners.settings import LearnerSettings


def test_dr_grpo_is_the_distance_from_the_mean():
    assert dr_grpo([0.0, 2.0, 2.0, 4.0]) == [-2.0, 0.0, 0.0, 2.0]


def test_rloo_is_the_distance_from_the_mean_of_the_others():
    assert rloo([0.0, 1.0, 5.0]) == pytest.approx([0 - 3.0, 1 - 2.5, 5 - 0.5])


def test_reinforce_pp_leaves_rewards_to_be_normalised_over_the_batchs_tokens():
    """By test_targets; it is the whole batch that must differ, not each group."""
    assert reinforce_pp([[0.0, 0.0], [2.0, 2.0]]) == [[0.0, 0.0], [2.0, 2.0]]


@pytest.mark.parametrize("estimator", [dr_grpo, rloo])
@pytest.mark.parametrize("rewards", [[], [1.0], [0.3] * 8])
def test_a_group_without_signal_has_no_advantages(estimator, rewards):
    assert estimator(rewards) is None


def test_a_tied_group_speaks_in_reinforce_pp_unless_all_are_tied():
    settings = LearnerSettings(estimator={"kind": "reinforce_pp"})
    tied, other = Advantages(settings).credit([[1.0, 1.0], [0.0, 1.0]], game="g", player="r")
    assert tied is not None and other is not None and tied[0][1] == tied[1][1] == 1.0
    assert Advantages(settings).credit([[1.0, 1.0], [1.0]], game="g", player="r") == [None, None]
