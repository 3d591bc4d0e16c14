"""What the way to the actors makes of their errors; no cluster."""

import asyncio

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from sandbox_workers.jobs import BackendDied, WorkerLost
from sandbox_workers.languages import UnknownLanguage
from sandbox_workers.pool import RayTransport


class Failing:
    """An actor whose judge raises, as Ray does."""

    def __init__(self, error: Exception) -> None:
        self.judge = self
        self.error = error

    async def remote(self, jobs: object) -> None:
        if isinstance(self.error, ActorDiedError):
            raise self.error
        raise RayTaskError("judge", "Traceback: there, line 7", self.error).as_instanceof_cause()


def raised_for(error: Exception) -> BaseException:
    with pytest.raises(Exception) as caught:
        asyncio.run(RayTransport([Failing(error)]).judge(0, []))
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
