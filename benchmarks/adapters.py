"""Two LoRA policies on one engine, each an adapter beside the backbone, against two engines with the adapters merged.

The same requests, half of each policy, all at once; memory is that of a process which holds nothing else (vLLM's cache is
as large for the one engine as for both of the two); a publish is from the learner's call to the proof. On models of random
weights: one of the embedded models' shape, and one of 30 M parameters.
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

from actors.rollout import ENGINE_ENVIRONMENT
from benchmarks.end_to_end import proportional_set_size
from benchmarks.report import arguments, publish

os.environ |= ENGINE_ENVIRONMENT
ROLES = ("generator", "discriminator")
SHAPES = {
    "small": {"hidden_size": 96, "num_hidden_layers": 3, "intermediate_size": 256, "num_attention_heads": 3},
    "large": {
        "hidden_size": 512,
        "num_hidden_layers": 8,
        "intermediate_size": 1408,
        "num_attention_heads": 8,
    },
}
CACHE_MB = 256
RANK = 16


def main() -> None:
    options = arguments(__doc__).parse_args()
    requests, rounds = (8, 2) if options.quick else (64, 6)
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for size in SHAPES:
        found = {}
        with tempfile.TemporaryDirectory() as directory:
            model = make_model(Path(directory), SHAPES[size])
            for together in (True, False):
                with multiprocessing.get_context("spawn").Pool(1) as one:  # memory is a process's
                    found[together] = one.apply(measure, (model, together, requests, rounds))
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


def measure(model: str, together: bool, requests: int, rounds: int) -> dict[str, float]:
    """In a process of its own."""
    import torch

    from actors.settings import VllmEngine
    from actors.vllm_policy import VllmPolicy, adapter_policies
    from learners.learner import Learner
    from learners.settings import LearnerSettings, LoraSettings
    from learners.tuning import Backbone

    before = proportional_set_size(psutil.Process())
    cache = CACHE_MB if together else CACHE_MB // 2
    settings = VllmEngine(max_model_len=512, max_num_seqs=64, kv_cache_mb=cache, adapter=together)
    policies: dict[str, Any] = (
        dict(adapter_policies(model, settings, "cpu", dict.fromkeys(ROLES, RANK)))
        if together
        else {role: VllmPolicy(model, settings) for role in ROLES}
    )
    memory = proportional_set_size(psutil.Process()) - before
    tuned = LearnerSettings(lora=LoraSettings(rank=RANK), gradient_checkpointing=False)
    backbone = Backbone(tuned, model, torch.device("cpu"))
    learners = {role: Learner(tuned, 1e-4, model, model, name=role, backbone=backbone) for role in ROLES}
    for learner in learners.values():
        for parameter in learner.policy.trainable().values():
            torch.nn.init.normal_(parameter, std=0.02)
    return asyncio.run(_measure(policies, learners, together, requests, rounds)) | {
        "memory_mb": memory / 2**20
    }


async def _measure(
    policies: Mapping[str, Any], learners: Mapping[str, Any], together: bool, requests: int, rounds: int
) -> dict[str, float]:
    from core.interfaces import Sampling
    from core.weights import check_receipt

    speeds, publishing, sent = [], [], 0
    for number in range(rounds):
        for role in ROLES:
            learners[role].version = number + 1
            start = time.perf_counter()
            update = learners[role].export(adapter=together)
            check_receipt(update, await policies[role].load_weights(update), 1e-3)
            publishing.append((time.perf_counter() - start) * 1000)
            sent = sum(array.nbytes for array in update.tensors.values())
        asked = [
            policies[role].generate(
                [(7 * i + j) % 600 for j in range(40)], Sampling(max_tokens=64, stop_token_ids=(), seed=i)
            )
            for i in range(requests // 2)
            for role in ROLES
        ]
        start = time.perf_counter()
        done = await asyncio.gather(*asked)
        speeds.append(sum(len(c.tokens) for c in done) / (time.perf_counter() - start))
    for policy in policies.values():
        await policy.close()
    warm = slice(1, None)
    return {
        "tokens_per_s": median(speeds[warm]),
        "publish_ms": median(publishing[len(ROLES) :]),
        "published_kb": sent / 1024,
    }


if __name__ == "__main__":
    main()
