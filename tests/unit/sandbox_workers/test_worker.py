"""How a worker treats backends that die, with scripted ones."""

import asyncio
from collections.abc import Sequence

import pytest

from sandbox_workers.jobs import BackendDied, Job, SandboxUnavailable, WorkerLost
from sandbox_workers.worker import SandboxWorker
from sparring.core.verdict import Limits, Status, Verdict
from tests.unit.sandbox_workers.conftest import ScriptedTransport, client_of, outcomes


class ScriptedBackend:
    slots = 1

    def __init__(self, dies: bool = False) -> None:
        self.dies = dies  # of its first batch
        self.alive = self.closed = False

    def start(self) -> None:
        self.alive = True

    def judge_batch(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        assert self.alive
        if self.dies:
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
    def __init__(self, first_dies: bool = False) -> None:
        self.first_dies = first_dies
        self.made: list[ScriptedBackend] = []

    def __call__(self) -> ScriptedBackend:
        self.made.append(ScriptedBackend(dies=self.first_dies and not self.made))
        return self.made[-1]


def test_one_backend_serves_all_batches() -> None:
    factory = Factory()
    worker = SandboxWorker(factory)
    assert len(worker.judge([job("a", 2), job("b")])[0]) == 2
    worker.judge([job("c")])
    assert len(factory.made) == 1 and factory.made[0].alive and worker.replaced == 0


def test_a_dead_backend_is_replaced_for_the_next_jobs(caplog: pytest.LogCaptureFixture) -> None:
    factory = Factory(first_dies=True)
    worker = SandboxWorker(factory)
    with pytest.raises(BackendDied, match="scripted"):
        worker.judge([job("a"), job("b")])
    assert "sandbox died under 2 jobs: scripted" in caplog.text
    assert all(v.passed for of_job in worker.judge([job("a"), job("b")]) for v in of_job)
    assert len(factory.made) == 2 and factory.made[0].closed and worker.replaced == 1


def test_a_backend_that_died_between_batches_is_replaced() -> None:
    factory = Factory()
    worker = SandboxWorker(factory)
    factory.made[0].alive = False
    assert worker.judge([job("a")])[0][0].passed and len(factory.made) == 2


def test_a_closed_worker_judges_no_more(caplog: pytest.LogCaptureFixture) -> None:
    worker = SandboxWorker(Factory())
    for _ in range(2):
        worker.close()
    with pytest.raises(WorkerLost, match="closed"):
        worker.judge([job("a")])
    assert "no sandbox starts" not in caplog.text


class Unstartable(ScriptedBackend):
    def start(self) -> None:
        raise SandboxUnavailable("no engine")


def test_no_backend_at_start_is_an_error() -> None:
    with pytest.raises(SandboxUnavailable, match="no engine"):
        SandboxWorker(Unstartable)


class Threads(ScriptedTransport):
    """A way to some workers."""

    def __init__(self, *workers: SandboxWorker) -> None:
        super().__init__(len(workers))
        self.workers = workers

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        self.batches.append((worker, list(jobs)))
        return await asyncio.to_thread(self.workers[worker].judge, jobs)


def test_a_worker_without_a_sandbox_does_not_make_the_client_serial(caplog: pytest.LogCaptureFixture) -> None:
    backends = iter([ScriptedBackend()])
    down = SandboxWorker(lambda: next(backends, Unstartable()))
    down.judge([job("a")])
    assert down._lease is not None
    down._lease.backend.close()
    transport = Threads(down, SandboxWorker(Factory()))
    judged = outcomes(client_of(transport), (f"p{n}" for n in range(32)))
    assert all(verdict.passed for (verdict,) in judged)
    batches = [(worker, {job.program for job in jobs}) for worker, jobs in transport.batches]
    lost = {program for worker, batch in batches if worker == 0 for program in batch}
    again = [batch for worker, batch in batches if worker == 1 and batch & lost]
    assert len(lost) > 8 and sum(map(len, again)) >= len(lost) and max(map(len, again)) == len(lost) // 2
    assert "no sandbox starts: no engine" in caplog.text


def test_a_backend_is_recycled_after_its_jobs_and_its_users_may_finish() -> None:
    factory = Factory()
    worker = SandboxWorker(factory, recycle_jobs=3)
    worker.judge([job("a"), job("b")])
    first = worker._take(1)  # a batch in work
    worker.judge([job("c")])
    assert len(factory.made) == 2 and factory.made[0].alive
    worker._release(first)
    assert factory.made[0].closed and factory.made[1].alive and worker.replaced == 0
