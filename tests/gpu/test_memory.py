"""What a learner takes at its height is what the memory plan says (runtime/memory_plan.py)."""

import gc
import math
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.learner import SHAPES, make_batch, make_model
from learners.learner import Learner
from learners.settings import LearnerSettings
from runtime.memory_plan import GB, learner_parts, shape_of

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


def settings_of(keys: dict[str, Any], tokens: int) -> LearnerSettings:
    given = {"estimator": {"kind": "grpo"}, "microbatch_tokens": tokens, "minibatch_samples": 1024}
    return LearnerSettings.model_validate(given | keys)


def planned(path: Path, settings: LearnerSettings) -> int:
    shape = shape_of(str(path))
    assert shape is not None
    return sum(learner_parts(shape, settings, 0).values())


def two_steps(learner: Learner, vocabulary: int) -> None:
    """The second one has Adam's moments from the start; rows are full."""
    count = math.ceil(2.5 * learner.microbatch_tokens / 230)
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
    print(f"{shape} {keys}: {found / GB:.2f} GB reserved, {expected / GB:.2f} planned")
    assert found == pytest.approx(expected, rel=0.1)


class Living(TorchDispatchMode):
    """Bytes of what operators have returned and somebody still has, at the height; not what they make within them."""

    def __init__(self) -> None:
        super().__init__()
        self.height = self._now = 0
        self._known = WeakIdKeyDictionary()

    def see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage not in self._known:
            self._known[storage] = size = storage.nbytes()
            self._now += size
            self.height = max(self.height, self._now)
            weakref.finalize(storage, self._gone, size)

    def _gone(self, size: int) -> None:
        self._now -= size

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        out = function(*given, **(named or {}))
        tree_map_only(torch.Tensor, self.see, out)
        return out


@pytest.mark.slow
@pytest.mark.parametrize("keys", CPU, ids=lambda keys: ",".join(keys))
def test_on_a_cpu_living_tensors_are_what_the_plan_says(keys: dict[str, Any], tmp_path: Path) -> None:
    Qwen2ForCausalLM(Qwen2Config(**SMALL)).save_pretrained(tmp_path)
    settings = settings_of(keys, tokens=1024)
    learner, living = Learner(settings, 1e-6, tmp_path, tmp_path), Living()
    for network in learner.policy.networks():
        for parameter in network.parameters():
            living.see(parameter)
    with living:
        two_steps(learner, SMALL["vocab_size"])
    assert living.height == pytest.approx(planned(tmp_path, settings), rel=0.2)
