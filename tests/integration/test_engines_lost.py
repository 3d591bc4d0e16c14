"""An engine apart that is killed, stopped, or ends by itself: it is begun anew, loads the weights of the request, and who
plays goes on."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayError

from actors import watching
from actors.engines import EngineActor, RemotePolicy
from actors.rollout import REPLACEMENTS, RayRollouts
from sparring.core.errors import RunFailed
from sparring.core.play import PlayRequest, PlayResult
from sparring.core.problem import Problem
from sparring.core.weights import PublishError, Weights, WeightUpdate
from sparring.runtime.cluster import for_the_user
from tests.integration.ending_engines import POLICIES, WRONG, Runner, ended, engines
from tests.ray_clusters import own_ray

pytestmark = pytest.mark.slow


def let_one_end(ends: Path) -> None:
    until = time.monotonic() + 60
    while not ended(ends).exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert ended(ends).exists()
    ends.unlink()


@pytest.fixture
def ends(tmp_path: Path) -> Path:
    return tmp_path / "ends"


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with own_ray():
        yield


@pytest.fixture
def rollouts(cluster: None, ends: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayRollouts]:
    for name, seconds in {"LOOK_S": 0.5, "SILENCE_S": 4.0}.items():
        monkeypatch.setattr(watching, name, seconds)
    engine = EngineActor.options(num_cpus=0).remote(partial(engines, ends), "engine of both")
    remote = {policy: RemotePolicy(policy, engine) for policy in POLICIES}
    runner: Any = partial(Runner, remote)
    made = RayRollouts(
        runner, [{"num_cpus": 0, "num_gpus": 0}], "cpu", {policy: [engine] for policy in POLICIES}
    )
    made.wait_ready()
    yield made
    made.close()


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


def test_one_that_ends_over_new_weights_ends_the_run_where_it_keeps_doing_so(
    rollouts: RayRollouts, ends: Path
) -> None:
    ends.touch()
    lost = rf"engine of the generator and the discriminator was lost {REPLACEMENTS + 1} times, .*no memory"
    with pytest.raises(RunFailed, match=lost):
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
