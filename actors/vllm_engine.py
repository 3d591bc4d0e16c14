"""vLLM's engine inside this process, for one policy or for several policies that are adapters of one backbone.

A separate thread runs the engine's steps. vLLM's asynchronous front end would run the engine in a second process instead (on
a CPU by default with a third), each of which imports all of vLLM again: two engines would take a minute to start, and
their errors would not reach this process. The engines of one process take turns, step by step, since vLLM keeps the
context of a forward pass in a global variable; several actors use several cores. benchmarks/rollout.py measures the
costs and gains.

If `sleep` is set, `VllmEngine.sleep` gives the GPU memory back. The engine takes it again when it is needed: first for the
weights, when new ones are published, then for the cache, when there is something to generate.
"""

import asyncio
import ctypes
import itertools
import logging
import os
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from safetensors.torch import save_file

os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")  # else it closes the log handlers of this process

from vllm import SamplingParams
from vllm.config.lora import MaxLoRARanks
from vllm.engine.arg_utils import EngineArgs
from vllm.inputs.engine import tokens_input
from vllm.lora.request import LoRARequest
from vllm.v1.engine.llm_engine import LLMEngine

from actors.settings import ADAPTERS, GPU_MEMORY_UTILIZATION, KV_CACHE_MB, MAX_NUM_SEQS, VllmEngineSettings
from sparring.core.interfaces import EngineFailure

log = logging.getLogger(__name__)
_STEP = threading.Lock()
"""Lock that an engine of this process holds while it makes a step or loads weights."""
_TRIES = 20
"""Number of attempts to put vLLM to sleep, within two seconds."""
_SHARED, _ROOM_LEFT = Path("/dev/shm"), 64 << 20
"""A file system in memory, and the bytes of it that are left to others."""
_M_ARENA_MAX = -8
"""The constant M_ARENA_MAX of glibc's malloc.h."""


def engine_args(
    model: str, settings: VllmEngineSettings, device: str, ranks: Sequence[int] = (), versions: int = ADAPTERS
) -> EngineArgs:
    """Returns vLLM's arguments for an engine.

    Args:
        ranks: ranks of the policies' adapters.
        versions: number of versions of each adapter that the engine can hold.

    Raises:
        EngineFailure: if vLLM does not support a rank.
    """
    common: dict[str, Any] = dict(  # noqa: C408 - reads as the keyword arguments it becomes
        model=model,
        dtype=settings.dtype or "float32",
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs or MAX_NUM_SEQS,
        disable_log_stats=True,
        use_tqdm_on_load=False,
        logprobs_mode="processed_logprobs",
        generation_config="vllm",  # the hub's generation_config.json would change the sampling distribution
        worker_extension_cls="actors.vllm_worker.WeightLoader",
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
        common |= {
            "gpu_memory_utilization": share,
            "kv_cache_memory_bytes": given,
            "enable_sleep_mode": bool(settings.sleep),
        }
    else:
        common |= {
            "enforce_eager": True,
            # with vLLM's default of 128, prompts of a few hundred tokens would share little of their prefix, though each
            # turn's prompt extends the last
            "block_size": 32,
            "kv_cache_memory_bytes": (settings.kv_cache_mb or KV_CACHE_MB) << 20,
            # a seeded request whose prompt is prefilled in chunks kills the CPU engine, so prefill whole
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(65536, settings.max_model_len),
        }
    return EngineArgs(**common | settings.extra)


def _room(rank: int) -> int:
    """Returns the smallest maximum rank that vLLM supports and that is at least this rank."""
    known = sorted(get_args(MaxLoRARanks))
    if rank > known[-1]:
        raise EngineFailure(f"vLLM has no adapters of rank {rank}, {known[-1]} is the most")
    return next(room for room in known if room >= rank)


class _Waiting(NamedTuple):
    answer: asyncio.Future[Any]
    adapter: int | None
    on_tokens: Callable[[Sequence[int]], None] | None


class _Partial(NamedTuple):
    """The tokens of an unfinished request."""

    tokens: Sequence[int]


def _tokens_so_far(output: Any) -> _Partial:
    return _Partial(tuple(output.outputs[0].token_ids))


class VllmEngine:
    """A vLLM engine with its thread. All async methods must be called from the same event loop."""

    def __init__(
        self,
        model: str,
        settings: VllmEngineSettings,
        device: str = "cpu",
        ranks: Sequence[int] = (),
        versions: int = ADAPTERS,
    ) -> None:
        """Starts the engine.

        Args:
            ranks: rank of each policy's adapter. Default: no adapters; the model's own weights are trained.
            versions: number of versions of each adapter that the engine can hold.

        Raises:
            EngineFailure: if the engine does not start.
        """
        self.max_model_len = settings.max_model_len
        self._sleeps = bool(settings.sleep)
        self._in_processes = settings.tensor_parallel > 1
        """Whether vLLM's workers are processes of their own."""
        self._asleep: set[str] = set()
        """The kinds of memory that vLLM has given back, by vLLM's names."""
        self._ids = itertools.count()
        self._adapters = itertools.count(1)
        self._commands: queue.SimpleQueue[tuple[str, Callable[[str], Any]] | None] = queue.SimpleQueue()
        self._waiting: dict[str, _Waiting] = {}
        self._death: EngineFailure | None = None
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # it has precedence over the argument
        if device == "cpu":
            # with one heap per thread, this thread's goes back to the kernel each time a tensor is freed, and page faults
            # take a fifth of a step
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
                set_num_threads  # on CPU vLLM disables it, also for a learner in this process
            )
        self._llm.set_weight_version("0")
        # in vLLM's CPU build a request without an adapter gets the adapter of another request
        self.first_adapters = [self.next_adapter(0) for _ in ranks]
        """One adapter per policy, which changes nothing."""
        for adapter in self.first_adapters:
            self.call("put_adapter", adapter.lora_int_id, {}, 1, 1)
        self._thread = threading.Thread(target=self._serve, name=f"vllm-{model}", daemon=True)
        self._thread.start()

    def next_adapter(self, version: int) -> LoRARequest:
        """Returns a handle for an adapter that is still to be loaded. Its id and name are unique: vLLM looks cached prefixes
        up by the name."""
        number = next(self._adapters)
        return LoRARequest(f"adapter {number}, version {version}", number, "in memory")

    def call(self, method: str, *arguments: Any) -> bool:
        """Calls a method of all workers of the engine (actors/vllm_worker.py), and returns whether all results are true.
        Must be called on the engine's thread. Other engines of this process make no step meanwhile, since loading weights
        uses vLLM's global variables, too."""
        with _STEP:
            return all(self._llm.collective_rpc(method, args=arguments))

    def reload(self, tensors: Mapping[str, torch.Tensor], digest: int) -> bool:
        """Loads tensors in all workers (vllm_worker.WeightLoader.reload). Must be called on the engine's thread."""
        if not self._in_processes:
            return self.call("reload", tensors, digest)
        # vLLM would send all bytes to each worker through a socket; a file in shared memory is mapped by all of them
        size = sum(tensor.nbytes for tensor in tensors.values())
        shared = _SHARED if _SHARED.is_dir() and shutil.disk_usage(_SHARED).free > size + _ROOM_LEFT else None
        with tempfile.TemporaryDirectory(prefix="sparring-weights-", dir=shared) as directory:
            file = f"{directory}/weights.safetensors"
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
            return self.call("reload", file, digest)

    async def sleep(self) -> None:
        """Gives the GPU memory back until it is needed again. Requests in flight are cancelled."""
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
        """Has vLLM move the weights to host memory and drop the cache."""
        for _ in range(_TRIES):
            try:
                return self._llm.sleep(level=1)
            except Exception as error:  # AssertionError; from a worker's process RuntimeError
                if "Memory usage increased" not in str(error):
                    raise
                # other processes took memory of this GPU meanwhile, and vLLM counts it as its own
                time.sleep(0.1)
        raise EngineFailure(
            "vLLM could not sleep: others of this GPU took more memory than it gave back, each time"
        )

    def wake(self, *wanted: str) -> None:
        """Takes GPU memory again. Must be called on the engine's thread. wanted: "weights", "kv_cache". Raises EngineFailure
        if other processes use the memory."""
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
        on_tokens: Callable[[Sequence[int]], None] | None = None,
    ) -> Any:
        """Returns vLLM's RequestOutput once the request is finished.

        Args:
            on_tokens: is called with all tokens so far after each step of the engine, if `params` requests them.
        """

        def add(name: str) -> None:
            self.wake("weights", "kv_cache")
            self._llm.add_request(name, tokens_input(list(tokens)), params, lora_request=adapter)

        return await self.ask(add, adapter.lora_int_id if adapter else None, on_tokens)

    def serves(self, adapter: LoRARequest) -> bool:
        """Whether any request with this adapter is in flight."""
        return any(waiting.adapter == adapter.lora_int_id for waiting in self._waiting.values())

    def cancel(self, adapter: LoRARequest | None = None) -> Callable[[], None]:
        """Cancels all requests with this adapter, or all requests if no adapter is given. Returns a function that aborts
        them in vLLM, which must be called on the engine's thread."""
        names = [n for n, w in self._waiting.items() if adapter is None or w.adapter == adapter.lora_int_id]
        for name in names:
            self._waiting[name].answer.cancel()
        return lambda: self._llm.abort_request(names)

    def renew(self, version: int) -> None:
        """Drops all cached keys and values, also those of requests in flight, and sets the version of all tokens that are
        sampled from now on. Must be called on the engine's thread after new weights have been loaded."""
        self._llm.reset_prefix_cache(reset_running_requests=True)
        self._llm.set_weight_version(str(version))

    async def close(self) -> None:
        """Cancels all requests and ends the engine. Can be called repeatedly."""
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
        on_tokens: Callable[[Sequence[int]], None] | None = None,
    ) -> Any:
        """Runs act(name) on the engine's thread and returns its result; if that is None, waits for the request that `act`
        added under this name and returns its output. If the caller is cancelled, the request is aborted.

        Raises:
            EngineFailure: if the engine has ended.
            Exception: whatever `act` raises.
        """
        if self._death is not None:
            raise self._death
        self._loop = asyncio.get_running_loop()
        name = str(next(self._ids))
        answer = self._loop.create_future()
        self._waiting[name] = _Waiting(answer, adapter, on_tokens)
        self._commands.put((name, act))
        try:
            return await answer
        finally:
            del self._waiting[name]
            if answer.cancelled():
                self.tell(lambda: self._llm.abort_request([name]))

    def tell(self, act: Callable[[], Any]) -> None:
        """Runs `act` on the engine's thread, without waiting for it."""
        self._commands.put(("", lambda _: act()))

    def _serve(self) -> None:
        """Runs on the engine's thread: executes commands, and makes steps while there are unfinished requests."""
        try:
            while self._obey():
                with _STEP:
                    outputs = self._llm.step()
                if outputs:  # vLLM goes on writing to the tokens of an unfinished one
                    found = [(o.request_id, o if o.finished else _tokens_so_far(o)) for o in outputs]
                    self._loop.call_soon_threadsafe(self._settle, found)
        except Exception as error:
            log.exception("a vLLM engine ended")
            self._death = EngineFailure(f"vLLM ended: {_in_words(error)}")
            self._loop.call_soon_threadsafe(lambda: self._settle([(n, self._death) for n in self._waiting]))

    def _obey(self) -> bool:
        """Executes all queued commands; waits for one if there is nothing to generate. Returns False if the thread is to
        end."""
        while not self._commands.empty() or not self._llm.has_unfinished_requests():
            command = self._commands.get()
            if command is None:
                return False
            name, act = command
            try:
                result = act(name)
            except Exception as error:  # it concerns this command alone
                result = error
            if result is not None:
                self._loop.call_soon_threadsafe(self._settle, [(name, result)])
        return True

    def _settle(self, results: Sequence[tuple[str, Any]]) -> None:
        """Runs on the event loop: sets the results or errors of finished requests, and passes partial outputs to `on_tokens`."""
        for name, result in results:
            waiting = self._waiting.get(name)
            if waiting is None or waiting.answer.done():
                continue
            if isinstance(result, Exception):
                waiting.answer.set_exception(result)
                continue
            finished = not isinstance(result, _Partial)
            if waiting.on_tokens is not None:
                waiting.on_tokens(result.outputs[0].token_ids if finished else result.tokens)
            if finished:
                waiting.answer.set_result(result)


def _in_words(error: Exception) -> str:
    """Returns the error's type and message on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
