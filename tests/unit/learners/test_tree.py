"""Credit by branching, and GRPO on two levels."""

import pytest

from learners.advantages.estimate import Advantages
from learners.advantages.grpo import grpo
from learners.advantages.hierarchical_grpo import hierarchical_grpo
from learners.settings import LearnerSettings
from sparring.core.interfaces import Branching


def test_hierarchical_grpo_adds_the_parents_advantage_to_the_childrens():
    first, second = hierarchical_grpo([[1.0, 0.0], [0.0, 0.0]])
    between = grpo([0.5, 0.0])
    within = grpo([1.0, 0.0])
    assert first == pytest.approx([within[0] + between[0], within[1] + between[0]])
    assert second == pytest.approx([between[1]] * 2), "no signal within, but its parent did worse"


def test_hierarchical_grpo_without_parents_to_compare_is_grpo():
    assert hierarchical_grpo([[1.0, 0.0, 0.0]]) == [pytest.approx(grpo([1.0, 0.0, 0.0]))]
    assert hierarchical_grpo([[1.0, 1.0]]) == [None]


def test_groups_are_compared_with_those_of_their_own_problem():
    advantages = Advantages(LearnerSettings(estimator={"kind": "hierarchical_grpo"}))
    credit = advantages.credit(
        [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], game="g", player="r", parents=["a", "b", "a"]
    )
    assert credit[1] is None, "alone, and without signal"
    assert [a for _, a in credit[0]] == pytest.approx(grpo([1.0, 0.0])), "equal means: nothing between"
    assert credit[0][0][0] == 1.0, "rewards come along"


@pytest.mark.parametrize("stage", range(1, 6))
def test_attempts_share_what_lies_before_their_branch(stage):
    branching = Branching(stage=stage, branches=3, continuations=2)
    attempts = range(12)
    for here in range(1, 6):
        nodes = {branching.node(attempt, here) for attempt in attempts}
        assert len(nodes) == (2 if here < stage else 6 if here == stage else 12)
    assert [branching.place(a) for a in attempts] == [(a // 6, a // 2) for a in attempts]
