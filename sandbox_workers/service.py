"""The judge over HTTP: our own `POST /judge`, and `POST /run_code` in the format of SandboxFusion.

/judge      takes {"program", "tests", "reference"?, "language"?, "limits"?}, as a line of `python -m sandbox_workers judge`
            has them, and answers {"verdicts": [{"status", "time_ms", "value", "isolation", "memory_bytes", "stdout",
            "stderr", "error"}, ...]}, one per test. If a test could not be judged, the answer is 503 with Retry-After.
/run_code   takes {"code", "language", "stdin"?, "run_timeout"?, "memory_limit_MB"?}, and answers {"status", "message",
            "compile_result", "run_result", "files"}. Each request runs anew. `run_timeout` limits the CPU seconds; the
            limit of wall-clock time is four times as long. Building has five times as much, whatever `compile_timeout`
            is. If the program could not be judged, the answer is 504 with status SandboxError, which verl retries.

Not covered of SandboxFusion's interface: files, Jupyter, its data sets, and languages that the sandbox does not have. Such a
request gets a 400 that names the reason. The guard (sparring/web/guard.py) checks keys, rates and sizes.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Response
from prometheus_client import Counter
from pydantic import BaseModel, Field, ValidationError

from sandbox_workers.client import SandboxClient
from sandbox_workers.languages import UnknownLanguage
from sandbox_workers.lines import JobRequest, judge_request, line_of
from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Limits, Status, Verdict
from sparring.web.guard import error_answer

VERDICTS = Counter("sparring_verdicts", "Verdicts given by the service", ["status"])
FAILURES = Counter("sparring_sandbox_failures", "Requests that the sandbox could not judge")
LANGUAGES = {"nodejs": "javascript"}
"""SandboxFusion's names of languages and ours, if they differ."""
OUTPUT_KB = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestLimits:
    """The most that a request may ask for."""

    memory_mb: int
    seconds: float
    """Largest number of CPU seconds of a test."""
    waiting: int
    """Largest number of requests at a time. Further requests are refused as busy."""
    tests: int = 1000
    """Largest number of tests of one request. Each test is parsed in this process, whatever its limits are."""
    tests_s: float = 1800.0
    """Largest product of a request's number of tests and its `wall_s`, seconds. A request may keep a slot for longer,
    because building, retries and the wait for a CPU are not counted."""

    def limits(self, asked: Limits, tests: int) -> Limits:
        """Returns the limits of a request: those that it states and, for the rest, the defaults, reduced to what this
        service allows.

        Raises:
            RequestRefused: the request asks for more than this service allows.
        """
        if tests > self.tests:
            raise RequestRefused(f"tests: {tests} are more than {self.tests}; send them in several requests")
        allowed = {
            "memory_mb": self.memory_mb,
            "cpu_s": self.seconds,
            "wall_s": 4 * self.seconds,
            "processes": 64,
            "file_mb": 16,
            "output_kb": OUTPUT_KB,
        }
        for name, most in allowed.items():
            if name in asked.model_fields_set and (value := getattr(asked, name)) > most:
                raise RequestRefused(
                    f"limits.{name}: {value:g} is above {most:g}, the most that this service allows"
                )
        usual = Limits()
        limits = asked.over(
            Limits(**{name: min(getattr(usual, name), most) for name, most in allowed.items()})
        )
        if tests * limits.wall_s > self.tests_s:
            raise RequestRefused(
                f"tests: {tests} of up to {limits.wall_s:g} s (limits.wall_s) are more than {self.tests_s:g} s; "
                "send them in several requests"
            )
        return limits


class RunCode(BaseModel):
    """A request as SandboxFusion's clients send it. Unknown fields are ignored."""

    code: str
    language: str
    stdin: str | None = None
    compile_timeout: float = Field(10.0, gt=0)
    run_timeout: float | None = Field(None, gt=0)
    """None means 10, or less if the service allows less."""
    memory_limit_MB: int = -1
    """A value below 1 means as much as the service allows."""
    files: dict[str, str | None] = {}
    fetch_files: list[str] = []


class RequestRefused(Exception):
    """Raised if the request itself is faulty. It is answered by a 400 that gives the reason."""


class Busy(Exception):
    """Raised if the request cannot be judged now. The message says why."""


def make_app(sandbox: SandboxClient, most: RequestLimits) -> FastAPI:
    app = FastAPI(title="Sparring's judge", docs_url=None, redoc_url=None)
    waiting = 0

    async def judge_one(request: JobRequest, run: int | None = 0) -> list[Verdict]:
        nonlocal waiting
        limits = most.limits(request.limits, len(request.tests))
        if waiting >= most.waiting:
            raise Busy(f"{waiting} requests are being judged; try again")
        waiting += 1
        try:
            verdicts = await judge_request(sandbox, request, limits, run)
        except UnknownLanguage as error:
            raise RequestRefused(str(error)) from None
        except SandboxFailure as error:
            FAILURES.inc()
            raise Busy(str(error)) from None
        finally:
            waiting -= 1
        for verdict in verdicts:
            VERDICTS.labels(verdict.status).inc()
        return verdicts

    @app.exception_handler(RequestRefused)
    async def refused(_: Any, error: RequestRefused) -> Response:
        return error_answer(400, str(error), "bad_request")

    @app.post("/judge")
    async def judge(request: JobRequest) -> Response:
        try:
            verdicts = await judge_one(request)
        except Busy as error:
            return error_answer(503, str(error), "not_judged", {"Retry-After": "1"})
        return as_json({"verdicts": [line_of(verdict) for verdict in verdicts]})

    @app.post("/run_code")
    async def run_code(request: RunCode) -> Response:
        try:
            (verdict,) = await judge_one(as_job(request, most), run=None)
        except Busy as error:
            failed = {"status": "SandboxError", "message": str(error)}
            return as_json(failed | dict.fromkeys(("compile_result", "run_result")) | {"files": {}}, 504)
        return as_json(as_run(verdict))

    return app


def as_json(answer: dict[str, Any], status: int = 200) -> Response:
    body = json.dumps(answer)  # escaped to ASCII, because outputs may hold anything
    return Response(body, status, media_type="application/json")


def as_job(request: RunCode, most: RequestLimits) -> JobRequest:
    """Converts a request of SandboxFusion's format.

    Raises:
        RequestRefused: the request is faulty, or asks for something that is not covered.
    """
    if request.files or request.fetch_files:
        raise RequestRefused("files, fetch_files: this service neither takes files nor gives them back")
    memory_mb = request.memory_limit_MB if request.memory_limit_MB > 0 else most.memory_mb
    seconds = request.run_timeout or min(10.0, most.seconds)
    limits = {
        "cpu_s": seconds,
        "wall_s": 4 * seconds,
        "memory_mb": memory_mb,
        "output_kb": OUTPUT_KB,
    }
    test = {"stdout": None, "stdin": request.stdin or ""}
    language = LANGUAGES.get(request.language, request.language)
    try:
        return JobRequest.model_validate(
            {"program": request.code, "tests": [test], "language": language, "limits": limits}
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestRefused(
            f"{where}{': ' if where else ''}{first['msg'].removeprefix('Value error, ')}"
        ) from None


def as_run(verdict: Verdict) -> dict[str, Any]:
    """Converts a verdict to SandboxFusion's format. If the sandbox stopped the program, `return_code` is -9, as for any
    process that was killed; if it did so for time, `return_code` is None."""
    result = {
        "status": "TimeLimitExceeded" if verdict.status is Status.TIME_LIMIT else "Finished",
        "execution_time": verdict.cpu_ms / 1000,
        "return_code": return_code(verdict),
        "stdout": verdict.stdout,
        "stderr": verdict.stderr or verdict.error,
    }
    built = verdict.status is not Status.SYNTAX_ERROR
    return {
        "status": "Success" if verdict.passed else "Failed",
        "message": verdict.error,
        "compile_result": None if built else result,
        "run_result": result if built else None,
        "executor_pod_name": None,
        "files": {},
    }


def return_code(verdict: Verdict) -> int | None:
    if verdict.passed:
        return 0
    if verdict.status is Status.TIME_LIMIT:
        return None
    if verdict.status.is_resource_limit():
        return -9
    said = re.search(r"exited with code (\d+)|killed by signal (\d+)", verdict.error)
    if said is None:
        return 1
    return int(said[1]) if said[1] else -int(said[2])
