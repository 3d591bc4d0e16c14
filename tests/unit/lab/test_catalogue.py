"""One row per game; a game without one is told so."""

import json
import re
from random import Random
from types import SimpleNamespace

import pytest

from configs.load import RECIPES, load_run
from lab.catalogue import lesson_for
from lab.examples import MADE
from lab.model import build_tokenizer
from lab.settings import WarmUp
from sparring.core.project_files import EXAMPLES, is_example
from sparring.games.prompts import END, MARKER_TOKENS, PAD, TaggedFormat
from sparring.problems.loader import ProblemFileError
from sparring.tracking.model_card import read_toy

PROBLEMS = [name for name in MADE if (EXAMPLES / name / "train.json").is_file()]


@pytest.mark.parametrize(
    ("name", "role"), [(name, role) for name in MADE for role in MADE[name].config().policies]
)
def test_an_example_has_demonstrations_for_each_of_its_models(name: str, role: str) -> None:
    lesson = lesson_for(MADE[name].config().game, role, MADE[name].warm_up)
    texts = [next(lesson.texts) for _ in range(6)]
    assert any(text.strip() for text in texts)
    style, rng = TaggedFormat(build_tokenizer(texts, MARKER_TOKENS, PAD, END)), Random(1)
    for _ in range(20):
        shown = lesson.draw(style, rng)
        assert len(shown.tokens) == len(shown.learned) and any(shown.learned) and not shown.learned[0]


def test_every_toy_model_of_a_recipe_is_one_of_the_examples() -> None:
    for path in sorted(RECIPES.glob("*.yaml")):
        config = load_run(["--config", path.stem])[0].to_config()
        for role in config.policies:
            model = config.policy(role).model
            assert not is_example(model) or model.split("/")[2] in MADE


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_problem_that_a_models_card_names_is_of_the_kind_of_its_data_set(name: str) -> None:
    toy = read_toy(EXAMPLES / name / "generator")
    example = digits_apart(toy["example"])
    alike = [
        problem
        for problem in json.loads((EXAMPLES / name / "train.json").read_text())["problems"]
        if digits_apart(problem["description"]) == example
    ]
    assert alike
    if name != "prediction":  # whose problems are topics
        assert all(re.search(rf"\b{toy['function']}\(", p["function_signature"]) for p in alike)


def digits_apart(text: str) -> str:
    return re.sub(r"\d+", "N", text)


def test_a_game_without_a_row_has_no_toy_model() -> None:
    with pytest.raises(ProblemFileError, match="game chess has no toy model"):
        lesson_for(SimpleNamespace(kind="chess"), "generator", WarmUp())
