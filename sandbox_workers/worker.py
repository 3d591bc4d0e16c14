"""A worker owns one backend and replaces the backend when it dies. It never blames a program for that."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandbox_workers.jobs import Backend, BackendDied, Job, SandboxUnavailable, WorkerLost
from sparring.core.verdict import Verdict

log = logging.getLogger(__name__)

RECYCLE_JOBS = 50_000
"""Number of jobs after which a sandbox is replaced, so that whatever has accumulated in it is removed."""


@dataclass(slots=True, eq=False)
class _Lease:
    """A backend and the number of its users."""

    backend: Backend
    jobs: int = 0
    users: int = 0
    retired: bool = False


class SandboxWorker:
    """Judges jobs in a backend. It is thread-safe: the batches of several threads share the backend.

    Args:
        make_backend: returns a backend that is not started yet. It is called again when the backend has to be replaced.
        recycle_jobs: number of jobs after which the backend is replaced.

    Raises:
        SandboxUnavailable: no backend starts.
    """

    def __init__(self, make_backend: Callable[[], Backend], recycle_jobs: int = RECYCLE_JOBS) -> None:
        self._make_backend = make_backend
        self._recycle_jobs = recycle_jobs
        self._lock = threading.Lock()
        self._lease: _Lease | None = None
        self._closed = False
        self.in_work = 0
        """Number of batches that are being judged or wait for it."""
        self.replaced = 0
        """Number of backends that died. Recycled backends are not counted."""
        self._release(self._take(0))

    def judge(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        """Returns the verdicts of all jobs, in order.

        Raises:
            BackendDied: the sandbox ended while it judged the jobs. The next jobs get a new one.
            WorkerLost: no sandbox starts, or the worker is closed.
        """
        with self._lock:
            self.in_work += 1
        try:
            lease = self._take(len(jobs))
            try:
                return lease.backend.judge_batch(jobs)
            except BackendDied as error:
                self._discard(lease, f"{len(jobs)} jobs: {error}")
                raise
            finally:
                self._release(lease)
        except SandboxUnavailable as error:
            if not self._closed:
                log.warning("no sandbox starts: %s", error)
            raise WorkerLost(str(error)) from None
        finally:
            with self._lock:
                self.in_work -= 1

    def _take(self, jobs: int) -> _Lease:
        """Returns the backend. A new one is started if the last one died or has judged `recycle_jobs` jobs."""
        with self._lock:
            if self._closed:
                raise SandboxUnavailable("the sandbox worker is closed")
            if self._lease is not None and not self._lease.backend.healthy():
                self._drop()
            if self._lease is not None and self._lease.jobs >= self._recycle_jobs:
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
            last = lease.retired and lease.users == 0
        if last:
            lease.backend.close()

    def _retire(self) -> None:
        """Takes the backend out of use. Batches that use it may finish."""
        assert self._lease is not None
        lease, self._lease = self._lease, None
        lease.retired = True
        if lease.users == 0:
            lease.backend.close()

    def _discard(self, lease: _Lease, under: str) -> None:
        with self._lock:
            if not self._closed:  # otherwise the worker's close() ended it
                log.warning("sandbox died under %s", under)
            if self._lease is lease:
                self._drop()

    def _drop(self) -> None:
        assert self._lease is not None
        self.replaced += 1
        self._lease.backend.close()
        self._lease = None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.backend.close()
