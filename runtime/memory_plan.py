"""What a GPU has to hold, in bytes, by arithmetic: from a model's config and the settings, before anything loads.

The height of an update is counted, for everything else is less: a learner holds its weights, its reference and Adam's
moments, and at the height gradients, the copies that autocast makes, activations and logits besides. Learners that share
a GPU take turns, and give back between them what is not held; engines hold what they have all the time.

Estimates, by what was counted on a CPU and by vLLM's own words: activations of the decoders that transformers calls
Qwen2, Llama or Mistral, within a few percent; `CONTEXT` and `ENGINE` from others' reports. Not here: host memory
(runtime/plan.py), tensor parallel engines, mixtures of experts (all experts are counted, their activations are not).
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from actors.settings import MAX_NUM_SEQS, Engine
from configs.schema import Config
from configs.sections import EMBEDDED
from learners.settings import MICROBATCH_TOKENS, LearnerSettings, LoraSettings, NoKl

GB = 10**9
CONTEXT = int(0.6 * GB)
"""Of each process that uses a GPU: CUDA's context and the libraries' work space."""
ENGINE = int(1.5 * GB)
"""Of an engine beside weights and cache: activations of a prefill, captured graphs."""
LOGITS = 1 << 25
"""At once, by learners/models.py; 20 bytes each: bf16, fp32, log-softmax, its exponential, a gradient."""
USABLE = 0.95
"""Of a GPU's memory: allocators cannot use the last bit."""
STARVED, FED = 4, 32
"""Sequences in full length that an engine's cache has room for: the least that is let run, and what it should have before
updates are made any larger."""
RUNGS = tuple((False, tokens) for tokens in (32768, 16384, 8192)) + tuple(
    (True, tokens) for tokens in (32768, 16384, 8192, 4096, 2048)
)
"""(gradient_checkpointing, microbatch_tokens), the fastest first: checkpointing costs a third more time, a pass of 8192
tokens hardly anything against one of 32768."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A decoder's sizes. Example: of Qwen2.5-Coder-1.5B, Shape(parameters=1_543_714_304, linear=1_310_195_712,
    adapter=1_154_048, layers=28, hidden=1536, intermediate=8960, keys=256, vocabulary=151_936)."""

    parameters: int
    """All, tied ones once."""
    linear: int
    """Of the layers' linear maps."""
    adapter: int
    """Of a LoRA adapter of rank 1 on all of these."""
    layers: int
    hidden: int
    intermediate: int
    keys: int
    """Key heads times their size."""
    vocabulary: int


@lru_cache
def shape_of(model: str) -> Shape | None:
    """Of a directory or a hub id, of which no more than the config is read; None where that is not to be had."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        place = Path(model).expanduser()
        config: Any = AutoConfig.from_pretrained(place if place.is_dir() else model).get_text_config()
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)
        heads = config.num_attention_heads
    except (
        OSError,
        ValueError,
        AttributeError,
    ):  # said when its tokenizer is loaded, if it is an error at all
        return None
    ends = {network.get_input_embeddings().weight, network.get_output_embeddings().weight}
    maps = [p for p in network.parameters() if p.dim() == 2 and p not in ends]
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return Shape(
        parameters=sum(p.numel() for p in network.parameters()),
        linear=sum(p.numel() for p in maps),
        adapter=sum(sum(p.shape) for p in maps),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        keys=size * (getattr(config, "num_key_value_heads", None) or heads),
        vocabulary=config.vocab_size,
    )


HELD = frozenset(("weights", "reference", "optimizer", "critic's weights", "critic's optimizer"))
"""What a learner has between its updates."""


def learner_parts(shape: Shape, settings: LearnerSettings, longest: int) -> dict[str, int]:
    """Bytes of one worker at the height of an update, by part. longest: tokens of the longest sequence."""
    ranks = settings.workers if settings.sharding == "fsdp" else 1
    half, lora = settings.precision in ("bf16", "fp16"), settings.lora
    layer = shape.linear // shape.layers
    weights, trained = 4 * shape.parameters, shape.parameters
    reference = 4 * shape.parameters
    if lora:
        bits = {"4bit": 0.52, "8bit": 1.0, None: 4}[lora.quantize]
        weights = int(bits * shape.linear) + 4 * (shape.parameters - shape.linear)
        trained, reference = lora.rank * shape.adapter, 0  # without its adapter the backbone is the reference
    elif settings.trainable_layers is not None:
        trained = layer * settings.trainable_layers
    if settings.kl.kind == "none":
        reference = 0
    copies = 0
    if ranks > 1:
        # FSDP gathers two layers, and embeddings and head as a group of their own; a layer's gradient is whole until it
        # is reduced, and that of the head, with its copy, to the end of the pass
        copies = 2 * layer * (2 if half else 4) + 4 * (shape.parameters - shape.linear)
        copies += 6 * layer + 6 * shape.vocabulary * shape.hidden
    elif half or (lora and lora.quantize):  # autocast keeps what is trained, and what its gradient must pass
        copies = 2 * (layer if lora and settings.gradient_checkpointing else shape.linear)
    tokens = max(settings.microbatch_tokens or MICROBATCH_TOKENS, longest)
    of_layer = activations(shape, half)
    kept = 4 * shape.hidden
    held = of_layer + kept * shape.layers if settings.gradient_checkpointing else of_layer * shape.layers
    parts = {
        "weights": weights // ranks,
        "reference": reference // ranks,
        "optimizer": 8 * trained // ranks,
        "gradients": 4 * trained // ranks,
        "copies": copies,
        "activations": tokens * held,
        "logits": 20 * min(LOGITS, tokens * shape.vocabulary),
    }
    if settings.estimator.kind == "gae" and settings.estimator.critic == "model":
        twice = ("weights", "optimizer", "gradients", "copies", "activations")
        parts |= {f"critic's {name}": parts[name] for name in twice}
    return parts


def activations(shape: Shape, half: bool) -> int:
    """Bytes that one token leaves in one layer for the gradient, counted by autograd's own hooks (test_memory_plan)."""
    if half:  # the residual stream is fp32, the maps' inputs are not
        return 32 * shape.hidden + 8 * shape.intermediate + 4 * shape.keys
    return 36 * shape.hidden + 16 * shape.intermediate + 8 * shape.keys


def engine_parts(shape: Shape, engine: Engine, sequences: int = STARVED) -> dict[str, int]:
    """What an engine of vLLM needs to have so many sequences in its cache."""
    size = 2 if engine.dtype == "bfloat16" else 4
    at_once = min(engine.max_num_seqs or MAX_NUM_SEQS, sequences)
    cache = 2 * shape.keys * size * shape.layers * engine.max_model_len * at_once
    given = getattr(engine, "kv_cache_mb", None)
    return {
        "weights": size * shape.parameters,
        "cache": given << 20 if given else cache,
        "work space": ENGINE,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """Of one GPU, or of each of several that hold the same."""

    of: str
    parts: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())

    def describe(self, have: int) -> str:
        """What is of both policies is said once."""
        kinds: dict[str, int] = defaultdict(int)
        for name, size in self.parts.items():
            kinds[name.split("'s ", 1)[-1]] += size
        shown = ", ".join(f"{kind} {size / GB:.1f}" for kind, size in kinds.items() if size >= GB / 20)
        return f"{self.of}: {self.bytes / GB:.1f} of {have / GB:.1f} GB ({shown})"


def demands(config: Config, shapes: Mapping[str, Shape], sequences: int = STARVED) -> list[Demand]:
    """What has a share of a GPU is on one with all that has; what has whole ones has each its own.

    shapes: by role; sequences: in each engine's cache."""
    learners = {role: _learner(config, role, shapes[role]) for role in config.policies}
    actors = _actors_together(config)
    shared = config.local or (config.rollout.gpus or 0) < 1
    engines = {
        f"{role}'s engine's {name}": size * actors
        for role in config.policies
        for name, size in engine_parts(shapes[role], config.policy(role).engine, sequences).items()
    }
    on_own = [role for role in learners if not config.local and (config.policy(role).learner.gpus or 0) >= 1]
    found = [
        Demand(of=f"a GPU of the {role}'s learner", parts={**learners[role], "context": CONTEXT})
        for role in on_own
    ]
    taking_turns = {role: parts for role, parts in learners.items() if role not in on_own}
    if not taking_turns:
        return [*found, Demand(of="a rollout actor's GPU", parts=engines | {"contexts": CONTEXT * actors})]
    together = {
        f"{role}'s {name}": parts[name]
        for role, parts in taking_turns.items()
        for name in parts
        if name in HELD
    }
    together["an update"] = max(
        sum(size for name, size in parts.items() if name not in HELD) for parts in taking_turns.values()
    )
    if shared:
        processes = 1 if config.local else len(taking_turns) + actors
        return [*found, Demand(of="the GPU", parts=together | engines | {"contexts": CONTEXT * processes})]
    return [
        *found,
        Demand(of="the learners' GPU", parts=together | {"contexts": CONTEXT * len(taking_turns)}),
        Demand(of="a rollout actor's GPU", parts=engines | {"context": CONTEXT}),
    ]


def _actors_together(config: Config) -> int:
    """Rollout actors on one GPU."""
    return 1 if config.local or (config.rollout.gpus or 0) >= 1 else config.rollout.actors


def _learner(config: Config, role: str, shape: Shape) -> dict[str, int]:
    """Without the backbone where another role has brought it (learners/train_spec.by_backbone)."""
    own = config.policy(role)
    parts = learner_parts(shape, own.learner, own.engine.max_model_len)
    first = config.policy(config.policies[0])
    one, other = first.learner.lora, own.learner.lora
    if own is not first and one and other and first.model == own.model and one.quantize == other.quantize:
        del parts["weights"]
    return parts


def choose(config: Config, shapes: Mapping[str, Shape], have: int) -> dict[str, Any]:
    """Dotted key -> value: the fastest rung on which all fits, else the last, and the engines' shares.

    have: bytes of the smallest GPU."""
    for sequences, (checkpointing, tokens) in itertools.product((FED, STARVED), RUNGS):
        rung = {"gradient_checkpointing": checkpointing, "microbatch_tokens": tokens}
        on_rung = changed(config, dict.fromkeys(config.policies, rung), open_only=True)
        if not over(demands(on_rung, shapes, sequences), have):
            break
    suited: dict[str, Any] = {f"{role}.learner.{k}": v for role in config.policies for k, v in rung.items()}
    found = demands(on_rung, shapes)
    engines = {role: config.policy(role).engine for role in config.policies}
    count = len(engines) * _actors_together(config)
    left = max(0, have - found[-1].bytes) / count  # goes to the caches, in equal parts
    for role, engine in engines.items():
        if engine.kind == "vllm":
            share = USABLE * (sum(engine_parts(shapes[role], engine).values()) + left) / have
            suited[f"{role}.engine.gpu_memory_utilization"] = round(min(share, 0.9 / count), 3)
    return suited


def changed(config: Config, learners: Mapping[str, Mapping[str, Any]], *, open_only: bool = False) -> Config:
    """A copy with other settings of learners, by role; open_only: only where they are None."""
    policies = {}
    for role, values in learners.items():
        policy = config.policy(role)
        taken = {k: v for k, v in values.items() if not open_only or getattr(policy.learner, k) is None}
        policies[role] = policy.model_copy(update={"learner": policy.learner.model_copy(update=taken)})
    return config.model_copy(update=policies)


def over(found: Sequence[Demand], have: int) -> list[Demand]:
    return [demand for demand in found if demand.bytes > have]


def object_store_bytes(config: Config) -> int:
    """Host memory for the objects of a Ray of this run's own: three published models of each policy (the engines', the
    next, a copy on its way), and half a GiB for all else. Ray writes to disk what does not fit."""
    models = [config.policy(role).model for role in config.policies if config.policy(role).model != EMBEDDED]
    return (512 << 20) + sum(3 * 4 * shape.parameters for model in models if (shape := shape_of(model)))


def ways_out(config: Config, shapes: Mapping[str, Shape], have: int) -> list[str]:
    """Options that make it fit, each by itself, those first that change least; at most three."""
    found = []
    for options, change in _ways(config):
        if not over(demands(changed(config, dict.fromkeys(config.policies, change)), shapes), have):
            words = [f"--{role}.learner.{option}" for role in config.policies for option in options]
            found.append(" ".join(words))
    return found[:3]


def _ways(config: Config) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """(options of a learner, the settings that they make)."""
    learners = [config.policy(role).learner for role in config.policies]
    checkpointing, tokens = RUNGS[-1]
    last = {"gradient_checkpointing": checkpointing, "microbatch_tokens": tokens}
    yield ("gradient-checkpointing", f"microbatch-tokens {tokens}"), last
    only_watched = all(learner.kl.kind == "watched" for learner in learners)
    if only_watched:
        yield ("kl.kind none",), {"kl": NoKl()}
    if any(learner.sharding == "fsdp" for learner in learners):
        return  # goes with neither of the others
    if only_watched:
        yield ("kl.kind none", "trainable-layers 4"), {"kl": NoKl(), "trainable_layers": 4}
    adapted = {"trainable_layers": None}
    yield ("lora.rank 16",), adapted | {"lora": LoraSettings()}
    yield ("lora.rank 16", "lora.quantize 4bit"), adapted | {"lora": LoraSettings(quantize="4bit")}


def refusal(found: Sequence[Demand], have: int, ways: Sequence[str]) -> str | None:
    """Why it cannot run, and what to do; None where it can."""
    if not (too_large := over(found, have)):
        return None
    how = (
        "; or ".join(ways)
        if ways
        else "smaller models, or more GPUs (learner.workers, learner.sharding fsdp)"
    )
    first = too_large[0]
    return (
        f"{first.of} would have to hold {first.bytes / GB:.0f} GB and has {have / GB:.0f} to give: take {how}"
    )
