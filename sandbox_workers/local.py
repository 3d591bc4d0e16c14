"""A sandbox within one process: the same client, with a worker in threads instead of Ray actors."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType

from sandbox_workers.backends import SandboxChoice, choose_backend
from sandbox_workers.client import SandboxClient
from sandbox_workers.jobs import Job
from sandbox_workers.worker import SandboxWorker
from sparring.core.interfaces import CodeTests, SandboxKind
from sparring.core.verdict import Limits, Verdict

BATCHES = 4
"""Smallest number of batches that can be in flight. A single job is a batch too, and each slot should have one."""


class ThreadTransport:
    """A transport to one worker in this process. Each batch is judged in a thread."""

    size = 1

    def __init__(self, worker: SandboxWorker, slots: int) -> None:
        self._worker = worker
        self._threads = ThreadPoolExecutor(max(BATCHES, slots), thread_name_prefix="sandbox")

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._worker.judge, jobs)

    def close(self) -> None:
        self._worker.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class LocalSandbox(SandboxClient):
    """A sandbox without Ray. Close it, or use it as a context manager. For `trusted`, see choose_backend.

    Example:
        with LocalSandbox("auto") as sandbox:
            verdicts = await sandbox.judge("def f(x): return x + 1", ["assert f(1) == 2", "f(2)"])
    """

    def __init__(
        self,
        kind: SandboxKind = "auto",
        *,
        runtime: str | None = None,
        slots: int = 2,
        run_id: str | None = None,
        limits: Limits | None = None,
        memory_mb: int = 512,
        cache_size: int = 100_000,
        code_tests: CodeTests = "run",
        trusted: bool = False,
    ) -> None:
        choice: SandboxChoice = choose_backend(kind, runtime, trusted=trusted)
        run_id = run_id or f"local-{os.getpid()}"  # processes of one machine must not share uids
        memory_mb = max(memory_mb, (limits or Limits()).memory_mb)
        self.worker = SandboxWorker(
            partial(choice.open, slots=slots, index=0, run_id=run_id, memory_mb=memory_mb)
        )
        self.description = choice.description
        self._threads = ThreadTransport(self.worker, slots)
        # a few jobs that hang must leave slots to the others: a batch is answered as a whole
        self.max_batch = min(self.max_batch, max(1, self.max_in_flight // max(BATCHES, slots)))
        super().__init__(
            self._threads, version=choice.version, limits=limits, cache_size=cache_size, code_tests=code_tests
        )

    def close(self) -> None:
        """Ends the sandbox. Idempotent."""
        self._threads.close()

    def __enter__(self) -> "LocalSandbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
