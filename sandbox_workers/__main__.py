"""The commands of the sandbox.

    python -m sandbox_workers judge jobs.jsonl > verdicts.jsonl
    python -m sandbox_workers check_host
    python -m sandbox_workers serve                the same over HTTP, and as SandboxFusion (sandbox_workers/service.py)

A line of jobs.jsonl is {"id", "program", "tests": [...], "reference"?, "language"?: "python", "limits"?: {"cpu_s": 2, ...}}.
A test is Python source ("assert f(1) == 2", "f(1)") or, in any language, {"stdout", "stdin"?, "code"?}. `judge` prints
one line per job, in order: {"id", "verdicts": [{"status", "time_ms", "value", "isolation", "memory_bytes", "stdout",
"stderr", "error"}, ...]}. The exit status is 0 if all jobs were judged. It is 1 if a job could not be judged: its verdicts
are SANDBOX_ERROR and give the reason. It is 2 if the input is invalid, which ends the run.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TextIO, get_args

from pydantic import ValidationError

from sandbox_workers.backends import MOST_SLOTS
from sandbox_workers.check_host import check_host
from sandbox_workers.languages import UnknownLanguage
from sandbox_workers.lines import JobRequest, judge_request, line_of
from sandbox_workers.local import LocalSandbox
from sparring.core.commands import plain_endings
from sparring.core.errors import SparringError
from sparring.core.interfaces import CodeTests, SandboxFailure, SandboxKind
from sparring.core.verdict import Limits, Status, Verdict
from sparring.web.options import add_options

IN_FLIGHT = 256
CACHED = 1024
"""Number of usual verdicts that a service remembers; of those with long outputs fewer."""


class JobLine(JobRequest):
    id: str | int


def read_jobs(lines: Iterable[str], name: str, memory_mb: int) -> Iterator[JobLine]:
    """Yields the jobs of the lines.

    Raises:
        SparringError: a line is not a valid job. The message names the line and what was expected.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            job = JobLine.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"] if part != "OutputTestLine")
            raise SparringError(
                f"{name}:{number}: {where + ': ' if where else ''}{first['msg'].removeprefix('Value error, ')}; expected "
                '{"id", "program", "tests": ["assert …" or {"stdout", "stdin"?, "code"?}], "reference"?, "language"?, "limits"?}'
            ) from None
        if "memory_mb" in job.limits.model_fields_set and job.limits.memory_mb > memory_mb:
            raise SparringError(
                f"{name}:{number}: limits.memory_mb: {job.limits.memory_mb} is above --memory-mb {memory_mb}"
            )
        job.limits = job.limits.over(Limits(memory_mb=min(Limits().memory_mb, memory_mb)))
        yield job


async def judge_all(jobs: Iterator[JobLine], sandbox: LocalSandbox) -> int:
    """Prints one line per job as soon as this job and all before it are judged.

    Returns:
        The number of jobs that could not be judged.
    """
    failures = 0
    waiting: deque[tuple[JobLine, asyncio.Task]] = deque()

    async def finish_first() -> None:
        nonlocal failures
        job, task = waiting.popleft()
        try:
            verdicts = await task
        except (SandboxFailure, UnknownLanguage) as error:  # the host lacks the language
            failures += 1
            verdicts = [Verdict(status=Status.SANDBOX_ERROR, error=str(error))] * len(job.tests)
        line = {"id": job.id, "verdicts": [line_of(verdict) for verdict in verdicts]}
        print(json.dumps(line), flush=True)

    try:
        while True:
            reading = _next_of(jobs)
            while not reading.done() or len(waiting) > IN_FLIGHT:
                first = [waiting[0][1]] if waiting else []
                await asyncio.wait([reading, *first], return_when=asyncio.FIRST_COMPLETED)
                while waiting and (waiting[0][1].done() or len(waiting) > IN_FLIGHT):
                    await finish_first()
            if (job := reading.result()) is None:
                break
            waiting.append((job, asyncio.create_task(judge_request(sandbox, job, job.limits))))
        while waiting:
            await finish_first()
    finally:
        for _, task in waiting:
            task.cancel()
    return failures


def _next_of(jobs: Iterator[JobLine]) -> asyncio.Future[JobLine | None]:
    """Reads the next job in a thread, which the command's end does not wait for: the process that writes it may be waiting
    for the answer to the last one."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[JobLine | None] = loop.create_future()

    def tell(job: JobLine | None, error: BaseException | None) -> None:
        if error is not None:
            found.set_exception(error)
        elif not found.done():
            found.set_result(job)

    def read() -> None:
        job, error = None, None
        try:
            job = next(jobs, None)
        except BaseException as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, job, error)

    threading.Thread(target=read, daemon=True).start()
    return found


def open_input(path: str) -> TextIO:
    if path == "-":
        return sys.stdin
    try:
        return open(path, encoding="utf-8", errors="surrogateescape")  # read_jobs names a bad line
    except OSError as error:
        raise SparringError(f"{path}: {error.strerror}") from None


def judge(options: argparse.Namespace) -> int:
    with (
        open_input(options.jobs) as lines,
        LocalSandbox(
            options.sandbox,
            slots=options.slots,
            memory_mb=options.memory_mb,
            code_tests=options.code_tests,
        ) as sandbox,
    ):
        print(sandbox.description, file=sys.stderr)
        jobs = read_jobs(lines, options.jobs, options.memory_mb)
        failures = asyncio.run(judge_all(jobs, sandbox))
    if failures:
        print(f"{failures} jobs could not be judged: SANDBOX_ERROR says why", file=sys.stderr)
    return 1 if failures else 0


def serve(options: argparse.Namespace) -> int:
    from sandbox_workers.service import RequestLimits, make_app  # only this command needs FastAPI
    from sparring.web.service import check, guarded, run

    check(options)
    most = RequestLimits(memory_mb=options.memory_mb, seconds=options.cpu_s, waiting=options.waiting)
    with LocalSandbox(
        options.sandbox,
        slots=options.slots,
        memory_mb=options.memory_mb,
        cache_size=CACHED,
        code_tests=options.code_tests,
    ) as sandbox:
        print(sandbox.description, file=sys.stderr)
        run(guarded(make_app(sandbox, most), options), options)
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox_workers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("judge", help="judge the jobs of a file")
    judging.add_argument("jobs", help="JSON lines; - is standard input")
    serving = commands.add_parser("serve", help="judge what comes over HTTP: POST /judge, POST /run_code")
    for command, memory_mb in ((judging, 512), (serving, 1024)):
        command.add_argument(
            "--sandbox",
            choices=get_args(SandboxKind),
            default="auto",
            help="default: auto",
        )
        command.add_argument(
            "--code-tests",
            choices=get_args(CodeTests),
            default="run",
            help="what to do with tests that are code, which share the program's interpreter; refuse: UNSUPPORTED; default: run",
        )
        command.add_argument(
            "--slots", type=int, default=min(os.cpu_count() or 1, MOST_SLOTS), help="programs judged at once"
        )
        command.add_argument(
            "--memory-mb",
            type=int,
            default=memory_mb,
            help=f"largest limits.memory_mb of a job, MiB; default: {memory_mb}",
        )
    serving.add_argument(
        "--cpu-s", type=float, default=60.0, help="largest limits.cpu_s of a job; default: 60"
    )
    serving.add_argument(
        "--waiting", type=int, default=1000, help="requests judged or waiting at a time; default: 1000"
    )
    add_options(serving, port=8080)
    commands.add_parser("check_host", help="what this host offers, and what is weaker here")
    options = parser.parse_args(arguments)
    for name, least in {"slots": 1, "memory_mb": 32, "cpu_s": 1, "waiting": 1}.items():
        if (value := getattr(options, name, least)) < least:
            raise SparringError(f"--{name.replace('_', '-')} {value:g}: {least} or more")
    match options.command:
        case "judge":
            return judge(options)
        case "serve":
            return serve(options)
        case _:
            return check_host()


if __name__ == "__main__":
    status = 0
    with plain_endings():
        status = main()
    sys.exit(status)
