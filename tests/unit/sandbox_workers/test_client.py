"""Cache, sharing, batching and retries of the client, over a scripted transport."""

import asyncio
import pickle
from collections.abc import Callable, Sequence

import pytest

from core.interfaces import SandboxFailure
from core.verdict import Limits, OutputTest, Status, Verdict
from sandbox_workers.client import Pending, RetryPolicy, SandboxClient, VerdictCache, WorkerLost, verdict_keys
from sandbox_workers.jobs import Job

NO_PAUSE = RetryPolicy(pauses_s=(0.0, 0.0))
Script = Callable[[int, Job, str], Verdict]


def passed(worker: int, job: Job, test: str) -> Verdict:
    return Verdict(status=Status.PASSED, value=f"{job.program}:{test}")


class ScriptedTransport:
    """Answers by a function of (worker, job, test) and records the batches."""

    def __init__(self, size: int = 1, script: Script = passed, base: int | None = None) -> None:
        self.size = size
        self.base = base or size
        self.script = script
        self.batches: list[tuple[int, list[Job]]] = []

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        self.batches.append((worker, list(jobs)))
        await asyncio.sleep(0.001)
        return [[self.script(worker, job, test) for test in job.tests] for job in jobs]

    async def wait_ready(self, worker: int) -> None:
        if worker == 3:
            raise WorkerLost("never")


def client_of(transport: ScriptedTransport, **options: object) -> SandboxClient:
    return SandboxClient(transport, version="v1", retry=NO_PAUSE, **options)  # type: ignore[arg-type]


def key(version="v1", limits=None, run=0, language="python", program="program", test="f(1)", company=()):
    return verdict_keys(version, limits or Limits(), run, language, program, [test, *company])[0]


def test_key_depends_on_every_part() -> None:
    others = [
        key(version="v2"),
        key(limits=Limits(cpu_s=3)),
        key(run=1),
        key(language="lua"),
        key(program="program "),
        key(program="programf", test="(1)"),
        key(test=OutputTest(stdout="1", code="f(1)")),
        key(test=OutputTest(stdout="1", stdin="f(1)")),
    ]
    assert len({key(), *others}) == 1 + len(others)


def test_the_expected_output_is_no_part_of_the_key() -> None:
    assert key(test=OutputTest(stdout="1")) == key(test=OutputTest(stdout="2"))


def test_tests_that_are_code_are_cached_with_their_company_only() -> None:
    """One of them may forge the others' verdicts: they share a process."""
    forger = "import builtins; builtins.len = print"
    assert key(company=["f(2)"]) == key() == key(company=["assert f(3) == [-1, {'a': (2,)}]"])
    assert key(company=[forger]) != key()
    assert key(company=[forger, "f(2)"]) != key(company=[forger])


def test_equal_pairs_are_judged_once() -> None:
    transport = ScriptedTransport()
    client = client_of(transport)

    async def play() -> None:
        first = await asyncio.gather(
            client.judge("p", ["f(1)", "f(2)", "f(1)"]), client.judge("p", ["f(2)", "f(3)"])
        )
        assert [v.value for v in first[0]] == ["p:f(1)", "p:f(2)", "p:f(1)"]
        assert [v.value for v in first[1]] == ["p:f(2)", "p:f(3)"]
        await client.judge("p", ["f(3)", "f(1)"])
        await client.judge("p", ["f(1)"], run=1)

    asyncio.run(play())
    asked = [test for _, jobs in transport.batches for job in jobs for test in job.tests]
    assert asked == ["f(1)", "f(2)", "f(3)", "f(1)"]
    stats = client.stats()
    assert (stats["tests"], stats["cache_hits"], stats["shared"], stats["jobs"]) == (8, 2, 1, 3)
    assert stats["busy_s"] > 0


def test_tests_of_two_kinds_are_two_jobs_and_outputs_are_compared_here() -> None:
    transport = ScriptedTransport(
        script=lambda worker, job, test: Verdict(status=Status.PASSED, stdout="1 \n2\n\n")
    )
    client = client_of(transport)
    wanted = [
        OutputTest(stdout="1\n2"),
        "f(1)",
        OutputTest(stdout="1\n3"),
        OutputTest(stdout=None, stdin="x"),
    ]
    verdicts = asyncio.run(client.judge("p", wanted))
    assert [str(v.status) for v in verdicts] == ["PASSED", "PASSED", "WRONG_ANSWER", "PASSED"]
    assert [len(job.tests) for _, jobs in transport.batches for job in jobs] == [1, 2]


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

    in_one_batch = client_of(ScriptedTransport(script=refuse))
    one_by_one = client_of(ScriptedTransport(script=refuse), max_in_flight=1)

    async def play(client: SandboxClient) -> list[object]:
        wanted = [client.judge(program, ["t"]) for program in ("bad", "good")]
        return await asyncio.wait_for(asyncio.gather(*wanted, return_exceptions=True), 5)

    for client in (in_one_batch, one_by_one):
        bad, good = asyncio.run(play(client))
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


def test_workers_beyond_the_base_get_what_these_cannot_take_soon() -> None:
    transport = ScriptedTransport(size=4, base=2)
    client = client_of(transport, max_in_flight=4, max_batch=1)

    async def ask(count: int) -> set[int]:
        transport.batches.clear()
        await asyncio.gather(*(client.judge(f"p{count}-{n}", ["f(1)"]) for n in range(count)))
        return {worker for worker, _ in transport.batches}

    async def play() -> None:
        assert await ask(1) | await ask(2) | await ask(4) <= {0, 1}
        assert await ask(40) == {0, 1, 2}  # 3 never became ready

    asyncio.run(play())
