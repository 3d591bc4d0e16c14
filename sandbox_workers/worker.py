"""One worker: owns one backend, replaces it when it dies, never blames a program for that."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.verdict import Status, Verdict
from sandbox_workers.jobs import Backend, BackendDied, Job, SandboxUnavailable, sandbox_errors

log = logging.getLogger(__name__)

RECYCLE_JOBS = 50_000
"""A sandbox is replaced after as many jobs: whatever piles up in it ends with it."""


@dataclass(slots=True, eq=False)
class _Lease:
    """A backend and who uses it."""

    backend: Backend
    jobs: int = 0
    users: int = 0
    retired: bool = False


@dataclass(kw_only=True, slots=True)
class WorkerStats:
    """Counts since the worker started."""

    jobs: int = 0
    infrastructure_failures: int = 0
    """Backends that died, and verdicts SANDBOX_ERROR."""
    backends_replaced: int = 0
    """Those that died; recycled ones are not counted."""
    recycled: int = 0
    busy_s: float = 0.0
    """Seconds with at least one batch in work."""


class SandboxWorker:
    """Thread-safe: batches of several threads share the backend.

    Args:
        make_backend: builds a backend, not yet started. Called again when the first one dies.
        recycle_jobs: a backend is replaced after as many.
        idle_s: start the backend with the first jobs, and close it after as many seconds without any; None: it
            is there from the start and stays.

    Raises:
        SandboxUnavailable: no backend starts.
    """

    def __init__(
        self,
        make_backend: Callable[[], Backend],
        recycle_jobs: int = RECYCLE_JOBS,
        idle_s: float | None = None,
    ) -> None:
        self._make_backend = make_backend
        self._recycle_jobs = recycle_jobs
        self._lock = threading.Lock()
        self._lease: _Lease | None = None
        self._closed = False
        self._stats = WorkerStats()
        self._in_work = 0
        self._busy_since = 0.0
        self._last_used = time.monotonic()
        if idle_s is None:
            self._release(self._take(0))
        else:
            threading.Thread(target=self._close_when_idle, args=(idle_s,), daemon=True).start()

    def judge(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        """Verdicts of all jobs, in order; SANDBOX_ERROR for those that no backend survived."""
        self._enter(len(jobs))
        try:
            verdicts = self._judge(jobs)
        finally:
            self._leave()
        failed = sum(v.status is Status.SANDBOX_ERROR for of_job in verdicts for v in of_job)
        with self._lock:
            self._stats.infrastructure_failures += failed
        return verdicts

    def _judge(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        try:
            return self._attempt(jobs)
        except (BackendDied, SandboxUnavailable) as error:
            if not self._closed:  # else it was told to end
                log.warning(
                    "sandbox died under %d jobs, they are judged again one by one: %s", len(jobs), error
                )
        # One by one: a job that kills the sandbox shall not take the others with it a second time.
        verdicts = []
        for job in jobs:
            try:
                verdicts += self._attempt([job])
            except (BackendDied, SandboxUnavailable) as error:
                verdicts.append(sandbox_errors(job, str(error)))
        return verdicts

    def _attempt(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        lease = self._take(len(jobs))
        try:
            return lease.backend.judge_batch(jobs)
        except BackendDied:
            self._discard(lease)
            raise
        finally:
            self._release(lease)

    def _take(self, jobs: int) -> _Lease:
        """The backend, started anew where the last one died or has served its time."""
        with self._lock:
            if self._closed:
                raise SandboxUnavailable("the sandbox worker is closed")
            if self._lease is not None and not self._lease.backend.healthy():
                self._drop()
            if self._lease is not None and self._lease.jobs >= self._recycle_jobs:
                self._stats.recycled += 1
                self._retire()
            if self._lease is None:
                backend = self._make_backend()
                backend.start()
                self._lease = _Lease(backend)
            self._lease.jobs += jobs
            self._lease.users += 1
            return self._lease

    def _release(self, lease: _Lease) -> None:
        with self._lock:
            lease.users -= 1
            self._last_used = time.monotonic()
            last = lease.retired and lease.users == 0
        if last:
            lease.backend.close()

    def _close_when_idle(self, idle_s: float) -> None:
        while not self._closed:
            time.sleep(idle_s / 4)
            with self._lock:
                idle = time.monotonic() - self._last_used > idle_s
                if idle and self._lease is not None and self._lease.users == 0:
                    self._retire()

    def _retire(self) -> None:
        """Whoever uses it may finish."""
        assert self._lease is not None
        lease, self._lease = self._lease, None
        lease.retired = True
        if lease.users == 0:
            lease.backend.close()

    def _discard(self, lease: _Lease) -> None:
        with self._lock:
            if self._lease is lease:
                self._drop()

    def _drop(self) -> None:
        assert self._lease is not None
        self._stats.infrastructure_failures += 1
        self._stats.backends_replaced += 1
        self._lease.backend.close()
        self._lease = None

    def _enter(self, jobs: int) -> None:
        with self._lock:
            self._stats.jobs += jobs
            if self._in_work == 0:
                self._busy_since = time.monotonic()
            self._in_work += 1

    def _leave(self) -> None:
        with self._lock:
            self._in_work -= 1
            if self._in_work == 0:
                self._stats.busy_s += time.monotonic() - self._busy_since

    def stats(self) -> WorkerStats:
        with self._lock:
            return WorkerStats(**{name: getattr(self._stats, name) for name in WorkerStats.__slots__})

    def close(self) -> None:
        with self._lock:
            self._closed = True
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.backend.close()
