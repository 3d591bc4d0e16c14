"""One row per game; a game without one is told so."""

import re
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from configs.load import RECIPES, load_run
from configs.schema import Config
from configs.sections import EMBEDDED
from sparring.embedded.catalogue import describe_model, function_of, lesson_for, problems_of
from sparring.embedded.model import build_tokenizer
from sparring.embedded.settings import WarmStartSettings
from sparring.games.prompts import END, MARKER_TOKENS, PAD, TaggedFormat
from sparring.problems.loader import ProblemFileError


def recipes() -> list[Any]:
    """(config, policy) of every embedded model that a recipe names."""
    found = []
    for path in sorted(RECIPES.glob("*.yaml")):
        config: Config = load_run(["--config", path.stem])[0].to_config()
        roles = [role for role in config.policies if config.policy(role).model == EMBEDDED]
        found += [pytest.param(config, role, id=f"{path.stem}-{role}") for role in roles]
    return found


@pytest.mark.parametrize(("config", "role"), recipes())
def test_an_embedded_recipe_has_something_to_show_its_model(config: Config, role: str) -> None:
    lesson = lesson_for(config.game, role, config.warm_start)
    texts = [next(lesson.texts) for _ in range(6)]
    assert any(text.strip() for text in texts)
    style, rng = TaggedFormat(build_tokenizer(texts, MARKER_TOKENS, PAD, END)), Random(1)
    for _ in range(20):
        shown = lesson.draw(style, rng)
        assert len(shown.tokens) == len(shown.learned) and any(shown.learned) and not shown.learned[0]


@pytest.mark.parametrize("kind", ["kuhn", "chess"])
def test_a_game_without_embedded_problems_gets_no_others(kind: str) -> None:
    with pytest.raises(ProblemFileError, match=f"game {kind} has no embedded problems; give problems.file"):
        problems_of(kind, "train", "small")


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("multistage", "small"),
        ("multistage", "large"),
        ("code_execution", "small"),
        ("unit_tests", "small"),
        ("code_golf", "small"),
    ],
)
def test_the_problem_that_a_model_names_is_of_its_games_kind(kind: str, numbers: Any) -> None:
    (example,) = re.findall('"(.*)"', describe_model(kind, numbers))
    alike = [
        p for p in problems_of(kind, "train", numbers) if digits_apart(p.description) == digits_apart(example)
    ]
    assert alike and all(re.search(rf"\b{function_of(kind)}\(", p.function_signature) for p in alike)


def digits_apart(text: str) -> str:
    return re.sub(r"\d+", "N", text)


def test_a_model_of_a_game_without_problems_names_none() -> None:
    assert '"' not in describe_model("kuhn", "small") and '"' not in describe_model(None, "small")


def test_a_game_without_a_lesson_has_no_embedded_model() -> None:
    with pytest.raises(
        ProblemFileError, match=r"generator\.model embedded: game chess has no embedded model"
    ):
        lesson_for(SimpleNamespace(kind="chess"), "generator", WarmStartSettings())
