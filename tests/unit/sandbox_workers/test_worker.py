"""How a worker treats backends that die, with scripted ones."""

import asyncio
from collections.abc import Sequence

import pytest

from sandbox_workers.client import SandboxClient
from sandbox_workers.jobs import BackendDied, Job, SandboxUnavailable, WorkerLost
from sandbox_workers.local import ThreadTransport
from sandbox_workers.worker import SandboxWorker
from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Limits, Status, Verdict


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
    assert len(factory.made) == 1 and factory.made[0].alive and worker.replaced == 0


def test_a_dead_backend_is_replaced_for_the_next_jobs(caplog: pytest.LogCaptureFixture) -> None:
    factory = Factory(1)
    worker = SandboxWorker(factory)
    with pytest.raises(BackendDied, match="scripted"):
        worker.judge([job("a"), job("b")])
    assert "sandbox died under 2 jobs: scripted" in caplog.text
    assert all(v.passed for of_job in worker.judge([job("a"), job("b")]) for v in of_job)
    assert len(factory.made) == 2 and factory.made[0].closed and worker.replaced == 1


def test_a_deadly_job_takes_no_other_with_it() -> None:
    """Whatever the worker's sandboxes die of, the client has the others judged."""
    transport = ThreadTransport(SandboxWorker(Factory()), slots=2)
    client = SandboxClient(transport, version="v1")
    client.pauses_s = (0.0, 0.0)

    async def play() -> list[object]:
        wanted = [client.judge(program, ["t", "u"]) for program in ("a", "deadly", "b")]
        return await asyncio.gather(*wanted, return_exceptions=True)

    a, deadly, b = asyncio.run(play())
    transport.close()
    assert isinstance(deadly, SandboxFailure) and "3 attempts: scripted" in str(deadly)
    assert [[v.passed for v in verdicts] for verdicts in (a, b)] == [[True] * 2] * 2  # type: ignore[attr-defined]


def test_a_backend_that_died_between_batches_is_replaced() -> None:
    factory = Factory()
    worker = SandboxWorker(factory)
    factory.made[0].alive = False
    assert worker.judge([job("a")])[0][0].passed and len(factory.made) == 2


def test_a_closed_worker_judges_no_more(caplog: pytest.LogCaptureFixture) -> None:
    worker = SandboxWorker(Factory())
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


class Threads:
    """A way to some workers; records the programs of each batch."""

    def __init__(self, *workers: SandboxWorker) -> None:
        self.workers = workers
        self.size = len(workers)
        self.batches: list[tuple[int, list[str]]] = []

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        self.batches.append((worker, [job.program for job in jobs]))
        return await asyncio.to_thread(self.workers[worker].judge, jobs)


def test_a_worker_without_a_sandbox_does_not_make_the_client_serial(caplog: pytest.LogCaptureFixture) -> None:
    backends = iter([ScriptedBackend()])
    down = SandboxWorker(lambda: next(backends, Unstartable()))
    down.judge([job("a")])
    assert down._lease is not None
    down._lease.backend.close()
    transport = Threads(down, SandboxWorker(Factory()))
    client = SandboxClient(transport, version="v1")
    client.pauses_s = (0.0, 0.0)

    async def play() -> list[list[Verdict]]:
        return await asyncio.gather(*(client.judge(f"p{n}", ["t"]) for n in range(32)))

    assert all(verdicts[0].passed for verdicts in asyncio.run(play()))
    lost = [program for worker, batch in transport.batches if worker == 0 for program in batch]
    again = [batch for worker, batch in transport.batches if worker == 1 and set(batch) & set(lost)]
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
