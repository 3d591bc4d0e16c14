"""The interface that the games call: `SandboxClient.judge`, with a cache, micro-batches and retries over any transport
to the workers.

This module does not use Ray: `pool` provides a transport to actors, `local` one to a thread. Not covered: priorities
and fairness.
"""

import asyncio
import hashlib
import itertools
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from cachetools import LRUCache

from sandbox_workers.jobs import BackendDied, Job, WorkerLost, is_data
from sparring.core.interfaces import CodeTests, SandboxFailure
from sparring.core.verdict import KnownTest, Limits, OutputTest, ReferenceTest, Status, Test, Verdict

NEVER_CACHED = frozenset({Status.TIME_LIMIT, Status.MEMORY_LIMIT, Status.SANDBOX_ERROR})
"""Verdicts that depend on the machine's state as well as on the program."""
_HEAVY_CHARS = 100_000
"""Characters of a request's tests above which its cache keys are computed in a thread. Parsing so much text in the
event loop would delay all other requests."""


_USUAL_CHARS, _MOST_CHARS_CACHED = 1000, 64_000
"""Characters of a usual verdict, and of the largest one that is cached: a program may print much."""


def _chars_of(verdict: Verdict) -> int:
    """Returns about how many characters a verdict holds, at least those of a usual one."""
    texts = (verdict.stdout, verdict.stderr, verdict.error, verdict.value or "")
    return max(_USUAL_CHARS, sum(map(len, texts)))


class Transport(Protocol):
    """A connection to one or more workers."""

    @property
    def size(self) -> int:
        """Number of workers."""
        ...

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        """Has one worker judge the jobs.

        Raises:
            BackendDied: the sandbox ended before it answered.
            WorkerLost: the worker ended, or it has no sandbox.
        """
        ...


def verdict_keys(
    version: str, limits: Limits, run: int | str, language: str, program: str, tests: Sequence[Test]
) -> list[bytes]:
    """Returns the cache key of each test's verdict: a hash of all that the verdict depends on, before the output of an
    OutputTest is compared.

    Code tests share a process and could forge each other's verdicts. So if one of the tests is code by its text, or was
    code on the reference, the keys of all string tests contain all string tests: the verdicts are valid only together.
    Data tests cannot forge verdicts.
    """
    common = hashlib.sha256()
    for part in (version, limits.model_dump_json(), str(run), language, program):
        _add(common, part)
    sources = [test for test in tests if isinstance(test, str)]
    together = hashlib.sha256()
    for test in sources:
        _add(together, _kind(test))
        _add(together, test)
    is_code = any(not (test.data if isinstance(test, KnownTest) else is_data(test)) for test in sources)
    company = [together.hexdigest()] if is_code else []
    keys = []
    for test in tests:
        digest = common.copy()
        if isinstance(test, OutputTest):
            for part in ("output", test.code, test.stdin):
                _add(digest, part)
        else:
            for part in (_kind(test), test, *company):
                _add(digest, part)
        keys.append(digest.digest())
    return keys


def _kind(test: str) -> str:
    if isinstance(test, KnownTest):
        shadowed = None if test.shadowed is None else sorted(test.shadowed)
        return f"known {test.data} {test.plain} {shadowed}"
    return f"reference {test.entry_point}" if isinstance(test, ReferenceTest) else "source"


def _add(digest: "hashlib._Hash", part: str) -> None:
    encoded = part.encode("utf-8", "surrogatepass")
    digest.update(len(encoded).to_bytes(8, "big"))
    digest.update(encoded)


@dataclass(kw_only=True, slots=True, eq=False)
class Pending:
    """Tests of one program that wait for a worker or are being judged."""

    job: Job
    keys: tuple[bytes, ...]
    attempt: int = 1
    avoid: int | None = None
    """The worker that failed last. It is avoided if there is another one."""
    kept: bool = True
    """Whether the verdicts are stored in the cache."""
    suspect: bool = False
    """True if a sandbox ended while it judged this. It is then judged alone, so that it cannot take other jobs of this
    client with it."""


@dataclass(kw_only=True, slots=True)
class ClientStats:
    """Counts since the client was created."""

    jobs: int = 0
    """Jobs that were sent to workers, without retries."""
    tests: int = 0
    """(program, test) pairs that were requested."""
    cache_hits: int = 0
    shared: int = 0
    """Pairs that were answered together with an identical pair already in flight."""
    retries: int = 0
    infrastructure_failures: int = 0
    """Failed attempts: lost workers and SANDBOX_ERROR verdicts."""
    busy_s: float = 0.0
    """Seconds with at least one job in flight."""


class SandboxClient:
    """Implements sparring.core.interfaces.Sandbox over a transport.

    Identical (program, test) pairs are judged once: the verdict comes from the cache, or from the pair that is already
    in flight. The requests of one turn of the event loop are sent as batches to the workers with the fewest jobs. Only
    the client retries what a worker could not judge. A runner judges a test a second time only to find out whether the
    program or the machine caused a failure.
    """

    max_batch = 16
    max_in_flight = 64
    """Largest number of jobs in flight per worker. Further jobs wait in the client."""
    pauses_s: tuple[float, ...] = (0.0, 1.0, 4.0)
    """Seconds before the second, third, ... attempt. They give an actor the time to restart if there is no other one."""

    def __init__(
        self,
        transport: Transport,
        *,
        version: str,
        limits: Limits | None = None,
        cache_size: int = 100_000,
        code_tests: CodeTests = "run",
    ) -> None:
        self._transport = transport
        self._version = version
        self._limits = limits or Limits()
        self._code_tests: CodeTests = code_tests
        self._cache: LRUCache[bytes, Verdict] = LRUCache(cache_size * _USUAL_CHARS, getsizeof=_chars_of)
        self._stats = ClientStats()
        self._afresh = itertools.count()
        self._busy_since = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def stats(self) -> dict[str, float]:
        """Returns the counts since the start: jobs, tests, cache_hits, shared, retries, infrastructure_failures,
        busy_s."""
        return asdict(self._stats)

    async def judge(
        self,
        program: str,
        tests: Sequence[Test],
        *,
        limits: Limits | None = None,
        run: int | None = 0,
        language: str = "python",
    ) -> list[Verdict]:
        """Returns one Verdict per test, in order; see sparring.core.interfaces.Sandbox.

        Args:
            run: the tests are judged anew for each value of `run`. With None they are always judged anew, and the
                verdicts are not cached.

        Raises:
            SandboxFailure: a test could not be judged in any attempt.
            UnknownLanguage: the language is not known, or cannot run here.
        """
        limits = limits.over(self._limits) if limits is not None else self._limits
        loop = self._enter_loop()
        of_run = f"afresh {next(self._afresh)}" if run is None else run
        asked = (self._version, limits, of_run, language, program, tests)
        heavy = sum(len(test) for test in tests if isinstance(test, str)) > _HEAVY_CHARS
        keys = await asyncio.to_thread(verdict_keys, *asked) if heavy else verdict_keys(*asked)
        self._stats.tests += len(tests)
        known: dict[bytes, Verdict] = {}
        awaited: dict[bytes, asyncio.Future] = {}
        fresh: dict[bytes, Test] = {}
        idle_before = not self._in_flight
        for key, test in zip(keys, tests, strict=True):
            if key in known or key in awaited:
                continue
            if (verdict := self._cache.get(key)) is not None:
                known[key] = verdict
                self._stats.cache_hits += 1
            elif key in self._in_flight:
                awaited[key] = self._in_flight[key]
                self._stats.shared += 1
            else:
                awaited[key] = self._in_flight[key] = loop.create_future()
                fresh[key] = test
        if fresh and idle_before:
            self._busy_since = time.monotonic()
        for kind in (str, OutputTest):
            of_kind = {key: test for key, test in fresh.items() if isinstance(test, kind)}
            if of_kind:
                self._stats.jobs += 1
                job = Job(
                    program=program,
                    tests=tuple(of_kind.values()),
                    limits=limits,
                    language=language,
                    code_tests=self._code_tests,
                )
                self._enqueue(Pending(job=job, keys=tuple(of_kind), kept=run is not None))
        if awaited:
            await asyncio.wait(awaited.values())  # unlike gather, cancels no shared future
            known |= {key: future.result() for key, future in awaited.items()}
        verdicts = [known[key] for key in keys]
        return [
            test.judge(verdict) if isinstance(test, OutputTest) else verdict
            for test, verdict in zip(tests, verdicts, strict=True)
        ]

    # ------------------------------------------------------------ batches

    def _enter_loop(self) -> asyncio.AbstractEventLoop:
        """Returns the running event loop. If the loop is new, all state is reset: unfinished work of an earlier loop
        ended with it."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._in_flight: dict[bytes, asyncio.Future] = {}
            self._queue: deque[Pending] = deque()
            self._suspects: deque[Pending] = deque()
            self._load = [0] * self._transport.size
            self._tasks: set[asyncio.Task] = set()
        return loop

    def _enqueue(self, pending: Pending) -> None:
        assert self._loop is not None
        (self._suspects if pending.suspect else self._queue).append(pending)
        self._loop.call_soon(self._dispatch)  # after all requests of this turn of the loop

    def _dispatch(self) -> None:
        while waiting := self._suspects or self._queue:
            others = [worker for worker in range(len(self._load)) if worker != waiting[0].avoid]
            worker = min(others or [0], key=self._load.__getitem__)
            room = self.max_in_flight - self._load[worker]
            if waiting[0].suspect:
                if self._load[worker] > 0:
                    return
                self._send(worker, [waiting.popleft()], takes=room)
                continue
            if room <= 0:
                return
            # A few jobs are spread over idle workers rather than sent to one.
            fair = -(-len(waiting) // len(self._load))
            count = min(room, self.max_batch, fair)
            self._send(worker, [waiting.popleft() for _ in range(count)], takes=count)

    def _send(self, worker: int, batch: list[Pending], takes: int) -> None:
        """Has a worker judge a batch. `takes` is the number of jobs by which the worker's load rises."""
        assert self._loop is not None
        self._load[worker] += takes
        task = self._loop.create_task(self._judge(worker, batch, takes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _judge(self, worker: int, batch: list[Pending], takes: int) -> None:
        try:
            answers = await self._transport.judge(worker, [pending.job for pending in batch])
        except (BackendDied, WorkerLost, OSError) as error:
            died = isinstance(error, BackendDied)
            for pending in batch:
                again = replace(pending, suspect=pending.suspect or died)
                self._try_again(again, range(len(pending.keys)), worker, str(error))
        except Exception as error:  # a faulty request is raised in the caller and not retried
            if len(batch) == 1:
                self._fail(batch[0].keys, error)
            else:  # one of the jobs is faulty: judge each alone
                for pending in batch:
                    self._send(worker, [pending], takes=1)
        else:
            for pending, verdicts in zip(batch, answers, strict=True):
                self._settle(worker, pending, verdicts)
        self._load[worker] -= takes
        self._dispatch()

    def _settle(self, worker: int, pending: Pending, verdicts: list[Verdict]) -> None:
        failed = []
        for index, (key, verdict) in enumerate(zip(pending.keys, verdicts, strict=True)):
            if verdict.status.is_infrastructure():
                failed.append(index)
                continue
            is_small = _chars_of(verdict) <= min(_MOST_CHARS_CACHED, self._cache.maxsize)
            if pending.kept and verdict.status not in NEVER_CACHED and is_small:
                self._cache[key] = verdict
            future = self._take(key)
            if not future.done():
                future.set_result(verdict)
        if failed:
            self._try_again(replace(pending, suspect=False), failed, worker, verdicts[failed[0]].error)

    def _try_again(self, pending: Pending, failed: Sequence[int], worker: int, error: str) -> None:
        """Sends the failed tests again, or gives up after the last attempt."""
        self._stats.infrastructure_failures += len(failed)
        keys = tuple(pending.keys[index] for index in failed)
        if pending.attempt > len(self.pauses_s):
            self._fail(keys, SandboxFailure(f"not judged after {pending.attempt} attempts: {error}"))
            return
        self._stats.retries += 1
        job = replace(pending.job, tests=tuple(pending.job.tests[index] for index in failed))
        again = replace(pending, job=job, keys=keys, attempt=pending.attempt + 1, avoid=worker)
        assert self._loop is not None
        self._loop.call_later(self.pauses_s[pending.attempt - 1], self._enqueue, again)

    def _fail(self, keys: Sequence[bytes], error: Exception) -> None:
        for key in keys:
            future = self._take(key)
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as retrieved; a waiting request still gets it

    def _take(self, key: bytes) -> asyncio.Future:
        """Removes a pair from those in flight and returns its future."""
        future = self._in_flight.pop(key)
        if not self._in_flight:
            self._stats.busy_s += time.monotonic() - self._busy_since
        return future
