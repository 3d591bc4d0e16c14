"""Another reasoning stage is an edit of the list in sparring/core/stages.py: in a copy of the tree it is made, and a model is
warmed up, plays, learns and is evaluated with it."""

import json
from pathlib import Path

import pytest

from lab.problems import toy_problems
from tests.datasets import problem_file
from tests.integration.conftest import rows_of
from tests.integration.houses import copy_house, run

NEW = '    ("test by hand", "Now go through your algorithm by hand on two inputs, one of them an edge case."),\n'
LAST = '    (\n        "executable code",'


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with a sixth stage before the program."""
    house = copy_house(tmp_path_factory.mktemp("house"))
    stages = house / "sparring" / "core" / "stages.py"
    before, after = stages.read_text().split(LAST)
    stages.write_text(before + NEW + LAST + after)
    return house


MAKE = """
import itertools, random
from configs.load import load_run
from sparring.games.prompts import END, MARKER_TOKENS, PAD, format_for
from lab.model import build_model, build_tokenizer
from lab.supervised import train_supervised
from lab.catalogue import lesson_for
from lab.examples import MADE

config = load_run(["--config", "debug", "--generator.max-tokens", "24"])[0].to_config()
lesson = lesson_for(config.game, "generator", MADE["toy"].warm_up)
tokenizer = build_tokenizer(itertools.islice(lesson.texts, 900), MARKER_TOKENS, PAD, END)
style, rng = format_for(tokenizer), random.Random(0)
print(tokenizer.decode(lesson.draw(style, rng).tokens))
model = build_model(tokenizer, seed=0)
train_supervised(model, lambda: lesson.draw(style, rng), steps=4, batch_size=4, learning_rate=1e-3)
model.save_pretrained("model")
tokenizer.save_pretrained("model")
"""


@pytest.mark.slow  # a run and an evaluation, in processes of their own
def test_a_sixth_stage_is_demonstrated_played_trained_and_evaluated(house: Path) -> None:
    said = run(house, "-c", MAKE)
    assert "<s5>Nothing to add.\n<s6>def f(" in said and said.strip().endswith("<end>")

    problem_file(house / "train.json", toy_problems("train")[:4])
    problem_file(house / "held_out.json", toy_problems("held_out")[:1])
    run(
        house, "driver.py", "--config", "debug", "--run-name", "six", "--sandbox.backend", "process",
        "--generator-model", house / "model", "--discriminator-model", house / "model",
        "--problems-file", house / "train.json", "--problems.held-out.file", house / "held_out.json",
        "--generator.max-tokens", 24, "--credit.kind", "stage", "--curriculum.stages", "[5, 6]",
        "--n-discriminator-steps", 0, "--n-generator-steps", 1, "--k-alternating-steps", 0,
        "--curriculum.problems-per-step", 2, "--curriculum.attempts", 4, "--curriculum.frozen-programs", 2,
        # a model this raw earns nothing in every attempt; the entropy bonus is there all the same
        "--no-generator.learner.estimator.center-rewards", "--game.baseline-in-reward",
        "--generator.learner.entropy-coefficient", 0.01,
    )  # fmt: skip
    directory = house / "output" / "six"
    before, *rows = rows_of(directory)
    assert "generator_pass_rate" in before["held_out"]
    assert [row["stage"] for row in rows] == [5, 6]
    for row in rows:
        learned, attempts = row["generator"], 2 * 4
        assert learned["gradient_norm"] > 0
        # of the stage under training alone: one completion of each attempt
        assert 0 < learned["trained_tokens"] <= 24 * attempts < row["generator_tokens"] * attempts
    samples = sorted((directory / "samples").iterdir())
    assert len(samples) == 2 and all("[stage 6]" in sample.read_text() for sample in samples)

    run(
        house, "-m", "sparring", "evaluate", "--dataset", house / "held_out.json", "--sandbox", "process",
        "--policy", directory / "checkpoints" / "best" / "generator", "--engine", "transformers", "--ablate",
        "--json", house / "scores.json",
    )  # fmt: skip
    report = json.loads((house / "scores.json").read_text())
    assert list(report["ablation"]) == ["none", "0", "1", "2", "3", "4", "all"]
    assert report["stages"] == "all"
