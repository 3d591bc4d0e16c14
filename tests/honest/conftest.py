"""Judges the jobs that were selected, all at once for each kind of sandbox; the summary counts per theme."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from core.interfaces import SandboxFailure, SandboxKind
from core.verdict import Verdict
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


@pytest.fixture(scope="session")
def judged(kind: SandboxKind, request: pytest.FixtureRequest) -> dict[Job, list[Judged]]:
    """Of each selected job, the verdicts on its program and on each wrong one."""
    items = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    jobs = list(dict.fromkeys(p["job"] for p in items if "job" in p and p.get("kind") == kind))
    with LocalSandbox(kind, limits=LIMITS, run_id=f"honest-{id(jobs)}", cache_size=0) as sandbox:
        return dict(zip(jobs, asyncio.run(judge_all(sandbox, jobs)), strict=True))


async def judge_all(sandbox: LocalSandbox, jobs: list[Job]) -> list[list[Judged]]:
    room = asyncio.Semaphore(AT_ONCE)

    async def judge(job: Job, program: str) -> Judged:
        async with room:
            try:
                return await sandbox.judge(program, job.tests, language=job.language)
            except (UnknownLanguage, SandboxFailure) as missing:
                return missing

    flat = iter(await asyncio.gather(*(judge(job, p) for job in jobs for p in job.programs())))
    return [[next(flat) for _ in job.programs()] for job in jobs]


@pytest.fixture
def verdicts_of(judged: dict[Job, list[Judged]], record_property: Callable) -> Callable[[Job], list]:
    """The verdicts of a job, a list per program."""

    def verdicts_of(job: Job) -> list[Judged]:
        for verdicts in judged[job]:
            if isinstance(verdicts, UnknownLanguage):
                pytest.skip(str(verdicts))
            if isinstance(verdicts, SandboxFailure):
                raise verdicts
        record_property("theme", job.theme)
        return judged[job]

    return verdicts_of


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
