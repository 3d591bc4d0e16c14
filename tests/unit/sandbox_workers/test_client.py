"""Cache, sharing, batching and retries of the client, over a scripted transport."""

import asyncio
import pickle
from collections.abc import Callable, Sequence

import pytest

from core.interfaces import SandboxFailure
from core.verdict import Limits, Status, Verdict
from sandbox_workers.client import Pending, RetryPolicy, SandboxClient, VerdictCache, WorkerLost, verdict_key
from sandbox_workers.jobs import Job

NO_PAUSE = RetryPolicy(pauses_s=(0.0, 0.0))
Script = Callable[[int, Job, str], Verdict]


def passed(worker: int, job: Job, test: str) -> Verdict:
    return Verdict(status=Status.PASSED, value=f"{job.program}:{test}")


class ScriptedTransport:
    """Answers by a function of (worker, job, test) and records the batches."""

    def __init__(self, size: int = 1, script: Script = passed) -> None:
        self.size = size
        self.script = script
        self.batches: list[tuple[int, list[Job]]] = []

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        self.batches.append((worker, list(jobs)))
        await asyncio.sleep(0.001)
        return [[self.script(worker, job, test) for test in job.tests] for job in jobs]


def client_of(transport: ScriptedTransport, **options: object) -> SandboxClient:
    return SandboxClient(transport, version="v1", retry=NO_PAUSE, **options)  # type: ignore[arg-type]


def test_key_depends_on_every_part() -> None:
    base = ("v1", Limits(), 0, "program", "test")
    others = [
        ("v2", Limits(), 0, "program", "test"),
        ("v1", Limits(cpu_s=3), 0, "program", "test"),
        ("v1", Limits(), 1, "program", "test"),
        ("v1", Limits(), 0, "program ", "test"),
        ("v1", Limits(), 0, "programt", "est"),
    ]
    keys = {verdict_key(*parts) for parts in [base, *others]}
    assert len(keys) == 6 and verdict_key(*base) in keys


def test_equal_pairs_are_judged_once() -> None:
    transport = ScriptedTransport()
    client = client_of(transport)

    async def play() -> None:
        first = await asyncio.gather(client.judge("p", ["a", "b", "a"]), client.judge("p", ["b", "c"]))
        assert [v.value for v in first[0]] == ["p:a", "p:b", "p:a"]
        assert [v.value for v in first[1]] == ["p:b", "p:c"]
        await client.judge("p", ["c", "a"])
        await client.judge("p", ["a"], run=1)

    asyncio.run(play())
    asked = [test for _, jobs in transport.batches for job in jobs for test in job.tests]
    assert asked == ["a", "b", "c", "a"]
    stats = client.stats()
    assert (stats["tests"], stats["cache_hits"], stats["shared"], stats["jobs"]) == (8, 2, 1, 3)
    assert stats["busy_s"] > 0


@pytest.mark.parametrize("status", list(Status))
def test_what_the_machine_may_have_caused_is_not_cached(status: Status) -> None:
    cache = VerdictCache(10)
    cache.put(b"k", Verdict(status=status))
    machine = (Status.TIME_LIMIT, Status.MEMORY_LIMIT, Status.SANDBOX_ERROR)
    assert (cache.get(b"k") is None) == (status in machine)


def test_cache_drops_the_least_recently_used() -> None:
    cache = VerdictCache(2)
    for key in (b"a", b"b"):
        cache.put(key, Verdict(status=Status.PASSED))
    cache.get(b"a")
    cache.put(b"c", Verdict(status=Status.PASSED))
    assert cache.get(b"b") is None and cache.get(b"a") is not None and len(cache) == 2


def test_concurrent_requests_are_batched_and_spread() -> None:
    transport = ScriptedTransport(size=2)
    client = client_of(transport, max_batch=8)

    async def play() -> None:
        await asyncio.gather(*(client.judge(f"p{n}", ["t"]) for n in range(20)))

    asyncio.run(play())
    sizes = [len(jobs) for _, jobs in transport.batches]
    assert sum(sizes) == 20 and max(sizes) <= 8 and len(sizes) < 20
    of_worker = [sum(len(jobs) for worker, jobs in transport.batches if worker == w) for w in (0, 1)]
    assert abs(of_worker[0] - of_worker[1]) <= 8


def test_no_worker_has_more_in_flight_than_allowed() -> None:
    in_flight, most = 0, 0

    class Counting(ScriptedTransport):
        async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
            nonlocal in_flight, most
            in_flight += len(jobs)
            most = max(most, in_flight)
            try:
                return await super().judge(worker, jobs)
            finally:
                in_flight -= len(jobs)

    client = client_of(Counting(), max_batch=3, max_in_flight=5)

    async def play() -> None:
        verdicts = await asyncio.gather(*(client.judge(f"p{n}", ["t"]) for n in range(30)))
        assert all(v[0].passed for v in verdicts)

    asyncio.run(play())
    assert most == 5


def test_only_failed_tests_are_sent_again_and_elsewhere() -> None:
    def first_worker_fails_b(worker: int, job: Job, test: str) -> Verdict:
        if worker == 0 and test == "b":
            return Verdict(status=Status.SANDBOX_ERROR, error="broken")
        return passed(worker, job, test)

    transport = ScriptedTransport(size=2, script=first_worker_fails_b)
    client = client_of(transport)
    verdicts = asyncio.run(client.judge("p", ["a", "b"]))
    assert all(v.passed for v in verdicts)
    assert [(worker, jobs[0].tests) for worker, jobs in transport.batches] == [(0, ("a", "b")), (1, ("b",))]
    assert client.stats()["retries"] == 1 and client.stats()["infrastructure_failures"] == 1


def test_lost_workers_end_in_sandbox_failure_for_all_who_wait() -> None:
    def lost(worker: int, job: Job, test: str) -> Verdict:
        raise WorkerLost("gone")

    client = client_of(ScriptedTransport(script=lost))

    async def play() -> list[object]:
        return await asyncio.gather(
            client.judge("p", ["a"]), client.judge("p", ["a"]), return_exceptions=True
        )

    outcomes = asyncio.run(play())
    assert all(isinstance(outcome, SandboxFailure) and "3 attempts" in str(outcome) for outcome in outcomes)
    assert client.stats()["infrastructure_failures"] == 3


def test_a_mistake_is_raised_and_not_retried_and_the_rest_goes_on() -> None:
    def refuse(worker: int, job: Job, test: str) -> Verdict:
        if job.program == "bad":
            raise ValueError("memory")
        return passed(worker, job, test)

    client = client_of(ScriptedTransport(script=refuse), max_in_flight=1)

    async def play() -> list[object]:
        wanted = [client.judge(program, ["t"]) for program in ("bad", "good")]
        return await asyncio.wait_for(asyncio.gather(*wanted, return_exceptions=True), 5)

    bad, good = asyncio.run(play())
    assert isinstance(bad, ValueError) and isinstance(good, list) and client.stats()["retries"] == 0


def test_a_cancelled_request_does_not_cancel_its_twin() -> None:
    client = client_of(ScriptedTransport())

    async def play() -> list[Verdict]:
        first = asyncio.create_task(client.judge("p", ["a"]))
        second = asyncio.create_task(client.judge("p", ["a"]))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(play())[0].passed


def test_the_client_outlives_an_event_loop() -> None:
    client = client_of(ScriptedTransport())
    assert asyncio.run(client.judge("p", ["a"]))[0].passed
    assert asyncio.run(client.judge("p", ["a", "b"]))[1].passed


def test_a_pickled_client_keeps_its_settings() -> None:
    client = SandboxClient(PicklableTransport(), version="v7", limits=Limits(cpu_s=1))
    copy = pickle.loads(pickle.dumps(client))
    assert copy._version == "v7" and copy._limits == Limits(cpu_s=1) and copy._transport.size == 3


class PicklableTransport:
    size = 3

    def __reduce__(self) -> str | tuple:
        return _picklable, ()

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        raise NotImplementedError


def _picklable() -> PicklableTransport:
    return PicklableTransport()


def test_retry_decision() -> None:
    job = Job(program="p", tests=("a", "b", "c"), limits=Limits())
    pending = Pending(job=job, keys=(b"a", b"b", b"c"))
    policy = RetryPolicy(pauses_s=(0.0, 2.0))
    again = policy.decide(pending, [0, 2], worker=1)
    assert again is not None
    assert (again.job.tests, again.keys, again.attempt, again.avoid) == (("a", "c"), (b"a", b"c"), 2, 1)
    last = policy.decide(again, [1], worker=0)
    assert last is not None and last.job.tests == ("c",) and policy.pause_s(last) == 2.0
    assert policy.decide(last, [0], worker=0) is None
