"""Adapters on a device: two policies on one backbone, which stays as it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learners.learner import Learner
from learners.settings import LearnerSettings
from learners.tuning import Backbone
from tests.learning import batch, random_samples

RATE = 1e-2


def two(path: Path, device: str, **keys: Any) -> tuple[Backbone, list[Learner]]:
    """Of two policies, after two updates each, in turns."""
    given: dict[str, Any] = {
        "estimator": {"kind": "grpo"},
        "schedule": {"warmup_updates": 0},
        "lora": {"rank": 4},
    }
    settings = LearnerSettings.model_validate(given | keys)
    backbone = Backbone(settings, path, torch.device(device))
    learners = [
        Learner(settings, RATE, path, path, device=device, seed=seed, backbone=backbone, name=name)
        for seed, name in enumerate(("generator", "discriminator"))
    ]
    for step in (1, 2):
        for seed, learner in enumerate(learners):
            learner.step(batch(*random_samples(10 * seed + step, 12), step=step))
    return backbone, learners


def adapter(learner: Learner) -> dict[str, np.ndarray]:
    return dict(learner.export(adapter=True).tensors)


@pytest.mark.parametrize(
    "keys", [{}, {"gradient_checkpointing": True}, {"offload": "optimizer"}, {"offload": "all"}], ids=str
)
def test_adapters_are_those_of_a_cpu(model_path: Path, device: str, keys: dict[str, Any]) -> None:
    (_, ours), (_, theirs) = (two(model_path, place, **keys) for place in (device, "cpu"))
    for one, other in zip(ours, theirs, strict=True):
        mine, expected = adapter(one), adapter(other)
        assert mine.keys() == expected.keys()
        assert all(np.abs(mine[name] - expected[name]).max() < 1e-3 for name in mine)
    generator, discriminator = map(adapter, ours)
    assert any(np.abs(generator[name] - discriminator[name]).max() > RATE / 2 for name in generator)


def test_a_backbone_in_16_bits_stays_as_it_is(model_path: Path, device: str) -> None:
    backbone, learners = two(model_path, device, precision="bf16")
    untouched = Backbone(learners[0].settings, model_path, torch.device(device))
    before = dict(untouched.model.named_parameters())
    now = {
        name.replace(".base_layer.", "."): p
        for name, p in backbone.model.named_parameters()
        if ".lora_" not in name
    }
    assert now.keys() == before.keys()
    assert all(p.dtype == torch.bfloat16 and torch.equal(p, before[name]) for name, p in now.items())
    assert all(p.dtype == torch.float32 for learner in learners for p in learner.policy.trainable().values())
