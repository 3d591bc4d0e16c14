"""Another reasoning stage is an edit of the list in games/stages.py: in a copy of the tree it is made, and a model is
warmed up, plays, learns and is evaluated with it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "actors", "configs", "core", "curriculum", "evaluation", "games", "learners", "problems", "runtime",
    "sandbox_workers", "scripts", "tracking", "docker",
)  # fmt: skip
NEW = '    ("test by hand", "Now go through your algorithm by hand on two inputs, one of them an edge case."),\n'
LAST = '    (\n        "executable code",'


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with a sixth stage before the program."""
    house = tmp_path_factory.mktemp("house")
    for room in ROOMS:
        shutil.copytree(ROOT / room, house / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "driver.py", house)
    stages = house / "games" / "stages.py"
    before, after = stages.read_text().split(LAST)
    stages.write_text(before + NEW + LAST + after)
    return house


def run(house: Path, *arguments: object) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=house,
        env=environment
        | {"XDG_CACHE_HOME": str(house / "cache"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_sixth_stage_is_played_trained_and_evaluated(house: Path) -> None:
    run(
        house, "driver.py", "--config", "debug", "--run-name", "six", "--sandbox.backend", "process",
        "--warm-start.generator-steps", 8, "--warm-start.discriminator-steps", 2,
        "--generator.max-tokens", 20, "--credit", "stage",
        "--curriculum.stages", "[5, 6]", "--n-discriminator-steps", 0, "--k-alternating-steps", 0,
        "--curriculum.problems-per-step", 2, "--no-generator.learner.center-rewards",
        "--evaluation.problems", 1, "--evaluation.bank-programs", 1,
    )  # fmt: skip
    directory = house / "output" / "six"
    before, *rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert "generator_pass_rate" in before["held_out"]
    assert [row["stage"] for row in rows] == [5, 6]
    for row in rows:
        assert row["generator"]["gradient_norm"] > 0
        # the tokens of this stage alone: at most one completion of each attempt
        attempts = row["generator"]["samples"]
        assert 0 < row["generator"]["trained_tokens"] <= 20 * attempts < row["generator_tokens"] * attempts
    assert [
        stage["stage"] for stage in json.loads((directory / "training_results.json").read_text())["stages"]
    ] == [5, 6]
    (sample, _) = sorted((directory / "samples").iterdir())
    assert "stage 6" in sample.read_text()

    shown = run(
        house, "-m", "scripts.evaluate", "--dataset", "embedded", "--problems", 1, "--sandbox", "process",
        "--policy", directory / "checkpoints" / "best" / "generator", "--engine", "transformers", "--ablate",
        "--json", house / "scores.json",
    )  # fmt: skip
    report = json.loads((house / "scores.json").read_text())
    assert list(report["ablation"]) == ["none", "0", "1", "2", "3", "4", "all"]
    assert report["stages"] == "all" and "stages 4:" in shown


def test_the_demonstrator_says_a_short_sentence_where_it_knows_nothing(house: Path) -> None:
    script = (
        "from random import Random\n"
        "from configs.load import load_run\n"
        "from games.prompts import END, MARKER_TOKENS, PAD, format_for\n"
        "from learners.embedded_model import build_tokenizer\n"
        "from scripts.lessons import lesson_of\n"
        "config = load_run(['--config', 'debug', '--generator.max-tokens', '20'])[0].to_config()\n"
        "lesson = lesson_of(config, 'generator')\n"
        "tokenizer = build_tokenizer(lesson.texts, MARKER_TOKENS, PAD, END)\n"
        "print(tokenizer.decode(lesson.draw(format_for(tokenizer, 'strict'), Random(0)).tokens))\n"
    )
    said = run(house, "-c", script)
    assert "<s5>Nothing to add.\n<s6>def f(" in said and said.strip().endswith("<end>")
