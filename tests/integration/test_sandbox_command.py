"""`python -m sandbox_workers`, as a user of the sandbox alone meets it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_workers.__main__ import read_jobs
from sparring.core.errors import SparringError

ROOT = Path(__file__).parents[2]


def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "sandbox_workers", *arguments],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
    )


def judge(*jobs: object, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    return run("judge", "-", *options, text="".join(json.dumps(job) + "\n" for job in jobs))


@pytest.mark.parametrize(("way", "status"), [("run", "PASSED"), ("refuse", "UNSUPPORTED")])
def test_tests_that_are_code_are_run_or_refused(way: str, status: str) -> None:
    job = {
        "id": 1,
        "program": "def f(x): return x",
        "tests": ["assert f(1) == 1", "import os\nassert f(1) == 1"],
    }
    (line,) = judge(job, options=("--code-tests", way)).stdout.splitlines()
    verdicts = json.loads(line)["verdicts"]
    assert [(v["status"], v["isolation"]) for v in verdicts] == [("PASSED", "separate"), (status, "shared")]


def test_a_reference_decides_how_a_test_is_judged() -> None:
    """A dict that makes up its items would have the test run as code, beside a class that says yes to it."""
    test = "xs = f(1)\nassert xs[0] == 5"
    cheats = "import collections\nclass Yes:\n    def __eq__(self, other): return True\n"
    program = f"{cheats}def f(x): return collections.defaultdict(Yes)"
    known = {"id": 1, "program": program, "tests": [test], "reference": "def f(x): return [5]"}
    judged = judge(
        known, {**known, "id": 2, "reference": None}, {**known, "id": 3, "program": "def f(x): return [5]"}
    )
    verdicts = [json.loads(line)["verdicts"][0] for line in judged.stdout.splitlines()]
    assert [(v["status"], v["isolation"]) for v in verdicts] == [
        ("RUNTIME_ERROR", "separate"), ("PASSED", "shared"), ("PASSED", "separate"),
    ]  # fmt: skip


def test_verdicts_come_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    slow = {"id": "slow", "program": "import time\ndef f(x): time.sleep(0.5); return x", "tests": ["f(1)"]}
    quick = [
        {"id": n, "program": f"def f(x): return x + {n}", "tests": ["assert f(1) == 2"], "language": "python"}
        for n in range(20)
    ]
    hanging = {
        "id": "hangs",
        "program": "def f(x):\n    while x: pass",
        "tests": ["f(1)", "f(0)"],
        "limits": {"cpu_s": 0.3},
    }
    output = {"id": "io", "program": "print(input())", "tests": [{"stdin": "a", "stdout": "a\n"}]}
    path = tmp_path / "jobs.jsonl"
    path.write_text("\n".join(json.dumps(job) for job in [slow, *quick, hanging, output]) + "\n\n")
    finished = run("judge", str(path))
    assert finished.returncode == 0, finished.stderr
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [line["id"] for line in lines] == ["slow", *range(20), "hangs", "io"]
    statuses = [[verdict["status"] for verdict in line["verdicts"]] for line in lines]
    assert statuses[0] == ["PASSED"] and lines[0]["verdicts"][0]["value"] == "1"
    assert statuses[1:21] == [["WRONG_ANSWER"], ["PASSED"], *[["WRONG_ANSWER"]] * 18]
    assert statuses[21:] == [["TIME_LIMIT", "PASSED"], ["PASSED"]]
    fields = {"status", "value", "isolation", "time_ms", "memory_bytes", "stdout", "stderr", "error"}
    assert set(lines[0]["verdicts"][0]) == fields
    assert lines[0]["verdicts"][0]["memory_bytes"] > 1 << 20


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"program": "x", "tests": []}, "-:2: id"),
        ({"id": 1, "program": "x", "tests": [3]}, "-:2: tests.0"),
        ({"id": 1, "program": "x", "tests": [], "limit": {}}, "-:2: limit: Extra inputs"),
        ({"id": 1, "program": "x", "tests": [], "limits": {"cpu": 1}}, "-:2: limits.cpu: Extra inputs"),
        ({"id": 1, "program": "x", "tests": [], "limits": {"cpu_s": 0}}, "-:2: limits.cpu_s"),
        ({"id": 1, "program": "x", "tests": [], "limits": {"memory_mb": 9000}}, "above --memory-mb 512"),
        (
            {"id": 1, "program": "x", "tests": ["f(1)"], "language": "lua"},
            "-:2: tests of a lua program must be",
        ),
        ({"id": 1, "program": "x", "tests": [{"stdout": ""}], "language": "cobol"}, "no language 'cobol'"),
        (
            {"id": 1, "program": "x", "tests": [{"stdout": None, "code": "f()"}], "language": "lua"},
            "-:2: an OutputTest with code expects no output",
        ),
        ("not an object", "-:2:"),
    ],
)
def test_bad_input_names_its_place(job: object, message: str) -> None:
    good = {"id": 0, "program": "def f(): return 1", "tests": ["f()"]}
    with pytest.raises(SparringError, match=re.escape(message)):
        list(read_jobs([json.dumps(good), json.dumps(job)], "-", 512))


def test_a_language_that_the_host_lacks_ends_only_its_own_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("Q_BIN", raising=False)
    good = {"program": "def f(): return 1", "tests": ["f()"]}
    missing = {"id": 1, "program": "1", "tests": [{"stdout": "1"}, {"stdout": "2"}], "language": "q"}
    finished = judge({"id": 0} | good, missing, {"id": 2} | good)
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [[verdict["status"] for verdict in line["verdicts"]] for line in lines] == [
        ["PASSED"],
        ["SANDBOX_ERROR"] * 2,
        ["PASSED"],
    ]
    assert "set Q_BIN" in lines[1]["verdicts"][0]["error"]
    assert finished.returncode == 1 and "1 jobs could not be judged" in finished.stderr


def test_a_missing_file_is_named() -> None:
    finished = run("judge", "/no/such/file")
    assert finished.returncode == 2 and finished.stderr == "error: /no/such/file: No such file or directory\n"


def test_the_host_is_checked_by_judging() -> None:
    finished = run("check_host")
    assert finished.returncode == 0, finished.stdout
    assert re.search(r"^process: works: (\d+) of \1 checks$", finished.stdout, re.MULTILINE), finished.stdout
    assert "weaker: no cap on memory, processes and disk" in finished.stdout
    assert finished.stdout.splitlines()[-1] in ("auto picks: docker", "auto picks: namespace")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slots", "0"], "--slots 0: 1 or more"),
        (
            ["--keys", "/no/such/keys.json"],
            "/no/such/keys.json: No such file or directory; `python -m sparring keys add",
        ),
        (["--port", "1000000"], "--port: '1000000' is no number from 0 to 65535"),
    ],
)
def test_a_service_that_cannot_be_is_refused_at_once(arguments: list[str], message: str) -> None:
    finished = run("serve", *arguments)
    assert finished.returncode == 2 and finished.stdout == ""
    assert message in finished.stderr.splitlines()[-1] and "Traceback" not in finished.stderr
