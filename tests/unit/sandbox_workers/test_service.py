"""The judge's service where its sandbox fails or is full: a scripted one stands for it."""

import asyncio
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


def test_what_could_not_be_judged_is_no_verdict() -> None:
    sandbox = Scripted()
    sandbox.may.set()
    with service(sandbox) as url:
        judged = httpx.post(f"{url}/judge", json={"program": "fails", "tests": ["f()"]})
        ran = httpx.post(f"{url}/run_code", json={"code": "fails", "language": "python"})
    assert judged.status_code == 503 and judged.headers["Retry-After"] == "1"
    assert "worker lost" in judged.json()["error"]["message"] and "verdicts" not in judged.json()
    assert ran.status_code == 504 and ran.json()["status"] == "SandboxError"
    assert "worker lost" in ran.json()["message"] and ran.json()["run_result"] is None


def test_more_than_may_wait_are_told_to_come_again() -> None:
    sandbox = Scripted()
    body = {"program": "", "tests": ["f()"]}
    with service(sandbox) as url, ThreadPoolExecutor(2) as threads:
        first = [threads.submit(httpx.post, f"{url}/judge", json=body, timeout=30) for _ in range(2)]
        assert all(sandbox.asked.acquire(timeout=30) for _ in first)
        refused = httpx.post(f"{url}/judge", json=body)
        sandbox.may.set()
        assert [one.result().status_code for one in first] == [200, 200]
        assert httpx.post(f"{url}/judge", json=body).status_code == 200
    assert refused.status_code == 503 and "try again" in refused.json()["error"]["message"]


def test_what_runs_afresh_is_kept_nowhere() -> None:
    sandbox = Scripted()
    sandbox.may.set()
    with service(sandbox) as url:
        for _ in range(2):
            assert httpx.post(f"{url}/run_code", json={"code": "", "language": "python"}).status_code == 200
        httpx.post(f"{url}/judge", json={"program": "", "tests": ["f()"]})
    assert sandbox.runs == [None, None, 0]


@pytest.mark.parametrize(("tests", "wall_s"), [(1000, 8.0), (1001, 0.001)])
def test_what_is_too_much_is_refused_unread(
    monkeypatch: pytest.MonkeyPatch, tests: int, wall_s: float
) -> None:
    def read(_: str) -> bool:
        raise AssertionError("a test was parsed")

    monkeypatch.setattr(jobs, "is_data", read)
    asked = {"program": "", "tests": ["f()"] * tests, "limits": {"wall_s": wall_s}}
    with service(Scripted()) as url:
        refused = httpx.post(f"{url}/judge", json=asked, timeout=60)
    assert (
        refused.status_code == 400 and "send them in several requests" in refused.json()["error"]["message"]
    )


@pytest.mark.parametrize(
    ("test", "field", "wrong"),
    [
        ({"stdout": "", "code": 3}, "code", "valid string"),
        ({"stdout": "", "cod": ""}, "cod", "not permitted"),
        ({"stdin": "1"}, "stdout", "required"),
    ],
)
def test_of_a_faulty_test_the_faulty_field_is_named(test: dict, field: str, wrong: str) -> None:
    with service(Scripted()) as url:
        refused = httpx.post(f"{url}/judge", json={"program": "", "tests": [test]})
    message = refused.json()["error"]["message"]
    assert refused.status_code == 400 and f".{field}: " in message and wrong in message


@pytest.mark.parametrize("content_type", [None, "text/plain"])
def test_a_body_that_is_not_declared_as_json_is_refused_with_the_header_it_lacks(
    content_type: str | None,
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    with service(Scripted()) as url:
        refused = httpx.post(f"{url}/judge", content='{"program": "", "tests": []}', headers=headers)
    assert (
        refused.status_code == 400 and "Content-Type: application/json" in refused.json()["error"]["message"]
    )


@pytest.mark.parametrize(
    ("verdict", "status", "ran"),
    [
        ({"status": Status.PASSED, "stdout": "7\n"}, "Success", ("Finished", 0)),
        (
            {"status": Status.RUNTIME_ERROR, "error": "the program exited with code 3"},
            "Failed",
            ("Finished", 3),
        ),
        (
            {"status": Status.RUNTIME_ERROR, "error": "the program was killed by signal 11"},
            "Failed",
            ("Finished", -11),
        ),
        ({"status": Status.TIME_LIMIT}, "Failed", ("TimeLimitExceeded", None)),
        ({"status": Status.MEMORY_LIMIT}, "Failed", ("Finished", -9)),
        ({"status": Status.OUTPUT_LIMIT}, "Failed", ("Finished", -9)),
    ],
)
def test_a_verdict_as_sandbox_fusion_says_it(verdict: dict, status: str, ran: tuple[str, Any]) -> None:
    said = as_run(Verdict(**verdict))
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
    for name, value in (
        ("memory_mb", 513),
        ("cpu_s", 11),
        ("wall_s", 41),
        ("processes", 65),
        ("output_kb", 1025),
    ):
        with pytest.raises(RequestRefused, match=f"limits.{name}: {value} is above"):
            most.limits(Limits(**{name: value}), 1)


def test_who_states_no_limits_is_not_refused_for_the_defaults() -> None:
    small = RequestLimits(memory_mb=128, seconds=1, waiting=1)
    assert small.limits(Limits(), 1) == Limits(memory_mb=128, cpu_s=1, wall_s=4)
    assert small.limits(Limits(memory_mb=64), 1).memory_mb == 64
    job = as_job(RunCode(code="", language="python"), small)
    assert small.limits(job.limits, 1).cpu_s == 1
    with pytest.raises(
        RequestRefused, match="cpu_s: 2 is above 1"
    ):  # wall_s, 8, is so too: what the request said comes first
        small.limits(as_job(RunCode(code="", language="python", run_timeout=2), small).limits, 1)
