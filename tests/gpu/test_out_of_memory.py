"""Where a device's memory runs out, micro-batches are halved and the update is the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from learners import models
from learners.learner import Learner
from learners.settings import LearnerSettings
from tests.learning import batch, largest_difference, random_samples, tiny_model, weights

ROOM = 120 << 20
"""For activations, bytes."""
TOKENS = 16384


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On a GPU the samples' row leaves twice ROOM, a sequence far less."""
    directory = tmp_path_factory.mktemp("wide")
    sizes = {"hidden_size": 64, "intermediate_size": 512} if torch.cuda.is_available() else {}
    tiny_model(**sizes, initializer_range=0.1).save_pretrained(directory)
    return directory


def make(path: Path, device: str) -> Learner:
    settings = LearnerSettings.model_validate(
        {
            "estimator": {"kind": "grpo"},
            "schedule": {"warmup_updates": 0},
            "microbatch_tokens": TOKENS,
            "kl": {"kind": "none"},
        }
    )
    return Learner(settings, 1e-3, path, path, device=device, seed=3)


@contextmanager
def tight(device: str, row: int) -> Iterator[None]:
    """A GPU has no more than ROOM; a CPU says so of a row that is longer than this, as torch does."""
    if device == "cuda":
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + ROOM) / total)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        return
    whole = models.hidden_states

    def limited(model: torch.nn.Module, given: models.PackedRow) -> torch.Tensor:
        if len(given.tokens_N) > row:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate a row")
        return whole(model, given)  # pyright: ignore[reportArgumentType]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "hidden_states", limited)
        yield


def on_host(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.cpu() for name, tensor in weights(learner).items()}


def test_the_update_is_made_in_smaller_parts(path: Path, device: str) -> None:
    longest, count = (400, 60) if device == "cuda" else (40, 20)
    samples = random_samples(1, count, longest=longest)
    roomy, narrow = make(path, device), make(path, device)
    expected = roomy.step(batch(*samples))
    with tight(device, row=sum(len(sample.tokens) for sample in samples) // 3):
        found = narrow.step(batch(*samples))
        most_tokens = narrow.health.most_tokens
        assert largest_difference(on_host(narrow), on_host(roomy)) < 1e-4
        narrow.step(batch(*samples, step=2))
    assert roomy.health.most_tokens is None
    assert most_tokens and most_tokens == narrow.health.most_tokens, "what fitted once is kept"
    assert found["policy_loss"] == pytest.approx(expected["policy_loss"], rel=1e-3, abs=1e-5)
    assert found["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=1e-3)
