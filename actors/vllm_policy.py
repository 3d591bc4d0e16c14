"""A policy on vLLM's engine, run inside this process: token ids in, token ids and sampled log-probabilities out.

The engine is stepped by a thread of its own. vLLM's asynchronous front end would run it in a second process instead
(on CPU with a third, unless told otherwise), each of which imports all of vLLM again: two engines then take a minute to
start, and their errors stay behind. Engines of one process take turns, step by step, for vLLM keeps the context of a
forward pass in a global; several actors use several cores. What that costs and gains: benchmarks/rollout.py.

Where sampling is truncated (top-p, top-k) the log-probabilities are of the truncated distribution, which is not the
learner's: training never asks for it.
"""

import asyncio
import itertools
import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")  # else it closes the log handlers of this process

from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.inputs.engine import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.llm_engine import LLMEngine

from actors.settings import GPU_MEMORY_UTILIZATION, KV_CACHE_MB, MAX_NUM_SEQS, VllmEngine
from actors.weights import make_receipt, tensors_of
from core.episode import Completion, FinishReason
from core.interfaces import EngineFailure, Sampling
from core.weights import PublishError, PublishReceipt, WeightUpdate

log = logging.getLogger(__name__)
_STEP = threading.Lock()
"""Held by the engine of this process that makes a step."""


def engine_args(model: str, settings: VllmEngine, device: str) -> EngineArgs:
    common: dict[str, Any] = dict(  # noqa: C408 - reads as the keyword arguments it becomes
        model=model,
        dtype=settings.dtype or "float32",
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs or MAX_NUM_SEQS,
        disable_log_stats=True,
        use_tqdm_on_load=False,
        logprobs_mode="processed_logprobs",
        generation_config="vllm",  # the hub's generation_config.json would change the sampling distribution
        worker_extension_cls="actors.vllm_worker.WeightReload",
        distributed_executor_backend="uni",
    )
    if device == "cuda":
        share = settings.gpu_memory_utilization or GPU_MEMORY_UTILIZATION
        given = settings.kv_cache_mb << 20 if settings.kv_cache_mb else None
        return EngineArgs(**common, gpu_memory_utilization=share, kv_cache_memory_bytes=given)
    return EngineArgs(
        **common,
        enforce_eager=True,
        kv_cache_memory_bytes=(settings.kv_cache_mb or KV_CACHE_MB) << 20,
        # a seeded request whose prompt is prefilled in chunks kills the CPU engine, so prefill whole
        enable_chunked_prefill=False,
        max_num_batched_tokens=max(65536, settings.max_model_len),
    )


def sampling_params(sampling: Sampling) -> SamplingParams:
    return SamplingParams(
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
        seed=sampling.seed,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=True,  # the stop tokens are named above, the model's eos among them where it is one
        logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def completion_of(output: Any, version: int) -> Completion:
    """Of vLLM's finished RequestOutput."""
    sampled = output.outputs[0]
    tokens = tuple(sampled.token_ids)
    logprobs = tuple(step[token].logprob for step, token in zip(sampled.logprobs or (), tokens, strict=True))
    reason = FinishReason(sampled.finish_reason or "abort")
    return Completion(tokens=tokens, logprobs=logprobs, version=version, finish_reason=reason)


class VllmPolicy:
    """Must be used from one event loop."""

    def __init__(self, model: str, settings: VllmEngine, device: str = "cpu") -> None:
        """Raises EngineFailure where the engine does not start."""
        self._settings = settings
        self._ids = itertools.count()
        self._version = 0
        self._commands: queue.SimpleQueue[tuple[str, Callable[[str], Any]] | None] = queue.SimpleQueue()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._death: EngineFailure | None = None
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # it has precedence over the argument
        set_num_threads = torch.set_num_threads
        try:
            with _STEP:
                self._engine = LLMEngine.from_engine_args(engine_args(model, settings, device))
        except Exception as error:
            raise EngineFailure(f"vLLM cannot run {model}: {_in_words(error)}") from error
        finally:
            torch.set_num_threads = (
                set_num_threads  # on CPU vLLM disables it, for a learner of this process, too
            )
        self._thread = threading.Thread(target=self._serve, name=f"vllm-{model}", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        return self._version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        """Raises ValueError where prompt and completion do not fit max_model_len."""
        if len(prompt_tokens) >= self._settings.max_model_len:
            raise ValueError(
                f"prompt of {len(prompt_tokens)} tokens does not fit max_model_len {self._settings.max_model_len}"
            )
        version = self._version
        return completion_of(await self._final(list(prompt_tokens), sampling_params(sampling)), version)

    async def score(self, tokens: Sequence[int]) -> list[float]:
        """Log-probabilities of tokens[1:] given what precedes them."""
        params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False, temperature=0.0)
        output = await self._final(list(tokens), params)
        rows = (output.prompt_logprobs or [])[1:]
        return [row[token].logprob for row, token in zip(rows, tokens[1:], strict=True)]

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        """Replace the weights in place. Call it while no completion is wanted of the old ones: requests in
        flight are cancelled."""
        tensors, in_flight = tensors_of(update), dict(self._waiting)
        for answer in in_flight.values():
            answer.cancel()

        def reload(_: str) -> tuple[bool, bool]:
            self._engine.abort_request(list(in_flight))
            loaded = all(self._engine.collective_rpc("reload", args=(tensors,)))
            return loaded, self._engine.reset_prefix_cache()  # stale KV would be used otherwise

        loaded, emptied = await self._ask(reload)
        if not loaded:
            raise PublishError(
                f"version {update.version}: other weights were published, and the engine has the old ones"
            )
        if not emptied:
            raise EngineFailure("vLLM could not empty its prefix cache: a request was still in flight")
        self._version = update.version
        return await make_receipt(update, self.score)

    async def close(self) -> None:
        for answer in self._waiting.values():
            answer.cancel()
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)
        self._engine.engine_core.shutdown()

    async def _final(self, tokens: list[int], params: SamplingParams) -> Any:
        """vLLM's RequestOutput once the request is finished."""

        def add(name: str) -> None:
            self._engine.add_request(name, tokens_input(tokens), params)

        return await self._ask(add)

    # ------------------------------------------------------------------ between the loop and the engine's thread
    async def _ask(self, act: Callable[[str], Any]) -> Any:
        """What act(name) returns on the engine's thread, or where that is None, the output of the request that it made
        under this name. Raises what act raises, and EngineFailure; a request that nobody waits for any more is aborted."""
        if self._death is not None:
            raise self._death
        self._loop = asyncio.get_running_loop()
        name = str(next(self._ids))
        answer = self._waiting[name] = self._loop.create_future()
        self._commands.put((name, act))
        try:
            return await answer
        finally:
            del self._waiting[name]
            if answer.cancelled():
                self._commands.put((name, lambda name: self._engine.abort_request([name])))

    def _serve(self) -> None:
        """The engine's thread: act on commands, make a step while there are requests."""
        try:
            while self._obey():
                with _STEP:
                    outputs = self._engine.step()
                if finished := [(output.request_id, output) for output in outputs if output.finished]:
                    self._loop.call_soon_threadsafe(self._settle, finished)
        except Exception as error:
            log.exception("a vLLM engine ended")
            self._death = EngineFailure(f"vLLM ended: {_in_words(error)}")
            self._loop.call_soon_threadsafe(lambda: self._settle([(n, self._death) for n in self._waiting]))

    def _obey(self) -> bool:
        """All commands that are there; wait for one where there is nothing to generate. False to end."""
        while not self._commands.empty() or not self._engine.has_unfinished_requests():
            command = self._commands.get()
            if command is None:
                return False
            name, act = command
            try:
                result = act(name)
            except Exception as error:  # of this request alone
                result = error
            if result is not None:
                self._loop.call_soon_threadsafe(self._settle, [(name, result)])
        return True

    def _settle(self, results: Sequence[tuple[str, Any]]) -> None:
        """On the loop: give those who wait their results, or raise them."""
        for name, result in results:
            answer = self._waiting.get(name)
            if answer is None or answer.done():
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)


def _in_words(error: Exception) -> str:
    """On one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
