from dataclasses import replace

import numpy as np
import pytest

from benchmarks.experiments.reward_hacking import (
    ARMS,
    DUPLICATE,
    EASY,
    HARD,
    INVALID,
    SLOW,
    HackingArm,
    HackingSettings,
    HackingTrainer,
    HackingWorld,
    Judge,
    over_seeds,
)
from sparring.games.multistage.rewards import discriminator_reward

SURE = HackingWorld(hard_valid=1.0, hard_kill=1.0, hard_decay=1.0, easy_kill=0.0, slow_limit=1.0)
SHORT = HackingSettings(updates=100, measured=200)


def judged(arm: str, actions: list[int], wrong: int = 2):
    """(suite, reward) in a world without luck."""
    sure = replace(ARMS[arm], world=SURE)
    suite = Judge(sure, np.random.default_rng(1)).suite(actions, wrong)
    return suite, discriminator_reward(suite.facts, sure.rules)[0]


def test_the_guarded_reward_by_hand():
    honest, reward = judged("guarded", [HARD] * 8)
    assert honest.valid == 8 and reward == pytest.approx(0.5)  # half of the programs are wrong
    assert judged("guarded", [HARD] * 2)[1] == pytest.approx(0.5 * 2 / 8)
    assert judged("guarded", [EASY] * 8)[1] == 0
    assert judged("guarded", [HARD] * 4 + [INVALID] * 4)[1] == pytest.approx(0.5 * 4 / 8)
    assert judged("guarded", [SLOW] * 8, wrong=0)[1] == 0
    copied, reward = judged("guarded", [HARD] + [DUPLICATE] * 7)
    assert (copied.valid, copied.facts.valid, copied.facts.duplicates) == (1, 1, 7)
    assert reward == pytest.approx(0.5 / 8)
    assert judged("guarded", [])[1] == -1


def test_what_each_guard_is_against():
    assert judged("slots 1", [HARD])[1] == pytest.approx(0.5)
    assert judged("duplicates count", [HARD] + [DUPLICATE] * 7)[1] == pytest.approx(0.5)
    # nobody passes anything, so the solvability gate is what is left
    assert judged("any time-out kills", [SLOW] * 8, wrong=0)[1] == pytest.approx(0.2)
    assert judged("any time-out kills", [SLOW] * 4 + [EASY] * 4, wrong=0)[1] == pytest.approx(0.5)
    assert judged("p over all tests", [EASY] * 4 + [INVALID] * 4, wrong=0)[1] == pytest.approx(0.25)
    assert judged("slots 1, w .3", [EASY] * 2, wrong=0)[1] == pytest.approx(0.3)
    assert judged("guarded, w .3", [EASY] * 2, wrong=0)[1] == pytest.approx(0.3 / 4)


def test_a_test_that_counts_with_nobody_still_counts_as_valid():
    """The hole that the experiment shows: slow tests fill a suite's slots."""
    assert judged("guarded", [HARD] + [SLOW] * 7)[1] == pytest.approx(0.5)


def test_a_duplicate_of_nothing_is_a_test():
    suite, _ = judged("guarded", [DUPLICATE, DUPLICATE])
    assert suite.valid == 1 and suite.facts.duplicates == 1


def trained(arm: HackingArm, settings: HackingSettings = SHORT) -> dict[str, float]:
    trainer = HackingTrainer(arm, settings, seed=1)
    trainer.train(wrong=2)
    return trainer.measure(wrong=2)


def test_learning_repeats_and_turns_honest():
    start = HackingTrainer(ARMS["guarded"], SHORT, 1).measure(wrong=2)
    end = trained(ARMS["guarded"])
    assert end == trained(ARMS["guarded"])
    assert end["validity"] > 0.8 > start["validity"] and end["duplicates"] < 0.1 < start["duplicates"]


@pytest.mark.parametrize(
    "arm, figure, low, high",
    [("slots 1", "tests", 0, 4), ("duplicates count", "duplicates", 0.3, 1), ("any time-out kills", "slow", 0.8, 1)],
)  # fmt: skip
def test_without_a_guard_it_learns_the_trick(arm, figure, low, high):
    assert low <= trained(ARMS[arm])[figure] <= high


def test_half_invalid_suites_pay_where_p_is_over_all_tests():
    """The theory's v = 1/2 against perfect programs, from a policy that was honest."""
    settings = replace(SHORT, updates=150)
    arm = ARMS["p over all, slow 0"]
    _, perfect = over_seeds(arm, settings, [1])
    assert perfect["validity"].mean == pytest.approx(0.5, abs=0.12)
    assert perfect["found"].mean == 0
