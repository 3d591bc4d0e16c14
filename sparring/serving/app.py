"""The service: `/v1/models`, `/v1/completions`, `/v1/chat/completions`, `/v1/solve`. sparring/web/guard.py controls access."""

import argparse
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route

from sandbox_workers.local import LocalSandbox
from sparring.core.errors import SparringError
from sparring.runtime.hardware import of_engine
from sparring.runtime.model import Model
from sparring.serving.cache import answer_from, cache_key
from sparring.serving.engine import EngineOptions, ServedModel, start_engine
from sparring.serving.model_cache import ModelCache
from sparring.serving.models import open_models, with_context
from sparring.serving.solve import LIMITS, Solving, unknown_model
from sparring.web.guard import Receive, Send, again, error_answer

_INVALID = "invalid_request_error"
_COMPLETION_TOKENS = 16
"""Default of max_tokens in `/v1/completions`, as in OpenAI's API."""
_VERDICTS = 1024
"""Number of verdicts that the sandbox caches. It is low, since a verdict may hold what a client's program printed."""


class OpenAI:
    """An ASGI app that forwards requests to vLLM's OpenAI app. It only reads which model a request is for, how many tokens
    the answer may have, and whether the answer can be cached."""

    def __init__(
        self, models: Mapping[str, Model], model_cache: ModelCache[ServedModel], max_tokens: int
    ) -> None:
        self._models, self._model_cache, self._max_tokens = models, model_cache, max_tokens

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        try:
            asked = json.loads(body)
            refused = self._refusal(scope["path"], asked)
            key = None if refused else cache_key(scope["path"], asked)
        except (ValueError, RecursionError) as error:
            refused = error_answer(400, f"the body is not JSON: {error}", _INVALID)
        if refused:
            return await refused(scope, receive, send)
        try:
            async with self._model_cache.use(asked["model"]) as engine:
                await answer_from(engine.cache, key, engine.app, scope, again(body, receive), send)
        except SparringError as error:
            await error_answer(503, str(error), "model_not_loaded")(scope, receive, send)

    def _refusal(self, path: str, asked: Any) -> Any:
        """Returns an error response if the request must be refused, else None."""
        if not isinstance(asked, dict):
            return error_answer(400, "the body is not a JSON object", _INVALID)
        if not isinstance(name := asked.get("model"), str) or name not in self._models:
            return unknown_model(name, self._models)
        try:
            tokens = asked_tokens(path, asked, self._max_tokens)
        except ValueError as error:
            return error_answer(400, str(error), _INVALID)
        if tokens > self._max_tokens:
            said = (
                f"this asks for up to {tokens} tokens; one request may have {self._max_tokens}, all answers together: give "
                "max_tokens, for each answer"
            )
            return error_answer(400, said, _INVALID)
        return None


def asked_tokens(path: str, asked: Mapping[str, Any], limit: int) -> int:
    """Returns the maximum number of tokens of the answer, all completions together, from the fields that vLLM reads at this
    path.

    Raises ValueError if a field is not an integer or is too small: vLLM would accept "4096" and 4096.0 as 4096.
    """
    chat = path.endswith("/chat/completions")
    names = ("max_completion_tokens", "max_tokens") if chat else ("max_tokens",)
    said = {name: asked[name] for name in (*names, "n") if asked.get(name) is not None}
    for name, value in said.items():
        least = int(name == "n")
        if type(value) is not int or value < least:
            raise ValueError(f"{name}: a whole number, {least} or more, not {value!r:.40}")
    prompt = None if chat else asked.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and not all(isinstance(p, int) for p in prompt) else 1
    unsaid = limit if chat else min(limit, _COMPLETION_TOKENS)
    each = next((said[name] for name in names if name in said), unsaid)
    return each * said.get("n", 1) * prompts


def build_app(options: argparse.Namespace) -> FastAPI:
    """Builds the service. options: the options of sparring serve, which has validated them."""
    dtype = of_engine(options.device, options.dtype)["dtype"]
    cache_mb = options.kv_cache_mb if options.device == "cpu" else None  # on a GPU the utilization decides
    models = with_context(open_models(options.model, "--model"), options.max_model_len, dtype, cache_mb)
    engines = EngineOptions(
        device=options.device,
        dtype=dtype,
        max_tokens=options.max_tokens,
        kv_cache_mb=options.kv_cache_mb,
        gpu_memory_utilization=0.9 / min(options.max_models, len(models)),
        cache_mb=options.cache_mb,
    )
    model_cache = ModelCache(
        lambda name: start_engine(name, models[name], engines),
        at_once=options.max_models,
        idle_s=options.idle_s,
    )

    sandbox = None
    if options.sandbox != "none":
        sandbox = LocalSandbox(options.sandbox, slots=options.slots, limits=LIMITS, cache_size=_VERDICTS)
    solving = Solving(
        models=models,
        model_cache=model_cache,
        sandbox=sandbox,
        max_tokens=options.max_tokens,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with sandbox or contextlib.nullcontext():
            async with model_cache:
                yield

    app = FastAPI(lifespan=lifespan, openapi_url=None)
    openai = OpenAI(models, model_cache, options.max_tokens)
    for path in ("/v1/completions", "/v1/chat/completions"):
        app.router.routes.append(Route(path, openai, methods=["POST"]))
    app.post("/v1/solve", response_model=None)(solving.answer)

    @app.get("/v1/models")
    def served() -> dict[str, Any]:
        return {
            "object": "list",
            "data": [_card(name, model, name in model_cache) for name, model in models.items()],
        }

    return app


def _card(name: str, model: Model, loaded: bool) -> dict[str, Any]:
    made = int(Path(model.path).stat().st_mtime) if Path(model.path).is_dir() else 0
    card = {"id": name, "object": "model", "created": made, "owned_by": "sparring"}
    return card | {"root": model.path, "max_model_len": model.context, "loaded": loaded}
