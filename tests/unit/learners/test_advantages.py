"""The estimators of advantages, by hand where no property says it (tests/properties/test_advantage_properties.py)."""

import json
import math
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch

from learners.advantages.dr_grpo import dr_grpo
from learners.advantages.estimate import Advantages
from learners.advantages.gae import gae
from learners.advantages.grpo import grpo
from learners.advantages.hierarchical_grpo import hierarchical_grpo
from learners.advantages.rae import RoleBaselines
from learners.advantages.rloo import rloo
from learners.advantages.task_norm import TaskNormaliser
from learners.settings import LearnerSettings
from sparring.core.interfaces import Branching
from tests.learning import Operations


def credit(estimator: str, *groups: list[float], **more: Any) -> Any:
    settings = LearnerSettings.model_validate({"estimator": {"kind": estimator}})
    return Advantages(settings).credit(groups, game="g", player="r", **more)


def test_gaes_work_of_torch_does_not_grow_with_the_trajectory():
    """A tensor operation for each token takes seconds of a training step."""

    def operations(length: int) -> int:
        with Operations() as seen:
            gae(torch.randn(length), torch.randn(length), gamma=0.99, lam=0.95)
        return len(seen.names)

    assert operations(500) == operations(5)


# ---------------------------------------------------------------------- groups
def test_grpo_and_dr_grpo_by_hand():
    std = math.sqrt(8 / 3)  # mean 2, squared deviations 4 + 0 + 0 + 4 = 8, over n - 1 = 3
    assert grpo([0.0, 2.0, 2.0, 4.0]) == pytest.approx([-2 / (std + 1e-4), 0.0, 0.0, 2 / (std + 1e-4)])
    assert dr_grpo([0.0, 2.0, 2.0, 4.0]) == [-2.0, 0.0, 0.0, 2.0]


@pytest.mark.parametrize("estimator", [grpo, dr_grpo, rloo])
@pytest.mark.parametrize("rewards", [[], [1.0], [0.3] * 8, [0.1 + 0.2, 0.3]])
def test_a_group_without_signal_has_no_advantages(estimator, rewards):
    assert estimator(rewards) is None


def test_a_tied_group_speaks_in_reinforce_pp_unless_all_are_tied():
    tied, _ = credit("reinforce_pp", [1.0, 1.0], [0.0, 1.0])
    assert tied == [(1.0, 1.0)] * 2, "the whole batch is normalised, by its tokens"
    assert credit("reinforce_pp", [1.0, 1.0], [1.0]) == [None, None]


def test_hierarchical_grpo_adds_the_parents_advantage_to_the_childrens():
    first, second = hierarchical_grpo([[1.0, 0.0], [0.0, 0.0]])
    between = grpo([0.5, 0.0])
    within = grpo([1.0, 0.0])
    assert between and within
    assert first == pytest.approx([within[0] + between[0], within[1] + between[0]])
    assert second == pytest.approx([between[1]] * 2), "no signal within, but its parent did worse"


def test_groups_are_compared_with_those_of_their_own_problem():
    several, alone, _ = credit(
        "hierarchical_grpo", [1.0, 0.0], [0.5, 0.5], [0.0, 1.0], parents=["a", "b", "a"]
    )
    assert alone is None, "and without signal"
    assert [a for _, a in several] == pytest.approx(grpo([1.0, 0.0])), "equal means: nothing between"
    assert several[0][0] == 1.0, "rewards come along"


@pytest.mark.parametrize("stage", range(1, 6))
def test_attempts_share_what_lies_before_their_branch(stage):
    branching = Branching(stage=stage, branches=3, continuations=2)
    attempts = range(12)
    for here in range(1, 6):
        nodes = {branching.node(attempt, here) for attempt in attempts}
        assert len(nodes) == (2 if here < stage else 6 if here == stage else 12)
    assert [branching.place(a) for a in attempts] == [(a // 6, a // 2) for a in attempts]


# ---------------------------------------------------------------------- rae
def test_the_baseline_is_read_before_it_is_updated_and_kept_for_each_game_and_role():
    baselines = RoleBaselines(0.95)
    assert baselines.advantages("kuhn", "first", [1.0, 3.0]) == [1.0, 3.0]
    assert baselines.advantages("kuhn", "first", []) == []
    assert baselines.advantages("kuhn", "first", [1.0]) == [pytest.approx(1.0 - 2.0)]
    assert baselines.baseline("kuhn", "second") == baselines.baseline("tic-tac-toe", "first") == 0.0


def test_it_remembers_as_many_trajectories_whatever_the_batch():
    """b <- .5 b + .5 R four times, or a batch of four: the past before them weighs .5^4 either way; and the average is
    corrected for its start at zero."""
    one_by_one, at_once = RoleBaselines(0.5), RoleBaselines(0.5)
    for baselines in (one_by_one, at_once):
        baselines.advantages("g", "r", [8.0])
    for _ in range(4):
        one_by_one.advantages("g", "r", [0.0])
    at_once.advantages("g", "r", [0.0] * 4)
    assert at_once.baseline("g", "r") == pytest.approx(one_by_one.baseline("g", "r"))
    assert at_once.baseline("g", "r") == pytest.approx(4.0 * 0.5**4 / (1 - 0.5**5))


# ---------------------------------------------------------------------- by task
def test_a_batch_enters_the_statistics_before_it_is_normalised():
    normaliser = TaskNormaliser()
    normaliser.normalise("t", [1.0, 3.0])
    history = [1.0, 3.0, 7.0]
    assert normaliser.normalise("t", [7.0]) == [pytest.approx((7 - fmean(history)) / pstdev(history))]


@pytest.mark.parametrize("reward", [0.1, -3.3, 1e9])
def test_equal_rewards_say_nothing(reward):
    normaliser = TaskNormaliser()
    for count in (7, 1, 0):
        assert normaliser.normalise("t", [reward] * count) == [0.0] * count


def test_large_offsets_do_not_cost_precision():
    """The sum of squares would lose all digits here."""
    assert TaskNormaliser().normalise("t", [1e8 + 1, 1e8 + 3]) == pytest.approx([-1.0, 1.0])


def test_it_goes_on_from_its_state():
    first, second = TaskNormaliser(), TaskNormaliser()
    first.normalise("t", [0.0, 0.5, 1.0])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.normalise("t", [0.25]) == first.normalise("t", [0.25])
    assert second.state_dict() == first.state_dict()
