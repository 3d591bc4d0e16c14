"""Cache, sharing, batching and retries of the client, over a scripted transport."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sandbox_workers.client import verdict_keys
from sandbox_workers.jobs import BackendDied, Job, WorkerLost
from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import KnownTest, Limits, OutputTest, Status, Test, Verdict
from tests.unit.sandbox_workers.conftest import ScriptedTransport, client_of, outcomes, passed


def key(*, test: Test = "f(1)", company: Sequence[Test] = (), **parts: Any) -> bytes:
    usual: dict[str, Any] = {
        "version": "v1",
        "limits": Limits(),
        "run": 0,
        "language": "python",
        "program": "program",
    }
    return verdict_keys(**(usual | parts), tests=[test, *company])[0]


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
    assert key(test=OutputTest(stdout="1")) == key(test=OutputTest(stdout="2"))  # compared here


def test_tests_that_are_code_are_cached_with_their_company_only() -> None:
    """One of them may forge the others' verdicts: they share a process."""
    forger = "import builtins; builtins.len = print"
    assert key(company=["f(2)"]) == key() == key(company=["assert f(3) == [-1, {'a': (2,)}]"])
    assert key(company=[forger]) != key()
    assert key(company=[forger, "f(2)"]) != key(company=[forger])
    assert (
        key(company=[KnownTest("f(2)", data=True)]) == key() != key(company=[KnownTest("f(2)", data=False)])
    )


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


def test_what_is_judged_afresh_is_not_kept() -> None:
    transport = ScriptedTransport()
    client = client_of(transport, cache_size=1)

    async def play() -> None:
        await client.judge("p", ["f(1)"])
        await asyncio.gather(*(client.judge("p", ["f(1)"], run=None) for _ in range(3)))
        await client.judge("p", ["f(1)"])  # still there: the others took no place

    asyncio.run(play())
    assert sum(len(jobs) for _, jobs in transport.batches) == 4
    assert client.stats()["cache_hits"] == 1


def test_large_tests_are_judged_as_small_ones() -> None:
    transport = ScriptedTransport()
    client = client_of(transport, cache_size=1000)
    tests = [f"f({'1' * 60_000})", f"f({'2' * 60_000})"]
    for _ in range(2):
        assert [v.value for v in outcomes(client, ["p"], *tests)[0]] == [f"p:{test}" for test in tests]
    assert len(transport.batches) == 1


def test_tests_of_two_kinds_are_two_jobs_and_outputs_are_compared_here() -> None:
    printed = Verdict(status=Status.PASSED, stdout="1 \n2\n\n")
    transport = ScriptedTransport(script=lambda worker, job, test: printed)
    outputs = [OutputTest(stdout="1\n2"), OutputTest(stdout="1\n3"), OutputTest(stdout=None, stdin="x")]
    verdicts = asyncio.run(client_of(transport).judge("p", [*outputs, "f(1)"]))
    assert [v.passed for v in verdicts] == [True, False, True, True]
    assert verdicts[1].status is Status.WRONG_ANSWER
    assert [len(job.tests) for _, jobs in transport.batches for job in jobs] == [1, 2]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.SANDBOX_ERROR])
def test_what_the_machine_may_have_caused_is_not_cached(status: Status) -> None:
    transport = ScriptedTransport(script=lambda worker, job, test: Verdict(status=status))
    client = client_of(transport)
    for _ in range(2):
        assert outcomes(client, ["p"])[0][0].status is status
    machine = (Status.TIME_LIMIT, Status.MEMORY_LIMIT)
    assert len(transport.batches) == (2 if status in machine else 1)


@pytest.mark.parametrize(("size", "programs", "asked"), [(2, "abacab", "abcb"), (0, "pp", "pp")])
def test_the_cache_drops_the_least_recently_used(size: int, programs: str, asked: str) -> None:
    transport = ScriptedTransport()
    client = client_of(transport, cache_size=size)
    for program in programs:
        outcomes(client, [program])
    assert transport.programs() == [*asked]


def test_a_cache_counts_what_verdicts_hold() -> None:
    """A program may print much; the value of the scripted transport is as long as its test."""
    transport = ScriptedTransport()
    client = client_of(transport, cache_size=100)
    large = [f"f({digit * size})" for digit, size in (("2", 60_000), ("3", 60_000), ("4", 70_000))]
    for test in ("f(1)", large[0], "f(1)", large[1], "f(1)", large[0], large[2], large[2]):
        asyncio.run(client.judge("p", [test]))
    assert client.stats()["cache_hits"] == 2
    assert client._cache.currsize <= 100_000


def test_concurrent_requests_are_batched_and_spread() -> None:
    transport = ScriptedTransport(size=2)
    outcomes(client_of(transport, max_batch=8), map(str, range(20)))
    assert sum(transport.sizes()) == 20 and max(transport.sizes()) <= 8 and len(transport.sizes()) < 20
    of_first = sum(len(jobs) for worker, jobs in transport.batches if worker == 0)
    assert abs(of_first - (20 - of_first)) <= 8


def test_no_worker_has_more_in_flight_than_allowed() -> None:
    transport = ScriptedTransport()
    verdicts = outcomes(client_of(transport, max_batch=3, max_in_flight=5), map(str, range(30)))
    assert all(v.passed for (v,) in verdicts)
    assert max(sum(map(len, batches)) for batches in transport.together) == 5


def test_only_failed_tests_are_sent_again_and_elsewhere() -> None:
    def first_worker_fails_b(worker: int, job: Job, test: str) -> Verdict:
        if worker == 0 and test == "b":
            return Verdict(status=Status.SANDBOX_ERROR, error="broken")
        return passed(worker, job, test)

    transport = ScriptedTransport(size=2, script=first_worker_fails_b)
    client = client_of(transport)
    assert all(v.passed for v in outcomes(client, ["p"], "a", "b")[0])
    assert [(worker, jobs[0].tests) for worker, jobs in transport.batches] == [(0, ("a", "b")), (1, ("b",))]
    assert client.stats()["retries"] == 1 and client.stats()["infrastructure_failures"] == 1


def test_lost_workers_end_in_sandbox_failure_for_all_who_wait() -> None:
    def lost(worker: int, job: Job, test: str) -> Verdict:
        raise BackendDied("gone")

    client = client_of(ScriptedTransport(script=lost))
    assert all(isinstance(outcome, SandboxFailure) for outcome in outcomes(client, ["p", "p"]))
    assert client.stats()["infrastructure_failures"] == 3


@pytest.mark.parametrize(
    ("error", "again"),
    [(BackendDied("gone"), [1, 1, 1, 1]), (WorkerLost("gone"), [4]), (ConnectionResetError("gone"), [4])],
)
def test_only_those_under_which_a_sandbox_died_are_judged_alone(error: Exception, again: list[int]) -> None:
    def lost_at_first(worker: int, job: Job, test: str) -> Verdict:
        if len(transport.batches) == 1:
            raise error
        return passed(worker, job, test)

    transport = ScriptedTransport(script=lost_at_first)
    assert all(v.passed for (v,) in outcomes(client_of(transport), "abcd"))
    assert transport.sizes() == [4, *again]


@pytest.mark.parametrize("in_flight", [64, 1], ids=["in one batch", "one by one"])
def test_a_mistake_is_raised_and_not_retried_and_the_rest_goes_on(in_flight: int) -> None:
    def refuse(worker: int, job: Job, test: str) -> Verdict:
        if job.program == "bad":
            raise ValueError("memory")
        return passed(worker, job, test)

    client = client_of(ScriptedTransport(script=refuse), max_in_flight=in_flight)
    bad, (good,) = outcomes(client, ["bad", "good"])
    assert isinstance(bad, ValueError) and good.passed and client.stats()["retries"] == 0


def test_a_cancelled_request_does_not_cancel_its_twin() -> None:
    client = client_of(ScriptedTransport())

    async def play() -> list[Verdict]:
        first = asyncio.create_task(client.judge("p", ["a"]))
        second = asyncio.create_task(client.judge("p", ["a"]))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(play())[0].passed


def test_each_attempt_has_only_what_failed_and_its_pause() -> None:
    def fails(worker: int, job: Job, test: str) -> Verdict:
        """b always; c once."""
        failed = test == "b" or (test == "c" and len(transport.batches) == 1)
        return Verdict(status=Status.SANDBOX_ERROR, error="broken") if failed else passed(worker, job, test)

    transport = ScriptedTransport(script=fails)
    client = client_of(transport)
    pauses: list[float] = []

    async def play() -> None:
        loop = asyncio.get_running_loop()
        later = loop.call_later

        def recorded(pause: float, *call: object):
            if call[0] == client._enqueue:
                pauses.append(pause)
                pause = 0.0
            return later(pause, *call)  # type: ignore[arg-type]

        client.pauses_s = (0.0, 2.0)
        loop.call_later = recorded  # type: ignore[method-assign]
        with pytest.raises(SandboxFailure, match="3 attempts: broken"):
            await client.judge("p", ["a", "b", "c"])

    asyncio.run(play())
    assert [jobs[0].tests for _, jobs in transport.batches] == [("a", "b", "c"), ("b", "c"), ("b",)]
    assert pauses == [0.0, 2.0]


class Deadly(ScriptedTransport):
    """A sandbox per worker, which ends under a program called deadly, with all that is in it then."""

    def __init__(self, size: int = 1) -> None:
        super().__init__(size)
        self.ends: list[list[asyncio.Future]] = [[] for _ in range(size)]

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        ended = asyncio.get_running_loop().create_future()
        self.ends[worker].append(ended)
        answers = asyncio.ensure_future(super().judge(worker, jobs))
        if any(job.program == "deadly" for job in jobs):
            await answers
            for other in self.ends[worker]:
                if not other.done():
                    other.set_result(None)
        await asyncio.wait([answers, ended], return_when=asyncio.FIRST_COMPLETED)
        self.ends[worker].remove(ended)
        if ended.done():
            answers.cancel()
            raise BackendDied("scripted")
        return answers.result()


@pytest.mark.parametrize("size", [1, 2])
def test_a_job_that_ends_its_sandbox_takes_no_other_with_it_twice(size: int) -> None:
    """Those of its batch, and of other batches in the same sandbox, are judged; and it is blamed alone."""
    transport = Deadly(size)
    judged = outcomes(
        client_of(transport, max_batch=8), [*map(str, range(30)), "deadly", *map(str, range(30, 60))]
    )
    failed = [n for n, outcome in enumerate(judged) if isinstance(outcome, Exception)]
    assert failed == [30] and str(judged[30]).endswith("scripted")
    asked = transport.programs()
    assert asked.count("deadly") == 3 and max(map(asked.count, set(asked) - {"deadly"})) == 2


def test_whoever_was_in_a_sandbox_that_ended_has_one_to_itself() -> None:
    transport = Deadly()
    outcomes(client_of(transport, max_batch=2, max_in_flight=4), ["a", "deadly", *map(str, range(9))])
    assert max(map(len, transport.together)) > 1
    assert [batches for batches in transport.together if ["deadly"] in batches] == [[["deadly"]]] * 2
