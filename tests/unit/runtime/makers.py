"""Makers of what the tests of this directory begin with: starts of runs, machines, models' sizes, configs, problems."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from configs.schema import Config
from sparring.core.problem import Problem
from sparring.runtime.hardware import Hardware
from sparring.runtime.memory_plan import Shape
from sparring.runtime.parts import Start


def start_at(directory: Path, **more: Any) -> Start:
    """A run's start, without models and without a checkpoint unless they are given."""
    nothing = {"models": {}, "checkpoint": None, "versions": {}, "state": None}
    return Start(run_directory=directory, **nothing | more)


def both(policy: dict[str, Any], **sections: Any) -> Config:
    """A config of two policies that are alike."""
    return Config.model_validate({"generator": policy, "discriminator": policy} | sections)


def problem(id: str, description: str = "", signature: str = "def f(n):", **more: Any) -> Problem:
    """A problem with one test, which the identity passes."""
    rest = {"baseline_tests": ("assert f(1) == 1",), "reference_solution": "def f(n): return n"} | more
    return Problem(id=id, description=description, function_signature=signature, **rest)


# ---------------------------------------------------------------------- machines
CPU = Hardware(
    gpus=0, gpu=None, gpu_memory_gib=0.0, capability=(0, 0), cpu_cores=4, memory_gib=1000.0, offline=False
)


def card(gib: float, gpus: int = 1) -> Hardware:
    return replace(CPU, gpus=gpus, gpu="a GPU", gpu_memory_gib=gib, capability=(9, 0))


V100 = replace(card(15.8), gpu="Tesla V100-SXM2-16GB", capability=(7, 0))
T4 = replace(card(14.6), capability=(7, 5))
L4 = card(22.2)
A100 = replace(card(39.4), capability=(8, 0))
H100 = card(79.1)


# ---------------------------------------------------------------------- Qwen2.5-Coder, by their config.json
_SIZES = (
    "parameters", "linear", "adapter", "layers", "hidden", "intermediate", "keys", "vocabulary", "heads", "key_heads",
)  # fmt: skip
QWEN = {
    size: Shape(**dict(zip(_SIZES, sizes, strict=True)))
    for size, sizes in {
        "0.5B": (494_032_768, 357_826_560, 549_888, 24, 896, 4864, 128, 151_936, 14, 2),
        "1.5B": (1_543_714_304, 1_310_195_712, 1_154_048, 28, 1536, 8960, 256, 151_936, 12, 2),
        "3B": (3_085_938_688, 2_774_532_096, 1_870_848, 36, 2048, 11_008, 256, 151_936, 16, 2),
        "7B": (7_615_616_512, 6_525_288_448, 2_523_136, 28, 3584, 18_944, 512, 152_064, 28, 4),
        "14B": (14_770_033_664, 13_212_057_600, 4_300_800, 48, 5120, 13_824, 1024, 152_064, 40, 8),
        "32B": (32_763_876_352, 31_205_621_760, 8_388_608, 64, 5120, 27_648, 1024, 152_064, 40, 8),
    }.items()
}
