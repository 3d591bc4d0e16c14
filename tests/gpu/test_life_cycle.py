"""One GPU for an engine and a learner: the engine sleeps while the learner updates, the learner is away while the engine plays."""

import asyncio
from pathlib import Path

import pytest

from actors.settings import TransformersEngineSettings
from actors.transformers_policy import TransformersPolicy
from learners.learner import Learner
from learners.settings import LearnerSettings
from sparring.core.interfaces import Sampling
from sparring.core.weights import check_receipt
from tests.gpu.conftest import taken
from tests.learning import batch, random_samples, tiny_model

SOME = 1 << 20
"""Bytes: what an idle part may leave."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of some MB."""
    directory = tmp_path_factory.mktemp("wide")
    tiny_model(hidden_size=256, intermediate_size=1024, initializer_range=0.05).save_pretrained(directory)
    return directory


def test_they_take_turns_and_agree(path: Path, device: str) -> None:
    settings = LearnerSettings.model_validate(
        {"estimator": {"kind": "grpo"}, "schedule": {"warmup_updates": 0}, "offload": "all"}
    )
    before = taken(device)
    policy = TransformersPolicy(str(path), TransformersEngineSettings(sleep=True), device)
    learner = Learner(settings, 1e-3, path, path, device=device, seed=3)
    engine = taken(device) - before
    sampling = Sampling(max_tokens=8, stop_token_ids=(), temperature=1.0, seed=1)

    async def steps() -> list[tuple[int, ...]]:
        played = []
        for step in (1, 2):
            played.append((await policy.generate([1, 2, 3], sampling)).tokens)
            await policy.sleep()
            assert taken(device) - before < SOME
            learner.step(batch(*random_samples(step, 8), step=step))
            update = learner.export()
            assert taken(device) - before < SOME
            check_receipt(update, await policy.load_weights(update), tolerance=1e-3)
            assert abs(taken(device) - before - engine) < SOME
        return played

    assert all(len(tokens) == 8 for tokens in asyncio.run(steps()))
