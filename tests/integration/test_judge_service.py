"""`python -m sandbox_workers serve`, and those who call it: HTTP, the package sandbox-fusion, verl's reward module."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sandbox_fusion

from sparring.web.keys import add

ROOT = Path(__file__).parents[2]
VERL = ROOT / ".bench" / "verl" / "utils" / "reward_score" / "sandbox_fusion"


class Service:
    """The command, running."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "sandbox_workers", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said.startswith("listening on http://127.0.0.1:"), said
        self.url = said.split()[-1]

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    service = Service("--slots", "2", "--max-body-mb", "1")
    yield service.url
    service.close()


def test_verdicts_of_a_program(url: str) -> None:
    program = "def f(n):\n    while n > 5: pass\n    return [1][n]"
    tests = ["assert f(0) == 1", "f(0)", "assert f(0) == 2", "f(3)", "f(6)"]
    asked = {"program": program, "tests": tests, "limits": {"cpu_s": 0.3}}
    answer = httpx.post(f"{url}/judge", json=asked, timeout=60)
    verdicts = answer.json()["verdicts"]
    assert [verdict["status"] for verdict in verdicts] == [
        "PASSED",
        "PASSED",
        "WRONG_ANSWER",
        "RUNTIME_ERROR",
        "TIME_LIMIT",
    ]
    assert verdicts[1]["value"] == "1" and "IndexError" in verdicts[3]["error"]
    fields = {"status", "value", "isolation", "time_ms", "memory_bytes", "stdout", "stderr", "error"}
    assert set(verdicts[0]) == fields
    whole = {
        "program": "read x; echo $((x * 2))",
        "tests": [{"stdin": "4\n", "stdout": "8"}],
        "language": "bash",
    }
    assert httpx.post(f"{url}/judge", json=whole, timeout=60).json()["verdicts"][0]["status"] == "PASSED"


def test_the_page_s_example(url: str) -> None:
    """The `curl` of docs/use_the_judge_elsewhere.md."""
    page = (ROOT / "docs" / "use_the_judge_elsewhere.md").read_text()
    (asked,) = re.findall(r"-d '(.*)'", page)
    verdicts = httpx.post(f"{url}/judge", json=json.loads(asked), timeout=60).json()["verdicts"]
    assert [verdict["status"] for verdict in verdicts] == ["PASSED", "PASSED", "WRONG_ANSWER"]
    (answer,) = re.findall(r"^{\"verdicts.*$", page, re.MULTILINE)
    assert json.loads(answer)["verdicts"][0].keys() == verdicts[0].keys()


@pytest.mark.parametrize(
    ("path", "asked", "message"),
    [
        ("judge", {"program": "x"}, "tests: Field required"),
        ("judge", {"program": "x", "tests": [3]}, "tests.0"),
        ("judge", {"program": "x", "tests": [], "limit": {}}, "limit: Extra inputs"),
        ("judge", {"program": "x", "tests": [], "limits": {"cpu_s": 0}}, "limits.cpu_s"),
        ("judge", {"program": "x", "tests": [], "limits": {"cpu_s": 100}}, "limits.cpu_s: 100 is above 60"),
        ("judge", {"program": "x", "tests": [], "limits": {"cpu_s": 1e9}}, "limits.cpu_s: Input"),
        ("judge", {"program": "x", "tests": ["f()"] * 400}, "send them in several requests"),
        ("judge", {"program": "x", "tests": [{"stdout": ""}], "language": "cobol"}, "no language 'cobol'"),
        ("judge", {"program": "x", "tests": ["f()"], "language": "lua"}, "tests of a lua program must be"),
        ("judge", [], "JSON object"),
        ("run_code", {"code": "x"}, "language: Field required"),
        ("run_code", {"code": "x", "language": "cobol"}, "no language 'cobol'"),
        ("run_code", {"code": "x", "language": "python", "run_timeout": 0}, "run_timeout"),
        ("run_code", {"code": "x", "language": "python", "run_timeout": 100}, "limits.cpu_s: 100 is above"),
        ("run_code", {"code": "x", "language": "python", "memory_limit_MB": 9000}, "limits.memory_mb: 9000"),
        (
            "run_code",
            {"code": "x", "language": "python", "memory_limit_MB": 1},
            "limits.memory_mb: Input should be greater",
        ),
        ("run_code", {"code": "x", "language": "python", "files": {"a": "eA=="}}, "neither takes files"),
    ],
)
def test_what_cannot_be_judged_is_the_clients_to_mend(url: str, path: str, asked: Any, message: str) -> None:
    answer = httpx.post(f"{url}/{path}", json=asked, timeout=60)
    assert answer.status_code == 400 and message in answer.json()["error"]["message"], answer.text


def test_a_language_that_the_sandbox_lacks_is_a_400(url: str) -> None:
    asked = {"program": "1", "tests": [{"stdout": "1"}], "language": "q"}
    if os.environ.get("Q_BIN"):
        pytest.skip("q is here")
    answer = httpx.post(f"{url}/judge", json=asked, timeout=60)
    assert answer.status_code == 400 and "set Q_BIN" in answer.json()["error"]["message"]


def test_odd_requests_leave_it_standing(url: str) -> None:
    headers = {"Content-Type": "application/json"}
    assert httpx.post(f"{url}/judge", content=b'{"program": ', headers=headers, timeout=60).status_code == 400
    assert (
        httpx.post(f"{url}/judge", content=b"x" * (2 << 20), headers=headers, timeout=60).status_code == 413
    )
    lone = b'{"program": "\\ud800", "tests": ["f()"]}'
    assert httpx.post(f"{url}/judge", content=lone, headers=headers, timeout=60).status_code in (200, 400)
    lone = b'{"code": "print(input())", "language": "python", "stdin": "\\ud800"}'
    answer = httpx.post(f"{url}/run_code", content=lone, headers=headers, timeout=60)
    assert answer.status_code == 400 and "stdin" in answer.json()["error"]["message"]
    slow = {"program": "import time\ndef f(): time.sleep(1)", "tests": ["f()"]}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/judge", json=slow, timeout=0.2)  # hangs up
    as_a_web_page_may = {"Content-Type": "text/plain"}
    asked = b'{"program": "def f(): return 1", "tests": ["f()"]}'
    assert httpx.post(f"{url}/judge", content=asked, headers=as_a_web_page_may, timeout=60).status_code == 400
    raw = "import sys\nsys.stdout.buffer.write(bytes(range(256)))"
    ran = httpx.post(f"{url}/run_code", json={"code": raw, "language": "python"}, timeout=60)
    assert ran.json()["status"] == "Success" and "\ufffd" in ran.json()["run_result"]["stdout"]
    page = httpx.get(f"{url}/metrics", timeout=60).text
    assert 'sparring_verdicts_total{status="PASSED"}' in page and 'path="/judge",status="413"' not in page


@pytest.mark.slow
def test_keys_are_asked_for_and_requests_written_down(tmp_path: Path) -> None:
    key = add(tmp_path / "keys.json", "alice")
    log = tmp_path / "audit.jsonl"
    service = Service("--slots", "1", "--keys", str(tmp_path / "keys.json"), "--audit-log", str(log))
    try:
        asked = {"program": "def f(): return 1", "tests": ["f()"]}
        assert httpx.post(f"{service.url}/judge", json=asked, timeout=60).status_code == 401
        with_key = httpx.post(
            f"{service.url}/judge", json=asked, headers={"Authorization": f"Bearer {key}"}, timeout=60
        )
        assert with_key.json()["verdicts"][0]["value"] == "1"
        in_url = service.url.replace("http://", f"http://any:{key}@")  # what a client with a URL only can do
        request = sandbox_fusion.RunCodeRequest(code="print(1)", language="python")
        ran = sandbox_fusion.run_code(request, endpoint=in_url, max_attempts=1, client_timeout=60)
        assert ran.run_result and ran.run_result.stdout == "1\n"
    finally:
        service.close()
    written = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["key"], line["path"], line["status"]) for line in written] == [
        (None, "/judge", 401),
        ("alice", "/judge", 200),
        ("alice", "/run_code", 200),
    ]


# ---------------------------------------------------------------- SandboxFusion's clients


@pytest.mark.parametrize(
    ("code", "language", "summary", "stdout"),
    [
        ("print(int(input()) * 2)", "python", "Success", "8\n"),
        ("import sys; print(1); sys.exit(3)", "python", "RunFailed", "1\n"),
        ("print(1", "python", "RunFailed", ""),
        ("while True: pass", "python", "RunTimeout", ""),
        ("x = bytearray(1 << 33)", "python", "RunFailed", ""),
        ("read x; echo $x", "bash", "Success", "4\n"),
    ],
)
def test_the_package_sandbox_fusion(url: str, code: str, language: str, summary: str, stdout: str) -> None:
    request = sandbox_fusion.RunCodeRequest(code=code, language=language, stdin="4\n", run_timeout=1)
    ran = sandbox_fusion.run_code(request, endpoint=url, max_attempts=1, client_timeout=60)
    mapping = sandbox_fusion.SummaryMapping(
        Success="Success", Failed="Failed", RunFailed="RunFailed", RunTimeout="RunTimeout"
    )
    assert sandbox_fusion.summary_run_code_result(ran, mapping) == summary
    assert ran.run_result and ran.run_result.stdout == stdout


@pytest.fixture(scope="module")
def verl() -> Any:
    """verl's module as its wheel has it, without the rest of verl, which wants a GPU's libraries."""
    if not VERL.is_dir():
        pytest.skip("`make .bench` unpacks verl's wheel")
    spec = importlib.util.spec_from_file_location(
        "verl_sandbox_fusion", VERL / "__init__.py", submodule_search_locations=[str(VERL)]
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("completion", "cases", "score", "said"),
    [
        ("```python\nprint(int(input()) + 1)\n```", {}, 1.0, ["success", "success"]),
        ("```python\nprint(2 if input() == '1' else 0)\n```", {}, 0.5, ["success", "wrong_answer"]),
        ("```python\nprint(1 // int(input()[:0] or 0))\n```", {}, 0.0, ["runtime_error", "runtime_error"]),
        ("```python\ndef add(n):\n    return n + 1\n```", {"fn_name": "add"}, 1.0, ["success", "success"]),
        (
            "```python\ndef add(n):\n    return n + 1\n```",
            {"assert_case": ["assert add(1) == 2", "assert add(1) == 3"], "outputs": [None, None]},
            0.5,
            ["success", "runtime_error"],
        ),
    ],
)
def test_verls_own_reward(
    url: str, verl: Any, completion: str, cases: dict, score: float, said: list
) -> None:
    cases = {"inputs": ["1", "2"], "outputs": ["2", "3"]} | cases
    scored, details = verl.compute_score(
        f"{url}/run_code", None, 1024, completion, json.dumps(cases), continuous=True
    )
    assert scored == score and [case["status"] for case in details] == said
