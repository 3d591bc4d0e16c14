"""How a worker treats backends that die, with scripted ones."""

import time
from collections.abc import Sequence

import pytest

from core.verdict import Limits, Status, Verdict
from sandbox_workers.jobs import BackendDied, Job, SandboxUnavailable
from sandbox_workers.worker import SandboxWorker


class ScriptedBackend:
    """Dies of any batch that holds a deadly program; `deaths` counts down the batches that kill it anyway."""

    slots = 1

    def __init__(self, deaths: int = 0) -> None:
        self.deaths = deaths
        self.alive = False
        self.closed = False

    def start(self) -> None:
        self.alive = True

    def judge_batch(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        assert self.alive
        if self.deaths > 0 or any(job.program == "deadly" for job in jobs):
            self.alive = False
            raise BackendDied("scripted")
        return [[Verdict(status=Status.PASSED) for _ in job.tests] for job in jobs]

    def commands(self) -> set[str]:
        return set()

    def healthy(self) -> bool:
        return self.alive

    def close(self) -> None:
        self.alive = False
        self.closed = True


def job(program: str, tests: int = 1) -> Job:
    return Job(program=program, tests=("t",) * tests, limits=Limits())


class Factory:
    def __init__(self, *deaths: int) -> None:
        self.deaths = list(deaths)
        self.made: list[ScriptedBackend] = []

    def __call__(self) -> ScriptedBackend:
        self.made.append(ScriptedBackend(self.deaths.pop(0) if self.deaths else 0))
        return self.made[-1]


def test_one_backend_serves_all_batches() -> None:
    factory = Factory()
    worker = SandboxWorker(factory)
    assert len(worker.judge([job("a", 2), job("b")])[0]) == 2
    worker.judge([job("c")])
    assert len(factory.made) == 1 and factory.made[0].alive
    stats = worker.stats()
    assert (stats.jobs, stats.infrastructure_failures, stats.backends_replaced) == (3, 0, 0)


def test_a_dead_backend_is_replaced_and_its_jobs_are_judged_again() -> None:
    factory = Factory(1)
    worker = SandboxWorker(factory)
    verdicts = worker.judge([job("a"), job("b")])
    assert all(v.passed for of_job in verdicts for v in of_job)
    assert len(factory.made) == 2 and factory.made[0].closed
    assert worker.stats().backends_replaced == 1


def test_a_deadly_job_takes_no_other_with_it() -> None:
    worker = SandboxWorker(Factory())
    verdicts = worker.judge([job("a"), job("deadly", 2), job("b")])
    assert [[str(v.status) for v in of_job] for of_job in verdicts] == [
        ["PASSED"],
        ["SANDBOX_ERROR", "SANDBOX_ERROR"],
        ["PASSED"],
    ]
    assert worker.stats().infrastructure_failures == 2 + 2  # backends and verdicts


def test_a_backend_that_died_between_batches_is_replaced() -> None:
    factory = Factory()
    worker = SandboxWorker(factory)
    factory.made[0].alive = False
    assert worker.judge([job("a")])[0][0].passed and len(factory.made) == 2


def test_a_closed_worker_judges_no_more() -> None:
    worker = SandboxWorker(Factory())
    worker.close()
    assert worker.judge([job("a")])[0][0].status is Status.SANDBOX_ERROR


def test_no_backend_at_start_is_an_error() -> None:
    class Unstartable(ScriptedBackend):
        def start(self) -> None:
            raise SandboxUnavailable("no engine")

    with pytest.raises(SandboxUnavailable, match="no engine"):
        SandboxWorker(Unstartable)


def test_a_backend_is_recycled_after_its_jobs_and_its_users_may_finish() -> None:
    factory = Factory()
    worker = SandboxWorker(factory, recycle_jobs=3)
    worker.judge([job("a"), job("b")])
    first = worker._take(1)  # a batch in work
    worker.judge([job("c")])
    assert len(factory.made) == 2 and factory.made[0].alive
    worker._release(first)
    assert factory.made[0].closed and factory.made[1].alive
    stats = worker.stats()
    assert (stats.recycled, stats.backends_replaced, stats.infrastructure_failures) == (1, 0, 0)


def test_a_worker_beyond_the_base_starts_with_its_jobs_and_closes_when_idle() -> None:
    factory = Factory()
    worker = SandboxWorker(factory, idle_s=0.1)
    assert factory.made == []
    for round_ in (1, 2):
        worker.judge([job("a")])
        assert len(factory.made) == round_
        deadline = time.monotonic() + 10
        while not factory.made[-1].closed and time.monotonic() < deadline:
            time.sleep(0.01)
        assert factory.made[-1].closed
    assert worker.stats().backends_replaced == 0
    worker.close()
