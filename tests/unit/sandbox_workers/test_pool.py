"""What the way to the actors makes of their errors; no cluster."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from sandbox_workers import pool
from sandbox_workers.jobs import BackendDied, Job, WorkerLost
from sandbox_workers.languages import UnknownLanguage
from sandbox_workers.pool import RayTransport
from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Status, Verdict
from tests.unit.sandbox_workers.conftest import client_of, outcomes


def raised_for(error: Exception) -> BaseException:
    """What a request raises if the judge of its actor raises this, as Ray does."""

    async def judge(jobs: object) -> None:
        if isinstance(error, ActorDiedError):
            raise error
        raise RayTaskError("judge", "Traceback: there, line 7", error).as_instanceof_cause()

    with pytest.raises(Exception) as caught:
        asyncio.run(
            RayTransport([SimpleNamespace(judge=SimpleNamespace(remote=judge))], 0, pytest.fail).judge(0, [])
        )
    return caught.value


@pytest.mark.parametrize("error", [BackendDied("gone"), WorkerLost("gone"), UnknownLanguage("gone")])
def test_what_a_worker_says_arrives_as_it_said_it(error: Exception) -> None:
    assert raised_for(error) is error


@pytest.mark.parametrize("error", [KeyError("id"), OSError("pipe")])
def test_a_bug_of_a_worker_arrives_with_the_traceback_from_there(error: Exception) -> None:
    raised = raised_for(error)
    assert isinstance(raised, type(error)) and "there, line 7" in str(raised)


def test_a_dead_actor_is_a_lost_worker() -> None:
    raised = raised_for(ActorDiedError())
    assert isinstance(raised, WorkerLost) and "worker 0 lost its answer: ActorDiedError" in str(raised)


class Node:
    """A worker whose node is away for the first `lookups` times that somebody looks for it."""

    def __init__(self, lookups: float, error: Exception | None = None) -> None:
        self.lookups, self.error = lookups, error or ActorUnavailableError("its node is away", None)
        self.looked = self.judged = 0
        self.pid, self.judge = (SimpleNamespace(remote=call) for call in (self._pid, self._judge))

    async def _pid(self) -> int:
        self.looked += 1
        if self.looked <= self.lookups:
            raise self.error
        return 1

    async def _judge(self, jobs: list[Job]) -> list[list[Verdict]]:
        if self.looked < self.lookups:
            raise self.error
        self.judged += len(jobs)
        return [[Verdict(status=Status.PASSED) for _ in job.tests] for job in jobs]


def judge_two(*nodes: Node, end: Callable[[Any], None] = lambda _: pytest.fail("it was there")) -> float:
    """Has two programs judged. Returns the number of failed attempts."""
    client = client_of(RayTransport(nodes, 3600.0, end))
    assert all(verdict.passed for (verdict,) in outcomes(client, "ab"))
    return client.stats()["infrastructure_failures"]


def test_a_node_that_comes_back_costs_time_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is away: waiting is no attempt."""
    monkeypatch.setattr(pool, "LOOK_S", 0)
    node = Node(lookups=40)
    assert judge_two(node) == 2, "each job met the loss once, and is counted"
    assert node.judged == 2


def test_another_node_goes_on_at_once() -> None:
    away, there = Node(lookups=float("inf")), Node(lookups=0)
    assert judge_two(away, there) >= 1
    assert there.judged == 2 and away.looked <= 2


@pytest.mark.parametrize(
    ("error", "patience_s", "looks"),
    [(ActorDiedError(), 3600.0, True), (None, 0.0, False)],
    ids=["dead for good", "patience is over"],
)
def test_waiting_ends(error: Exception | None, patience_s: float, looks: bool) -> None:
    node = Node(lookups=float("inf"), error=error)
    failure, _ = outcomes(client_of(RayTransport([node], patience_s, pytest.fail)), "ab")
    assert isinstance(failure, SandboxFailure) and "worker 0 lost" in str(failure)
    assert bool(node.looked) == looks


def test_a_worker_that_is_stopped_is_ended_once_for_ray_to_start_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is unavailable to who asks it for the first time, and does not die of that. One that waits for a node is not
    ended again and again: Ray counts that."""
    stopped, killed = Node(lookups=float("inf")), []

    def end(actor: Node) -> None:
        assert actor is stopped
        killed.append(stopped.looked)
        stopped.lookups = stopped.looked + 30

    for name, seconds in {"SILENCE_S": 0.05, "LOOK_S": 0.01}.items():
        monkeypatch.setattr(pool, name, seconds)
    assert judge_two(stopped, end=end) >= 1
    assert len(killed) == 1


def test_a_worker_that_judges_long_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Node):
        async def _judge(self, jobs: list[Job]) -> list[list[Verdict]]:
            await asyncio.sleep(0.3)
            return await super()._judge(jobs)

    slow = Slow(lookups=0)
    for name in ("SILENCE_S", "ANSWER_S"):
        monkeypatch.setattr(pool, name, 0.05)
    assert judge_two(slow) == 0 and slow.looked >= 2
