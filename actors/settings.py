"""What an inference engine can be told. Imports no torch and no vllm: the config schema nests it."""

from typing import Annotated, Literal, Self

from pydantic import Field

from core.settings import Settings, kind_unless_said

MAX_NUM_SEQS = 64
"""Where it is None for an engine by itself."""
KV_CACHE_MB = 1024
GPU_MEMORY_UTILIZATION = 0.3
ADAPTERS = 2
"""Of a policy that an engine has room for: the version that is played, and the one before or after it. Further ones are
played where steps are begun before the last one is learnt from (rollout.max_policy_lag)."""


class Engine(Settings):
    """What every kind takes."""

    count: int | None = Field(default=None, ge=1)
    """Engines of this policy in actors of their own, on a GPU with whole ones, for all rollout actors; None: each rollout
    actor has one."""
    max_model_len: int = Field(default=4096, ge=32)
    """Longest sequence, prompt and completions of all stages together, tokens."""
    max_num_seqs: int | None = Field(default=None, ge=1)
    """Sequences decoded at once; None: 64, on a GPU by its memory (runtime/hardware.py)."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """None: bfloat16 on a GPU that has it, else float16 where it has that, else float32."""
    probe_tolerance: float | None = Field(default=None, gt=0)
    """Largest difference between engine and learner on the probe's log-probabilities after a publish
    (float32 gives about 1e-6, on a GPU, where vLLM's attention multiplies in tf32, 1e-3; bfloat16 up to 1e-1); None:
    1e-3, on a GPU 5e-3, with dtype bfloat16 0.5, with float16, of three bits more, 0.1."""
    sleep: bool | None = None
    """While a learner updates, the engine gives its GPU memory back (device cuda): weights go to the host's memory, cached
    keys and values are forgotten. None: where an engine shares a GPU with learners and not all fits otherwise."""

    @property
    def gpus_each(self) -> int:
        """GPUs of one engine, where there are any."""
        return getattr(self, "tensor_parallel", 1)

    @property
    def tolerance(self) -> float:
        """probe_tolerance, or what the dtype needs."""
        return self.probe_tolerance or {"bfloat16": 0.5, "float16": 0.1}.get(self.dtype or "", 1e-3)


class TransformersEngine(Engine):
    kind: Literal["transformers"] = "transformers"

    @classmethod
    def like(cls, engine: Engine) -> Self:
        """In place of an engine of another kind."""
        return cls(**engine.model_dump(include=set(Engine.model_fields)))


class VllmEngine(Engine):
    kind: Literal["vllm"] = "vllm"
    """vllm: continuous batching; transformers: portable, slower, and exact to the bit from run to run."""
    kv_cache_mb: int | None = Field(default=None, ge=16)
    """vLLM's KV cache, MiB, with tensor_parallel on each GPU; None: 1024, on a GPU what gpu_memory_utilization leaves."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs of one node (on a CPU processes) that an engine's weights and cache are divided among; divides the model's
    attention heads."""
    adapter: bool | None = None
    """Of a policy with learner.lora: the engine has the backbone and is sent the adapter alone; policies of one model with
    equal engine settings share it. Else each has an engine of its own, and is sent all weights, the adapter merged. None:
    on a GPU, where the backbone is not quantised."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of the GPU's memory for one engine of vLLM; None: an equal part of what the learners leave."""


ENGINES = {"vllm": VllmEngine, "transformers": TransformersEngine}
EngineSettings = Annotated[
    TransformersEngine | VllmEngine, Field(discriminator="kind"), kind_unless_said("vllm")
]
