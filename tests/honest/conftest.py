"""Judges the jobs that were selected, all at once for each kind of sandbox; the summary counts per theme."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from core.interfaces import SandboxFailure, SandboxKind
from core.verdict import ReferenceTest, Test, Verdict, known_by
from sandbox_workers.languages import UnknownLanguage
from sandbox_workers.local import LocalSandbox
from tests.honest.jobs import LIMITS, Job
from tests.sandboxes import kinds, require

AT_ONCE = 64
"""Jobs in flight: what is slow keeps its batch waiting, not all."""
Judged = list[Verdict] | UnknownLanguage | SandboxFailure


@pytest.fixture(scope="session", params=[*kinds(), pytest.param("process", marks=pytest.mark.slow)])
def kind(request: pytest.FixtureRequest) -> SandboxKind:
    """A kind of sandbox that runs here. What is honest needs no walls."""
    require(request.param)
    return request.param


@dataclass(frozen=True, slots=True)
class Judgement:
    alone: Judged
    """The verdicts on the right program, which is not known to be right."""
    known: list[Judged]
    """The verdicts on it and on each wrong program, the tests being known by it: it is the reference."""


@pytest.fixture(scope="session")
def judged(kind: SandboxKind, request: pytest.FixtureRequest) -> dict[Job, Judgement]:
    """Of each selected job."""
    items = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    jobs = list(dict.fromkeys(p["job"] for p in items if "job" in p and p.get("kind") == kind))
    with LocalSandbox(kind, limits=LIMITS, run_id=f"honest-{id(jobs)}", cache_size=0) as sandbox:
        return dict(zip(jobs, asyncio.run(judge_all(sandbox, jobs)), strict=True))


async def judge_all(sandbox: LocalSandbox, jobs: list[Job]) -> list[Judgement]:
    room = asyncio.Semaphore(AT_ONCE)

    async def judge(program: str, tests: Sequence[Test], language: str) -> Judged:
        async with room:
            try:
                return await sandbox.judge(program, tests, language=language)
            except (UnknownLanguage, SandboxFailure) as missing:
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


@pytest.fixture
def judgement_of(judged: dict[Job, Judgement], record_property: Callable) -> Callable[[Job], Judgement]:
    def judgement_of(job: Job) -> Judgement:
        judgement = judged[job]
        for verdicts in (judgement.alone, *judgement.known):
            if isinstance(verdicts, UnknownLanguage):
                pytest.skip(str(verdicts))
            if isinstance(verdicts, SandboxFailure):
                raise verdicts
        record_property("theme", job.theme)
        return judgement

    return judgement_of


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: dict[str, Counter] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            asked = "right" if "right_program" in report.nodeid else "wrong"
            for theme in [value for key, value in report.user_properties if key == "theme"]:
                counts.setdefault(theme, Counter())[asked, outcome] += 1
    if not counts:
        return
    terminalreporter.section("honest jobs")
    terminalreporter.write_line(f"{'theme':24} right: passed   not  wrong: failed   not")
    for theme, count in [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]:
        cells = [count[key] for key in ((a, o) for a in ("right", "wrong") for o in ("passed", "failed"))]
        terminalreporter.write_line(f"{theme:24} {cells[0]:13} {cells[1]:5} {cells[2]:14} {cells[3]:5}")
