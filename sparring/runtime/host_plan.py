"""Calculates the memory, in bytes, that a run takes on a host without a GPU, and chooses the form of the run that fits,
before anything loads.

The figure is the peak, which is during an update: what learners hold, the gradients, activations and logits of those that
update at the same time, the engines' weights and caches, the object store and the processes themselves. Not counted are the
keys and values of an engine of kind transformers. The constants below were fitted to two runs (a 0.5B by LoRA, the recipe
toy), so they are estimates; docs/hardware.md compares three other runs with them. The last twentieth of the memory stays free: if it is taken, Ray's monitor kills the process
that holds most.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from actors.settings import KV_CACHE_MB, MAX_NUM_SEQS
from configs.schema import Config
from learners.settings import LOGITS_MB, MICROBATCH_TOKENS
from sparring.runtime.memory_plan import (
    HELD,
    Shape,
    bytes_of,
    cache_bytes,
    engines_of,
    learner_of,
    object_store_bytes,
    planned_workers,
    with_open,
)
from sparring.runtime.placement import learner_groups, learning_in_turn

MIB = 1 << 20
PROCESSES = {"driver and Ray": 2200 * MIB, "worker": 700 * MIB, "actor": 900 * MIB, "alone": 1500 * MIB}
"""Bytes of the interpreters and their libraries: of what every run has; of each learner's worker; of each rollout actor or
engine; of the one process of a run with `local`."""
WORK_SPACE, WORK_SHARE = 150 * MIB, 0.35
"""Bytes that an engine takes besides its weights and cache: a constant, and a share of its weights."""
UNUSED_SHARE = 0.35
"""Memory that the allocator holds in addition, as a share of the memory that an update uses."""
CHOSEN = frozenset(
    (
        "dtype",
        "precision",
        "adapter",
        "kv_cache_mb",
        "gradient_checkpointing",
        "microbatch_tokens",
        "logits_mb",
        "importance_cap",
    )
)
"""Names of the keys that are chosen here."""
_SEQUENCES = (32, 16, 8, 4)
"""Numbers of sequences of full length that an engine's cache may have room for, the quickest first."""
_LEAST_CACHE = 16
"""Size in MiB of the smallest cache with which an engine starts."""
_RUNGS = ((False, MICROBATCH_TOKENS), (False, 4096), (False, 2048), (True, 4096), (True, 2048))
"""(gradient_checkpointing, microbatch_tokens), the fastest first. Passes of 2048 tokens are hardly slower than those of 4096;
checkpointing takes a fifth to a third more time."""


def parts_of(config: Config, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Returns the bytes of each part of a run. shapes: by role."""
    learners = {role: learner_of(config, role, shapes[role]) for role in config.policies}
    workers = {role: planned_workers(config.policy(role).learner) for role in config.policies}
    held: dict[str, int] = {}
    for role, parts in learners.items():
        for name in HELD & parts.keys():
            kind = name.removeprefix("critic's ")
            held[kind] = held.get(kind, 0) + workers[role] * parts[name]
    passing = {
        role: workers[role] * sum(size for name, size in parts.items() if name not in HELD)
        for role, parts in learners.items()
    }
    update = max(sum(passing[role] for role in roles) for roles in learning_in_turn(config, config.policies))
    weights, caches, processes = 0, 0, 0
    for roles, parts in engines_of(config, shapes).items():
        engine, shape = config.policy(roles[0]).engine, shapes[roles[0]]
        count = engine.gpus_each * (1 if config.local else engine.count or config.rollout.actors or 1)
        packed_head = bytes_of(engine.dtype) * shape.vocabulary * shape.hidden if engine.kind == "vllm" else 0
        weights += count * (parts["weights"] + packed_head)
        cache = (getattr(engine, "kv_cache_mb", None) or KV_CACHE_MB) * MIB if engine.kind == "vllm" else 0
        caches += count * (cache + WORK_SPACE + int(WORK_SHARE * parts["weights"]))
        processes += engine.count or 0
    if config.local:
        own, store = PROCESSES["alone"], 0
    else:
        processes += config.rollout.actors or 1
        ranks = sum(max(workers[role] for role in group) for group in learner_groups(config))
        own = PROCESSES["driver and Ray"] + ranks * PROCESSES["worker"] + processes * PROCESSES["actor"]
        store = object_store_bytes(config, shapes)
    return {
        **held,
        "an update": int((1 + UNUSED_SHARE) * update),
        "engines": weights,
        "caches": caches,
        "object store": store,
        "processes": own,
    }


def choose(config: Config, shapes: Mapping[str, Shape], have: int | None, bf16: bool) -> dict[str, Any]:
    """Returns dotted key -> value for the settings that follow from memory: the first form that fits, else the last.

    Args:
        have: bytes of memory; None if that is not known, which selects the first form
        bf16: whether the processor computes in bfloat16
    """
    suited: dict[str, Any] = {}
    for suited in _forms(config, shapes, bf16):
        if have is None or sum(parts_of(with_open(config, suited), shapes).values()) <= have:
            break
    return suited


def _forms(config: Config, shapes: Mapping[str, Shape], bf16: bool) -> Iterator[dict[str, Any]]:
    """Yields the possible forms of a run, the faster ones first. A processor without bfloat16 takes several times as
    long with it; adapters in one engine take longer than an engine for each policy; few sequences at once take longer
    than recomputation. On a processor with bfloat16, LoRA takes half the time with its backbone in it (107 tokens/s
    instead of 53, a 0.5B on two cores); training all weights gains a fifth and stays exact."""
    plain_lora = {
        role: (lora := config.policy(role).learner.lora) is not None and lora.quantize is None
        for role in config.policies
    }
    shared = (False, True) if all(plain_lora.values()) else (False,)
    dtypes = ("bfloat16",) if bf16 else ("float32", "bfloat16")
    for dtype, adapter, sequences, rung in itertools.product(dtypes, shared, _SEQUENCES, _RUNGS):
        suited: dict[str, Any] = {}
        for role in config.policies:
            engine = config.policy(role).engine
            in_halves = (engine.dtype or dtype) != "float32"
            precision = "bf16" if bf16 and in_halves and plain_lora[role] else "fp32"
            suited |= {
                f"{role}.engine.dtype": dtype,
                f"{role}.learner.precision": precision,
                f"{role}.learner.gradient_checkpointing": rung[0],
                f"{role}.learner.microbatch_tokens": rung[1],
                f"{role}.learner.logits_mb": LOGITS_MB,
            }
            if (
                in_halves or (config.policy(role).learner.precision or precision) != "fp32"
            ):  # they round differently
                suited[f"{role}.learner.importance_cap"] = 2.0
            if engine.kind == "vllm":
                one = cache_bytes(shapes[role], engine.model_copy(update={"dtype": engine.dtype or dtype}))
                at_once = min(sequences, engine.max_num_seqs or MAX_NUM_SEQS)
                suited[f"{role}.engine.kv_cache_mb"] = max(_LEAST_CACHE, math.ceil(at_once * one / MIB))
                suited[f"{role}.engine.adapter"] = adapter
        yield suited


def describe(parts: Mapping[str, int]) -> str:
    shown = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in parts.items() if size >= 2**30 / 20)
    return f"memory: about {sum(parts.values()) / 2**30:.1f} GiB at the height of an update ({shown})"
