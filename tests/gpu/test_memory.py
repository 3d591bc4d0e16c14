"""What a learner takes at its height is what the memory plan says (sparring/runtime/memory_plan.py)."""

import gc
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.learner import SHAPES, make_batch, make_model
from learners.learner import Learner
from learners.parallel import WorkerGroup
from learners.settings import LearnerSettings
from sparring.runtime.memory_plan import GB, learner_parts, shape_of
from tests.learning import Live

SMALL: dict[str, Any] = {
    "vocab_size": 1024, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 512, "max_position_embeddings": 1024, "tie_word_embeddings": True,
}  # fmt: skip
LORA = {"lora": {"rank": 16}}
GPU = [
    ("qwen_0_5b", {"precision": "bf16"}),
    ("qwen_0_5b", {"precision": "fp32", "gradient_checkpointing": True}),
    ("qwen_0_5b", {"precision": "bf16", "estimator": {"kind": "gae", "critic": "model"}}),
    ("qwen_1_5b", {"precision": "bf16", "gradient_checkpointing": True, "logits_mb": 1024}),
    ("qwen_1_5b", {"precision": "bf16", **LORA}),
    ("qwen_1_5b", {"precision": "bf16", "gradient_checkpointing": True, **LORA}),
]
CPU = [
    {"precision": "fp32"},
    {"precision": "fp32", "gradient_checkpointing": True, "logits_mb": 1},
    {"precision": "bf16", "kl": {"kind": "none"}},
]
SPREAD = [
    {"precision": "fp32", "gradient_checkpointing": True, "logits_mb": 1},
    {"precision": "bf16", "kl": {"kind": "none"}},
    {"precision": "bf16", **LORA},
]


def settings_of(keys: dict[str, Any], tokens: int) -> LearnerSettings:
    given = {"estimator": {"kind": "grpo"}, "microbatch_tokens": tokens, "minibatch_samples": 1024}
    return LearnerSettings.model_validate(given | keys)


def planned(path: Path, settings: LearnerSettings) -> int:
    shape = shape_of(str(path))
    assert shape is not None
    return sum(learner_parts(shape, settings, 0).values())


def two_steps(learner: Learner, vocabulary: int) -> None:
    """The second one has Adam's moments from the start; each worker's rows are full."""
    count = math.ceil(2.5 * learner.world.size * learner.microbatch_tokens / 230)
    for step in (1, 2):
        learner.step(make_batch(step, count, vocabulary))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use")
@pytest.mark.parametrize(("shape", "keys"), GPU, ids=[f"{s}-{','.join(k)}" for s, k in GPU])
def test_a_gpu_reserves_what_the_plan_says(shape: str, keys: dict[str, Any], tmp_path: Path) -> None:
    path, settings = make_model(shape, tmp_path), settings_of(keys, tokens=8192)
    expected = planned(path, settings)
    if expected > 0.9 * torch.cuda.get_device_properties(0).total_memory:
        pytest.skip(f"the plan is {expected / GB:.0f} GB, which this GPU has not")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()
    two_steps(Learner(settings, 1e-6, path, path, device="cuda"), SHAPES[shape].vocab_size)
    found = torch.cuda.max_memory_reserved() - before
    most = torch.cuda.max_memory_allocated()
    print(
        f"{shape} {keys}: {found / GB:.2f} GB reserved, {most / GB:.2f} in use, {expected / GB:.2f} planned"
    )
    assert found == pytest.approx(expected, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("keys", CPU, ids=lambda keys: ",".join(keys))
def test_on_a_cpu_living_tensors_are_what_the_plan_says(keys: dict[str, Any], tmp_path: Path) -> None:
    settings = settings_of(keys, tokens=1024)
    assert living(tmp_path, settings) == pytest.approx(planned(tmp_path, settings), rel=0.2)


def living(path: Path, settings: LearnerSettings) -> int:
    """At the height of two steps of a learner of the model SMALL, which is saved to `path`."""
    Qwen2ForCausalLM(Qwen2Config(**SMALL)).save_pretrained(path)
    learner = Learner(settings, 1e-6, path, path)
    parameters = [whole_or_part(p) for network in learner.policy.networks() for p in network.parameters()]
    with Live(*parameters) as live:
        two_steps(learner, SMALL["vocab_size"])
    return live.most


def whole_or_part(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter.data


@pytest.fixture
def first_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """first_of(workers): this process is the first of so many, and the others say what it says. Nothing is sent."""

    def gather(output: torch.Tensor, given: torch.Tensor, **_: Any) -> None:
        output.view(-1, given.numel()).copy_(given.clone().view(1, -1))  # it is a part of it

    def reduce(output: torch.Tensor, **given: Any) -> None:
        output.copy_(given["input"].view(-1, output.numel())[0].clone().view_as(output))

    def begin(workers: int) -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        distributed.init_process_group("fake", rank=0, world_size=workers, store=FakeStore())

    monkeypatch.setattr(distributed, "all_gather_single", gather)
    monkeypatch.setattr(distributed, "reduce_scatter_single", reduce)
    monkeypatch.setattr(WorkerGroup, "gather", lambda world, value: [value] * world.size)
    monkeypatch.setattr(WorkerGroup, "host_group", lambda world: None)
    yield begin
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("keys", SPREAD, ids=lambda keys: ",".join(keys))
def test_a_worker_under_fsdp_holds_what_the_plan_says(
    keys: dict[str, Any], first_of: Callable[[int], None], tmp_path: Path
) -> None:
    for workers in (2, 16):
        first_of(workers)
        settings = settings_of(keys | {"sharding": "fsdp", "workers": workers}, tokens=1024)
        found, expected = living(tmp_path, settings), planned(tmp_path, settings)
        print(f"{keys}, {workers} workers: {found} bytes, {expected} planned")
        assert 0.75 * expected < found < 1.05 * expected
