"""Two policies as adapters beside one backbone, in one engine of vLLM."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from actors.settings import VllmEngineSettings
from lab.model import build_model, build_tokenizer
from learners.packing import row_of
from learners.settings import LearnerSettings, LoraSettings
from learners.tuning import Backbone, LoraTuning
from learners.weights import export_weights
from sparring.core.episode import Completion
from sparring.core.interfaces import EngineFailure, Sampling
from sparring.core.weights import PublishError, WeightUpdate, check_receipt, digest_of
from sparring.games.prompts import END, MARKER_TOKENS, PAD
from tests.contracts.test_policy_contract import COMMON, DEVICE, ENGINE_ENVIRONMENT, a_step

pytestmark = pytest.mark.vllm
TOLERANCE = {"cpu": 1e-4, "cuda": 0.1}[DEVICE]
OF_16_BITS: Any = {} if DEVICE == "cpu" else {"dtype": "float16"}
"""On a GPU vLLM has no other adapters."""
PROMPT = (2, 40, 41, 42, 43)
RANKS = {"generator": 4, "discriminator": 12}


@dataclass
class Pair:
    """Learners' adapters and the policies that act by them."""

    tunings: dict[str, LoraTuning]
    policies: dict[str, Any]
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    versions: Iterator[int]

    def change(self, name: str, seed: int) -> WeightUpdate:
        """An update of the learner's, not published yet."""
        torch.manual_seed(seed)
        tuning = self.tunings[name]
        tuning.activate()
        with torch.no_grad():
            for parameter in tuning.trainable().values():
                parameter.normal_(std=0.2)
        lora = LoraSettings(rank=RANKS[name], alpha=2 * RANKS[name])
        return export_weights(tuning, next(self.versions), adapter=lora)

    def publish(self, name: str, seed: int) -> int:
        update = self.change(name, seed)
        check_receipt(update, self.run(self.policies[name].load_weights(update)), TOLERANCE)
        return update.version

    def difference(self, name: str, completion: Completion) -> float:
        """To what the learner computes with its adapter of now."""
        tuning = self.tunings[name]
        tuning.activate()
        row = row_of([[*PROMPT, *completion.tokens]])
        with torch.no_grad():
            scores = tuning.score(row, row.positions_N >= len(PROMPT), 1.0)
        return (scores.logprobs_P - torch.tensor(completion.logprobs)).abs().max().item()

    def loaded(self) -> set[int]:
        engine = self.policies["generator"]._engine
        (found,) = self.run(engine.ask(lambda _: engine._llm.collective_rpc("adapters")))
        return found


def ask(**changes: Any) -> Sampling:
    return Sampling(**{"max_tokens": 12, "stop_token_ids": (), "temperature": 1.0, "seed": 7} | changes)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    tokenizer = build_tokenizer(["def f(x):\n    return x * 2\n"] * 20, MARKER_TOKENS, PAD, END)
    directory = tmp_path_factory.mktemp("backbone")
    build_model(tokenizer, 0).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def pair(model: Path) -> Iterator[Pair]:
    pytest.importorskip("vllm")
    settings = {
        name: LearnerSettings(lora=LoraSettings(rank=rank, alpha=2 * rank), gradient_checkpointing=False)
        for name, rank in RANKS.items()
    }
    backbone = Backbone(settings["generator"], model, torch.device("cpu"))
    tunings = {name: LoraTuning(s, backbone, name, 0) for name, s in settings.items()}
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        for name, value in ENGINE_ENVIRONMENT.items():
            patch.setenv(name, value)

        async def start() -> dict[str, Any]:
            from actors.vllm_policy import adapter_policies

            engine = VllmEngineSettings(
                **COMMON, kv_cache_mb=64, gpu_memory_utilization=0.1, adapter=True, **OF_16_BITS
            )
            return dict(adapter_policies(str(model), engine, DEVICE, RANKS))

        policies = runner.run(start())
        yield Pair(tunings, policies, runner.run, count(1))
        for policy in policies.values():
            runner.run(policy.close())


def test_before_anything_is_published_both_are_the_backbone(pair: Pair) -> None:
    first = pair.run(pair.policies["generator"].generate(PROMPT, ask()))
    pair.publish("discriminator", seed=1)
    again = pair.run(pair.policies["generator"].generate(PROMPT, ask()))
    assert (first.version, again.version) == (0, 0)
    assert again.tokens == first.tokens, "it plays on without another's adapter"


def test_two_adapters_in_one_batch_are_each_its_learners(pair: Pair) -> None:
    for name, seed in (("generator", 2), ("discriminator", 3)):
        pair.publish(name, seed)

    async def together() -> list[tuple[str, Completion]]:
        names = [name for name in RANKS for _ in range(12)]
        asked = (pair.policies[n].generate(PROMPT, ask(seed=i, max_tokens=30)) for i, n in enumerate(names))
        return list(zip(names, await asyncio.gather(*asked), strict=True))

    played = pair.run(together())
    assert max(pair.difference(*one) for one in played) <= TOLERANCE
    crossed = [pair.difference({"generator": "discriminator"}.get(n, "generator"), c) for n, c in played]
    assert min(crossed) > 0.1, "the two differ"


def test_adapters_reach_an_engine_that_sleeps(pair: Pair) -> None:
    """It is one engine: either policy puts it to sleep for both."""
    for seed, name in enumerate(RANKS):
        pair.run(pair.policies["generator"].sleep())
        pair.run(pair.policies["discriminator"].sleep())
        pair.publish(name, 30 + seed)
    for name in RANKS:
        completion = pair.run(pair.policies[name].generate(PROMPT, ask()))
        assert pair.difference(name, completion) <= TOLERANCE


def test_many_versions_are_each_exact_and_none_is_left_behind(pair: Pair) -> None:
    """24 of them are several times what the engine holds; on a GPU, 100 tell how far its rounding goes."""
    for seed in range(12 if DEVICE == "cpu" else 50):
        for name in RANKS:
            version = pair.publish(name, seed)
            completion = pair.run(pair.policies[name].generate(PROMPT, ask(seed=seed)))
            assert completion.version == pair.policies[name].version == version
            assert pair.difference(name, completion) <= TOLERANCE
    assert len(pair.loaded()) == 2


def test_what_is_in_flight_ends_on_the_version_that_it_began_with(pair: Pair) -> None:
    version = pair.publish("generator", 5)
    update = pair.change("generator", 6)

    async def publish_meanwhile() -> tuple[Completion, Completion]:
        policy = pair.policies["generator"]
        long = asyncio.create_task(policy.generate(PROMPT, ask(max_tokens=300)))
        await a_step(policy)
        check_receipt(update, await policy.load_weights(update), TOLERANCE)
        assert not long.done() and len(policy._loaded) == 2
        return await long, await policy.generate(PROMPT, ask())

    old, new = pair.run(publish_meanwhile())
    assert (old.version, new.version) == (version, update.version)
    assert len(old.tokens) == 300
    assert pair.difference("generator", new) <= TOLERANCE
    pair.change("generator", 5)
    assert pair.difference("generator", old) <= TOLERANCE
    assert len(pair.loaded()) == 2, "the old adapter is gone with its last request"


def test_who_still_waits_for_the_version_before_the_last_is_cancelled(pair: Pair) -> None:
    updates = [pair.change("generator", seed) for seed in (7, 8)]

    async def publish_twice() -> None:
        policy = pair.policies["generator"]
        long = asyncio.create_task(policy.generate(PROMPT, ask(max_tokens=370)))
        await a_step(policy)
        for update in updates:
            await policy.load_weights(update)
        with pytest.raises(asyncio.CancelledError):
            await long

    pair.run(publish_twice())
    assert len(pair.loaded()) == 2


def test_an_adapter_that_did_not_arrive_whole_is_refused(pair: Pair, monkeypatch) -> None:
    """By the numbers that the layers hold, before any probe."""
    from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA

    version = pair.publish("generator", 9)
    update = pair.change("generator", 10)
    with monkeypatch.context() as broken:
        broken.setattr(BaseLinearLayerWithLoRA, "set_lora", lambda self, index, *_: self.reset_lora(index))
        with pytest.raises(PublishError, match="the engine's adapter is not the published one"):
            pair.run(pair.policies["generator"].load_weights(update))
    assert pair.run(pair.policies["generator"].generate(PROMPT, ask())).version == version
    assert len(pair.loaded()) == 2


def test_one_changed_tensor_is_refused_by_the_digest_and_a_foreign_one_by_the_probe(pair: Pair) -> None:
    update = pair.change("generator", 11)
    name = next(name for name in update.tensors if "lora_B" in name)
    tampered = replace(update, tensors={**update.tensors, name: update.tensors[name] + 0.1})
    receipt = pair.run(pair.policies["generator"].load_weights(tampered))
    with pytest.raises(PublishError, match="published version"):
        check_receipt(tampered, receipt, tolerance=100.0)
    doctored = replace(tampered, digest=digest_of(tampered.tensors))
    receipt = pair.run(pair.policies["generator"].load_weights(doctored))
    with pytest.raises(PublishError, match="does not run on the published weights"):
        check_receipt(doctored, receipt, TOLERANCE)


def test_all_weights_are_not_for_an_adapters_engine(pair: Pair) -> None:
    update = export_weights(pair.tunings["generator"], next(pair.versions))
    with pytest.raises(PublishError, match="all weights were published to an adapter's engine"):
        pair.run(pair.policies["generator"].load_weights(update))


def test_a_rank_that_vllm_does_not_know_is_named(pair: Pair, model: Path) -> None:
    from actors.vllm_policy import adapter_policies

    with pytest.raises(EngineFailure, match="no adapters of rank 1000, 512 is the most"):
        adapter_policies(str(model), VllmEngineSettings(adapter=True), DEVICE, {"generator": 1000})
