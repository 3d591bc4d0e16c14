"""A loaded model: vLLM's engine in a separate process, vLLM's OpenAI app in this process, and the cache of its answers.

vLLM defines, validates and answers OpenAI requests. Only the two of vLLM's routes that are served are attached: there are
no routes for sleep, for loading adapters, or for the tokenizer.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cachetools import LRUCache
from fastapi import FastAPI

from actors.settings import VllmEngineSettings
from sparring.core.interfaces import EngineFailure
from sparring.games.prompts import served_template
from sparring.runtime.build import whole_model
from sparring.runtime.model import Model
from sparring.serving.cache import CachedAnswer

os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")  # else it closes the log handlers of this process
_AT_ONCE = 128
"""Number of sequences that an engine decodes at once; further ones wait in the engine's queue."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options that all served models share."""

    device: str
    dtype: str | None
    max_tokens: int
    """Maximum number of tokens of one completion, whatever a request asks for."""
    kv_cache_mb: int
    """Size of the KV cache in MiB. Has an effect on a CPU only."""
    gpu_memory_utilization: float
    cache_mb: float


@dataclass(kw_only=True)
class ServedModel:
    client: Any
    app: FastAPI
    cache: "LRUCache[str, CachedAnswer]"

    @property
    def dead(self) -> bool:
        return self.client.errored

    async def close(self) -> None:
        await asyncio.to_thread(self.client.shutdown)


async def start_engine(name: str, model: Model, options: EngineOptions) -> ServedModel:
    """Loads a model in a thread, which takes some seconds. Raises EngineFailure if vLLM cannot serve the model."""
    client, app, frontend = await asyncio.to_thread(_open, name, model, options)
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state

    try:
        await init_app_state(client, app.state, frontend, await client.get_supported_tasks())
    except BaseException as error:
        await asyncio.to_thread(client.shutdown)  # else the engine's process would keep running
        if isinstance(error, Exception):
            raise EngineFailure(f"vLLM cannot serve {model.path}: {' '.join(str(error).split())}") from error
        raise
    cache: LRUCache[str, CachedAnswer] = LRUCache(int(options.cache_mb * (1 << 20)), getsizeof=len)
    return ServedModel(client=client, app=app, cache=cache)


def _open(name: str, model: Model, options: EngineOptions) -> tuple[Any, FastAPI, Any]:
    """Returns vLLM's engine, its app (still without state), and its front end's settings. Raises EngineFailure."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.entrypoints.openai.chat_completion.api_router import attach_router as add_chat
    from vllm.entrypoints.openai.completion.api_router import attach_router as add_completions
    from vllm.entrypoints.serve.exception_handling.register import init_exception_handler
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.async_llm import AsyncLLM

    from actors.vllm_engine import engine_args

    settings = VllmEngineSettings(
        dtype=options.dtype,  # pyright: ignore[reportArgumentType]
        max_model_len=model.context or 0,
        max_num_seqs=_AT_ONCE,
        kv_cache_mb=options.kv_cache_mb if options.device == "cpu" else None,  # a GPU has its share
        gpu_memory_utilization=options.gpu_memory_utilization,
    )
    frontend: Any = make_arg_parser(FlexibleArgumentParser()).parse_args([])
    frontend.model, frontend.served_model_name = model.path, [name]
    frontend.chat_template = served_template(model.tokenizer, Path(model.path).name, model.knows_stages)
    frontend.disable_log_stats = True
    app = FastAPI(openapi_url=None)
    add_chat(app)
    add_completions(app)
    init_exception_handler(app)
    # vLLM would stop this server when an engine dies; the service starts a new engine instead
    app.state.server = SimpleNamespace()
    try:
        with whole_model(model.path, options.dtype) as place:
            args = AsyncEngineArgs(**vars(engine_args(place, settings, options.device)))
            args.override_generation_config = {"max_new_tokens": options.max_tokens}
            args.logprobs_mode = "raw_logprobs"  # the ones that OpenAI's clients expect
            return AsyncLLM.from_engine_args(args), app, frontend
    except Exception as error:
        raise EngineFailure(f"vLLM cannot run {model.path}: {' '.join(str(error).split())}") from error
