import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.schedule import Constant, DecaySchedule
from tests.learning import largest_difference, weights


def factor(update, kind="linear", warmup=4, decay=14, floor=0.2):
    return DecaySchedule(kind=kind, warmup_updates=warmup, decay_updates=decay, floor=floor).factor(update)


def test_by_hand():
    assert [factor(u) for u in (0, 1, 3, 4, 9, 14, 100)] == pytest.approx([0.25, 0.5, 1, 1, 0.6, 0.2, 0.2])
    middle = 0.2 + 0.8 * (1 + math.cos(math.pi / 2)) / 2
    assert [factor(u, "cosine") for u in (4, 9, 14)] == pytest.approx([1, middle, 0.2])
    assert [Constant(warmup_updates=4).factor(u) for u in (0, 3, 4, 10**6)] == [0.25, 1, 1, 1]
    assert Constant(warmup_updates=0).factor(0) == 1


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 20), st.integers(1, 100), st.floats(0, 1), st.sampled_from(["linear", "cosine"]))
def test_it_rises_then_falls_and_stays_within_floor_and_one(warmup, after, floor, schedule):
    """R3, property 46: the schedule applies at every update."""
    factors = [factor(u, schedule, warmup, warmup + after, floor) for u in range(warmup + after + 3)]
    rising, falling = factors[:warmup], factors[warmup:]
    assert rising == sorted(rising) and falling == sorted(falling, reverse=True)
    assert all(0 <= f <= 1 for f in factors) and factors[-1] == pytest.approx(floor)
    assert not warmup or rising[-1] == 1


def test_the_learner_applies_it(make_learner, random_batch):
    schedule = {"kind": "linear", "warmup_updates": 1, "decay_updates": 3, "floor": 0.0}
    learner = make_learner(1e-2, schedule=schedule, minibatch_samples=64)
    told, moved = [], []
    for step in (1, 2, 3, 4):
        before = weights(learner)
        told.append(learner.step(random_batch(learner, step))["learning_rate"])
        moved.append(largest_difference(before, weights(learner)))
    assert told == pytest.approx([1e-2, 1e-2, 5e-3, 0])
    assert moved[0] == pytest.approx(1e-2, rel=0.05), "Adam's first step is the learning rate"
    assert moved[1] > moved[2] > moved[3] == 0


def test_a_critics_trunk_follows_the_schedule_and_its_head_only_the_halvings(make_learner, random_batch):
    critic = {"kind": "gae", "critic": "model", "value_learning_rate": 1e-3}
    learner = make_learner(1e-2, estimator=critic, schedule={"warmup_updates": 10})
    learner.health.learning_rate_factor = 0.5
    learner.step(random_batch(learner))
    head, trunk = (group["lr"] for group in learner.critic_optimizer.param_groups)
    assert head == pytest.approx(1e-3 / 2) and trunk == pytest.approx(1e-2 / 10 / 2)
    assert trunk == learner.optimizer.param_groups[0]["lr"]
    assert learner.current_learning_rate() == pytest.approx(2 * trunk), "of the next update"
