"""An engine apart that is killed, stopped, or ends by itself: it is begun anew, loads the weights of the request, and who
plays goes on."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import ray
from ray.exceptions import RayError

from actors import watching
from actors.engines import EngineActor, RemotePolicy
from actors.loading import LocalPolicy
from actors.rollout import REPLACEMENTS, RayRollouts
from sparring.core.episode import Completion, FinishReason
from sparring.core.errors import RunFailed
from sparring.core.interfaces import EngineFailure, Sampling
from sparring.core.play import PlayRequest, PlayResult
from sparring.core.problem import Problem
from sparring.core.weights import PublishError, PublishReceipt, Weights, WeightUpdate
from sparring.runtime.cluster import for_the_user

POLICIES = ("generator", "discriminator")
WRONG = 13
"""A version with which the engine computes something else than the learner."""
ASKED = Sampling(max_tokens=1, stop_token_ids=())
pytestmark = pytest.mark.slow


class Engine:
    """Takes a while, says which process it is, and ends where a file tells it to."""

    def __init__(self, ends: Path) -> None:
        self.version, self.ends = 0, ends

    async def generate(self, prompt_tokens: Any, sampling: Sampling) -> Completion:
        await asyncio.sleep(prompt_tokens[0])
        if self.ends.exists():
            self._end()
        return Completion(
            tokens=(os.getpid(),), logprobs=(0.0,), version=self.version, finish_reason=FinishReason.STOP
        )

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        if self.ends.exists() and self.version != update.version:
            self._end()
        self.version = update.version
        difference = float(update.version == WRONG)
        return PublishReceipt(version=update.version, digest=update.digest, probe_difference=difference)

    def _end(self) -> NoReturn:
        ended(self.ends).touch()
        raise EngineFailure("vLLM ended: no memory")

    async def close(self) -> None: ...


def ended(ends: Path) -> Path:
    """Is there once an engine has ended."""
    return ends.with_name("ended")


def let_one_end(ends: Path) -> None:
    until = time.monotonic() + 60
    while not ended(ends).exists() and time.monotonic() < until:
        time.sleep(0.02)
    ends.unlink()


class Runner:
    """Asks the engine once for each policy; its episodes say which process answered, by which weights."""

    def __init__(self, remote: dict[str, RemotePolicy], index: int) -> None:
        self.remote = remote

    async def play(self, request: PlayRequest, on_progress: Any) -> tuple[PlayResult, list[Any]]:
        for policy in POLICIES:
            await self.remote[policy].load(request.weights.get(policy), request.order)
        seconds = [float(p.description) for p in request.problems]
        said = [await self.remote[policy].generate([s], ASKED) for s in seconds for policy in POLICIES]  # type: ignore
        versions = dict(zip(POLICIES, [one.version for one in said], strict=False))
        episode: Any = SimpleNamespace(problem_id="p", pid=said[-1].tokens[0], versions=versions)
        return PlayResult(episodes=[episode], sandbox={}), []

    async def close(self) -> None: ...


@pytest.fixture
def ends(tmp_path: Path) -> Path:
    return tmp_path / "ends"


@pytest.fixture
def rollouts(ends: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayRollouts]:
    for name, seconds in {"LOOK_S": 0.5, "SILENCE_S": 4.0}.items():
        monkeypatch.setattr(watching, name, seconds)
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)  # fmt: skip
    try:
        engine = EngineActor.options(num_cpus=0).remote(partial(_engines, ends), "engine of both")
        remote = {policy: RemotePolicy(policy, engine) for policy in POLICIES}
        runner: Any = partial(Runner, remote)
        made = RayRollouts(
            runner, [{"num_cpus": 0, "num_gpus": 0}], "cpu", {policy: [engine] for policy in POLICIES}
        )
        made.wait_ready()
        yield made
        made.close()
    finally:
        ray.shutdown()


def _engines(ends: Path) -> dict[str, LocalPolicy]:
    engines: list[Any] = [Engine(ends) for _ in POLICIES]
    return {policy: LocalPolicy(engine, 1e-3) for policy, engine in zip(POLICIES, engines, strict=True)}


def begin(rollouts: RayRollouts, seconds: float = 0.0, **versions: int) -> Callable[[], PlayResult]:
    """versions: of the policies' weights."""
    problem = Problem(
        id="p", description=str(seconds), function_signature="", baseline_tests=(), reference_solution=""
    )
    weights = {policy: update(version) for policy, version in versions.items()}
    return rollouts.begin(
        PlayRequest(address=("step", 1), problems=(problem,), attempts={}, temperatures={}, weights=weights)
    )


def played(result: PlayResult) -> tuple[int, dict[str, int]]:
    (episode,) = result.episodes
    return episode.pid, episode.versions  # type: ignore[attr-defined]


def update(version: int) -> Weights:
    update = WeightUpdate(version=version, tensors={}, digest=1, probe=(1, 2), probe_logprobs=(-1.0,))
    return Weights(version=version, update=ray.put(update))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_who_plays_asks_it_again_and_it_has_the_weights_of_the_request(
    rollouts: RayRollouts, how: signal.Signals
) -> None:
    first, versions = played(begin(rollouts, generator=3)())
    assert versions == {"generator": 3, "discriminator": 0}, "the other plays with those that it started with"
    playing = begin(rollouts, 1.5, generator=3)
    time.sleep(1)
    os.kill(first, how)
    result = playing()
    second, versions = played(result)
    assert second != first and versions == {"generator": 3, "discriminator": 0}
    assert result.played_again == 0, "what the rollout actor had is not begun anew"
    os.kill(second, how)
    third, versions = played(begin(rollouts, generator=3, discriminator=4)())
    assert third != second and versions == {"generator": 3, "discriminator": 4}


def test_an_engine_that_ends_in_a_living_process_is_begun_anew(rollouts: RayRollouts, ends: Path) -> None:
    first, _ = played(begin(rollouts)())
    playing = begin(rollouts, 1.0)
    ends.touch()
    let_one_end(ends)
    assert played(playing())[0] != first


def test_one_that_is_lost_again_and_again_ends_the_run_with_its_last_words(
    rollouts: RayRollouts, ends: Path
) -> None:
    ends.touch()
    with pytest.raises(
        RunFailed,
        match=rf"engine of the generator and the discriminator was lost {REPLACEMENTS + 1} times, .*no memory",
    ):
        begin(rollouts)()


def test_one_that_ends_over_new_weights_ends_the_run_where_it_keeps_doing_so(
    rollouts: RayRollouts, ends: Path
) -> None:
    ends.touch()
    with pytest.raises(RunFailed, match=rf"the discriminator was lost {REPLACEMENTS + 1} times, .*no memory"):
        begin(rollouts, generator=3)()


def test_one_that_ends_over_new_weights_is_begun_anew(rollouts: RayRollouts, ends: Path) -> None:
    first, _ = played(begin(rollouts)())
    ends.touch()
    threading.Thread(target=let_one_end, args=(ends,)).start()
    second, versions = played(begin(rollouts, generator=3)())
    assert second != first and versions["generator"] == 3


def test_weights_that_an_engine_does_not_run_on_end_the_run_with_that_reason(rollouts: RayRollouts) -> None:
    with pytest.raises(RayError) as failed:
        begin(rollouts, generator=WRONG)()
    assert isinstance(for_the_user(failed.value), PublishError)
