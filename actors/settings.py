"""What an inference engine can be told. Imports no torch and no vllm: the config schema nests it."""

from typing import Annotated, Literal

from pydantic import Field

from core.settings import Settings, kind_unless_said

MAX_NUM_SEQS = 64
"""Where it is None for an engine by itself."""
KV_CACHE_MB = 1024
GPU_MEMORY_UTILIZATION = 0.3


class Engine(Settings):
    """What every kind takes."""

    max_model_len: int = Field(default=4096, ge=32)
    """Longest sequence, prompt and completions of all stages together, tokens."""
    max_num_seqs: int | None = Field(default=None, ge=1)
    """Sequences decoded at once; None: 64, on a GPU by its memory (runtime/hardware.py)."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """None: bfloat16 on a GPU that has it, else float32."""
    probe_tolerance: float | None = Field(default=None, gt=0)
    """Largest difference between engine and learner on the probe's log-probabilities after a publish
    (float32 gives about 1e-6; bfloat16 up to 1e-1); None: 1e-3, with dtype bfloat16 0.5."""

    @property
    def tolerance(self) -> float:
        """probe_tolerance, or what the dtype needs."""
        return self.probe_tolerance or (0.5 if self.dtype == "bfloat16" else 1e-3)


class TransformersEngine(Engine):
    kind: Literal["transformers"] = "transformers"


class VllmEngine(Engine):
    kind: Literal["vllm"] = "vllm"
    """vllm: continuous batching; transformers: portable, slower, and exact to the bit from run to run."""
    kv_cache_mb: int | None = Field(default=None, ge=16)
    """vLLM's KV cache, MiB; None: 1024, on a GPU what gpu_memory_utilization leaves."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of the GPU's memory for one engine of vLLM; None: an equal part of what the learners leave."""


ENGINES = {"vllm": VllmEngine, "transformers": TransformersEngine}
EngineSettings = Annotated[
    TransformersEngine | VllmEngine, Field(discriminator="kind"), kind_unless_said("vllm")
]
