"""sparring/cli/solve.py as a user runs it, with the toy models before training, in the sandbox of the product."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.problems import toy_problems
from sandbox_workers.backends import choose_backend
from sandbox_workers.jobs import SandboxUnavailable
from sparring.core.project_files import EXAMPLES
from sparring.runtime.model import open_model

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = toy_problems("held_out")[0]


@pytest.fixture(autouse=True)
def contained() -> None:
    try:
        choose_backend("auto")
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))


def solve(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [
        sys.executable,
        "-m",
        "sparring",
        "solve",
        "--checkpoint",
        "sparring/examples/toy",
        *map(str, arguments),
    ]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=environment
    )


def test_one_problem_is_solved_before_the_users_eyes(tmp_path: Path) -> None:
    tests = "; ".join(PROBLEM.baseline_asserts)
    done = solve(
        "--problem", PROBLEM.description, "--signature", PROBLEM.function_signature, "--tests", tests,
        "--execute-tests", "--temperature", 0, "--attempts", 2, "--output", tmp_path / "out.json",
    )  # fmt: skip
    report = json.loads((tmp_path / "out.json").read_text())
    (result,) = report["results"]
    assert done.returncode == (0 if result["solved"] else 1) and not done.stderr.strip(), done.stderr
    assert result["attempts"][0]["stages"][0]["stage"] == "informal reasoning"
    assert result["program"].strip() in done.stdout and "pseudocode" in done.stdout
    statuses = [outcome["status"] for outcome in result["attempts"][0]["outcomes"]]
    assert len(statuses) == len(PROBLEM.baseline_asserts) and all(
        status in done.stdout for status in statuses
    )
    assert len(result["attempts"]) == (1 if set(statuses) == {"PASSED"} else 2)


def test_a_toy_model_names_a_problem_and_solves_it() -> None:
    about = open_model(str(EXAMPLES / "toy/generator"), "--checkpoint").note()
    (problem,) = re.findall('"(.*)"', about)
    done = solve(
        "--problem", problem, "--signature", "def f(xs: list) -> int:", "--temperature", 0,
        "--tests", "assert f([5, 6, 7, 8]) == 15; assert f([]) == 0", "--execute-tests",
    )  # fmt: skip
    assert about in done.stdout and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


@pytest.mark.slow
def test_of_a_batch_what_breaks_is_named_and_the_rest_is_answered(tmp_path: Path) -> None:
    entries = [
        {"id": "good", "description": PROBLEM.description, "function_signature": PROBLEM.function_signature},
        {"id": "broken", "description": "Double n.", "baseline_tests": ["assert ("]},
        {"id": "long", "description": "a word " * 300},
    ]
    (tmp_path / "problems.json").write_text(json.dumps({"problems": entries}))
    done = solve(
        "--batch", "--problems-file", tmp_path / "problems.json", "--engine", "transformers", "--best-of", 3,
        "--problems", 1, "--output", tmp_path / "out.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    by_id = {result["id"]: result for result in report["results"]}
    assert report["failed"] == ["broken"] and "baseline_tests[0]" in by_id["broken"]["error"]
    good = by_id["good"]
    assert good["program"] and len(good["others"]) == 2 and good["attempts"][0]["votes"] is not None
    assert good["tests"] and "broken" in done.stdout

    done = solve("--batch", "--problems-file", tmp_path / "problems.json", "--engine", "transformers", "--output",
                 tmp_path / "out.json")  # fmt: skip
    report = json.loads((tmp_path / "out.json").read_text())
    assert done.returncode == 0 and report["failed"] == ["long", "broken"]
    assert "1 could not" not in done.stdout and "2 could not be answered or judged" in done.stdout
