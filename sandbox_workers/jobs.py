"""What client, workers and backends say to each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.verdict import Limits, Status, Verdict


class SandboxUnavailable(RuntimeError):
    """No sandbox of the wanted kind can run here; the text says what to install or to run."""


class BackendDied(RuntimeError):
    """The sandbox ended with jobs in it. Says nothing of any program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One program with tests of one author: they share a test process, and could forge each other's
    verdicts."""

    program: str
    tests: tuple[str, ...]
    limits: Limits


class Backend(Protocol):
    """One warm sandbox. All methods may be called from any thread."""

    slots: int
    """Jobs judged at the same time."""

    def start(self) -> None:
        """Raise SandboxUnavailable where it cannot start."""
        ...

    def judge_batch(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        """One Verdict per job and test, in order. Raise BackendDied where the sandbox ended first."""
        ...

    def healthy(self) -> bool: ...

    def close(self) -> None:
        """Kill what runs and remove what is left. Idempotent."""
        ...


def sandbox_errors(job: Job, reason: str) -> list[Verdict]:
    """SANDBOX_ERROR for every test of the job."""
    return [Verdict(status=Status.SANDBOX_ERROR, error=reason[:500]) for _ in job.tests]
