"""What the games call: `judge`, with a cache, micro-batches and retries over any transport to the workers.

No Ray here: `pool` brings a transport to actors, `local` one to a thread. Not covered: priorities and
fairness.
"""

import asyncio
import contextlib
import hashlib
import time
from collections import OrderedDict, deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from core.interfaces import SandboxFailure
from core.verdict import Limits, OutputTest, PlainTest, Status, Test, Verdict
from sandbox_workers.jobs import Job, is_inert

NEVER_CACHED = frozenset({Status.TIME_LIMIT, Status.MEMORY_LIMIT, Status.SANDBOX_ERROR})
"""Verdicts that depend on the machine's state as well as on the program."""


class WorkerLost(RuntimeError):
    """The worker ended before it answered."""


class Transport(Protocol):
    """A way to some workers. Must be picklable if its client is to be."""

    @property
    def size(self) -> int:
        """Of all workers."""
        ...

    @property
    def base(self) -> int:
        """The first so many share all work; the others get what these cannot take soon."""
        ...

    async def wait_ready(self, worker: int) -> None:
        """Until a worker beyond the base can be sent jobs. Raise WorkerLost where it never will."""
        ...

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        """Raise WorkerLost where the worker ended."""
        ...


def verdict_keys(
    version: str, limits: Limits, run: int, language: str, program: str, tests: Sequence[Test]
) -> list[bytes]:
    """Content address of each test's verdict, before the output of an OutputTest is compared.

    Tests that are code share a process and could forge each other's verdicts: their verdicts are valid in the
    company of these tests only. Inert tests can do nothing of the kind.
    """
    common = hashlib.sha256()
    for part in (version, limits.model_dump_json(), str(run), language, program):
        _add(common, part)
    sources = [test for test in tests if isinstance(test, str)]
    company = sources if not all(map(is_inert, sources)) else ()
    keys = []
    for test in tests:
        digest = common.copy()
        if isinstance(test, OutputTest):
            for part in ("output", test.code, test.stdin):
                _add(digest, part)
        else:
            for part in ("plain" if isinstance(test, PlainTest) else "source", test, *company):
                _add(digest, part)
        keys.append(digest.digest())
    return keys


def _add(digest: "hashlib._Hash", part: str) -> None:
    encoded = part.encode("utf-8", "surrogatepass")
    digest.update(len(encoded).to_bytes(8, "big"))
    digest.update(encoded)


class VerdictCache:
    """The `capacity` most recently used verdicts."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()

    def get(self, key: bytes) -> Verdict | None:
        verdict = self._verdicts.get(key)
        if verdict is not None:
            self._verdicts.move_to_end(key)
        return verdict

    def put(self, key: bytes, verdict: Verdict) -> None:
        """Keep the verdict, unless the machine's state may have caused it."""
        if verdict.status in NEVER_CACHED or self._capacity == 0:
            return
        self._verdicts[key] = verdict
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > self._capacity:
            self._verdicts.popitem(last=False)

    def __len__(self) -> int:
        return len(self._verdicts)


@dataclass(kw_only=True, slots=True, eq=False)
class Pending:
    """Tests of one program on their way to a worker."""

    job: Job
    keys: tuple[bytes, ...]
    attempt: int = 1
    avoid: int | None = None
    """The worker that failed last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Decides what becomes of tests that a worker could not judge.

    The pauses give an actor the time to restart where there is no other.
    """

    pauses_s: tuple[float, ...] = (0.0, 1.0, 4.0)
    """Before the second, third, ... attempt."""

    def decide(self, pending: Pending, failed: Sequence[int], worker: int) -> Pending | None:
        """The job to send again, with only the `failed` tests; None when its attempts are used up."""
        if pending.attempt > len(self.pauses_s):
            return None
        tests = tuple(pending.job.tests[index] for index in failed)
        job = replace(pending.job, tests=tests)
        keys = tuple(pending.keys[index] for index in failed)
        return Pending(job=job, keys=keys, attempt=pending.attempt + 1, avoid=worker)

    def pause_s(self, again: Pending) -> float:
        """Seconds to wait before the attempt."""
        return self.pauses_s[again.attempt - 2]


@dataclass(kw_only=True, slots=True)
class ClientStats:
    """Counts since the client was made."""

    jobs: int = 0
    """Jobs sent to workers, retries not counted."""
    tests: int = 0
    """(program, test) pairs asked for."""
    cache_hits: int = 0
    shared: int = 0
    """Pairs answered by an identical one already in flight."""
    retries: int = 0
    infrastructure_failures: int = 0
    """Failed attempts: lost workers and SANDBOX_ERROR verdicts."""
    busy_s: float = 0.0
    """Seconds with at least one job in flight."""


@dataclass(slots=True)
class _Loop:
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop | None = None
    in_flight: dict[bytes, asyncio.Future] = field(default_factory=dict)
    queue: deque[Pending] = field(default_factory=deque)
    load: dict[int, int] = field(default_factory=dict)
    """Jobs in flight, per worker that is ready."""
    tasks: set[asyncio.Task] = field(default_factory=set)


class SandboxClient:
    """Implements core.interfaces.Sandbox over a transport.

    Equal pairs are judged once: from the cache, or together with the one in flight. Requests of one loop turn
    go out as batches of at most `max_batch` jobs to the least loaded workers; what exceeds `max_in_flight`
    jobs per worker waits here. Picklable with its transport: a copy starts with an empty cache.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        version: str,
        limits: Limits | None = None,
        cache_size: int = 100_000,
        max_batch: int = 16,
        max_in_flight: int = 64,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "transport": transport,
            "version": version,
            "limits": limits,
            "cache_size": cache_size,
            "max_batch": max_batch,
            "max_in_flight": max_in_flight,
            "retry": retry,
        }
        self._transport = transport
        self._version = version
        self._limits = limits or Limits()
        self._cache = VerdictCache(cache_size)
        self._max_batch = max_batch
        self._max_in_flight = max_in_flight
        self._retry = retry or RetryPolicy()
        self._stats = ClientStats()
        self._busy_since = 0.0
        self._here = _Loop()

    def __reduce__(self) -> tuple:
        return _rebuild, (self._options,)

    def stats(self) -> dict[str, float]:
        """jobs, tests, cache_hits, shared, retries, infrastructure_failures, busy_s since the start."""
        return {name: getattr(self._stats, name) for name in ClientStats.__slots__}

    async def judge(
        self,
        program: str,
        tests: Sequence[Test],
        *,
        limits: Limits | None = None,
        run: int = 0,
        language: str = "python",
    ) -> list[Verdict]:
        """One Verdict per test, in order; see core.interfaces.Sandbox.

        Raises:
            SandboxFailure: some test could not be judged after all attempts.
            UnknownLanguage: the language is not known, or cannot run here.
        """
        limits = limits or self._limits
        here = self._enter_loop()
        keys = verdict_keys(self._version, limits, run, language, program, tests)
        self._stats.tests += len(tests)
        known: dict[bytes, Verdict] = {}
        awaited: dict[bytes, asyncio.Future] = {}
        fresh: dict[bytes, Test] = {}
        idle_before = not here.in_flight
        for key, test in zip(keys, tests, strict=True):
            if key in known or key in awaited:
                continue
            if (verdict := self._cache.get(key)) is not None:
                known[key] = verdict
                self._stats.cache_hits += 1
            elif key in here.in_flight:
                awaited[key] = here.in_flight[key]
                self._stats.shared += 1
            else:
                awaited[key] = here.in_flight[key] = asyncio.get_running_loop().create_future()
                fresh[key] = test
        if fresh:
            if idle_before:
                self._busy_since = time.monotonic()
            for kind in (str, OutputTest):
                of_kind = {key: test for key, test in fresh.items() if isinstance(test, kind)}
                if of_kind:
                    self._stats.jobs += 1
                    job = Job(
                        program=program, tests=tuple(of_kind.values()), limits=limits, language=language
                    )
                    self._enqueue(here, Pending(job=job, keys=tuple(of_kind)))
        if awaited:
            await asyncio.wait(awaited.values())  # unlike gather, cancels nothing that others wait for
            known |= {key: future.result() for key, future in awaited.items()}
        verdicts = [known[key] for key in keys]
        return [
            test.judge(verdict) if isinstance(test, OutputTest) else verdict
            for test, verdict in zip(tests, verdicts, strict=True)
        ]

    # ------------------------------------------------------------ batches

    def _enter_loop(self) -> _Loop:
        """State of the running loop; what an earlier loop left undone ended with it."""
        loop = asyncio.get_running_loop()
        if self._here.loop is not loop:
            self._here = _Loop(loop=loop, load=dict.fromkeys(range(self._transport.base), 0))
            for worker in range(self._transport.base, self._transport.size):
                self._start(self._here, self._admit(self._here, worker))
        return self._here

    async def _admit(self, here: _Loop, worker: int) -> None:
        with contextlib.suppress(WorkerLost):
            await self._transport.wait_ready(worker)
            here.load[worker] = 0
            self._dispatch(here)

    def _start(self, here: _Loop, work: Coroutine[Any, Any, None]) -> None:
        assert here.loop is not None
        task = here.loop.create_task(work)
        here.tasks.add(task)
        task.add_done_callback(here.tasks.discard)

    def _enqueue(self, here: _Loop, pending: Pending) -> None:
        here.queue.append(pending)
        assert here.loop is not None
        here.loop.call_soon(self._dispatch, here)  # after all that this turn of the loop asks for

    def _dispatch(self, here: _Loop) -> None:
        while here.queue:
            worker = self._least_loaded(here, here.queue[0].avoid)
            room = self._max_in_flight - here.load[worker]
            if room <= 0:
                return
            # A few jobs are spread over idle workers rather than sent to one.
            fair = -(-len(here.queue) // self._transport.base)
            count = min(room, self._max_batch, fair)
            batch = [here.queue.popleft() for _ in range(count)]
            here.load[worker] += count
            self._start(here, self._send(here, worker, batch))

    def _least_loaded(self, here: _Loop, avoid: int | None) -> int:
        candidates = [worker for worker in here.load if worker != avoid] or [0]
        base = [worker for worker in candidates if worker < self._transport.base]
        if base and min(here.load[worker] for worker in base) < self._max_in_flight // 2:
            candidates = base
        return min(candidates, key=here.load.__getitem__)

    async def _send(self, here: _Loop, worker: int, batch: list[Pending]) -> None:
        jobs = [pending.job for pending in batch]
        try:
            answers = await self._transport.judge(worker, jobs)
        except (WorkerLost, OSError) as error:
            lost = Verdict(status=Status.SANDBOX_ERROR, error=str(error))
            answers = [[lost] * len(job.tests) for job in jobs]
        except Exception as error:  # a mistake in a request: the caller's to see, and no reason to retry
            if len(batch) > 1:  # whose?
                for pending in batch:
                    self._start(here, self._send(here, worker, [pending]))
                return
            for pending in batch:
                self._fail(here, pending.keys, error)
            answers = []
        here.load[worker] -= len(batch)
        for pending, verdicts in zip(batch, answers, strict=False):
            self._settle(here, worker, pending, verdicts)
        self._dispatch(here)

    def _settle(self, here: _Loop, worker: int, pending: Pending, verdicts: list[Verdict]) -> None:
        failed = []
        for index, (key, verdict) in enumerate(zip(pending.keys, verdicts, strict=True)):
            if verdict.status.is_infrastructure():
                failed.append(index)
                continue
            self._cache.put(key, verdict)
            future = self._take(here, key)
            if not future.done():
                future.set_result(verdict)
        if not failed:
            return
        self._stats.infrastructure_failures += len(failed)
        again = self._retry.decide(pending, failed, worker)
        if again is not None:
            self._stats.retries += 1
            assert here.loop is not None
            here.loop.call_later(self._retry.pause_s(again), self._enqueue, here, again)
            return
        reason = f"not judged after {pending.attempt} attempts: {verdicts[failed[0]].error}"
        self._fail(here, [pending.keys[index] for index in failed], SandboxFailure(reason))

    def _fail(self, here: _Loop, keys: Sequence[bytes], error: Exception) -> None:
        for key in keys:
            future = self._take(here, key)
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen: whoever waits gets it too

    def _take(self, here: _Loop, key: bytes) -> asyncio.Future:
        """The future of a pair that is no longer in flight."""
        future = here.in_flight.pop(key)
        if not here.in_flight:
            self._stats.busy_s += time.monotonic() - self._busy_since
        return future


def _rebuild(options: dict[str, Any]) -> SandboxClient:
    return SandboxClient(**options)
