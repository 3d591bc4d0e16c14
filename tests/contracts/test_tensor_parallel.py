"""An engine of vLLM whose weights are divided among two processes, as among two GPUs: new weights and new adapters reach both."""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2ForCausalLM

from actors.settings import VllmEngineSettings
from lab.model import build_model, build_tokenizer
from learners.settings import LearnerSettings, LoraSettings
from learners.tuning import Backbone, LoraTuning
from sparring.core.interfaces import EngineFailure
from sparring.games.prompts import END, MARKER_TOKENS, PAD
from tests.contracts.test_adapters import RANKS, Pair, ask
from tests.contracts.test_policy_contract import ENGINE_ENVIRONMENT, PROMPT, TOLERANCE, Subject, difference

pytestmark = [pytest.mark.slow, pytest.mark.vllm]
ENGINE: dict[str, Any] = {"max_model_len": 384, "max_num_seqs": 64, "kv_cache_mb": 64, "tensor_parallel": 2}
SHAPE = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> tuple[Qwen2ForCausalLM, Qwen2ForCausalLM, Path]:
    tokenizer = build_tokenizer(["def f(x):\n    return x * 2\n"] * 20, MARKER_TOKENS, PAD, END)
    config = type(build_model(tokenizer, 0).config)(**(build_model(tokenizer, 0).config.to_dict() | SHAPE))
    first, second = (Qwen2ForCausalLM(config).eval() for _ in range(2))
    directory = tmp_path_factory.mktemp("model")
    first.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return first, second, directory


@pytest.fixture
def runner(monkeypatch) -> Iterator[asyncio.Runner]:
    pytest.importorskip("vllm")
    for name, value in ENGINE_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with asyncio.Runner() as runner:
        yield runner


def test_each_part_of_new_weights_arrives(models, runner: asyncio.Runner) -> None:
    first, second, directory = models

    async def start() -> Any:
        from actors.vllm_policy import VllmPolicy

        return VllmPolicy(str(directory), VllmEngineSettings(**ENGINE))

    engine = Subject(runner.run(start()), runner.run, first, second, count(1))
    try:
        assert difference(first, PROMPT, engine.generate(), 1.0) <= TOLERANCE
        for model in (second, first):
            engine.publish(model)
            assert difference(model, PROMPT, engine.generate(), 1.0) <= TOLERANCE
        row = type(first)(first.config).eval()
        row.load_state_dict(first.state_dict())
        with torch.no_grad():  # of the embeddings, which the first process has one half of
            row.get_input_embeddings().weight[PROMPT[1]].mul_(-1.5)
        engine.publish(row)
        assert difference(row, PROMPT, engine.generate(), 1.0) <= TOLERANCE
    finally:
        runner.run(engine.policy.close())


def test_adapters_are_each_its_learners(models, runner: asyncio.Runner) -> None:
    directory = models[2]
    settings = {
        name: LearnerSettings(lora=LoraSettings(rank=rank, alpha=2 * rank), gradient_checkpointing=False)
        for name, rank in RANKS.items()
    }
    backbone = Backbone(settings["generator"], directory, torch.device("cpu"))
    tunings = {name: LoraTuning(s, backbone, name, 0) for name, s in settings.items()}

    async def start() -> Mapping[str, Any]:
        from actors.vllm_policy import adapter_policies

        return adapter_policies(str(directory), VllmEngineSettings(**ENGINE, adapter=True), "cpu", RANKS)

    policies = dict(runner.run(start()))
    pair = Pair(tunings, policies, runner.run, count(1))
    try:
        for name, seed in (("generator", 2), ("discriminator", 3), ("generator", 4)):
            pair.publish(name, seed)
        for name in RANKS:
            assert pair.difference(name, runner.run(policies[name].generate(PROMPT, ask()))) <= TOLERANCE
    finally:
        runner.run(policies["generator"].close())


def test_heads_that_cannot_be_divided_are_said(models, runner: asyncio.Runner) -> None:
    async def start() -> Any:
        from actors.vllm_policy import VllmPolicy

        return VllmPolicy(str(models[2]), VllmEngineSettings(**(ENGINE | {"tensor_parallel": 3})))

    with pytest.raises(EngineFailure, match=r"attention heads \(4\) must be divisible by"):
        runner.run(start())
