"""What an inference engine can be told. Imports no torch and no vllm: the config schema nests it."""

from typing import Literal

from pydantic import Field

from core.settings import Settings


class EngineSettings(Settings):
    kind: Literal["vllm", "transformers"] = "vllm"
    """vllm: continuous batching; transformers: portable, slower, and exact to the bit from run to run."""
    max_model_len: int = Field(default=4096, ge=32)
    """Longest sequence, prompt and completions of all stages together, tokens."""
    max_num_seqs: int = Field(default=64, ge=1)
    """Sequences decoded at once."""
    kv_cache_mb: int = Field(default=1024, ge=16)
    """vLLM's KV cache on CPU, MiB."""
    gpu_memory_utilization: float = Field(default=0.3, gt=0, le=1)
    """Share of the GPU's memory for one engine of vLLM."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    probe_tolerance: float = Field(default=1e-3, gt=0)
    """Largest difference between engine and learner on the probe's log-probabilities after a publish
    (float32 gives about 1e-6; bfloat16 up to 1e-1)."""
