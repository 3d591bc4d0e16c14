"""vLLM's engine, run inside this process, for one policy or for several that are adapters beside one backbone.

The engine is stepped by a thread of its own. vLLM's asynchronous front end would run it in a second process instead
(on CPU with a third, unless told otherwise), each of which imports all of vLLM again: two engines then take a minute to
start, and their errors stay behind. Engines of one process take turns, step by step, for vLLM keeps the context of a
forward pass in a global; several actors use several cores. What that costs and gains: benchmarks/rollout.py.

With `sleep` it gives its GPU memory back when told to, and takes it again when it is needed: first for weights, when new
ones come, then for the cache, when there is something to generate.
"""

import asyncio
import ctypes
import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_args

import torch

os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")  # else it closes the log handlers of this process

from vllm import SamplingParams
from vllm.config.lora import MaxLoRARanks
from vllm.engine.arg_utils import EngineArgs
from vllm.inputs.engine import tokens_input
from vllm.lora.request import LoRARequest
from vllm.v1.engine.llm_engine import LLMEngine

from actors.settings import ADAPTERS, GPU_MEMORY_UTILIZATION, KV_CACHE_MB, MAX_NUM_SEQS, VllmEngine
from core.interfaces import EngineFailure

log = logging.getLogger(__name__)
_STEP = threading.Lock()
"""Held by the engine of this process that makes a step, or loads weights."""
_TRIES = 20
"""To sleep, within two seconds."""
_M_ARENA_MAX = -8
"""Of glibc's malloc.h."""


def engine_args(
    model: str, settings: VllmEngine, device: str, ranks: Sequence[int] = (), versions: int = ADAPTERS
) -> EngineArgs:
    """ranks: of the policies' adapters; versions: of each that there is room for. Raises EngineFailure for a rank that vLLM
    does not know."""
    common: dict[str, Any] = dict(  # noqa: C408 - reads as the keyword arguments it becomes
        model=model,
        dtype=settings.dtype or "float32",
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs or MAX_NUM_SEQS,
        disable_log_stats=True,
        use_tqdm_on_load=False,
        logprobs_mode="processed_logprobs",
        generation_config="vllm",  # the hub's generation_config.json would change the sampling distribution
        worker_extension_cls="actors.vllm_worker.Weights",
        tensor_parallel_size=settings.tensor_parallel,
        distributed_executor_backend="uni" if settings.tensor_parallel == 1 else "mp",
    )
    if ranks:
        slots = versions * len(ranks)
        common |= {
            "enable_lora": True,
            "max_loras": slots,
            "max_cpu_loras": slots,
            "max_lora_rank": _room(max(ranks)),
        }
    if device == "cuda":
        share = settings.gpu_memory_utilization or GPU_MEMORY_UTILIZATION
        given = settings.kv_cache_mb << 20 if settings.kv_cache_mb else None
        return EngineArgs(
            **common,
            gpu_memory_utilization=share,
            kv_cache_memory_bytes=given,
            enable_sleep_mode=bool(settings.sleep),
        )
    return EngineArgs(
        **common,
        enforce_eager=True,
        # vLLM's 128 here: prompts of a few hundred tokens would share little of a prefix, and each turn's extends the last
        block_size=32,
        kv_cache_memory_bytes=(settings.kv_cache_mb or KV_CACHE_MB) << 20,
        # a seeded request whose prompt is prefilled in chunks kills the CPU engine, so prefill whole
        enable_chunked_prefill=False,
        max_num_batched_tokens=max(65536, settings.max_model_len),
    )


def _room(rank: int) -> int:
    """The least that vLLM can be told which has room for it."""
    known = sorted(get_args(MaxLoRARanks))
    if rank > known[-1]:
        raise EngineFailure(f"vLLM has no adapters of rank {rank}, {known[-1]} is the most")
    return next(room for room in known if room >= rank)


class _Waiting(NamedTuple):
    answer: asyncio.Future[Any]
    adapter: int | None
    heard: Callable[[Sequence[int]], None] | None


class Engine:
    """Must be used from one event loop."""

    def __init__(
        self,
        model: str,
        settings: VllmEngine,
        device: str = "cpu",
        ranks: Sequence[int] = (),
        versions: int = ADAPTERS,
    ) -> None:
        """ranks: of the adapters, by policy; none: the model's own weights are what is trained; versions: of each adapter
        that there is room for.

        Raises EngineFailure where the engine does not start."""
        self.max_model_len = settings.max_model_len
        self._sleeps = bool(settings.sleep)
        self._asleep: set[str] = set()
        """What vLLM has given back, by its own names."""
        self._ids = itertools.count()
        self._adapters = itertools.count(1)
        self._commands: queue.SimpleQueue[tuple[str, Callable[[str], Any]] | None] = queue.SimpleQueue()
        self._waiting: dict[str, _Waiting] = {}
        self._death: EngineFailure | None = None
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # it has precedence over the argument
        if device == "cpu":
            # the heap of a further thread goes back to the kernel each time a tensor is freed: a fifth of a step is page faults
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
        set_num_threads = torch.set_num_threads
        try:
            with _STEP:
                self._llm = LLMEngine.from_engine_args(engine_args(model, settings, device, ranks, versions))
        except EngineFailure:
            raise
        except Exception as error:
            raise EngineFailure(f"vLLM cannot run {model}: {_in_words(error)}") from error
        finally:
            torch.set_num_threads = (
                set_num_threads  # on CPU vLLM disables it, for a learner of this process, too
            )
        self._llm.set_weight_version("0")
        # vLLM's CPU build gives who names no adapter another one's
        self.first_adapters = [self.next_adapter(0) for _ in ranks]
        """Of each policy; they change nothing."""
        for adapter in self.first_adapters:
            self.call("put_adapter", adapter.lora_int_id, {}, 1, 1)
        self._thread = threading.Thread(target=self._serve, name=f"vllm-{model}", daemon=True)
        self._thread.start()

    def next_adapter(self, version: int) -> LoRARequest:
        """One that is not loaded yet, with an id and a name of its own: cached prefixes go by the name."""
        number = next(self._adapters)
        return LoRARequest(f"adapter {number}, version {version}", number, "in memory")

    def call(self, method: str, *arguments: Any) -> bool:
        """On all of the engine's workers (actors/vllm_worker.py); on the engine's thread only. Other engines of this process
        make no step meanwhile: what loads weights uses vLLM's globals, too."""
        with _STEP:
            return all(self._llm.collective_rpc(method, args=arguments))

    async def sleep(self) -> None:
        """Give back the GPU's memory until it is needed again. Who waits for a completion waits no more."""
        if not self._sleeps:
            return
        abort = self.cancel()

        def rest(_: str) -> bool:
            abort()
            if not self._asleep:
                self._lie_down()
                self._asleep = {"weights", "kv_cache"}
            return True

        await self.ask(rest)

    def _lie_down(self) -> None:
        """Weights are kept on the host, the cache is not."""
        for _ in range(_TRIES):
            try:
                return self._llm.sleep(level=1)
            except Exception as error:  # AssertionError; from a worker's process RuntimeError
                if "Memory usage increased" not in str(error):
                    raise
                # others took memory of this GPU meanwhile, and vLLM believes that it did itself
                time.sleep(0.1)
        raise EngineFailure(
            "vLLM could not sleep: others of this GPU took more memory than it gave back, each time"
        )

    def wake(self, *wanted: str) -> None:
        """On the engine's thread. wanted: "weights", "kv_cache". Raises EngineFailure where others have the memory."""
        if tags := sorted(self._asleep & set(wanted)):
            try:
                self._llm.wake_up(tags)
            except Exception as error:
                raise EngineFailure(
                    f"vLLM could not wake up, is its part of the GPU's memory taken? {_in_words(error)}"
                ) from error
            self._asleep -= set(tags)

    async def complete(
        self,
        tokens: Sequence[int],
        params: SamplingParams,
        adapter: LoRARequest | None = None,
        heard: Callable[[Sequence[int]], None] | None = None,
    ) -> Any:
        """Return vLLM's RequestOutput once the request is finished.

        heard: is told all tokens so far after each of the engine's steps, if params ask for them.
        """

        def add(name: str) -> None:
            self.wake("weights", "kv_cache")
            self._llm.add_request(name, tokens_input(list(tokens)), params, lora_request=adapter)

        return await self.ask(add, adapter.lora_int_id if adapter else None, heard)

    def serves(self, adapter: LoRARequest) -> bool:
        """Whether somebody waits for a completion by it."""
        return any(waiting.adapter == adapter.lora_int_id for waiting in self._waiting.values())

    def cancel(self, adapter: LoRARequest | None = None) -> Callable[[], None]:
        """Who waits for completions by this adapter waits no more, or without one, whoever waits. Returns what the engine's
        thread must do for it."""
        names = [n for n, w in self._waiting.items() if adapter is None or w.adapter == adapter.lora_int_id]
        for name in names:
            self._waiting[name].answer.cancel()
        return lambda: self._llm.abort_request(names)

    def renew(self, version: int) -> None:
        """On the engine's thread, after new weights: keys and values of the old ones are forgotten, of requests in flight,
        too, and what is sampled from now on is of this version."""
        self._llm.reset_prefix_cache(reset_running_requests=True)
        self._llm.set_weight_version(str(version))

    async def close(self) -> None:
        """Also a second time."""
        for waiting in self._waiting.values():
            waiting.answer.cancel()
        if self._thread.is_alive():
            self._commands.put(None)
            await asyncio.to_thread(self._thread.join)
        self._llm.engine_core.shutdown()

    # ------------------------------------------------------------------ between the loop and the engine's thread
    async def ask(
        self,
        act: Callable[[str], Any],
        adapter: int | None = None,
        heard: Callable[[Sequence[int]], None] | None = None,
    ) -> Any:
        """What act(name) returns on the engine's thread, or where that is None, the output of the request that it made
        under this name. Raises what act raises, and EngineFailure; a request that nobody waits for any more is aborted."""
        if self._death is not None:
            raise self._death
        self._loop = asyncio.get_running_loop()
        name = str(next(self._ids))
        answer = self._loop.create_future()
        self._waiting[name] = _Waiting(answer, adapter, heard)
        self._commands.put((name, act))
        try:
            return await answer
        finally:
            del self._waiting[name]
            if answer.cancelled():
                self.tell(lambda: self._llm.abort_request([name]))

    def tell(self, act: Callable[[], Any]) -> None:
        """To be done on the engine's thread when it comes to it; nobody waits."""
        self._commands.put(("", lambda _: act()))

    def _serve(self) -> None:
        """The engine's thread: act on commands, make a step while there are requests."""
        try:
            while self._obey():
                with _STEP:
                    outputs = self._llm.step()
                if outputs:
                    self._loop.call_soon_threadsafe(self._settle, [(o.request_id, o) for o in outputs])
        except Exception as error:
            log.exception("a vLLM engine ended")
            self._death = EngineFailure(f"vLLM ended: {_in_words(error)}")
            self._loop.call_soon_threadsafe(lambda: self._settle([(n, self._death) for n in self._waiting]))

    def _obey(self) -> bool:
        """All commands that are there; wait for one where there is nothing to generate. False to end."""
        while not self._commands.empty() or not self._llm.has_unfinished_requests():
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
        """On the loop: give those who wait their results, or what there is of them, or raise errors."""
        for name, result in results:
            waiting = self._waiting.get(name)
            if waiting is None or waiting.answer.done():
                continue
            if isinstance(result, Exception):
                waiting.answer.set_exception(result)
                continue
            if waiting.heard is not None:
                waiting.heard(result.outputs[0].token_ids)
            if getattr(result, "finished", True):
                waiting.answer.set_result(result)


def _in_words(error: Exception) -> str:
    """On one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
