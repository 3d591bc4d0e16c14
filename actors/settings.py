"""The settings of an inference engine. Imports no torch and no vllm: the config schema nests them."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator

from sparring.core.settings import Settings, default_kind

MAX_NUM_SEQS = 64
"""Default of max_num_seqs outside a run."""
KV_CACHE_MB = 1024
GPU_MEMORY_UTILIZATION = 0.3
ENGINE_ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Environment variables of a process whose engines run on a CPU. With them the process uses one thread, and compiles no
code at the first request."""
OWN_ARGUMENTS = {
    "model": "is generator.model or discriminator.model",
    "dtype": "is engine.dtype",
    "max_model_len": "is engine.max_model_len",
    "max_num_seqs": "is engine.max_num_seqs",
    "tensor_parallel_size": "is engine.tensor_parallel",
    "kv_cache_memory_bytes": "is engine.kv_cache_mb",
    "gpu_memory_utilization": "is engine.gpu_memory_utilization",
    "enable_sleep_mode": "is engine.sleep",
    "enable_lora": "is engine.adapter",
    **dict.fromkeys(
        ("worker_extension_cls", "logprobs_mode", "generation_config", "distributed_executor_backend"),
        "is what training depends on, and cannot be changed",
    ),
}
"""Arguments of vLLM's EngineArgs that are not taken from engine.extra, and why."""
ADAPTERS = 2
"""Default number of versions of a policy's adapter that an engine can hold at once: during a weight sync the old and
the new one. More versions are in use if steps are played ahead (rollout.max_policy_lag)."""


class CommonEngineSettings(Settings):
    """Settings of every kind of engine."""

    count: int | None = Field(default=None, ge=1)
    """Number of engines of this policy that run in separate actors with whole GPUs and serve all rollout actors.
    Default: no such engines; each rollout actor has its own engine."""
    max_model_len: int = Field(default=4096, ge=32)
    """Maximum length of a sequence (prompt and completions of all stages), in tokens."""
    max_num_seqs: int | None = Field(default=None, ge=1)
    """Maximum number of sequences decoded at once. Default: 64; on a GPU as many as its memory allows (sparring/runtime/hardware.py)."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Data type of the engine's weights. Default: on a GPU bfloat16 if it supports that, else float16; on a CPU
    bfloat16 if the processor computes in it or float32 does not fit into memory, else float32 (always float32 for the
    toy models)."""
    probe_tolerance: float | None = Field(default=None, gt=0)
    """Maximum difference between engine and learner in the probe's log-probabilities after a weight sync (float32 gives about
    1e-6; 1e-3 on a GPU, since vLLM's attention multiplies in tf32; bfloat16 up to 1e-1). Default: 1e-3, on a GPU 5e-3, with
    dtype bfloat16 0.5, with float16 0.1; 0.5 if the learner's own weights are rounded (LoRA in bf16 or quantised, fsdp in bf16)."""
    sleep: bool | None = None
    """Give the engine's GPU memory back while a learner updates (device cuda): weights move to host memory, cached keys and
    values are dropped. Default: if the engine shares a GPU with learners and does not fit beside them."""

    @property
    def gpus_each(self) -> int:
        """Returns the number of GPUs per engine, if there are any."""
        return getattr(self, "tensor_parallel", 1)

    @property
    def tolerance(self) -> float:
        """Returns probe_tolerance, or the default for the dtype."""
        return self.probe_tolerance or {"bfloat16": 0.5, "float16": 0.1}.get(self.dtype or "", 1e-3)


class TransformersEngineSettings(CommonEngineSettings):
    kind: Literal["transformers"] = "transformers"

    @classmethod
    def like(cls, engine: CommonEngineSettings) -> Self:
        """Returns settings of this kind with the values that it shares with an engine of another kind."""
        return cls(**engine.model_dump(include=set(CommonEngineSettings.model_fields)))


class VllmEngineSettings(CommonEngineSettings):
    kind: Literal["vllm"] = "vllm"
    """vllm: continuous batching; transformers: portable, slower, and exact to the bit from run to run."""
    kv_cache_mb: int | None = Field(default=None, ge=16)
    """Size of vLLM's KV cache in MiB (per GPU with tensor_parallel). Default: on a GPU what gpu_memory_utilization
    leaves; on a CPU room for up to 32 sequences of full length, as the memory allows (1024 for the toy models)."""
    tensor_parallel: int = Field(default=1, ge=1)
    """Number of GPUs of one node (on a CPU: processes) over which an engine's weights and cache are divided. It must divide the
    number of the model's attention heads."""
    adapter: bool | None = None
    """For a policy with learner.lora. True: the engine holds the backbone and is sent the adapter alone; policies of one model
    with equal engine settings share the engine. False: each policy has its own engine and is sent all weights, the
    adapter merged. Default: True on a GPU if the backbone is not quantised."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of the GPU's memory for one vLLM engine. Default: an equal part of what the learners leave."""
    extra: dict[str, Any] = {}
    """Further arguments of vLLM's EngineArgs, passed on as they are, such as {"speculative_config": {"method": "ngram",
    "num_speculative_tokens": 4, "prompt_lookup_max": 4}}. The memory plan does not know them."""

    @field_validator("extra")
    @classmethod
    def _leaves_ours_alone(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(extra.keys() & OWN_ARGUMENTS.keys()):
            raise ValueError("; ".join(f"{name} {OWN_ARGUMENTS[name]}" for name in taken))
        return extra


ENGINES = {"vllm": VllmEngineSettings, "transformers": TransformersEngineSettings}
EngineSettings = Annotated[
    TransformersEngineSettings | VllmEngineSettings, Field(discriminator="kind"), default_kind("vllm")
]
