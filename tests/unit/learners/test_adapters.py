"""A LoRA checkpoint on disk is an adapter as PEFT knows it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from actors.settings import TransformersEngineSettings
from learners.adapters import merged_folder
from learners.checkpoints import CheckpointError
from learners.learner import Learner
from learners.state import save_learner
from sparring.runtime.build import build_policy
from tests.learning import (
    Tokenizer,
    largest_difference,
    logprobs,
    plain_logprobs,
    save_tiny_model,
    weights,
)

TOKENS = [3, 9, 4, 7, 11]


@pytest.fixture
def saved(make_learner, random_batch, tmp_path: Path) -> tuple[Learner, Path]:
    learner = make_learner(1e-2, lora={"rank": 4, "alpha": 8, "target_modules": ["q_proj", "up_proj"]})
    learner.step(random_batch(learner))
    save_learner(learner, tmp_path / "generator")
    Tokenizer().save_pretrained(tmp_path / "generator")
    return learner, tmp_path / "generator"


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0, :-1]


def test_peft_and_transformers_load_it_and_it_is_the_policy(saved, model_path: Path) -> None:
    learner, folder = saved
    base = AutoModelForCausalLM.from_pretrained(model_path)
    before = logits(base)
    peft = PeftModel.from_pretrained(base, str(folder))
    of_peft = logits(peft)
    assert not torch.allclose(of_peft, before, atol=1e-3)
    assert torch.allclose(plain_logprobs(peft, TOKENS), logprobs(learner, TOKENS), atol=1e-5)
    for load in (AutoPeftModelForCausalLM, AutoModelForCausalLM):
        assert torch.equal(logits(load.from_pretrained(folder)), of_peft)


def test_it_is_small_and_names_its_base_and_its_layers(saved, model_path: Path) -> None:
    _, folder = saved
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(model_path)
    assert set(config["target_modules"]) == {"q_proj", "up_proj"} and config["inference_mode"]
    tensors = load_file(folder / "adapter_model.safetensors")
    assert len(tensors) == 2 * 2 * 2 and {t.dtype for t in tensors.values()} == {torch.float32}
    assert not list(folder.glob("model*.safetensors")) and not (folder / "config.json").exists()
    kept = {name for file in folder.glob("learner_state/*.safetensors") for name in load_file(file)}
    assert kept and all(".exp_avg" in name for name in kept)


def test_merged_it_has_the_published_weights_to_the_bit(saved) -> None:
    learner, folder = saved
    with merged_folder(folder, "float32") as place:
        merged = AutoModelForCausalLM.from_pretrained(place)
        assert largest_difference(dict(merged.named_parameters()), weights(learner)) == 0
        assert (place / "tokenizer.json").is_file() and not list(place.glob("adapter*"))
    assert not place.exists()
    with merged_folder(folder, "bfloat16") as place:
        assert AutoModelForCausalLM.from_pretrained(place).dtype == torch.bfloat16


@pytest.mark.asyncio
async def test_an_engine_plays_it(saved) -> None:
    learner, folder = saved
    policy: Any = build_policy(TransformersEngineSettings(max_model_len=64), str(folder), "cpu")
    assert await policy.score(TOKENS) == pytest.approx(logprobs(learner, TOKENS).tolist(), abs=1e-5)
    await policy.close()


def test_a_base_that_has_gone_is_named(make_learner, tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model")
    save_learner(make_learner(path=model, lora={"rank": 4}), tmp_path / "saved")
    shutil.rmtree(model)
    gone = pytest.raises(CheckpointError, match=rf"its base model {model} cannot be loaded .* bring it back")
    with gone, merged_folder(tmp_path / "saved", "float32"):
        pass
