"""The judge's service where its sandbox fails or is full: a scripted one stands for it."""

import asyncio
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from sandbox_workers import jobs
from sandbox_workers.client import SandboxClient
from sandbox_workers.service import RequestLimits, RequestRefused, RunCode, as_job, as_run, make_app
from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Limits, Status, Verdict
from sparring.web.service import say_errors_plainly
from tests.serving import served


class Scripted(SandboxClient):
    """Judges once it may; fails where the program says so."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.asked = threading.Semaphore(0)
        self.runs: list[int | None] = []

    async def judge(self, program: str, tests: Sequence[Any], **more: Any) -> list[Verdict]:
        self.runs.append(more["run"])
        self.asked.release()
        while not self.may.is_set():
            await asyncio.sleep(0.01)
        if program == "fails":
            raise SandboxFailure("not judged after 4 attempts: worker lost")
        return [Verdict(status=Status.PASSED) for _ in tests]


def service(sandbox: SandboxClient) -> Any:
    app = make_app(sandbox, RequestLimits(memory_mb=1024, seconds=60, waiting=2))
    say_errors_plainly(app)
    return served(app)


def ask(url: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/judge", json={"program": "", "tests": ["f()"]} | body, timeout=60)


def error_of(response: httpx.Response) -> str:
    return response.json()["error"]["message"]


def test_what_could_not_be_judged_is_no_verdict() -> None:
    sandbox = Scripted()
    sandbox.may.set()
    with service(sandbox) as url:
        judged = ask(url, {"program": "fails"})
        ran = httpx.post(f"{url}/run_code", json={"code": "fails", "language": "python"})
    assert judged.status_code == 503 and judged.headers["Retry-After"] == "1"
    assert "worker lost" in error_of(judged) and "verdicts" not in judged.json()
    assert ran.status_code == 504 and ran.json()["status"] == "SandboxError"
    assert "worker lost" in ran.json()["message"] and ran.json()["run_result"] is None


def test_more_than_may_wait_are_told_to_come_again() -> None:
    sandbox = Scripted()
    with service(sandbox) as url, ThreadPoolExecutor(2) as threads:
        first = [threads.submit(ask, url, {}) for _ in range(2)]
        assert all(sandbox.asked.acquire(timeout=30) for _ in first)
        refused = ask(url, {})
        sandbox.may.set()
        assert [one.result().status_code for one in first] == [200, 200]
        assert ask(url, {}).status_code == 200
    assert refused.status_code == 503 and "try again" in error_of(refused)


def test_what_runs_afresh_is_kept_nowhere() -> None:
    sandbox = Scripted()
    sandbox.may.set()
    with service(sandbox) as url:
        for _ in range(2):
            assert httpx.post(f"{url}/run_code", json={"code": "", "language": "python"}).status_code == 200
        ask(url, {})
    assert sandbox.runs == [None, None, 0]


@pytest.mark.parametrize(("tests", "wall_s"), [(1000, 8.0), (1001, 0.001)])
def test_what_is_too_much_is_refused_unread(
    monkeypatch: pytest.MonkeyPatch, tests: int, wall_s: float
) -> None:
    def read(_: str) -> bool:
        raise AssertionError("a test was parsed")

    monkeypatch.setattr(jobs, "is_data", read)
    with service(Scripted()) as url:
        refused = ask(url, {"tests": ["f()"] * tests, "limits": {"wall_s": wall_s}})
    assert refused.status_code == 400 and "several requests" in error_of(refused)


JSON_BODY = '{"program": "", "tests": []}'


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"json": {"program": "", "tests": [{"stdout": "", "code": 3}]}}, r"\.code: .*valid string"),
        ({"json": {"program": "", "tests": [{"stdout": "", "cod": ""}]}}, r"\.cod: .*not permitted"),
        ({"json": {"program": "", "tests": [{"stdin": "1"}]}}, r"\.stdout: .*required"),
        ({"content": JSON_BODY}, "Content-Type: application/json"),
        ({"content": JSON_BODY, "headers": {"Content-Type": "text/plain"}}, "Content-Type: application/json"),
    ],
)
def test_a_faulty_request_is_told_the_field_or_header(request_: dict, said: str) -> None:
    with service(Scripted()) as url:
        refused = httpx.post(f"{url}/judge", **request_)
    assert refused.status_code == 400 and re.search(said, error_of(refused))


ENDED = "the program exited with code 3"
KILLED = "the program was killed by signal 11"


@pytest.mark.parametrize(
    ("verdict", "status", "ran"),
    [
        (Verdict(status=Status.PASSED, stdout="7\n"), "Success", ("Finished", 0)),
        (Verdict(status=Status.RUNTIME_ERROR, error=ENDED), "Failed", ("Finished", 3)),
        (Verdict(status=Status.RUNTIME_ERROR, error=KILLED), "Failed", ("Finished", -11)),
        (Verdict(status=Status.TIME_LIMIT), "Failed", ("TimeLimitExceeded", None)),
        (Verdict(status=Status.MEMORY_LIMIT), "Failed", ("Finished", -9)),
        (Verdict(status=Status.OUTPUT_LIMIT), "Failed", ("Finished", -9)),
    ],
    ids=lambda given: str(given.status) if isinstance(given, Verdict) else "",
)
def test_a_verdict_as_sandbox_fusion_says_it(verdict: Verdict, status: str, ran: tuple[str, Any]) -> None:
    said = as_run(verdict)
    assert said["status"] == status and said["compile_result"] is None
    assert (said["run_result"]["status"], said["run_result"]["return_code"]) == ran


def test_what_does_not_build_never_ran() -> None:
    said = as_run(Verdict(status=Status.SYNTAX_ERROR, error="main.c:1: expected …"))
    assert said["status"] == "Failed" and said["run_result"] is None
    assert said["compile_result"]["return_code"] == 1 and "main.c:1" in said["compile_result"]["stderr"]


def test_a_request_keeps_no_slot_for_ever() -> None:
    most = RequestLimits(memory_mb=512, seconds=10, waiting=1)
    assert most.limits(Limits(), 200) == Limits()
    with pytest.raises(RequestRefused, match="tests: 300"):
        most.limits(Limits(), 300)
    above = {"memory_mb": 513, "cpu_s": 11, "wall_s": 41, "processes": 65, "output_kb": 1025}
    for name, value in above.items():
        with pytest.raises(RequestRefused, match=f"limits.{name}: {value} is above"):
            most.limits(Limits(**{name: value}), 1)


def test_who_states_no_limits_is_not_refused_for_the_defaults() -> None:
    small = RequestLimits(memory_mb=128, seconds=1, waiting=1)
    assert small.limits(Limits(), 1) == Limits(memory_mb=128, cpu_s=1, wall_s=4)
    assert small.limits(Limits(memory_mb=64), 1).memory_mb == 64
    code = {"code": "", "language": "python"}
    assert small.limits(as_job(RunCode.model_validate(code), small).limits, 1).cpu_s == 1
    # wall_s, 8, is too much, too: what the request said comes first
    job = as_job(RunCode.model_validate(code | {"run_timeout": 2}), small)
    with pytest.raises(RequestRefused, match="cpu_s: 2 is above 1"):
        small.limits(job.limits, 1)
