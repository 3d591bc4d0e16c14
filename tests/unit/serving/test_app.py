import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from cachetools import LRUCache
from fastapi import FastAPI, Request

from sparring.cli.serve import _options
from sparring.core.interfaces import EngineFailure
from sparring.core.project_files import EXAMPLES
from sparring.runtime.hardware import Hardware
from sparring.runtime.model import Model
from sparring.serving import app as serving_app
from sparring.serving.app import asked_tokens, build_app
from sparring.serving.cache import CachedAnswer
from sparring.serving.engine import EngineOptions
from sparring.web.service import guarded

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.mark.parametrize(
    ("path", "asked", "tokens"),
    [
        (COMPLETIONS, {"prompt": "p"}, 16),
        (COMPLETIONS, {"prompt": "p", "max_tokens": None, "n": None}, 16),
        (COMPLETIONS, {"prompt": "p", "max_tokens": 0}, 0),
        (COMPLETIONS, {"prompt": "p", "max_tokens": 5}, 5),
        (COMPLETIONS, {"prompt": ["p", "q"], "max_tokens": 5, "n": 3}, 30),
        (COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 5}, 5),
        (COMPLETIONS, {"prompt": [[1, 2], [3]], "max_tokens": 5}, 10),
        (COMPLETIONS, {"prompt": "p", "max_completion_tokens": 1, "max_tokens": 100, "n": 100}, 10_000),
        (CHAT, {"messages": []}, 100),
        (CHAT, {"messages": [], "max_tokens": 7}, 7),
        (CHAT, {"messages": [], "max_tokens": 7, "max_completion_tokens": 9}, 9),
        (CHAT, {"messages": [], "max_tokens": 7, "max_completion_tokens": 0}, 0),
        (CHAT, {"messages": [], "prompt": "x", "n": 256}, 25_600),
    ],
)
def test_the_tokens_of_a_request_are_those_that_vllm_would_give(path: str, asked: dict, tokens: int) -> None:
    assert asked_tokens(path, asked, limit=100) == tokens


@pytest.mark.parametrize("number", ["4096", 4096.0, -1, True, [2], {}])
@pytest.mark.parametrize("name", ["max_tokens", "n"])
def test_what_is_no_whole_number_of_tokens_is_refused(name: str, number: Any) -> None:
    for path in (CHAT, COMPLETIONS):
        with pytest.raises(ValueError, match=f"{name}: a whole number"):
            asked_tokens(path, {name: number}, limit=100)
    with pytest.raises(ValueError, match="n: a whole number, 1 or more, not 0"):
        asked_tokens(CHAT, {"n": 0}, limit=100)


@dataclass
class Echo:
    """Instead of a model: says what it was asked."""

    app: FastAPI
    dead: bool = False
    cache: LRUCache[str, CachedAnswer] = field(default_factory=lambda: LRUCache(1 << 20, getsizeof=len))

    async def close(self) -> None: ...


async def start_echo(name: str, *_: object) -> Echo:
    if name == "broken":
        raise EngineFailure("vLLM cannot run it")
    app = FastAPI()

    @app.post("/v1/{rest:path}")
    async def said(request: Request, rest: str) -> dict[str, str]:
        return {"rest": rest, "body": (await request.body()).decode()}

    return Echo(app)


@contextlib.asynccontextmanager
async def client(**changed: Any) -> AsyncIterator[httpx.AsyncClient]:
    models = [f"--model={name}={EXAMPLES / 'toy/generator'}" for name in ("echo", "broken")]
    options = _options([*models, "--max-tokens=100", "--sandbox=none", "--device=cpu"])
    vars(options).update(changed)
    app = guarded(build_app(options), options)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
    async with app.router.lifespan_context(app), client as http:
        yield http


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_app, "start_engine", start_echo)


@pytest.mark.asyncio
async def test_a_request_reaches_its_model_as_sent_and_an_equal_one_is_answered_from_the_cache() -> None:
    asked = {"model": "echo", "prompt": "é", "temperature": 0}
    paths = ("completions", "completions", "chat/completions")
    async with client() as http:
        answers = [await http.post(f"/v1/{path}", json=asked) for path in paths]
    assert [a.headers["x-cache"] for a in answers] == ["miss", "hit", "miss"]
    assert answers[0].json() == answers[1].json()
    assert answers[2].json()["rest"] == "chat/completions"
    assert answers[0].json()["body"].encode() == answers[0].request.content


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b'{"model": ', 400, "the body is not JSON"),
        (b"\xff\xfe", 400, "the body is not JSON"),
        (b'{"model":' + b"[" * 100_000, 400, "the body is not JSON"),
        (b"null", 400, "not a JSON object"),
        (b'["model"]', 400, "not a JSON object"),
        (b"{}", 404, "there is no model None; these are served: echo, broken"),
        (b'{"model": ["echo"]}', 404, "there is no model"),
        (b'{"model": "echo", "prompt": "p", "max_tokens": "5"}', 400, "max_tokens: a whole number"),
        (b'{"model": "echo", "prompt": "p", "max_tokens": 101}', 400, "one request may have 100"),
        (b'{"model": "broken", "prompt": "p"}', 503, "vLLM cannot run it"),
    ],
)
async def test_what_cannot_be_answered_is_said_as_openai_says_it(
    content: bytes, status: int, said: str
) -> None:
    async with client() as http:
        for path in (COMPLETIONS, CHAT):
            answer = await http.post(path, content=content)
            assert answer.status_code == status and said in answer.json()["error"]["message"], answer.text


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("asked", "capability", "dtype"),
    [
        ({"device": "cpu"}, (9, 0), "float32"),
        ({"device": "cuda"}, (9, 0), "bfloat16"),
        ({"device": "cuda"}, (7, 5), "float16"),
        ({"device": "cuda", "dtype": "float32"}, (9, 0), "float32"),
    ],
)
async def test_an_engine_gets_the_dtype_that_its_device_has_and_its_part_of_the_memory(
    asked: dict[str, Any], capability: tuple[int, int], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[EngineOptions] = []

    async def start(name: str, model: Model, options: EngineOptions) -> Echo:
        started.append(options)
        return await start_echo(name)

    of_gpu = {"gpus": 1, "gpu": "a GPU", "gpu_memory_gib": 80, "capability": capability}
    gpu = Hardware(**of_gpu, cpu_cores=8, memory_gib=64, offline=True)
    monkeypatch.setattr(serving_app, "start_engine", start)
    monkeypatch.setattr("sparring.runtime.hardware.detect", lambda: gpu)
    toy = EXAMPLES / "toy/generator"
    for names, share in ((["echo"], 0.9), (["echo", "m1", "m2", "m3"], 0.45)):
        async with client(model=[f"{name}={toy}" for name in names], max_models=2, **asked) as http:
            await http.post(COMPLETIONS, json={"model": "echo", "prompt": "p"})
        assert (started[-1].dtype, started[-1].gpu_memory_utilization) == (dtype, share)


@pytest.mark.asyncio
async def test_the_list_of_models_says_what_is_loaded() -> None:
    async with client() as http:
        await http.post("/v1/completions", json={"model": "echo", "prompt": "p"})
        await http.post("/v1/completions", json={"model": "broken", "prompt": "p"})
        cards = (await http.get("/v1/models")).json()["data"]
        assert [(card["id"], card["loaded"]) for card in cards] == [("echo", True), ("broken", False)]
        assert cards[0]["max_model_len"] == 512


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"model": "gpt"}, 404, "there is no model 'gpt'"),
        ({"problem": ""}, 400, "problem: String should have at least 1 character"),
        ({"colour": 1}, 400, "colour: Extra inputs are not permitted"),
        ({"tests": ["assert f(1)"]}, 400, "this service runs no programs (--sandbox none)"),
        ({"attempts": 2}, 400, "attempts: only a failed test gives reason"),
        ({"problem": "long " * 2000}, 400, "shorten it"),
        ({"problem": "x" * 60_000, "tests": ["x" * 60_000]}, 400, "120000 characters; 100000 may be sent"),
        ({"max_tokens": 50}, 400, "this may take 250 tokens; one request may have 100"),
    ],
)
async def test_a_problem_that_cannot_be_solved_here_is_refused(change: dict, status: int, said: str) -> None:
    asked = {"model": "echo", "problem": "Return n.", "max_tokens": 5} | change
    async with client() as http:
        answer = await http.post("/v1/solve", json=asked)
    assert answer.status_code == status and said in answer.json()["error"]["message"], answer.text
