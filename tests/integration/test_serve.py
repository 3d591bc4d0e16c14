"""One server with the shipped models and a LoRA checkpoint, and real clients: `openai`, and httpx for what it cannot send."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import openai
import psutil
import pytest
import torch
import yaml
from fastapi import FastAPI

from lab.problems import toy_problems
from learners.learner import Learner
from learners.settings import LearnerSettings
from learners.state import save_learner
from sparring.core.interfaces import EngineFailure, Sampling
from sparring.core.project_files import EXAMPLES
from sparring.serving import engine as serving_engine
from sparring.serving.model_cache import ModelCache
from sparring.serving.solve import CachedModelPolicy, PromptRefused
from sparring.web.keys import add
from tests.integration.conftest import ROOT, eventually

pytestmark = [pytest.mark.slow, pytest.mark.vllm]
PROMPT = "<p>Return n doubled.<s1>"
PER_MINUTE = 80


@dataclass
class Served:
    url: str
    keys: dict[str, str]
    audit_log: Path
    process: subprocess.Popen[bytes]

    def openai(self, key: str = "alice") -> openai.OpenAI:
        return openai.OpenAI(
            base_url=self.url + "/v1", api_key=self.keys.get(key, key), max_retries=0, timeout=240
        )

    def post(self, path: str, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys['alice']}", "content-type": "application/json"}
        return httpx.post(self.url + path, headers=headers, timeout=240, **more)

    def loaded(self) -> set[str]:
        return {m.id for m in self.openai("watcher").models.list() if m.model_dump()["loaded"]}

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit_log.read_text().splitlines()]


@pytest.fixture(scope="module")
def lora_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose only checkpoint a learner with an adapter wrote."""
    run = tmp_path_factory.mktemp("lora_run")
    settings = LearnerSettings.model_validate({"lora": {"rank": 4}})
    learner = Learner(settings, 1e-3, EXAMPLES / "toy/generator", EXAMPLES / "toy/generator")
    with torch.no_grad():
        for parameter in learner.policy.trainable().values():
            parameter.add_(0.04)
    checkpoint = run / "checkpoints" / "step_000001" / "generator"
    save_learner(learner, checkpoint)
    for file in (EXAMPLES / "toy/generator").glob("tokenizer*"):
        shutil.copy(file, checkpoint)
    (run / "metrics.jsonl").touch()
    (run / "config.yaml").write_text(
        yaml.safe_dump(
            {"game": {"kind": "multistage", "test_format": "input_only"}, "generator": {"max_tokens": 64}}
        )
    )
    return run


@pytest.fixture(scope="module")
def served(
    environment: dict[str, str], lora_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    keys = {name: add(folder / "keys.json", name) for name in ("alice", "watcher", "hasty", "patient")}
    models = {"gen": EXAMPLES / "toy/generator", "dis": EXAMPLES / "toy/discriminator", "lora": lora_run}
    options = [f"--model={name}={path}" for name, path in models.items()]
    options += ["--port=0", f"--keys={folder / 'keys.json'}", f"--audit-log={folder / 'audit.jsonl'}"]
    options += [
        f"--requests-per-minute={PER_MINUTE}",
        "--max-body-mb=0.1",
        "--max-tokens=2000",
        "--idle-s=600",
    ]
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sparring", "serve", *options, "--kv-cache-mb=64"],
            cwd=ROOT, env=environment | {"RAY_AUTH_MODE": "disabled"}, stdout=out, stderr=out,
        )  # fmt: skip

    def says() -> str:
        return (folder / "out").read_text()

    try:
        assert eventually(lambda: "serving" in says() or process.poll() is not None, 240), says()
        assert process.poll() is None, says()
        url = says().split("http://")[1].split("/v1")[0]
        yield Served(f"http://{url}", keys, folder / "audit.jsonl", process)
        tree = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, says()
        assert "Traceback" not in says()
        assert eventually(lambda: not [p for p in tree if p.is_running() and p.status() != "zombie"], 20)
    finally:
        for left in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
            left.kill()
        process.kill()


def greedy(model: Path, prompt: str, tokens: int) -> str:
    """What transformers says."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    said = AutoModelForCausalLM.from_pretrained(model).generate(**ids, max_new_tokens=tokens, do_sample=False)
    return tokenizer.decode(said[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)


def test_nothing_is_loaded_before_it_is_asked_for(served: Served) -> None:
    assert httpx.get(served.url + "/healthz").status_code == 200
    assert [m.id for m in served.openai().models.list()] == ["gen", "dis", "lora"]
    assert served.loaded() == set()


def test_completions_are_the_models_own_and_equal_ones_come_from_the_cache(served: Served) -> None:
    asked: dict[str, Any] = {"model": "gen", "prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    raw = served.openai().completions.with_raw_response
    first, second, sampled = (raw.create(**asked | change) for change in ({}, {}, {"temperature": 1}))
    assert first.parse().choices[0].text == greedy(EXAMPLES / "toy/generator", PROMPT, 24)
    assert [r.headers["x-cache"] for r in (first, second, sampled)] == ["miss", "hit", "none"]
    assert second.text == first.text


def test_a_stream_says_what_an_answer_in_one_piece_says(served: Served) -> None:
    asked: dict[str, Any] = {"model": "gen", "messages": [{"role": "user", "content": "Return n doubled."}]}
    asked |= {"max_tokens": 60, "seed": 7}
    whole = served.openai().chat.completions.create(**asked).choices[0].message.content
    pieces = [
        c.choices[0].delta.content or ""
        for c in served.openai().chat.completions.create(**asked, stream=True)
    ]
    assert whole and "".join(pieces) == whole and len(pieces) > 3


def test_an_answer_has_the_form_that_was_asked_for(served: Served) -> None:
    schema = {"name": "answer", "schema": {"enum": ["yes", "no"]}}
    asked: dict[str, Any] = {"model": "gen", "messages": [{"role": "user", "content": "?"}], "max_tokens": 16}
    asked["response_format"] = {"type": "json_schema", "json_schema": schema}
    answer = served.openai().chat.completions.create(**asked).choices[0].message.content
    assert json.loads(answer or "") in ("yes", "no")


def test_a_client_that_hangs_up_costs_nobody_else_anything(served: Served) -> None:
    asked: dict[str, Any] = {"model": "gen", "prompt": PROMPT, "max_tokens": 450, "n": 4}
    asked["extra_body"] = {"ignore_eos": True}
    for _ in range(3):  # one alone may have been sent whole before the client is gone
        stream = served.openai().completions.create(**asked, stream=True)
        next(iter(stream))
        stream.close()
    assert eventually(lambda: any(line["hung_up"] for line in served.audited()), 20)
    answer = served.openai().completions.create(model="gen", prompt=PROMPT, max_tokens=5, temperature=0)
    assert answer.usage and answer.usage.completion_tokens == 5


def test_each_bad_request_gets_one_clear_answer(served: Served) -> None:
    client = served.openai()
    with pytest.raises(openai.AuthenticationError, match="a key is wanted"):
        served.openai("sk-nobody").models.list()
    with pytest.raises(openai.NotFoundError, match="no model 'gpt'; these are served: gen, dis, lora"):
        client.completions.create(model="gpt", prompt="x")
    with pytest.raises(openai.BadRequestError, match="up to 6000 tokens; one request may have 2000"):
        client.completions.create(model="gen", prompt="x", max_tokens=3000, n=2)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="gen", prompt="x", temperature="warm")  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.completions.create(model="gen", prompt="word " * 2000)
    with pytest.raises(openai.APIStatusError) as too_large:
        client.completions.create(model="gen", prompt="x" * 200_000)
    assert too_large.value.status_code == 413
    for body in (b'{"model": "gen"', b"[1]", b"null", b"\xff"):
        answer = served.post("/v1/completions", content=body)
        assert answer.status_code == 400 and answer.json()["error"]["message"], body


def test_solve_streams_five_stages_and_says_what_each_test_did(served: Served) -> None:
    problem = toy_problems("held_out")[0]
    asked = {"model": "gen", "problem": problem.description, "signature": problem.function_signature}
    asked |= {"tests": list(problem.baseline_asserts), "temperature": 0, "max_tokens": 64}
    whole = served.post("/v1/solve", json=asked).json()
    assert [o["status"] for o in whole["attempts"][0]["outcomes"]], whole
    assert isinstance(whole["valid_python"], bool)
    events = served.post("/v1/solve", json=asked | {"stream": True}).text.strip().split("\n\n")
    said = [(e.split("\n")[0], json.loads(e.split("\ndata: ")[1])) for e in events]
    assert [name for name, _ in said] == ["event: stage"] * 5 + ["event: solution"]
    assert said[-1][1] == whole and [s["stage"] for _, s in said[:5]] == [
        s["stage"] for s in whole["attempts"][0]["stages"]
    ]


def test_a_lora_checkpoint_is_served_and_the_longest_unused_model_makes_room(
    served: Served, lora_run: Path
) -> None:
    best = {"model": "gen", "problem": "Return n doubled.", "signature": "def f(n: int) -> int:"}
    best |= {"best_of": 2, "discriminator": "dis", "max_tokens": 48}
    chosen = served.post("/v1/solve", json=best).json()
    assert chosen["attempts"] and len(chosen["others"]) == 1 and served.loaded() == {"gen", "dis"}
    asked: dict[str, Any] = {"model": "lora", "prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    said = served.openai().completions.create(**asked).choices[0].text
    assert said == greedy(lora_run / "checkpoints" / "step_000001" / "generator", PROMPT, 24)
    assert said != greedy(EXAMPLES / "toy/generator", PROMPT, 24)
    assert "lora" in served.loaded() and len(served.loaded()) == 2


def test_an_engine_that_dies_is_replaced_by_the_next_request(served: Served) -> None:
    def engines() -> list[psutil.Process]:
        tree = psutil.Process(served.process.pid).children(recursive=True)
        alive = [p for p in tree if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        return [p for p in alive if "EngineCore" in "".join(p.cmdline())]

    before = engines()
    assert before
    for engine in before:
        engine.kill()
    client = served.openai("patient")

    def answered() -> bool:
        try:
            return bool(client.completions.create(model="lora", prompt=PROMPT, max_tokens=2).choices)
        except (openai.InternalServerError, openai.RateLimitError):  # 500 or 503: who was there when it died
            return False

    assert eventually(answered, 240)


def test_nobody_without_its_token_may_tell_its_ray_anything(
    served: Served, environment: dict[str, str]
) -> None:
    tree = psutil.Process(served.process.pid).children(recursive=True)
    (gcs,) = [p for p in tree if p.name() == "gcs_server"]
    port = next(c.laddr.port for c in gcs.net_connections("tcp") if c.status == psutil.CONN_LISTEN)
    joins = [
        subprocess.Popen(
            [sys.executable, "-c", f"import ray; ray.init('127.0.0.1:{port}'); print('joined')"],
            env=environment | mode, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for mode in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32})
    ]  # fmt: skip
    for join in joins:
        out, err = join.communicate(timeout=120)
        assert join.returncode and "joined" not in out and "uthenticat" in err, err


def test_one_key_too_fast_does_not_slow_another(served: Served) -> None:
    client = served.openai("hasty")
    with pytest.raises(openai.RateLimitError, match=f"more than {PER_MINUTE} requests a minute") as refused:
        for _ in range(2 * PER_MINUTE):
            client.models.list()
    assert int(refused.value.response.headers["retry-after"]) >= 1
    assert served.openai().models.list().data


def test_figures_and_log_tell_who_asked_what(served: Served) -> None:
    metrics = httpx.get(
        served.url + "/metrics", headers={"authorization": f"Bearer {served.keys['watcher']}"}
    ).text
    assert 'sparring_http_requests_total{method="POST",path="/v1/completions",status="200"}' in metrics
    lines = served.audited()
    assert {"alice", "hasty", "watcher", "patient", None} == {line["key"] for line in lines}
    assert {200, 400, 401, 404, 413, 429} <= {line["status"] for line in lines}
    assert not any(key in served.audit_log.read_text() for key in served.keys.values())


def test_vllm_reads_these_numbers_and_no_others() -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    numbers = {"max_tokens", "max_completion_tokens", "n", "best_of"}
    assert numbers & CompletionRequest.model_fields.keys() == {"max_tokens", "n"}
    assert numbers & ChatCompletionRequest.model_fields.keys() == {"max_tokens", "max_completion_tokens", "n"}


@pytest.mark.asyncio
async def test_an_engine_whose_app_does_not_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    shut_down: list[str] = []

    class Client:
        async def get_supported_tasks(self) -> tuple[str, ...]:
            raise RuntimeError("it says nothing")

        def shutdown(self) -> None:
            shut_down.append("yes")

    monkeypatch.setattr(serving_engine, "_open", lambda *_: (Client(), FastAPI(), None))
    model: Any = SimpleNamespace(path="here")
    with pytest.raises(EngineFailure, match="vLLM cannot serve here: it says nothing"):
        await serving_engine.start_engine("gen", model, cast(Any, SimpleNamespace(cache_mb=1)))
    assert shut_down == ["yes"]


@pytest.mark.asyncio
async def test_a_prompt_that_the_engine_does_not_take_is_no_failure_of_the_service() -> None:
    class Client:
        async def generate(self, *_: Any) -> AsyncIterator[None]:
            raise ValueError("The decoder prompt is too long")
            yield

    async def start(_: str) -> Any:
        async def close() -> None: ...

        return SimpleNamespace(client=Client(), dead=False, close=close)

    async with ModelCache(start, at_once=1, idle_s=60) as model_cache:
        with pytest.raises(
            PromptRefused, match="gen takes no prompt of 3 tokens: The decoder prompt is too long"
        ):
            await CachedModelPolicy(model_cache, "gen").generate(
                [1, 2, 3], Sampling(max_tokens=5, stop_token_ids=())
            )
