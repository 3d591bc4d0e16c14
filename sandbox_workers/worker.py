"""One worker: owns one backend, replaces it when it dies, never blames a program for that."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.verdict import Status, Verdict
from sandbox_workers.jobs import Backend, BackendDied, Job, SandboxUnavailable, sandbox_errors

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class WorkerStats:
    """Counts since the worker started."""

    jobs: int = 0
    infrastructure_failures: int = 0
    """Backends that died, and verdicts SANDBOX_ERROR."""
    backends_replaced: int = 0
    busy_s: float = 0.0
    """Seconds with at least one batch in work."""


class SandboxWorker:
    """Thread-safe: batches of several threads share the backend.

    Args:
        make_backend: builds a backend, not yet started. Called again when the first one dies.

    Raises:
        SandboxUnavailable: no backend starts.
    """

    def __init__(self, make_backend: Callable[[], Backend]) -> None:
        self._make_backend = make_backend
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self._closed = False
        self._stats = WorkerStats()
        self._in_work = 0
        self._busy_since = 0.0
        self._current()

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
            log.warning("sandbox died under %d jobs, they are judged again one by one: %s", len(jobs), error)
        # One by one: a job that kills the sandbox shall not take the others with it a second time.
        verdicts = []
        for job in jobs:
            try:
                verdicts += self._attempt([job])
            except (BackendDied, SandboxUnavailable) as error:
                verdicts.append(sandbox_errors(job, str(error)))
        return verdicts

    def _attempt(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        backend = self._current()
        try:
            return backend.judge_batch(jobs)
        except BackendDied:
            self._discard(backend)
            raise

    def _current(self) -> Backend:
        """The backend, started anew where the last one died."""
        with self._lock:
            if self._closed:
                raise SandboxUnavailable("the sandbox worker is closed")
            if self._backend is not None and not self._backend.healthy():
                self._drop()
            if self._backend is None:
                backend = self._make_backend()
                backend.start()
                self._backend = backend
            return self._backend

    def _discard(self, backend: Backend) -> None:
        with self._lock:
            if self._backend is backend:
                self._drop()

    def _drop(self) -> None:
        assert self._backend is not None
        self._stats.infrastructure_failures += 1
        self._stats.backends_replaced += 1
        self._backend.close()
        self._backend = None

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

    def healthy(self) -> bool:
        with self._lock:
            return self._backend is not None and self._backend.healthy()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()
