"""sparring/cli/evaluate.py as a user runs it, in the sandbox of the product."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from configs.evaluate import EvaluateOptions
from lab.model import build_model, build_tokenizer
from lab.problems import toy_problems
from sandbox_workers.backends import choose_backend
from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.languages import UnknownLanguage
from sparring.cli.evaluate import evaluate
from sparring.games.prompts import END, MARKER_TOKENS, PAD
from tests.datasets import DATA

ROOT = Path(__file__).resolve().parents[2]

HELD_OUT = "sparring/examples/toy/held_out.json"


@pytest.fixture(autouse=True)
def contained() -> None:
    try:
        choose_backend("auto")
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def raw_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy model that has learnt nothing."""
    corpus = [text for p in toy_problems("train")[:100] for text in (p.description, *p.baseline_asserts)]
    tokenizer = build_tokenizer(iter(corpus), MARKER_TOKENS, PAD, END)
    directory = tmp_path_factory.mktemp("model")
    build_model(tokenizer, seed=1).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.mark.parametrize(
    ("file", "format", "split"),
    [("mbpp.jsonl", "mbpp", None), ("humaneval.jsonl", "humaneval", None), ("lua", "q", "train")],
)
@pytest.mark.parametrize(("policy", "rate"), [("reference", 1.0), ("empty", 0.0)])
def test_references_solve_everything_and_empty_programs_nothing(file, format, split, policy, rate) -> None:
    try:
        report = evaluate(
            EvaluateOptions(dataset=str(DATA / file), format=format, split=split, policy=policy)
        )
    except UnknownLanguage as missing:  # a sandbox without containers has what the host has
        pytest.skip(str(missing))
    scores = report["scores"]
    assert scores["generator_pass_rate"] == scores["generator_test_rate"] == rate
    assert scores["unjudged"] == 0 and set(report["pass_rates"].values()) == {rate}


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=environment
    )


def test_a_model_writes_programs_and_chooses_among_them_by_suites(raw_model: Path, tmp_path: Path) -> None:
    done = run(
        "-m", "sparring", "evaluate", "--dataset", HELD_OUT, "--problems", 2, "--policy", raw_model,
        "--engine", "transformers", "--max-tokens", 12, "--samples", 2, "--pass-at", 2,
        "--json", tmp_path / "out.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert (report["problems"], report["stages"]) == (2, "all")
    assert report["scores"].keys() >= {"generator_pass_rate", "pass_at_2", "cut_off"}
    assert f"2 problems of {HELD_OUT}" in done.stdout and not done.stderr.strip()
    done = run(
        "-m", "sparring", "evaluate", "--dataset", HELD_OUT, "--problems", 1, "--discriminator", raw_model,
        "--engine", "transformers", "--max-tokens", 12, "--suites", 2, "--mutants", 3,
        "--programs", tmp_path / "out.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mutant kill rate" in done.stdout and "false kill rate" in done.stdout
    assert "best of 2 by 1 suites" in done.stdout and "best of 2 by 2 suites" in done.stdout
    assert not done.stderr.strip()
