import math

import pytest

from learners.advantages.grpo import grpo


def test_hand_computed():
    # mean .5; squared deviations .25 * 2 over n - 1 = 1, so std = sqrt(.5)
    spread = 0.5 / (math.sqrt(0.5) + 1e-4)
    assert grpo([0.0, 1.0]) == pytest.approx([-spread, spread])


def test_four_rewards():
    # mean 2, squared deviations 4 + 0 + 0 + 4 = 8, over 3
    std = math.sqrt(8 / 3)
    assert grpo([0.0, 2.0, 2.0, 4.0]) == pytest.approx([-2 / (std + 1e-4), 0.0, 0.0, 2 / (std + 1e-4)])


@pytest.mark.parametrize("rewards", [[], [1.0], [0.0, 0.0], [0.3] * 8, [0.1 + 0.2, 0.3]])
def test_a_group_without_signal_has_no_advantages(rewards):
    assert grpo(rewards) is None
