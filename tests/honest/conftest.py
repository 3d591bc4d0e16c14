"""Judges the jobs of the selected themes, all at once for each kind of sandbox."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from sandbox_workers.languages import UnknownLanguage
from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import SandboxKind
from sparring.core.verdict import ReferenceTest, Test, Verdict, known_by
from tests.honest.jobs import LIMITS, Job, read_corpus
from tests.honest.products import products
from tests.sandboxes import kinds, require

WRITTEN, GENERATED = read_corpus(), list(products())
JOBS = [*WRITTEN, *GENERATED]
AT_ONCE = 64
"""Jobs in flight: a slow job delays its batch alone."""
Judged = list[Verdict] | UnknownLanguage


@pytest.fixture(scope="session", params=[*kinds(), pytest.param("process", marks=pytest.mark.kinds)])
def kind(request: pytest.FixtureRequest) -> SandboxKind:
    """A kind of sandbox that runs here. An honest job needs no walls."""
    require(request.param)
    return request.param


@dataclass(frozen=True, slots=True)
class Judgement:
    alone: Judged
    """The verdicts on the right program, judged without a reference."""
    known: list[Judged]
    """The verdicts on it and on each wrong program, judged with the right program as the reference."""


@pytest.fixture(scope="session")
def judged(kind: SandboxKind, request: pytest.FixtureRequest) -> dict[Job, Judgement]:
    """The judgement of each job of the selected themes."""
    calls = [call.params for item in request.session.items if (call := getattr(item, "callspec", None))]
    themes = {params["theme"] for params in calls if "theme" in params and params.get("kind") == kind}
    jobs = [job for job in JOBS if job.theme in themes]
    with LocalSandbox(kind, limits=LIMITS, run_id=f"honest-{id(jobs)}", cache_size=0) as sandbox:
        return dict(zip(jobs, asyncio.run(judge_all(sandbox, jobs)), strict=True))


async def judge_all(sandbox: LocalSandbox, jobs: list[Job]) -> list[Judgement]:
    room = asyncio.Semaphore(AT_ONCE)

    async def judge(program: str, tests: Sequence[Test], language: str) -> Judged:
        async with room:
            try:
                return await sandbox.judge(program, tests, language=language)
            except UnknownLanguage as missing:
                return missing

    async def judge_job(job: Job) -> Judgement:
        asked = [ReferenceTest(test) if isinstance(test, str) else test for test in job.tests]
        alone, reference = await asyncio.gather(
            judge(job.program, job.tests, job.language), judge(job.program, asked, job.language)
        )
        tests = job.tests
        if isinstance(reference, list):
            tests = tuple(known_by(test, [verdict]) for test, verdict in zip(tests, reference, strict=True))
        known = await asyncio.gather(*(judge(program, tests, job.language) for program in job.programs()))
        return Judgement(alone, known)

    return await asyncio.gather(*map(judge_job, jobs))
