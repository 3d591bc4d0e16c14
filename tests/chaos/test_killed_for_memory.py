"""What Ray's memory monitor ends: a learner's worker, which is replaced and takes half; an engine in its own actor, which Ray
restarts; any other actor. What the terminal says of each."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
from ray import cloudpickle
from ray.exceptions import OutOfMemoryError

from actors import watching
from actors.engines import EngineActor, RemotePolicy
from actors.loading import LocalPolicy
from actors.rollout import REPLACEMENTS, RayRollouts
from learners import train_loop
from learners.settings import MICROBATCH_TOKENS
from learners.train_spec import LearnerSpec
from sparring.core.endings import in_words, killed_for_memory
from sparring.core.episode import Completion
from sparring.core.errors import OutOfMemory
from sparring.core.interfaces import Sampling
from tests.chaos.test_learner_killed import (  # noqa: F401 - fixtures
    PATIENCE_S,
    batch,
    learning,
    model,
    sent,
    spec,
    within,
)
from tests.integration.ending_engines import POLICIES, Engine, Runner
from tests.integration.test_engines_lost import begin, played
from tests.ray_clusters import own_ray

_ROOM_GIB, _MEAL_GIB = 5.0, 10.0
"""Beyond what the machine has in use: other tests take less than the first meanwhile, and the second is above it by what
they may give back."""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A Ray that kills what takes more than _ROOM_GIB."""
    memory = psutil.virtual_memory()
    if memory.available < (_MEAL_GIB + 2) * 2**30:
        pytest.skip(f"needs {_MEAL_GIB + 2:g} GiB of free memory")
    threshold = 1 - (memory.available - _ROOM_GIB * 2**30) / memory.total
    limits = {"memory_usage_threshold": threshold, "memory_monitor_refresh_ms": 100}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
        with own_ray(logging_level="ERROR", _system_config=limits):
            cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
            yield
            cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def eat(gibibytes: float) -> None:
    """Take memory until somebody puts an end to it."""
    meal = []
    for _ in range(int(gibibytes * 10)):
        meal.append(np.ones(2**27 // 10))
        time.sleep(0.02)
    time.sleep(120)


def hungry_loop() -> Any:
    """Returns the workers' loop, in which the second batch is too much with more than half of the tokens, and the third with
    any."""

    def loop(config: dict[str, Any]) -> None:
        from learners import recovery, train_loop

        learn = recovery.learn

        def hungry(learner: Any, batch: Any, point: Any) -> dict[str, float]:
            if batch.step == 3 or (batch.step == 2 and learner.microbatch_tokens > MICROBATCH_TOKENS // 2):
                eat(_MEAL_GIB)
            return learn(learner, batch, point)

        recovery.learn = hungry
        train_loop._train_loop(config)

    return loop


@pytest.mark.slow
def test_a_learner_killed_for_memory_goes_on_with_less_and_killed_too_often_says_so(
    spec: LearnerSpec,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(train_loop, "_train_loop", hungry_loop())
    monkeypatch.setattr(train_loop, "_MAX_WORKER_FAILURES", 1)
    with learning(spec, tmp_path) as learner:
        for step in (1, 2):
            within(PATIENCE_S, lambda: learner.begin(sent(batch(step)))())  # noqa: B023
        assert learner.version == 2
        (told,) = [record.getMessage() for record in caplog.records if record.name == "learners.train_loop"]
        assert "OutOfMemoryError" in told and "RayTrainWorker" in told and len(told.splitlines()) == 1
        with pytest.raises(OutOfMemory) as failure:
            within(PATIENCE_S, lambda: learner.begin(sent(batch(3)))())
    told = str(failure.value)
    assert told.startswith("learner generator: OutOfMemoryError") and len(told.splitlines()) == 1
    assert "RayTrainWorker" in told and "GB" in told and "learner.microbatch_tokens" in told


@pytest.mark.slow
def test_an_actor_killed_for_memory_is_told_with_what_it_had() -> None:
    class Glutton:
        def eat(self) -> None:
            eat(_MEAL_GIB)

    with pytest.raises(OutOfMemoryError) as failure:
        ray.get(ray.remote(num_cpus=0)(Glutton).remote().eat.remote())
    assert killed_for_memory(failure.value)
    told = in_words(failure.value)
    assert "Glutton with" in told and "GB" in told and len(told.splitlines()) == 1


class HungryEngine(Engine):
    """Takes memory while a file is there."""

    async def generate(self, prompt_tokens: Any, sampling: Sampling) -> Completion:
        if self.ends.exists():
            await asyncio.to_thread(eat, _MEAL_GIB)
        return await super().generate(prompt_tokens, sampling)


@pytest.fixture
def rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayRollouts]:
    """Both policies on one hungry engine in its own actor."""
    monkeypatch.setattr(watching, "LOOK_S", 0.5)

    def build() -> dict[str, LocalPolicy]:
        engines: list[Any] = [HungryEngine(tmp_path / "hungry") for _ in POLICIES]
        return {policy: LocalPolicy(engine, 1e-3) for policy, engine in zip(POLICIES, engines, strict=True)}

    engine = EngineActor.options(num_cpus=0).remote(build, "engine of both")
    runner: Any = partial(Runner, {policy: RemotePolicy(policy, engine) for policy in POLICIES})
    rollouts = RayRollouts(
        runner, [{"num_cpus": 0, "num_gpus": 0}], "cpu", {policy: [engine] for policy in POLICIES}
    )
    rollouts.wait_ready()
    yield rollouts
    rollouts.close()


@pytest.mark.slow
def test_an_engine_killed_for_memory_is_begun_anew_with_the_weights_of_the_request(
    rollouts: RayRollouts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = played(begin(rollouts, generator=3)())
    (tmp_path / "hungry").touch()
    playing = begin(rollouts, generator=3)
    result = within(PATIENCE_S, lambda: _fed_once_lost(playing, first, tmp_path / "hungry"))
    second, versions = played(result)
    assert second != first and versions["generator"] == 3
    # there may be an earlier one: the engine does not answer
    *_, told = [record.getMessage() for record in caplog.records if record.name == "actors.rollout"]
    assert (
        "OutOfMemoryError" in told
        and "GB" in told
        and "has restarted it" in told
        and len(told.splitlines()) == 1
    )


@pytest.mark.slow
def test_an_engine_killed_for_memory_again_and_again_ends_the_run_with_what_to_lower(
    rollouts: RayRollouts, tmp_path: Path
) -> None:
    (tmp_path / "hungry").touch()
    with pytest.raises(OutOfMemory) as failure:
        within(PATIENCE_S, begin(rollouts))
    told = str(failure.value)
    assert f"was lost {REPLACEMENTS + 1} times" in told and "GB" in told and len(told.splitlines()) == 1
    assert "engine.kv_cache_mb" in told


def _fed_once_lost(playing: Any, process: int, hungry: Path) -> Any:
    """Returns what is played, and removes the file as soon as the process has ended."""

    def feed() -> None:
        while psutil.pid_exists(process):
            time.sleep(0.02)
        hungry.unlink()

    threading.Thread(target=feed, daemon=True).start()
    return playing()
