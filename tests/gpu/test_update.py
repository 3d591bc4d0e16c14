"""A learner's update on a device is that of the CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from learners.learner import Learner
from learners.settings import LearnerSettings
from tests.gpu.conftest import taken
from tests.learning import batch, largest_difference, random_samples, weights

GAE = {"estimator": {"kind": "gae", "critic": "model"}, "kl": {"kind": "loss", "coefficient": 0.1}}


def learned(path: Path, device: str, **keys: Any) -> tuple[Learner, dict[str, float]]:
    """(after two updates, the figures of the last)."""
    given: dict[str, Any] = {"estimator": {"kind": "grpo"}, "schedule": {"warmup_updates": 0}}
    learner = Learner(LearnerSettings.model_validate(given | keys), 1e-3, path, path, device=device, seed=3)
    figures: dict[str, float] = {}
    for step in (1, 2):
        figures = learner.step(batch(*random_samples(step, 12), step=step))
    return learner, figures


@pytest.mark.parametrize(
    "keys",
    [
        {},
        GAE,
        {"offload": "optimizer"},
        {"offload": "all"},
        GAE | {"offload": "all"},
        {"gradient_checkpointing": True},
        {"microbatch_tokens": 64, "epochs": 2},
        {"objective": "gspo", "loss_normaliser": "sequence"},
    ],
    ids=lambda keys: ",".join(keys) or "grpo",
)
def test_the_update_is_that_of_a_cpu(model_path: Path, device: str, keys: dict[str, Any]) -> None:
    (ours, figures), (theirs, expected) = (learned(model_path, place, **keys) for place in (device, "cpu"))
    found = {name: tensor.cpu() for name, tensor in weights(ours).items()}
    assert largest_difference(found, weights(theirs)) < 1e-4
    assert (figures.pop("peak_memory_gib", 0) > 0) == (device == "cuda")
    assert figures == pytest.approx(expected, rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_in_16_bits_the_gradient_is_about_the_same(model_path: Path, device: str, precision: str) -> None:
    if precision == "fp16" and device == "cpu":
        pytest.skip("fp16 is for GPUs")
    (half, figures), (_, expected) = (
        learned(model_path, place, precision=kind) for place, kind in ((device, precision), ("cpu", "fp32"))
    )
    assert figures["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=0.1)
    assert figures["policy_loss"] == pytest.approx(expected["policy_loss"], abs=0.05)
    assert all(p.dtype == torch.float32 for p in half.policy.trainable().values())


@pytest.mark.parametrize("offload", ["optimizer", "all"])
def test_an_idle_learner_is_in_the_hosts_memory(model_path: Path, device: str, offload: str) -> None:
    before = taken(device)
    learner, _ = learned(model_path, device, **GAE, offload=offload)
    learner.export()
    states = [
        value
        for optimizer in (learner.optimizer, learner.critic_optimizer)
        if optimizer is not None
        for state in optimizer.state.values()
        for value in state.values()
        if value.dim()
    ]
    assert states and all(value.device.type == "cpu" for value in states)
    assert learner.critic is not None
    idle = "cpu" if offload == "all" else device
    for network in (*learner.policy.networks(), learner.critic):
        assert all(p.device.type == idle for p in network.parameters())
        assert device == "cpu" or all(p.grad is None for p in network.parameters())
    if offload == "all":
        assert taken(device) - before < 1 << 20
