"""The configuration of each game: its recipes, and what it refuses."""

from typing import Any, get_args

import pytest

from configs.load import RECIPES, ConfigError, load_run
from configs.schema import Config
from configs.sections import ProblemFormat
from sparring.core.project_files import is_example
from sparring.curriculum.curriculum import Curriculum
from sparring.problems.formats import FORMATS

ALL = sorted(path.stem for path in RECIPES.glob("*.yaml"))
BOARDS = ("tictactoe", "kuhn", "rps")
ONE_POLICY = ("code_execution", "unit_tests", "code_golf", *BOARDS)
KINDS = ("multistage", "output_prediction", *ONE_POLICY)
ALONE = {"generator": "generator"}
BOTH_SIDES = {"first": "generator", "second": "generator"}
SEATS = {
    **dict.fromkeys(("code_execution", "unit_tests", "code_golf"), ALONE),
    **dict.fromkeys(BOARDS, BOTH_SIDES),
    "multistage": {"generator": "generator", "discriminator": "discriminator"},
    "output_prediction": {"author": "generator", "opponent": "discriminator"},
}


def shipped(name: str) -> Config:
    return load_run(["--config", name])[0].to_config()


def of(kind: str, **changes: Any) -> Config:
    game = {"kind": kind, **changes.pop("game", {})}
    return Config.model_validate({"game": game, **changes})


# ---------------------------------------------------------------------- recipes
@pytest.mark.parametrize("name", ALL)
def test_a_recipe_says_who_plays_and_who_learns(name):
    config = shipped(name)
    kind = config.game.kind
    assert config.seats == SEATS[kind]
    assert config.policies == (("generator",) if kind in ONE_POLICY else ("generator", "discriminator"))
    assert (config.sandbox_limits is None) == (kind in BOARDS)
    assert config.staged == (kind == "multistage")
    assert {p for policy in config.policies for p in config.players_of(policy)} == config.seats.keys()
    curriculum = Curriculum(**config.curriculum_arguments(["p"]))
    learned, stages = set(), set()
    while (assignment := curriculum.next()) is not None:
        learned |= set(assignment.learning)
        stages.add(assignment.stage)
        assert all(assignment.attempts[policy] >= 1 for policy in config.policies)
        curriculum.observe(assignment.step, {})
    assert learned == set(config.policies)
    assert stages == (set(config.curriculum.stages) if config.staged else {0})


def test_every_game_has_a_recipe():
    assert {shipped(name).game.kind for name in ALL} == set(KINDS)


@pytest.mark.parametrize("name", [name for name in ALL if is_example(shipped(name).generator.model)])
def test_a_toy_recipes_context_holds_its_longest_sequence(name):
    from sparring.runtime.build import fitting
    from sparring.runtime.problem_sets import load_splits
    from sparring.runtime.start import load_tokenizers, starting_models

    config = shipped(name)
    train, held_out = load_splits(config)
    assert not {p.id for p in train} & {p.id for p in held_out}
    tokenizers = load_tokenizers(starting_models(config))
    assert fitting(config, train, held_out, tokenizers) == (train, held_out)


# ---------------------------------------------------------------------- what has no effect is refused by its name
def refusals():
    """(kind, keys, what the message says)."""
    for kind in (*ONE_POLICY, "self-play"):
        yield kind, {"discriminator": {"model": "b"}}, "discriminator has no effect"
        for key in ("n_discriminator_steps", "k_alternating_steps", "frozen_programs", "frozen_suites"):
            yield kind, {"curriculum": {key: 7}}, rf"curriculum\.{key} has no effect"
        yield kind, {"curriculum": {"frozen_players": ["discriminator"]}}, r"curriculum\.frozen_players"
    for kind in (*ONE_POLICY, "output_prediction"):
        yield kind, {"curriculum": {"stages": [1, 2]}}, r"curriculum\.stages has no effect"
        for key in ("remembered_programs", "remembered_tests", "remembered_wrong_programs"):
            yield kind, {"curriculum": {key: 3}}, rf"curriculum\.{key} has no effect"
        yield kind, {"evaluation": {"suites": 5}}, r"evaluation\.suites has no effect"
        yield kind, {"credit": {"kind": "all"}}, "credit all has no effect"
        yield kind, {"credit": {"kind": "tree"}}, "credit tree has no effect"
        yield kind, {"credit": {"branches": 8}}, r"credit\.stage\.branches"
        tree = {"generator": {"learner": {"estimator": {"kind": "hierarchical_grpo"}}}}
        yield kind, tree, "hierarchical_grpo needs"
    for kind in ONE_POLICY:
        yield kind, {"evaluation": {"bank_programs": 9}}, r"evaluation\.bank_programs has no effect"
        yield kind, {"curriculum": {"frozen_players": ["generator"]}}, "there is nothing to train"
        yield kind, {"curriculum": {"n_generator_steps": 0}}, "there is nothing to train"
    for kind in (*BOARDS, "output_prediction", "multistage"):
        yield kind, {"evaluation": {"samples": 4}}, r"evaluation\.samples has no effect"
    for kind in BOARDS:
        yield kind, {"problems": {"file": "mine.json"}}, "problems has no effect"
        yield kind, {"sandbox": {"slots": 4}}, "sandbox has no effect"
        yield kind, {"curriculum": {"order": "difficulty"}}, r"curriculum\.order has no effect"
    for kind in KINDS:
        model = {"generator": {"model": "a", "max_tokens": 64, "engine": {"max_model_len": 64}}}
        yield kind, model, "generator: .*max_(tokens|model_len)"
    yield "multistage", {"generator": {"max_tokens": 900}}, "stages of max_tokens 900 leave no room"
    words = r"game\.rewards\.wrong_output_penalty has no effect with test_format input_only"
    changed = {"test_format": "input_only", "rewards": {"wrong_output_penalty": 0.1}}
    yield "multistage", {"game": changed}, words
    yield "multistage", {"evaluation": {"samples": 4}}, "use sparring evaluate --samples"
    yield "multistage", {"curriculum": {"frozen_suites": 0}}, "frozen_suites 0 leaves no test"
    for key, learner in (("remembered_tests", "generator"), ("remembered_wrong_programs", "discriminator")):
        kept = {"curriculum": {key: 3, "frozen_players": [learner]}}
        yield "multistage", kept, rf"curriculum\.{key} has no effect while the {learner}"
    alone = {"frozen_suites": 0, "frozen_players": ["discriminator"], "remembered_tests": 3}
    words = r"curriculum\.remembered_tests has no effect with frozen_suites 0"
    yield "multistage", {"game": {"baseline_in_reward": True}, "curriculum": alone}, words


@pytest.mark.parametrize(("kind", "keys", "words"), list(refusals()))
def test_what_has_no_effect_is_refused_by_its_key(kind, keys, words):
    changes = dict(keys)
    if kind == "self-play":
        kind, changes["game"] = "output_prediction", {"self_play": True}
    with pytest.raises(ValueError, match=words):
        of(kind, **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_games_defaults_are_a_config(kind):
    config = of(kind)
    assert config.game.kind == kind and config.seats == SEATS[kind]
    assert Config.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("output_prediction", {"evaluation": {"bank_programs": 9}}),
        ("output_prediction", {"curriculum": {"frozen_players": ["discriminator"]}}),
        ("output_prediction", {"credit": {"kind": "stage_gae"}}),
        ("output_prediction", {"curriculum": {"frozen_suites": 0}}),
        ("unit_tests", {"evaluation": {"samples": 4}}),
        ("code_golf", {"curriculum": {"order": "difficulty"}}),
        ("kuhn", {"evaluation": {"problems": 7}}),
        ("tictactoe", {"generator": {"learner": {"estimator": {"kind": "rae"}}}}),
    ],
)
def test_what_has_an_effect_is_not_refused(kind, keys):
    of(kind, **keys)


# ---------------------------------------------------------------------- the keys of a game
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("game: {kind: chess}", "game"),
        ("game: {kind: kuhn, max_tests: 3}", r"unknown key game\.max_tests"),
        ("game: {kind: unit_tests, test_format: strict}", r"unknown key game\.test_format"),
        ("game: {kind: code_golf, rewards: {tau: 1}}", r"unknown key game\.rewards\.tau"),
        ("game: {kind: unit_tests, max_tests: 0}", r"game\.max_tests: .*got 0"),
        ("game: {kind: unit_tests, base_weight: -1}", r"game\.base_weight: .*got -1"),
        ("game: {kind: unit_tests, answer_format: xml}", r"game\.answer_format: .*got 'xml'"),
        ("game: {kind: output_prediction, max_output_chars: 0}", r"game\.max_output_chars: .*got 0"),
        ("game: {kind: code_golf, rewards: {pass_weight: 0}}", r"game\.rewards\.pass_weight: .*got 0"),
        ("game: {kind: code_golf, sandbox_limits: {cpu_s: 0}}", r"game\.sandbox_limits\.cpu_s: .*got 0"),
        ("game: kuhn", "game"),
    ],
)
def test_a_wrong_key_of_a_game_is_named(recipe, text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        load_run([*recipe(text)])
    assert "mine.yaml" in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_without_a_kind_the_keys_are_the_multi_stage_games(recipe):
    assert load_run([*recipe("game: {max_tests: 3}")])[0].game.kind == "multistage"


def test_every_reader_of_data_sets_can_be_named_in_a_config():
    assert set(get_args(ProblemFormat)) == set(FORMATS)
