"""The learner on a GPU, by torch, transformers, peft, pydantic and pytest alone: no Ray, no vLLM.

    python -m pytest tests/gpu

Each test takes a device, with the allocator that a run's learners have there. Without a GPU those of the CPU run: what a test does is tried, if not what it is for.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from learners.settings import GPU_ALLOCATOR
from tests.learning import one_torch_thread, save_tiny_model

os.environ |= GPU_ALLOCATOR  # before there is anything on the GPU
GPU = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use"),
    ],
)


@pytest.fixture(params=["cpu", GPU])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda":
        one = torch.ones(1, 1, device="cuda")
        one @ one  # cuBLAS takes its workspace once and keeps it: before a test looks what is held
    return request.param


def taken(device: str) -> int:
    """Bytes of the GPU's memory that tensors are in."""
    return torch.cuda.memory_allocated() if device == "cuda" else 0


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with one_torch_thread():
        yield


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))
