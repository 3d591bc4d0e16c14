"""RayRollouts and RayScheduler on a Ray of their own: who plays what, and who takes a lost one's place."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
import ray
from ray.exceptions import RayActorError

from actors import rollout, watching
from actors.rollout import REPLACEMENTS, RayRollouts
from actors.scheduler import RayScheduler
from sparring.core.errors import RunFailed
from sparring.core.play import PlayProgress, PlayRequest, PlayResult
from sparring.core.problem import Problem
from sparring.core.weights import Weights, WeightUpdate, digest_of
from sparring.curriculum.curriculum import Curriculum, Schedule
from tests.integration.timed_play import Runner
from tests.ray_clusters import own_ray

CPUS = [{"num_cpus": 0.1, "num_gpus": 0}] * 2


PART = {"w": np.arange(3)}


def weights(version: int) -> Weights:
    """As a learner's handle returns them: the tensors are in a part by itself."""
    update = WeightUpdate(
        version=version,
        tensors={},
        parts=[ray.put(PART)],
        digest=digest_of(PART),
        probe=(),
        probe_logprobs=(),
    )
    return Weights(version=version, update=ray.put(update))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with own_ray():
        yield


@pytest.fixture
def rollouts(cluster: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayRollouts]:
    for name, seconds in {"LOOK_S": 0.5, "SILENCE_S": 4.0}.items():
        monkeypatch.setattr(watching, name, seconds)
    build: Any = Runner
    made = RayRollouts(build, CPUS, "cpu", sleeps=True)
    made.wait_ready()
    yield made
    made.close()


def request(*seconds: float | str, version: int = 0) -> PlayRequest:
    """version: of the generator's weights; 0: those that the engines started with."""
    problems = (
        Problem(
            id=f"p{i}", description=str(s), function_signature="", baseline_tests=(), reference_solution=""
        )
        for i, s in enumerate(seconds)
    )
    return PlayRequest(
        address=("step", 1),
        problems=tuple(problems),
        attempts={},
        temperatures={},
        weights={"generator": weights(version)} if version else {},
        recorded={},
    )


def played(result: PlayResult, what: str) -> list[Any]:
    return [getattr(episode, what) for episode in result.episodes]


def test_who_waits_is_told_how_far_all_actors_of_the_request_are(rollouts: RayRollouts) -> None:
    """Also while they work, and nothing of what is played beside it."""
    heard: list[PlayProgress] = []
    rollouts.on_progress = heard.append
    beside = rollouts.begin(replace(request("idle 4", "idle 4"), address=("evaluation",)))
    rollouts.begin(request("idle 0.1", 0.1, "idle 8", 0.1, 0.1, 4))()
    beside()
    of_step = [p for p in heard if p.expected == 6]
    assert of_step and {p.expected for p in heard} <= {2, 6}
    assert any(3 <= p.done < 6 and p.tokens == 10 * p.done for p in of_step)
    assert [p.done for p in of_step] == sorted(p.done for p in of_step)


def test_problems_are_dealt_in_turn_and_to_who_has_the_fewest_left(rollouts: RayRollouts) -> None:
    first = rollouts.begin(request(0, 0, 0))()
    assert played(first, "problem_id") == ["p0", "p1", "p2"] and played(first, "by") == [0, 1, 0]
    busy = rollouts.begin(request(5, 0))
    ray.wait([rollouts._open[-1].playing])
    meanwhile = rollouts.begin(request(0, 0, 0))
    assert played(meanwhile(), "by") == [1, 0, 1]
    evaluation = rollouts.begin(replace(request(0, 0, 0), recorded=None))
    assert played(evaluation(), "by") == [0, 1, 0], "whoever is busy"
    assert played(busy(), "by") == [0, 1]


def test_a_step_is_dealt_alike_beside_an_evaluation_and_alone(rollouts: RayRollouts) -> None:
    evaluation = rollouts.begin(replace(request("idle 2", 0, "idle 2"), recorded=None))
    assert played(rollouts.begin(request(0, 0, 0))(), "by") == [0, 1, 0]
    evaluation()


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_what_a_lost_actor_had_is_played_again_with_the_same_weights(rollouts: RayRollouts, how: int) -> None:
    lost = played(rollouts.begin(request(0, 0))(), "pid")[0]
    steps = [rollouts.begin(request(*seconds, version=7)) for seconds in ((3, 1), (0, 0, 0))]
    os.kill(lost, how)
    results = [wait() for wait in steps]
    assert [result.played_again for result in results] == [1, 2]
    for result in results:
        assert played(result, "problem_id") == sorted(played(result, "problem_id"))
        assert lost not in played(result, "pid") and set(played(result, "version")) == {7}
        receipts = result.receipts["generator"]
        assert {(receipt.version, receipt.digest) for receipt in receipts} == {(7, digest_of(PART))}


def test_actors_play_with_the_weights_of_their_request(rollouts: RayRollouts) -> None:
    versions = [played(rollouts.begin(request(0, 0, version=v))(), "version") for v in (0, 4, 4, 2)]
    assert versions == [[0, 0], [4, 4], [4, 4], [2, 2]], "a past opponent's are older"


@pytest.mark.slow
def test_steps_that_were_begun_ahead_are_begun_anew_at_once(rollouts: RayRollouts) -> None:
    """Not only when somebody waits for them; and what is done is not played again."""
    lost = played(rollouts.begin(request(0, 0))(), "pid")[0]
    done = rollouts.begin(request(0, 0))
    ray.wait([share.playing for share in rollouts._open], num_returns=2)  # both have as many to play then
    ahead, further = (rollouts.begin(request("idle 6", 0)) for _ in range(2))
    time.sleep(1)
    os.kill(lost, signal.SIGKILL)
    one, other = ahead(), further()
    assert (one.played_again, other.played_again, done().played_again) == (1, 1, 0)
    assert played(other, "began")[0] < played(one, "ended")[0], "it was played meanwhile"


@pytest.mark.slow
def test_what_was_finished_and_lost_after_its_actor_was_replaced_is_played_again(
    rollouts: RayRollouts,
) -> None:
    """Its answer was on a node that went later than the actor."""
    finished = rollouts.begin(request(0, 0))
    share = rollouts._open[0]
    ray.wait([share.playing])
    ray.kill(share.actor)
    rollouts.sleep()
    # another has taken its place, and what is there was not played again
    assert share.again == 0
    share.playing, share.transcripts = share.actor.play.remote(share.request)  # which nobody will have
    result = finished()
    assert result.played_again == 1
    assert played(result, "by") == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
def test_a_stopped_process_that_ray_does_not_reach_is_ended(
    rollouts: RayRollouts, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Seen: where its connections are gone, Ray takes it for dead, and lets it be."""
    pid = played(rollouts.begin(request(0))(), "pid")[0]
    os.kill(pid, signal.SIGSTOP)
    asked = []
    monkeypatch.setattr(watching.ray, "kill", lambda actor, no_restart: asked.append((actor, no_restart)))
    watching.end(rollouts.actors[0], again=again)
    monkeypatch.undo()
    assert asked == [(rollouts.actors[0], not again)]
    assert ends(pid)
    watching.end(rollouts.actors[0])  # of one that is dead already


def ends(pid: int) -> bool:
    until = time.monotonic() + 30
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
def test_closing_waits_for_those_who_are_stopped_once_and_ends_them(
    rollouts: RayRollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "CLOSE_S", 2.0)
    pids = played(rollouts.begin(request(0, 0))(), "pid")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    asked: list[float] = []
    wait = ray.wait
    monkeypatch.setattr(rollout.ray, "wait", lambda *a, **k: asked.append(k["timeout"]) or wait(*a, **k))
    rollouts.close()
    assert asked == [2.0] and all(map(ends, pids))


def test_counts_of_lost_clients_stay(rollouts: RayRollouts) -> None:
    first = rollouts.begin(request(0, 0, 0))()
    assert first.sandbox == {"problems": 3.0}
    os.kill(played(first, "pid")[0], signal.SIGKILL)
    assert rollouts.begin(request(0))().sandbox == {"problems": 4.0}, "of all that there were"


@pytest.mark.slow
def test_who_is_lost_at_the_same_time_is_replaced_at_the_same_time(rollouts: RayRollouts) -> None:
    """As with a node that had several: each may take minutes to load."""
    pids = played(rollouts.begin(request(0, 0))(), "pid")
    wait = rollouts.begin(request("idle 3", "idle 3"))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    result = wait()
    assert result.played_again == 2 and set(played(result, "pid")).isdisjoint(pids)
    began, ended = played(result, "began"), played(result, "ended")
    assert max(began) < min(ended), "the second was not looked at only when the first was done"


@pytest.mark.slow
def test_an_actor_that_works_long_is_not_taken_for_stopped(rollouts: RayRollouts) -> None:
    """Its loop is blocked for longer than anybody may be silent."""
    result = rollouts.begin(request(6, 0))()
    assert result.played_again == 0


@pytest.mark.slow
def test_what_is_lost_again_and_again_ends_the_run_with_its_last_words(rollouts: RayRollouts) -> None:
    wait = rollouts.begin(request("fatal"))
    with pytest.raises(
        RunFailed, match=rf"rollout actor 0 was lost {REPLACEMENTS + 1} times, .* vLLM ended: no memory"
    ):
        wait()


@pytest.mark.slow
def test_who_replaces_a_lost_actor_sleeps_too(rollouts: RayRollouts) -> None:
    pids = played(rollouts.begin(request(0, 0, version=3))(), "pid")
    os.kill(pids[0], signal.SIGKILL)
    rollouts.sleep()
    result = rollouts.begin(request(0, 0, version=3))()
    assert played(result, "slept") == [True, True] and played(result, "version") == [3, 3]


def test_another_scheduler_knows_what_the_lost_one_knew(
    cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, schedule = [f"p{i}" for i in range(5)], Schedule(problems_per_step=2, stages=(1, 2))
    ours = RayScheduler(schedule, ids, 1)
    alone = Curriculum(schedule, ids, 1)

    def lose() -> None:
        ray.kill(ours._actor)
        with pytest.raises(RayActorError):  # it may answer yet
            while True:
                ray.get(ours._actor.state_dict.remote(), timeout=60)

    for scheduler in (ours, alone):
        scheduler.leave_out({"p3"})
    for step in range(1, 7):
        assert ours.next() == alone.next() and ours.next(ahead=1) == alone.next(ahead=1)
        for scheduler in (ours, alone):
            scheduler.observe(step, {f"p{step % 3}": (0.5, f"program {step}")}, {})
        if step in (2, 5):
            lose()
        if step == 4:
            assert ours.state_dict() == alone.state_dict()
    lose()
    assert ours.state_dict() == alone.state_dict()
    for _ in range(REPLACEMENTS - 3):
        lose()
        ours.next()
    lose()
    with pytest.raises(RunFailed, match="the scheduler was lost"):
        ours.next()
