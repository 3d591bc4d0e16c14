"""Compares two LoRA policies as adapters on one engine with two engines that have the adapters merged.

Both get the same requests at once, half for each policy. Memory is that of a process that does nothing else (vLLM's
cache of the one engine is as large as the caches of the two together); the time of a weight sync is from the learner's
call to the verification. The models have random weights: one has the toy models' shape, one has 30M parameters;
with --device cuda there is one of 1.5B parameters in bf16, with the learners beside the engines. No other process may
use that GPU, since its memory is measured as a whole. With cuda, the last round also gives the difference between the
engine's and the learner's log-probabilities, in nats per token.
"""

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from actors.rollout_actor import runtime_env
from benchmarks.end_to_end import proportional_set_size
from benchmarks.learner import SHAPES as QWEN
from benchmarks.report import arguments, publish

ROLES = ("generator", "discriminator")
SHAPES: dict[str, dict[str, Mapping[str, int]]] = {
    "cpu": {
        "small": {
            "hidden_size": 96,
            "num_hidden_layers": 3,
            "intermediate_size": 256,
            "num_attention_heads": 3,
        },
        "large": {
            "hidden_size": 512,
            "num_hidden_layers": 8,
            "intermediate_size": 1408,
            "num_attention_heads": 8,
        },
    },
    "cuda": {"1_5b": QWEN["qwen_1_5b"]._asdict() | {"tie_word_embeddings": True}},
}
CACHE_MB = {"cpu": 256, "cuda": 8192}
RANK = 16


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--device", choices=SHAPES, default="cpu")
    options = parser.parse_args()
    device = options.device
    os.environ |= runtime_env(device)["env_vars"]
    requests, rounds = (8, 2) if options.quick else (64, 6)
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for size, shape in SHAPES[device].items():
        found = {}
        with tempfile.TemporaryDirectory() as directory:
            model = make_model(Path(directory), shape)
            for together in (True, False):
                with multiprocessing.get_context("spawn").Pool(1) as one:  # memory is measured per process
                    found[together] = one.apply(measure, (model, device, together, requests, rounds))
        for together, name in ((True, "adapters"), (False, "two_engines")):
            figures |= {f"{name}_{size}_{figure}": value for figure, value in found[together].items()}
        ratios |= {
            f"tokens_vs_two_engines_{size}": found[True]["tokens_per_s"] / found[False]["tokens_per_s"],
            f"memory_vs_two_engines_{size}": found[False]["memory_mb"] / found[True]["memory_mb"],
            f"publish_vs_two_engines_{size}": found[False]["publish_ms"] / found[True]["publish_ms"],
        }
    publish(options.json, figures, ratios)


def make_model(directory: Path, shape: Mapping[str, int]) -> str:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    sizes: Any = {"vocab_size": 640, "num_key_value_heads": 1, "max_position_embeddings": 1024, **shape}
    Qwen2ForCausalLM(Qwen2Config(**sizes)).save_pretrained(directory)
    return str(directory)


def held(device: str) -> float:
    """Returns the bytes in use: those of this process on a CPU, those of the whole GPU on cuda."""
    import torch

    if device == "cpu":
        return proportional_set_size(psutil.Process())
    free, total = torch.cuda.mem_get_info()
    return total - free


def measure(model: str, device: str, together: bool, requests: int, rounds: int) -> dict[str, float]:
    """Measures one arrangement. It is called in a separate process, so that the memory figures are its own."""
    import torch

    from actors.settings import VllmEngineSettings
    from actors.vllm_policy import VllmPolicy, adapter_policies
    from learners.learner import Learner
    from learners.settings import GroupEstimator, LearnerSettings, LoraSettings
    from learners.tuning import Backbone

    before = held(device)
    settings = VllmEngineSettings(
        max_model_len=512,
        max_num_seqs=64,
        kv_cache_mb=CACHE_MB[device] // (1 if together else 2),
        adapter=together,
        dtype="bfloat16" if device == "cuda" else None,
        sleep=together,  # two engines in one process cannot sleep
    )
    start = time.perf_counter()
    policies: dict[str, Any] = (
        dict(adapter_policies(model, settings, device, dict.fromkeys(ROLES, RANK)))
        if together
        else {role: VllmPolicy(model, settings, device) for role in ROLES}
    )
    found = {"start_s": time.perf_counter() - start, "memory_mb": (held(device) - before) / 2**20}
    tuned = LearnerSettings(
        lora=LoraSettings(rank=RANK),
        gradient_checkpointing=False,
        precision="bf16" if device == "cuda" else None,
        estimator=GroupEstimator(kind="grpo"),
    )
    backbone = Backbone(tuned, model, torch.device(device))
    learners = {
        role: Learner(tuned, 1e-4, model, model, device, name=role, backbone=backbone) for role in ROLES
    }
    for learner in learners.values():
        for parameter in learner.policy.trainable().values():
            torch.nn.init.normal_(parameter, std=0.02)
    return found | asyncio.run(_measure(policies, learners, device, together, requests, rounds))


async def _measure(
    policies: Mapping[str, Any],
    learners: Mapping[str, Any],
    device: str,
    together: bool,
    requests: int,
    rounds: int,
) -> dict[str, float]:
    from sparring.core.batch import Batch, Sample
    from sparring.core.interfaces import Sampling
    from sparring.core.weights import check_receipt

    speeds, publishing, sent = [], [], 0
    for number in range(rounds):
        for role in ROLES:
            learners[role].version = number + 1
            start = time.perf_counter()
            update = learners[role].export(together, "bfloat16" if device == "cuda" else None)
            receipt = await policies[role].load_weights(update)
            check_receipt(update, receipt, 1e-3 if device == "cpu" else 0.5)
            publishing.append((time.perf_counter() - start) * 1000)
            sent = sum(array.nbytes for array in update.tensors.values())
        prompts = [[(7 * i + j) % 600 for j in range(40)] for i in range(requests // 2)]
        asked = [
            policies[role].generate(prompt, Sampling(max_tokens=64, stop_token_ids=(), seed=i))
            for i, prompt in enumerate(prompts)
            for role in ROLES
        ]
        start = time.perf_counter()
        done = await asyncio.gather(*asked)
        speeds.append(sum(len(c.tokens) for c in done) / (time.perf_counter() - start))
    found: dict[str, float] = {}
    if together and device == "cuda":
        engine, before = policies[ROLES[0]], held(device)
        start = time.perf_counter()
        await engine.sleep()
        found |= {
            "sleep_ms": (time.perf_counter() - start) * 1000,
            "given_back_mb": (before - held(device)) / 2**20,
        }
        start = time.perf_counter()
        await engine.generate([1], Sampling(max_tokens=1, stop_token_ids=(), seed=0))
        found["wake_ms"] = (time.perf_counter() - start) * 1000
    if device == "cuda":
        samples = tuple(
            Sample(
                tokens=(*prompt, *completion.tokens),
                sampled=(which := (False,) * len(prompt) + (True,) * len(completion.tokens)),
                trained=which,
                logprobs=(*([0.0] * len(prompt)), *completion.logprobs),
                reward=0.0,
                advantage=0.0,
            )
            for prompt, completion in zip(prompts, done[:: len(ROLES)], strict=True)
        )
        learner = learners[ROLES[0]]
        figures = learner.step(Batch(step=learner.version + 1, samples=samples, temperature=1.0, seed=0))
        found |= {"mismatch_mean": figures["mismatch_mean"], "mismatch_max": figures["mismatch_max"]}
    for policy in policies.values():
        await policy.close()
    warm = slice(1, None)
    return found | {
        "tokens_per_s": median(speeds[warm]),
        "publish_ms": median(publishing[len(ROLES) :]),
        "published_kb": sent / 1024,
    }


if __name__ == "__main__":
    main()
