"""Each loss against numbers worked out by hand. Gradients against finite differences: test_gradients.py."""

from math import exp, log

import pytest
import torch

from learners.losses import importance_weights, kl, policy_loss, value_loss
from learners.settings import KlInReward

BOUNDS = {"clip_low": 0.2, "clip_high": 0.28}
ONE_ROW = torch.zeros(3, dtype=torch.long)


def loss_of(ratios, advantages, sequences=None, **options):
    logprobs = torch.tensor(ratios, dtype=torch.float64).log().requires_grad_()
    rows = torch.tensor(sequences or [0] * len(ratios))
    result = policy_loss(
        logprobs, torch.zeros_like(logprobs), torch.tensor(advantages), rows, **BOUNDS, **options
    )
    result.loss_N.sum().backward()
    return result, logprobs.grad.tolist()


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
def test_ppo_hand_computed(ratio, advantage, loss, gradient):
    result, gradients = loss_of([ratio], [advantage])
    assert result.loss_N.tolist() == pytest.approx([loss], rel=1e-5)
    assert gradients == pytest.approx([gradient], rel=1e-5)


def test_tokens_that_clipping_decides_are_counted_and_the_interval_is_asymmetric():
    ratios, advantages = [1.0, 1.5, 0.5, 1.1, 1.25, 0.75, 1.5], [1.0, 1.0, -1.0, 1.0, 1.0, 1.0, -1.0]
    result, gradients = loss_of(ratios, advantages)
    assert result.clipped_N.tolist() == [0, 1, 1, 0, 0, 0, 0]
    assert [float(gradient == 0) for gradient in gradients] == result.clipped_N.tolist()


@pytest.mark.parametrize("objective", ["ppo", "gspo", "cispo"])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_token_that_the_engine_held_impossible_breaks_no_update(objective, advantage):
    """e^100 is no fp32: its gradient would be NaN even where the ratio is clipped."""
    logprobs = torch.tensor([-1.0], requires_grad=True)
    options = BOUNDS | {"objective": objective}
    found = policy_loss(logprobs, torch.tensor([-101.0]), torch.tensor([advantage]), ONE_ROW[:1], **options)
    found.loss_N.sum().backward()
    assert found.loss_N.isfinite().all() and found.approximate_kl_N.isfinite().all()
    assert logprobs.grad.isfinite().all()


def test_gspo_weighs_each_tokens_own_gradient():
    """As importance weights do, after the loss."""
    logprobs = torch.tensor([0.1, -0.2, 0.05], requires_grad=True)
    found = policy_loss(logprobs, torch.zeros(3), torch.ones(3), ONE_ROW, **BOUNDS, objective="gspo")
    (found.loss_N * torch.tensor([1.0, 2.0, 0.0])).sum().backward()
    ratio = exp(-0.05 / 3)
    assert logprobs.grad.tolist() == pytest.approx([-ratio, -2 * ratio, 0.0])


def test_dual_clip_bounds_what_an_improbable_token_can_do():
    free, gradients = loss_of([10.0], [-2.0])
    assert free.loss_N.item() == pytest.approx(20.0) and gradients == pytest.approx([20.0])
    bounded, gradients = loss_of([10.0], [-2.0], dual_clip=3.0)
    assert bounded.loss_N.item() == pytest.approx(6.0) and gradients == [0.0]
    same, _ = loss_of([2.0, 10.0], [-2.0, 2.0], dual_clip=3.0)  # below the bound; a positive advantage
    assert same.loss_N.tolist() == pytest.approx([4.0, -2.56])


def test_gspo_gives_a_sequence_one_ratio():
    # geometric means: sqrt(1.5 * 0.6) = .9487, and 2 (clipped at 1.28)
    result, gradients = loss_of([1.5, 0.6, 2.0], [1.0, 1.0, 1.0], [0, 0, 1], objective="gspo")
    mean = (1.5 * 0.6) ** 0.5
    assert result.loss_N.tolist() == pytest.approx([-mean, -mean, -1.28])
    # d(ratio)/d(logp_t) = ratio / 2, for each of the sequence's two loss terms
    assert gradients == pytest.approx([-mean, -mean, 0.0])


def test_cispo_weighs_the_log_likelihood_and_drops_no_gradient():
    result, gradients = loss_of([1.5, 0.5, 1.1], [2.0, -2.0, 1.0], objective="cispo")
    assert gradients == pytest.approx([-1.28 * 2, 0.8 * 2, -1.1])
    assert result.clipped_N.tolist() == [1, 1, 0]


def test_approximate_kl_is_k3_and_carries_no_gradient():
    result, _ = loss_of([0.5, 2.0], [0.0, 0.0])
    assert result.approximate_kl_N.tolist() == pytest.approx([0.5 - 1 - log(0.5), 2 - 1 - log(2)], rel=1e-5)
    assert not result.approximate_kl_N.requires_grad


def test_kl_hand_computed():
    policy, reference = torch.tensor([-1.0, -1.0]), torch.tensor([-2.0, 0.0])
    assert kl(policy, reference, "k1").tolist() == [1.0, -1.0]
    assert kl(policy, reference, "k2").tolist() == [0.5, 0.5]
    assert kl(policy, reference).tolist() == pytest.approx([exp(-1) - -1 - 1, exp(1) - 1 - 1])


def test_k3_of_one_token_is_bounded():
    policy, reference = torch.tensor([-3.0, -200.0], requires_grad=True), torch.tensor([0.0, 0.0])
    found = kl(policy, reference)
    found.sum().backward()
    assert found.tolist() == [10.0, 10.0] and policy.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("distance", [0.03, 0.3, 1.0])
def test_kl_in_the_reward_has_by_default_the_gradient_of_the_kl(distance):
    """In expectation: a policy gradient whose reward is the estimate, which itself carries no gradient."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(50, generator=generator, dtype=torch.float64)
    policy = start + distance * torch.randn(50, generator=generator, dtype=torch.float64)
    policy.requires_grad_()
    logprobs, reference = policy.log_softmax(0), start.log_softmax(0)
    (expected,) = torch.autograd.grad(
        (logprobs.exp() * (logprobs - reference)).sum(), policy, retain_graph=True
    )
    penalties = kl(logprobs.detach(), reference, KlInReward(coefficient=1.0).estimator)
    (found,) = torch.autograd.grad((logprobs.exp().detach() * penalties * logprobs).sum(), policy)
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_value_loss_hand_computed():
    values, old, returns = torch.tensor([[1.0, 2.0, 0.0], [1.0, 1.0, 1.0], [0.5, 2.0, 0.0]])
    assert value_loss(values, old, returns, None).tolist() == [0.25, 0.0, 0.0]
    # held at 1.2: (1.2 - 2)^2 = .64; held at .8: (.8 - 0)^2 = .64
    assert value_loss(values, old, returns, 0.2).tolist() == pytest.approx([0.25, 0.64, 0.64])


def test_importance_weights_are_truncated():
    weights = importance_weights(torch.tensor([-1.0, -1.0, 0.0]), torch.tensor([-1.0, 0.0, -3.0]), 2.0)
    assert weights.tolist() == pytest.approx([1.0, exp(-1), 2.0])
