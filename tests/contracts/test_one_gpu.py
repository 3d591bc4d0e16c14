"""One GPU for engine and learners: who has its memory when. The driver's loop, the rollouts and the engine's thread are real;
vLLM, the learner and the GPU, which refuses what it has no room for, are scripted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import driver
from actors.episodes import EpisodeRunner, PolicyClient
from actors.loading import LocalPolicy
from actors.settings import VllmEngineSettings
from sandbox_workers.nothing import NoSandbox
from sparring.core.interfaces import EngineFailure, Sampling
from sparring.core.play import PlayRequest
from sparring.core.problem import Problem
from sparring.core.weights import Weights, WeightUpdate, digest_of
from sparring.runtime.local import LocalRollouts
from sparring.tracking.clock import Clock
from tests.playing import Letters, letters

pytestmark = pytest.mark.vllm
WEIGHTS, CACHE, HELD, UPDATE = 30, 40, 10, 50
SIZES = {"weights": WEIGHTS, "kv_cache": CACHE}
SETTINGS = VllmEngineSettings(max_model_len=64, sleep=True)
PROBLEM = Problem(
    id="p", description="", function_signature="def f()", baseline_tests=(), reference_solution=""
)
REQUEST = PlayRequest(
    address=("step", 1), problems=(PROBLEM,), attempts={"first": 1}, temperatures={"first": 1.0}
)


class Card:
    """A GPU's memory, and what became of it."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.held, self.events = capacity, Counter[str](), list[str]()

    def take(self, what: str, size: int) -> None:
        if self.held.total() + size > self.capacity:
            raise RuntimeError(f"CUDA out of memory: {what} beside {dict(self.held)}")
        self.held[what] += size
        self.events.append(f"+{what}")

    def give(self, what: str) -> None:
        del self.held[what]
        self.events.append(f"-{what}")


class ScriptedLLM:
    """As much of vLLM's LLMEngine as ours asks for, with what it needs for each."""

    def __init__(self, card: Card) -> None:
        self.card, self.waiting = card, list[str]()
        self.engine_core = SimpleNamespace(shutdown=lambda: None)
        for what, size in SIZES.items():
            card.take(what, size)

    def add_request(self, name: str, prompt: Any, params: Any, lora_request: Any = None) -> None:
        assert set(SIZES) <= self.card.held.keys(), "a request for a sleeping engine"
        self.waiting.append(name)

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting)

    def step(self) -> list[SimpleNamespace]:
        assert set(SIZES) <= self.card.held.keys(), "a step of a sleeping engine"
        names, self.waiting = self.waiting, []
        self.card.events.append("generate")
        sure = SimpleNamespace(logprob=0.0)
        flat = SimpleNamespace(logprobs=[0.0])
        by = [SimpleNamespace(version=self.version, start=0)]
        completion = SimpleNamespace(token_ids=[1], logprobs=flat, finish_reason="stop", weight_versions=by)
        probe = [None, {1: sure}, {1: sure}]
        return [
            SimpleNamespace(
                request_id=name,
                finished=True,
                outputs=[completion],
                prompt_logprobs=probe,
                num_cached_tokens=0,
            )
            for name in names
        ]

    def abort_request(self, names: Sequence[str]) -> None:
        self.waiting = [name for name in self.waiting if name not in names]

    def reset_prefix_cache(self, reset_running_requests: bool) -> bool:
        return True

    def set_weight_version(self, version: str) -> None:
        self.version = version

    def collective_rpc(self, method: str, args: Any = ()) -> list[bool]:
        assert "weights" in self.card.held, f"{method} without weights"
        self.card.events.append(method)
        return [True]

    def sleep(self, level: int) -> None:
        assert level == 1 and not self.waiting
        for what in SIZES:
            self.card.give(what)

    def wake_up(self, tags: Sequence[str]) -> None:
        for what in tags:
            self.card.take(what, SIZES[what])


class ScriptedLearner:
    def __init__(self, card: Card) -> None:
        self.card, self.version = card, 0
        card.take("learner", HELD)

    def begin(self, batch: Any) -> Callable[[], tuple[Mapping[str, float], Weights]]:
        self.card.take("update", UPDATE)
        self.card.give("update")
        self.version += 1
        return lambda: ({}, update(self.version))


def update(version: int) -> Weights:
    tensors = {"weight": np.full(2, version)}
    update = WeightUpdate(
        version=version, tensors=tensors, digest=digest_of(tensors), probe=(1, 1, 1),
        probe_logprobs=(0.0, 0.0),
    )  # fmt: skip
    return Weights(version=version, update=update)


class OneQuestion:
    """A game."""

    async def play(self, problem: Any, players: Mapping[str, Any], sandbox: Any, memory: Any = ()) -> Any:
        await players["first"].policy.generate([1, 2], Sampling(max_tokens=1, stop_token_ids=(1,)))
        return SimpleNamespace(problem_id=problem.id)


class OneGpu:
    """As sparring/runtime/local.py puts it together: the engine first, then learners."""

    def __init__(self, card: Card, settings: VllmEngineSettings, loop: asyncio.Runner) -> None:
        from actors.vllm_policy import VllmPolicy

        self.card = card
        speaker = PolicyClient(
            engines=[LocalPolicy(VllmPolicy("scripted", settings, "cuda"), 1e-3)],
            format=Letters(),
            decode=letters,
            max_tokens=1,
        )
        runner = EpisodeRunner(OneQuestion(), NoSandbox(), {"generator": speaker}, {"first": "generator"}, 1)  # pyright: ignore
        self.rollouts = LocalRollouts(loop, runner)
        self.learners = {role: ScriptedLearner(card) for role in ("generator", "discriminator")}


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Runner]:
    pytest.importorskip("vllm")
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def make(loop: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from actors import vllm_engine

    made: list[OneGpu] = []

    def build(capacity: int, settings: VllmEngineSettings = SETTINGS) -> OneGpu:
        card = Card(capacity)
        scripted = SimpleNamespace(from_engine_args=lambda arguments: ScriptedLLM(card))
        monkeypatch.setattr(vllm_engine, "LLMEngine", scripted)
        monkeypatch.setattr(vllm_engine, "engine_args", lambda *_: None)
        made.append(OneGpu(card, settings, loop))
        card.events.clear()
        return made[-1]

    yield build
    for gpu in made:
        gpu.rollouts.close()


def trained(gpu: OneGpu, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """driver.train, with nothing to learn from or to record."""
    assignments: Iterator[Any] = (
        SimpleNamespace(step=n, stage=1, phase="x", learning=("generator",)) for n in range(1, steps + 1)
    )
    nothing: Any = SimpleNamespace()
    for name in ("episode_metrics", "policy_lag", "require_some_judged", "best_programs", "mistakes"):
        monkeypatch.setattr(driver, name, lambda *_: {})
    monkeypatch.setattr(driver, "BatchSpec", lambda **_: nothing)
    monkeypatch.setattr(driver, "learning_in_turn", lambda _, roles: [roles])
    say = SimpleNamespace(phase=lambda _: None, say=lambda _: None, step=lambda _: None)
    session: Any = SimpleNamespace(
        config=SimpleNamespace(seed=1, seats={}, temperature=1.0, players_of=lambda _: ()),
        parts=SimpleNamespace(
            scheduler=SimpleNamespace(observe=lambda *_: None),
            rollouts=gpu.rollouts,
            learners=gpu.learners,
        ),
        display=say,
        clock=Clock(),
        weights={},
        credit={"generator": SimpleNamespace(samples=lambda *_: ([1], {}))},
        opponents=SimpleNamespace(learned=lambda *_: None),
        recorder=SimpleNamespace(finish=lambda: None),
        evaluate_start=lambda: None,
        steps=lambda: (
            (assignment, gpu.rollouts.begin(replace(REQUEST, weights=dict(session.weights))))
            for assignment in assignments
        ),
        finish_step=lambda *_: None,
    )
    driver.train(session)


def test_the_engine_sleeps_while_a_learner_updates(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Awake it leaves no room for an update; and weights come before the reload, the cache after it."""
    gpu = make(WEIGHTS + CACHE + 2 * HELD)
    trained(gpu, monkeypatch, steps=2)
    step = ["generate", "-weights", "-kv_cache", "+update", "-update"]
    loads = ["+weights", "reload", "+kv_cache", "generate"]
    assert gpu.card.events == [*step, *loads, *step]
    assert gpu.card.held.total() == 2 * HELD


def test_an_engine_that_does_not_sleep_leaves_no_room(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = make(WEIGHTS + CACHE + 2 * HELD, SETTINGS.model_copy(update={"sleep": False}))
    with pytest.raises(RuntimeError, match="CUDA out of memory: update"):
        trained(gpu, monkeypatch, steps=1)


def test_where_others_took_the_memory_the_engine_says_so(make: Any) -> None:
    gpu = make(WEIGHTS + CACHE + 2 * HELD)
    gpu.rollouts.sleep()
    gpu.card.take("somebody's", WEIGHTS + CACHE)
    with pytest.raises(EngineFailure, match=r"vLLM could not wake up.*CUDA out of memory"):
        gpu.rollouts.begin(REQUEST)
    gpu.card.give("somebody's")
    gpu.rollouts.begin(REQUEST)


def test_memory_that_others_take_meanwhile_does_not_keep_an_engine_awake(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM gives its memory back, then asserts that the GPU as a whole has more of it than before, and stays paused."""
    gpu, sleep, told = make(1000), ScriptedLLM.sleep, []

    def sleep_beside_others(llm: ScriptedLLM, level: int) -> None:
        told.append(level)
        if len(told) == 1:
            sleep(llm, level)
        assert len(told) > 2, "Memory usage increased after sleeping."

    monkeypatch.setattr(ScriptedLLM, "sleep", sleep_beside_others)
    gpu.rollouts.sleep()
    assert len(told) == 3 and not SIZES.keys() & gpu.card.held.keys()
    gpu.rollouts.begin(REQUEST)


def test_where_others_take_memory_again_and_again_the_engine_says_so(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from actors import vllm_engine

    def sleep(llm: ScriptedLLM, level: int) -> None:
        raise AssertionError("Memory usage increased after sleeping.")

    gpu = make(1000)
    monkeypatch.setattr(ScriptedLLM, "sleep", sleep)
    monkeypatch.setattr(vllm_engine, "_TRIES", 2)
    with pytest.raises(EngineFailure, match="vLLM could not sleep: others of this GPU took more memory"):
        gpu.rollouts.sleep()
