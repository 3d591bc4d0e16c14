from math import exp, log

import pytest
import torch

from learners.losses import clipped_surrogate, kl_k3

LOW, HIGH = 0.2, 0.28


def surrogate(ratios, advantages):
    logprobs = torch.tensor(ratios).log().requires_grad_()
    loss = clipped_surrogate(logprobs, torch.zeros(len(ratios)), torch.tensor(advantages), LOW, HIGH)
    loss.loss.backward()
    return loss, logprobs.grad.tolist()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.56, 0.0),  # clipped at 1 + high: no more to gain
        (0.5, 2.0, -1.0, -1.0),  # below, but the advantage asks for more: not clipped
        (0.5, -2.0, 1.6, 0.0),  # clipped at 1 - low: punished enough
        (1.5, -2.0, 3.0, 3.0),  # above, and the advantage asks for less: not clipped
    ],
)
def test_hand_computed(ratio, advantage, loss, gradient):
    result, gradients = surrogate([ratio], [advantage])
    assert result.loss.item() == pytest.approx(loss, rel=1e-5)
    assert gradients == pytest.approx([gradient], rel=1e-5)


def test_sums_over_tokens_and_counts_those_outside_the_interval():
    result, _ = surrogate([1.0, 1.5, 0.5, 1.1], [1.0, 1.0, -1.0, 1.0])
    assert result.loss.item() == pytest.approx(-(1.0 + 1.28 - 0.8 + 1.1), rel=1e-5)
    assert result.clipped.item() == 2


def test_clipping_is_asymmetric():
    result, _ = surrogate([1.25, 0.75], [1.0, 1.0])
    assert result.clipped.item() == 1


def test_approximate_kl_is_k3_and_carries_no_gradient():
    result, _ = surrogate([0.5, 2.0], [0.0, 0.0])
    assert result.approximate_kl.item() == pytest.approx((0.5 - 1 - log(0.5)) + (2 - 1 - log(2)), rel=1e-5)
    assert not result.approximate_kl.requires_grad


def test_equal_policies_have_no_kl_and_nothing_clipped():
    logprobs = torch.tensor([-1.0, -7.0])
    result = clipped_surrogate(logprobs, logprobs.clone(), torch.ones(2), LOW, HIGH)
    assert result.clipped.item() == result.approximate_kl.item() == 0.0
    assert kl_k3(logprobs, logprobs).tolist() == [0.0, 0.0]


def test_kl_k3_hand_computed():
    values = kl_k3(torch.tensor([-1.0, -1.0]), torch.tensor([-2.0, 0.0]))
    assert values.tolist() == pytest.approx([exp(-1) - -1 - 1, exp(1) - 1 - 1])


def test_kl_k3_is_the_kl_in_expectation():
    policy, reference = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.3, 0.3, 0.4])
    expected = (policy * kl_k3(policy.log(), reference.log())).sum()
    exact = (policy * (policy / reference).log()).sum()
    assert expected.item() == pytest.approx(exact.item(), rel=1e-5)
