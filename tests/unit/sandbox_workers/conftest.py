"""A client over a transport that answers as it is told to."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sandbox_workers.client import SandboxClient, Transport
from sandbox_workers.jobs import Job
from sparring.core.verdict import Status, Verdict

Script = Callable[[int, Job, Any], Verdict]


def passed(worker: int, job: Job, test: str) -> Verdict:
    return Verdict(status=Status.PASSED, value=f"{job.program}:{test}")


class ScriptedTransport:
    """Answers by a function of (worker, job, test) and records the batches, and which of them were in flight together."""

    def __init__(self, size: int = 1, script: Script = passed) -> None:
        self.size = size
        self.script = script
        self.batches: list[tuple[int, list[Job]]] = []
        self.in_flight: list[list[str]] = []
        self.together: list[list[list[str]]] = []
        """The programs of all batches in flight, at the beginning of each batch."""

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        batch = [job.program for job in jobs]
        self.batches.append((worker, list(jobs)))
        self.in_flight.append(batch)
        self.together.append(list(self.in_flight))
        try:
            await asyncio.sleep(0.001)
        finally:
            self.in_flight.remove(batch)
        return [[self.script(worker, job, test) for test in job.tests] for job in jobs]

    def sizes(self) -> list[int]:
        return [len(jobs) for _, jobs in self.batches]

    def programs(self) -> list[str]:
        return [job.program for _, jobs in self.batches for job in jobs]


def client_of(transport: Transport, cache_size: int = 100, **settings: int) -> SandboxClient:
    """A client of three attempts, without pauses."""
    client = SandboxClient(transport, version="v1", cache_size=cache_size)
    client.pauses_s = (0.0, 0.0)
    for name, value in settings.items():
        setattr(client, name, value)
    return client


def outcomes(client: SandboxClient, programs: Iterable[str], *tests: str) -> list[Any]:
    """The verdicts on each program, or what was raised; all are judged at once."""

    async def judge_all() -> list[Any]:
        wanted = [client.judge(program, tests or ["t"]) for program in programs]
        return await asyncio.wait_for(asyncio.gather(*wanted, return_exceptions=True), 30)

    return asyncio.run(judge_all())
