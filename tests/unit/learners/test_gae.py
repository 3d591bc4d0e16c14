import pytest
import torch

from learners.advantages.gae import gae
from tests.learning import Operations


def test_hand_computed():
    # deltas: 1 + .5*2 - 1 = 1;  0 + .5*4 - 2 = 0;  8 - 4 = 4;  gamma * lam = .25
    advantages, returns = gae(
        torch.tensor([1.0, 0.0, 8.0]), torch.tensor([1.0, 2.0, 4.0]), gamma=0.5, lam=0.5
    )
    assert advantages.tolist() == [1.25, 1.0, 4.0]
    assert returns.tolist() == [2.25, 3.0, 8.0]


def test_reward_on_the_last_token_and_a_value_of_zero_give_every_token_the_reward():
    advantages, returns = gae(torch.tensor([0.0, 0.0, 0.7]), torch.zeros(3), gamma=1.0, lam=1.0)
    assert advantages.tolist() == pytest.approx([0.7] * 3)
    assert returns.tolist() == pytest.approx([0.7] * 3)


def test_lambda_1_is_the_return_minus_the_value():
    advantages, returns = gae(
        torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.25, 0.5, 0.75]), gamma=1.0, lam=1.0
    )
    assert advantages.tolist() == [0.75, 0.5, 0.25]
    assert returns.tolist() == [1.0, 1.0, 1.0]


def test_lambda_0_is_the_one_step_error():
    advantages, _ = gae(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.25, 0.5, 0.75]), gamma=1.0, lam=0.0)
    assert advantages.tolist() == [0.25, 0.25, 0.25]


def test_one_token():
    advantages, returns = gae(torch.tensor([-1.0]), torch.tensor([0.5]), gamma=0.9, lam=0.9)
    assert advantages.tolist() == [-1.5]
    assert returns.tolist() == [-1.0]


def test_the_work_of_torch_does_not_grow_with_the_trajectory():
    """A tensor operation for each token takes seconds of a training step."""

    def operations(length: int) -> int:
        with Operations() as seen:
            gae(torch.randn(length), torch.randn(length), gamma=0.99, lam=0.95)
        return len(seen.names)

    assert operations(500) == operations(5)
