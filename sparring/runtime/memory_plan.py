"""Calculates the memory, in bytes, that a GPU or a host without one needs, from a model's config and the settings,
before anything loads.

The figure is the peak, which is during an update. A learner always holds its weights, its reference and Adam's moments;
at the peak it also holds gradients, the copies that autocast makes, activations and logits. Learners that share a GPU
take turns. Between their updates they give back the memory that is not held, and more with `learner.offload`. Engines
hold their weights and their cache all the time. With `engine.sleep` they hold neither during an update; play is then a
second peak.

The figures are estimates, from counts on a CPU and from what vLLM reports. Activations are right within a few percent
for the decoders that transformers calls Qwen2, Llama or Mistral. `CONTEXT` and `ENGINE` come from reports of others.
Not covered: host memory of a run on GPUs, and activations of mixtures of experts (the weights of all experts are
counted).
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

from actors.settings import ADAPTERS, MAX_NUM_SEQS, CommonEngineSettings
from configs.layers import with_values
from configs.schema import Config
from learners.settings import LOGITS_MB, MICROBATCH_TOKENS, Gae, LearnerSettings
from sparring.core.weights import PART_BYTES
from sparring.runtime.gguf import place_of
from sparring.runtime.placement import UNIT, learner_groups, share_backbone, units

GB = 10**9
TINY = 10**8
"""Number of parameters below which the processes around a model take far more memory than the model."""
CONTEXT = int(0.6 * GB)
"""Bytes for each process that uses a GPU: CUDA's context and the libraries' work space."""
ENGINE = int(1.5 * GB)
"""Bytes that an engine takes besides weights and cache: activations of a prefill, captured graphs."""
OF_A_LOGIT = 20
"""Bytes per logit: bf16, fp32, log-softmax, its exponential, a gradient."""
USABLE = 0.95
"""Share of a GPU's memory that can be used: allocators cannot use the last bit."""
STARVED, FED = 4, 32
"""Numbers of sequences of full length that an engine's cache has room for: the least with which a run may start, and
the number that is provided for before updates are made any larger."""
_LARGE = (32768, 16384, 8192)
RUNGS = tuple(
    (checkpointing, logits, tokens)
    for checkpointing, sizes in ((False, _LARGE), (True, _LARGE), (True, (4096,)), (True, (2048,)))
    for logits in (1024, 512, 256, LOGITS_MB)
    for tokens in sizes
)
"""(gradient_checkpointing, logits_mb, microbatch_tokens), the fastest first. Checkpointing takes a third more time.
Passes of 8192 tokens are hardly slower than those of 32768; passes of 2048 tokens are, since each pass reads all
weights. Each part of the logits reads the head and adds to the head's whole gradient: with a vocabulary of 152,000, a
part has 220 tokens in 128 MiB, 1766 in 1 GiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Sizes of a decoder.

    Example:
        Shape(parameters=1_543_714_304, linear=1_310_195_712, adapter=1_154_048, layers=28, hidden=1536, intermediate=8960,
              keys=256, vocabulary=151_936, heads=12, key_heads=2)  # Qwen2.5-Coder-1.5B
    """

    parameters: int
    """Number of all parameters; tied ones are counted once."""
    linear: int
    """Number of parameters of the layers' linear maps."""
    adapter: int
    """Number of parameters of a LoRA adapter of rank 1 on all linear maps."""
    layers: int
    hidden: int
    intermediate: int
    keys: int
    """Number of key heads times their size."""
    vocabulary: int
    heads: int
    """Number of attention heads."""
    key_heads: int

    @property
    def is_tiny(self) -> bool:
        return self.parameters < TINY


def shape_of(model: str) -> Shape | None:
    """Returns the shape of a model, given by any name that find_model takes, or None if its config cannot be read. Only
    the config is read."""
    place = place_of(model)
    return _shape_at(place, place.is_dir())


@lru_cache  # failures are cached as well: a hub that does not answer is asked once
def _shape_at(place: Path, _exists: bool) -> Shape | None:
    """Reads a config. The second argument is part of the cache's key: the directory of a GGUF file appears when the
    file is converted."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config: Any = AutoConfig.from_pretrained(place, trust_remote_code=False).get_text_config()
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)
        key_heads, size = keys_of(config)
    except Exception:  # a config that somebody wrote may fail anywhere in the library
        return None  # if this is an error at all, it is raised when the tokenizer is loaded
    ends = {network.get_input_embeddings().weight, network.get_output_embeddings().weight}
    maps = [p for p in network.parameters() if p.dim() == 2 and p not in ends]
    return Shape(
        parameters=sum(p.numel() for p in network.parameters()),
        linear=sum(p.numel() for p in maps),
        adapter=sum(sum(p.shape) for p in maps),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        keys=size * key_heads,
        vocabulary=config.vocab_size,
        heads=config.num_attention_heads,
        key_heads=key_heads,
    )


def keys_of(config: Any) -> tuple[int, int]:
    """Returns (number of key heads, their size) from a decoder's config. Raises AttributeError for a config of another
    kind."""
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return getattr(config, "num_key_value_heads", None) or heads, size


_ADAMS = frozenset(("optimizer", "critic's optimizer"))
HELD = _ADAMS | {"weights", "adapter", "reference", "critic's weights"}
"""Names of what a learner holds between its updates: on the GPU, or on the host if `offload` says so."""
_OFFLOADED: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "optimizer": _ADAMS,
    "all": HELD - {"adapter"},  # adapters that share a backbone move with it, in each other's updates, too
}


def planned_workers(settings: LearnerSettings) -> int:
    """Returns the number of workers that memory is planned for: under FSDP, the smallest number with which a run may begin or
    go on after a loss, since each then holds most."""
    least = settings.min_workers if settings.sharding == "fsdp" else None
    return least or settings.fewest_workers


def learner_parts(shape: Shape, settings: LearnerSettings, longest: int) -> dict[str, int]:
    """Returns the bytes of one worker at the peak of an update, by part. longest: tokens of the longest sequence."""
    ranks = planned_workers(settings) if settings.sharding == "fsdp" else 1
    half, lora = settings.precision in ("bf16", "fp16"), settings.lora
    backbone_in_half = half and lora is not None and lora.quantize is None
    layer = shape.linear // shape.layers
    weights, trained = 4 * shape.parameters, shape.parameters
    reference = 4 * shape.parameters
    if lora:
        bits = {"4bit": 0.52, "8bit": 1.0, None: 4}[lora.quantize]
        weights = int(bits * shape.linear) + 4 * (shape.parameters - shape.linear)
        weights = 2 * shape.parameters if backbone_in_half else weights
        trained, reference = lora.rank * shape.adapter, 0  # without its adapter the backbone is the reference
    elif settings.trainable_layers is not None:
        trained = layer * settings.trainable_layers
    if settings.kl.kind == "none":
        reference = 0
    copies = 0
    if ranks > 1:
        # FSDP gathers two layers, and embeddings and head as a separate group. A layer's gradient is whole until it is
        # reduced, the head's gradient, with its copy, until the end of the pass.
        copies = 2 * layer * (2 if half else 4)
        copies += (2 if backbone_in_half else 4) * (shape.parameters - shape.linear)
        copies += 0 if lora else 6 * layer + 6 * shape.vocabulary * shape.hidden
    elif not backbone_in_half and (
        half or (lora and lora.quantize)
    ):  # autocast copies trained weights, and those that their gradients pass through
        copies = 2 * (layer if lora and settings.gradient_checkpointing else shape.linear)
    tokens = max(settings.microbatch_tokens or MICROBATCH_TOKENS, longest)
    of_layer = activations(shape, half, backbone_in_half)
    kept = (2 if backbone_in_half else 4) * shape.hidden
    held = of_layer + kept * shape.layers if settings.gradient_checkpointing else of_layer * shape.layers
    own = 1 if lora else ranks  # each worker has the whole adapter
    parts = {
        "weights": weights // ranks,
        "adapter": 4 * trained if lora else 0,
        "reference": reference // ranks,
        "optimizer": 8 * trained // own,
        "gradients": 4 * trained // own,
        "copies": copies,
        "activations": tokens * held,
        "logits": OF_A_LOGIT * min((settings.logits_mb or LOGITS_MB) << 18, tokens * shape.vocabulary),
    }
    if settings.estimator.kind == "gae" and settings.estimator.critic == "model":
        # the critic trains a whole copy of the model in fp32, whatever is trained of the policy
        whole = {"lora": None, "trainable_layers": None, "estimator": Gae(critic="head")}
        of_copy = learner_parts(shape, settings.model_copy(update=whole), longest)
        twice = ("weights", "optimizer", "gradients", "copies", "activations")
        parts |= {f"critic's {name}": of_copy[name] for name in twice}
    if settings.fewest_workers > 1 and settings.sharding == "none":
        # after the backward pass, all gradients lie in one tensor, which is summed over the workers
        sizes = _by_kind(parts)
        of_pass = sizes["copies"] + sizes["activations"] + sizes["logits"]
        parts["gradients' sum"] = max(0, sizes["gradients"] - of_pass)
    return parts


def _by_kind(parts: Mapping[str, int]) -> dict[str, int]:
    """Returns the bytes of what several networks have, such as `generator's weights` and `critic's weights`, added up."""
    kinds: dict[str, int] = defaultdict(int)
    for name, size in parts.items():
        kinds[name.split("'s ", 1)[-1]] += size
    return kinds


def activations(shape: Shape, half: bool, backbone_in_half: bool = False) -> int:
    """Returns the bytes that one token leaves in one layer for the gradient, as counted by autograd's hooks
    (test_memory_plan)."""
    if backbone_in_half:
        return 19 * shape.hidden + 8 * shape.intermediate + 3 * shape.keys
    if half:  # the residual stream is fp32, the maps' inputs are not
        return 32 * shape.hidden + 8 * shape.intermediate + 4 * shape.keys
    return 36 * shape.hidden + 16 * shape.intermediate + 8 * shape.keys


def engine_parts(
    shape: Shape, engine: CommonEngineSettings, sequences: int = STARVED, ranks: Sequence[int] = ()
) -> dict[str, int]:
    """Returns what a vLLM engine needs on each of its GPUs for so many sequences in its cache. Each GPU has its part of
    the weights and of the key heads (at least one head); adapters are counted whole.

    ranks: ranks of all adapters that the engine holds.
    """
    at_once = min(engine.max_num_seqs or MAX_NUM_SEQS, sequences)
    given = getattr(engine, "kv_cache_mb", None)
    weights = shape.parameters // engine.gpus_each + shape.adapter * sum(ranks)
    return {
        "weights": bytes_of(engine.dtype) * weights,
        "cache": given << 20 if given else cache_bytes(shape, engine) * at_once,
        "work space": ENGINE,
    }


def cache_bytes(shape: Shape, engine: CommonEngineSettings) -> int:
    """Returns the bytes of the keys and values of one sequence of full length, on each of an engine's GPUs."""
    keys = shape.keys // min(engine.gpus_each, shape.key_heads)
    return 2 * keys * bytes_of(engine.dtype) * shape.layers * engine.max_model_len


def bytes_of(dtype: str | None) -> int:
    return 2 if dtype in ("bfloat16", "float16") else 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """Memory that is needed on one GPU, or on each of several GPUs that hold the same."""

    of: str
    parts: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())

    def describe(self, have: int) -> str:
        """Returns one line; sizes that both policies have are added up. have: bytes of the GPU."""
        kinds = _by_kind(self.parts).items()
        shown = ", ".join(f"{kind} {size / GB:.1f}" for kind, size in kinds if size >= GB / 20)
        return f"{self.of}: {self.bytes / GB:.1f} of {have / GB:.1f} GB ({shown})"


def demands(config: Config, shapes: Mapping[str, Shape], sequences: int = STARVED) -> list[Demand]:
    """Returns what each GPU has to hold. All parts with a share of a GPU are counted on one GPU, if their shares fit
    there; each part with whole GPUs has separate ones.

    shapes: by role. sequences: number that each engine's cache holds.
    """
    learners = {role: learner_of(config, role, shapes[role]) for role in config.policies}
    actors = _actors_together(config)
    by_policies = engines_of(config, shapes, sequences)
    engines, asleep = (
        {
            f"{roles[0]}'s engine's {name}": size * actors
            for roles, parts in by_policies.items()
            for name, size in parts.items()
            if config.policy(roles[0]).engine.count is None
            and (awake or not config.policy(roles[0]).engine.sleep or name == "work space")
        }
        for awake in (True, False)
    )
    on_own = [
        roles[0]
        for roles in learner_groups(config)
        if len(roles) == 1 and not config.local and (config.policy(roles[0]).learner.gpus or 0) >= 1
    ]
    found = [
        Demand(of=f"a GPU of the {role}'s learner", parts={**learners[role], "context": CONTEXT})
        for role in on_own
    ]
    found += [
        Demand(of=f"a GPU of the {' and the '.join(roles)}'s engine", parts={**parts, "context": CONTEXT})
        for roles, parts in by_policies.items()
        if config.policy(roles[0]).engine.count is not None
    ]
    taking_turns = {role: parts for role, parts in learners.items() if role not in on_own}
    of_actors = []
    if engines:
        of_actors = [Demand(of="a rollout actor's GPU", parts=engines | {"contexts": CONTEXT * actors})]
    if not taking_turns:
        return [*found, *of_actors]
    idle, update = _in_turns(config, taking_turns)
    if not (engines and _beside_learners(config, list(taking_turns))):
        turns = Demand(of="the learners' GPU", parts=update | {"contexts": CONTEXT * len(taking_turns)})
        return [*found, turns, *of_actors]
    contexts = {"contexts": CONTEXT * (1 if config.local else len(taking_turns) + actors)}
    if asleep == engines:
        return [*found, Demand(of="the GPU", parts=update | engines | contexts)]
    return [
        *found,
        Demand(of="the GPU in an update", parts=update | asleep | contexts),
        Demand(of="the GPU in play", parts=idle | engines | contexts),
    ]


def _in_turns(
    config: Config, learners: Mapping[str, Mapping[str, int]]
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns what these learners hold together while none of them updates, and at the peak of the largest update."""

    def idle(role: str) -> dict[str, int]:
        away = _OFFLOADED[config.policy(role).learner.offload]
        return {f"{role}'s {name}": learners[role][name] for name in learners[role] if name in HELD - away}

    at_rest = {name: size for role in learners for name, size in idle(role).items()}
    largest = max(learners, key=lambda role: sum(learners[role].values()) - sum(idle(role).values()))
    busy = {f"{largest}'s {name}": size for name, size in learners[largest].items() if name in HELD}
    passing = sum(size for name, size in learners[largest].items() if name not in HELD)
    return at_rest, at_rest | busy | {"an update": passing}


def engines_of(
    config: Config, shapes: Mapping[str, Shape], sequences: int = STARVED
) -> dict[tuple[str, ...], dict[str, int]]:
    """Returns what each kind of engine holds on a GPU, by the policies that the engine serves."""
    found = {}
    for roles in config.engines():
        first = config.policy(roles[0])
        loras = [config.policy(role).learner.lora for role in roles if first.publishes_adapter]
        ranks = [lora.rank for lora in loras if lora] * (ADAPTERS + config.rollout.max_policy_lag)
        found[roles] = engine_parts(shapes[roles[0]], first.engine, sequences, ranks)
    return found


def _actors_together(config: Config) -> int:
    """Returns the number of rollout actors on one GPU."""
    share, actors = units(config.rollout.gpus or 0), config.rollout.actors or 1
    return 1 if config.local else min(actors, UNIT // share) if share else actors


def _beside_learners(config: Config, learners: Sequence[str]) -> bool:
    """Returns whether a GPU with rollout actors has room for a learner, so that Ray may place one there."""
    share = units(config.rollout.gpus or 0)
    least = min(units(config.policy(role).learner.worker_gpus) for role in learners)
    return config.local or share * _actors_together(config) + least <= UNIT


def learner_of(config: Config, role: str, shape: Shape) -> dict[str, int]:
    """Returns the parts of a role's learner, without the backbone if another role's learner already holds it."""
    own = config.policy(role)
    parts = learner_parts(shape, own.learner, own.engine.max_model_len)
    if role in config.curriculum.frozen_players:  # it is loaded and exported, and never updated
        parts = {name: size for name, size in parts.items() if name in HELD - _ADAMS}
    first = config.policies[0]
    shared = role != first and share_backbone(config, first, role)
    if (
        shared and own.learner.offload != "all"
    ):  # with offload all, the backbone is on the GPU for each learner's update only, and counts there
        del parts["weights"]
    return parts


def choose(config: Config, shapes: Mapping[str, Shape], have: int) -> dict[str, Any]:
    """Returns dotted key -> value: the fastest rung on which everything fits, else the last, and the engines' shares of
    the GPU.

    have: bytes of the smallest GPU.
    """
    may_sleep = (False, True) if can_sleep(config) else (False,)
    for sleep, sequences, (checkpointing, logits, tokens) in itertools.product(
        may_sleep, (FED, STARVED), RUNGS
    ):
        rung = {"gradient_checkpointing": checkpointing, "logits_mb": logits, "microbatch_tokens": tokens}
        suited: dict[str, Any] = {
            f"{role}.learner.{k}": v for role in config.policies for k, v in rung.items()
        }
        asleep = {
            f"{role}.engine.sleep": sleep
            for role in config.policies
            if config.policy(role).engine.count is None
        }
        on_rung = with_open(config, suited | asleep)
        if not over(demands(on_rung, shapes, sequences), have):
            break
    suited |= {f"{role}.engine.sleep": bool(on_rung.policy(role).engine.sleep) for role in config.policies}
    found = demands(on_rung, shapes)
    engines = engines_of(config, shapes)
    apart = [roles for roles in engines if config.policy(roles[0]).engine.count is not None]
    held = (len(engines) - len(apart)) * _actors_together(config)
    for roles, parts in engines.items():
        needs = sum(parts.values())
        taken, count = (needs + CONTEXT, 1) if roles in apart else (found[-1].bytes, held)
        left = max(0, have - taken) / count  # the caches share it equally
        share = round(min(USABLE * (needs + left) / have, 0.9 / count), 3)
        of_vllm = [role for role in roles if config.policy(role).engine.kind == "vllm"]
        suited |= {f"{role}.engine.gpu_memory_utilization": share for role in of_vllm}
    return suited


def can_sleep(config: Config) -> bool:
    """Returns whether sleep would help and vLLM supports it: its allocator puts only one engine of a process to
    sleep."""
    engines = [config.policy(roles[0]).engine for roles in config.engines()]
    held = [engine for engine in engines if engine.count is None]
    of_vllm = [engine for engine in held if engine.kind == "vllm"]
    ahead = config.rollout.max_policy_lag > 0  # engines that play while learners update cannot sleep
    return bool(held) and not ahead and _beside_learners(config, config.policies) and len(of_vllm) < 2


def with_open(config: Config, suited: Mapping[str, Any]) -> Config:
    """Returns a copy in which these keys have these values, if they were left open."""

    def is_open(key: str) -> bool:
        *path, last = key.split(".")
        return getattr(reduce(getattr, path, config), last, 0) is None

    begins = tuple(f"{role}.{section}." for role in config.policies for section in ("engine", "learner"))
    return with_values(config, {k: v for k, v in suited.items() if k.startswith(begins) and is_open(k)})


def changed(config: Config, learners: Mapping[str, Mapping[str, Any]]) -> Config:
    """Returns a copy with other learner settings, by role."""
    return with_values(
        config, {f"{role}.learner.{k}": v for role, values in learners.items() for k, v in values.items()}
    )


def over(found: Sequence[Demand], have: int) -> list[Demand]:
    return [demand for demand in found if demand.bytes > have]


def object_store_bytes(config: Config, shapes: Mapping[str, Shape]) -> int:
    """Returns the host memory for the objects of a Ray that this run starts: the weights of each policy that requests
    in play name and the next ones, the largest part in transit, and half a GiB for everything else. Ray writes to disk
    what does not fit. shapes: by role, of the models that are known."""
    total = 512 << 20
    for role, shape in shapes.items():
        policy = config.policy(role)
        lora = policy.learner.lora if policy.publishes_adapter else None
        each = 4 * lora.rank * shape.adapter if lora else bytes_of(policy.engine.dtype) * shape.parameters
        part = (
            PART_BYTES
            if lora
            else max(PART_BYTES, each * shape.vocabulary * shape.hidden // shape.parameters)
        )
        total += (2 + config.rollout.max_policy_lag) * each + min(each, part)
    return total


def refusal(found: Sequence[Demand], have: int, ways: Sequence[str]) -> str:
    """Returns why the run does not fit, and what to do. At least one demand exceeds what a GPU has."""
    instead = "smaller models, or more GPUs (learner.workers, learner.sharding fsdp; engine.tensor_parallel)"
    first = over(found, have)[0]
    return (
        f"{first.of} would have to hold {first.bytes / GB:.0f} GB and has {have / GB:.0f} to give: take "
        f"{'; or '.join([*ways, instead])}"
    )
