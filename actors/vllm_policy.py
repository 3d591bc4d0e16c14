"""A policy on vLLM's asynchronous engine: token ids in, token ids and sampled log-probabilities out.

Not here: truncation of the sampling distribution (top-p, top-k). Log-probabilities would then be of another
distribution than the learner's.
"""

import itertools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs.engine import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from actors.settings import GPU_MEMORY_UTILIZATION, MAX_NUM_SEQS, EngineSettings
from actors.weights import make_receipt, tensors_of
from core.episode import Completion, FinishReason
from core.interfaces import Sampling
from core.weights import PublishReceipt, WeightUpdate

_SHARED_MEMORY = Path("/dev/shm")


def _engine_args(model: str, settings: EngineSettings, device: str) -> AsyncEngineArgs:
    common: dict[str, Any] = dict(  # noqa: C408 - reads as the keyword arguments it becomes
        model=model,
        dtype=settings.dtype or "float32",
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs or MAX_NUM_SEQS,
        disable_log_stats=True,
        logprobs_mode="processed_logprobs",
        generation_config="vllm",  # the hub's generation_config.json would change the sampling distribution
        worker_extension_cls="actors.vllm_worker.WeightReload",
        distributed_executor_backend="uni",
    )
    if device == "cuda":
        share = settings.gpu_memory_utilization or GPU_MEMORY_UTILIZATION
        return AsyncEngineArgs(**common, gpu_memory_utilization=share)
    return AsyncEngineArgs(
        **common,
        enforce_eager=True,
        kv_cache_memory_bytes=settings.kv_cache_mb << 20,
        # a seeded request whose prompt is prefilled in chunks kills the CPU engine, so prefill whole
        enable_chunked_prefill=False,
        max_num_batched_tokens=max(65536, settings.max_model_len),
    )


class VllmPolicy:
    """Must be created and used inside one event loop's process."""

    def __init__(self, model: str, settings: EngineSettings, device: str = "cpu") -> None:
        self._settings = settings
        self._engine = AsyncLLM.from_engine_args(_engine_args(model, settings, device))
        self._ids = itertools.count()
        self._version = 0

    @property
    def version(self) -> int:
        return self._version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        """Raises ValueError where prompt and completion do not fit max_model_len."""
        if len(prompt_tokens) >= self._settings.max_model_len:
            raise ValueError(
                f"prompt of {len(prompt_tokens)} tokens does not fit max_model_len {self._settings.max_model_len}"
            )
        params = SamplingParams(
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
            seed=sampling.seed,
            stop_token_ids=list(sampling.stop_token_ids),
            ignore_eos=True,  # the stop tokens are named above, the model's eos among them where it is one
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        version = self._version
        output = await self._final(list(prompt_tokens), params)
        sampled = output.outputs[0]
        tokens = tuple(sampled.token_ids)
        logprobs = tuple(
            step[token].logprob for step, token in zip(sampled.logprobs or (), tokens, strict=True)
        )
        reason = FinishReason(sampled.finish_reason or "abort")
        return Completion(tokens=tokens, logprobs=logprobs, version=version, finish_reason=reason)

    async def score(self, tokens: Sequence[int]) -> list[float]:
        """Log-probabilities of tokens[1:] given what precedes them."""
        params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False, temperature=0.0)
        output = await self._final(list(tokens), params)
        rows = (output.prompt_logprobs or [])[1:]
        return [row[token].logprob for row, token in zip(rows, tokens[1:], strict=True)]

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        """Replace the weights in place. Call it while no completion is wanted of the old ones: requests in
        flight are aborted."""
        await self._engine.pause_generation(
            mode="abort", clear_cache=True
        )  # stale KV would be used otherwise
        handle, path = tempfile.mkstemp(suffix=".safetensors", dir=_SHARED_MEMORY)
        os.close(handle)
        try:
            tensors = tensors_of(update)
            save_file(dict(tensors), path)
            await self._engine.collective_rpc("reload_from_file", args=(path,))
        finally:
            os.unlink(path)
            await self._engine.resume_generation()
        self._version = update.version
        return await make_receipt(update, self.score)

    async def close(self) -> None:
        self._engine.shutdown()
        del self._engine  # its destructor cannot run any more when the interpreter ends

    async def _final(self, tokens: list[int], params: SamplingParams) -> Any:
        """vLLM's RequestOutput once the request is finished."""
        final = None
        async for output in self._engine.generate(tokens_input(tokens), params, str(next(self._ids))):
            final = output
        assert final is not None
        return final
