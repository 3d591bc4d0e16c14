"""The gradient of every loss on a whole model, against finite differences in double precision."""

from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from learners.learner import Learner
from learners.settings import LearnerSettings
from learners.targets import Targets
from tests.learning import VOCABULARY, batch, random_samples

CASES = {
    "ppo": {},
    "asymmetric": {"clip_low": 0.1, "clip_high": 0.4},
    "dual_clip": {"dual_clip": 1.5},
    "sequence": {"loss_normaliser": "sequence"},
    "constant": {"loss_normaliser": "constant", "max_loss_tokens": 16},
    "entropy": {"entropy_coefficient": 0.3},
    "k2": {"kl": {"kind": "loss", "coefficient": 0.5, "estimator": "k2"}},
    "k3": {"kl": {"kind": "loss", "coefficient": 0.5}},
    "gspo": {"objective": "gspo", "loss_normaliser": "sequence"},
    "decoupled": {"importance_cap": 2.0},
    "critic": {"estimator": {"kind": "gae"}},
    "critic_clip": {"estimator": {"kind": "gae", "value_clip": 0.1}},
    "critic_model": {"estimator": {"kind": "gae", "critic": "model"}},
    "lora": {"lora": {"rank": 4}},
    "checkpointing": {"gradient_checkpointing": True},
}
"""CISPO is missing: its gradient is not that of its value (tests/unit/learners/test_losses.py has it)."""


@pytest.fixture(scope="module")
def double_path(tmp_path_factory):
    """A GPT-2: unlike Qwen2's, its norms compute in the precision that they are given."""
    shape = GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GPT2LMHeadModel(shape)
    path = tmp_path_factory.mktemp("gpt2")
    model.save_pretrained(path)
    return path


def parts_of(learner: Learner) -> list[torch.nn.Parameter]:
    """Those whose gradient is the loss's: a head's errors move the policy's trunk, but are not to reach it."""
    if learner.critic is None:
        return list(learner.policy.trainable().values())
    policy = learner.policy.trainable().values() if learner.settings.gae.critic == "model" else ()
    return [*policy, *learner.critic.parameters()]


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_the_slopes_of_the_loss(case, double_path):
    settings = LearnerSettings(**{"estimator": {"kind": "grpo"}} | CASES[case])
    learner = Learner(settings, 1e-2, double_path, double_path, seed=1)
    for module in (learner.policy.model, getattr(learner.policy, "reference", None), learner.critic):
        if module is not None:
            module.double()
    generator = torch.Generator().manual_seed(5)

    def noise(like: torch.Tensor, scale: float) -> torch.Tensor:
        return scale * torch.randn(like.shape, generator=generator, dtype=torch.float64)

    with torch.no_grad():  # away from the reference, from the engine, and from a value head of zeros
        for parameter in parts_of(learner):
            parameter += noise(parameter, 0.05)

    def advantages(count: int) -> torch.Tensor:
        drawn = noise(torch.zeros(count), 1.0)
        return drawn[:1].expand(count) if settings.objective == "gspo" else drawn  # it is of whole sequences

    samples = random_samples(3, 5)
    played = batch(*(replace(s, advantage=s.advantage or 0.0) for s in samples))
    targets = {
        i: Targets(
            advantages(sum(s.sampled)),
            noise(torch.zeros(sum(s.sampled)), 0.1) - 3.5,
            noise(torch.zeros(sum(s.sampled)), 1.0),
            noise(torch.zeros(sum(s.sampled)), 1.0),
        )
        for i, s in enumerate(samples)
    }

    def loss() -> float:
        return learner._accumulate(played, range(len(samples)), targets)[0]["loss"]

    loss()
    gradients = [p.grad.clone() if p.grad is not None else torch.zeros_like(p) for p in parts_of(learner)]
    for _ in range(3):
        direction = [noise(p, 1.0) for p in parts_of(learner)]
        slope = sum((g * d).sum().item() for g, d in zip(gradients, direction, strict=True))
        size, around = 1e-6, []
        for sign in (1, -2):
            with torch.no_grad():
                for parameter, step in zip(parts_of(learner), direction, strict=True):
                    parameter += sign * size * step
            around.append(loss())
        with torch.no_grad():
            for parameter, step in zip(parts_of(learner), direction, strict=True):
                parameter += size * step
        assert slope == pytest.approx((around[0] - around[1]) / (2 * size), rel=1e-4, abs=1e-7)
