"""Settings in layers: sections of several kinds, and who said what."""

from pathlib import Path

import pytest
import yaml

from configs.layers import leaves, nested, overlay
from configs.load import ConfigError, Run, load_run
from configs.schema import Config


def load(*arguments: str) -> Run:
    return load_run(list(arguments))[0]


OTHER_KINDS = [
    ("credit", {"kind": "all"}, {"branches": 2}, "all"),
    ("generator.engine", {"kind": "transformers"}, {"kv_cache_mb": 64}, "transformers"),
    ("generator.learner.estimator", {"kind": "grpo"}, {"gamma": 0.9}, "grpo"),
    ("generator.learner.estimator", {"kind": "rloo"}, {"value_clip": 1}, "rloo"),
    ("generator.learner.estimator", {"kind": "rae"}, {"critic": "model"}, "rae"),
    ("generator.learner.estimator", {}, {"decay": 0.5}, "gae"),
    ("generator.learner.estimator", {"kind": "dr_grpo"}, {"normalise_rewards": "task"}, "dr_grpo"),
    ("generator.learner.kl", {"kind": "none"}, {"estimator": "k2"}, "none"),
    ("generator.learner.schedule", {}, {"floor": 0.0}, "constant"),
]


@pytest.mark.parametrize(("section", "said", "other", "kind"), OTHER_KINDS)
def test_a_key_of_another_kind_is_refused_with_what_its_kind_takes(recipe, section, said, other, kind):
    (key,) = other
    words = rf"mine\.yaml: unknown key {section}\.{key}: kind {kind} (takes|has) "
    with pytest.raises(ConfigError, match=words) as refused:
        load(*recipe(yaml.safe_dump(nested({section: said | other}))))
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("generator: {engine: {kind: sglang}}", r"generator\.engine: .*'sglang'.*expected tags.*'vllm'"),
        ("credit: {kind: some}", r"credit: .*'some'.*'tree'"),
        ("generator: {learner: {estimator: {kind: ppo}}}", r"generator\.learner\.estimator: .*'ppo'.*'gae'"),
        ("generator: {engine: vllm}", r"generator\.engine: .*dictionary.*\(got 'vllm'\)"),
    ],
)
def test_a_kind_that_is_not_there_is_refused_with_those_that_are(recipe, text, words):
    with pytest.raises(ConfigError, match=words):
        load(*recipe(text))


def test_another_kind_on_the_command_line_leaves_out_what_the_recipe_says_of_its_own(recipe, capsys):
    engine = "generator: {engine: {kind: vllm, max_model_len: 300, kv_cache_mb: 64}, max_tokens: 32}"
    own = recipe(engine + "\ngame: {kind: unit_tests}")
    engine = load(*own, "--generator.engine.kind", "transformers").generator.engine
    assert (engine.kind, engine.max_model_len) == ("transformers", 300)
    said = capsys.readouterr().out
    assert said == "generator.engine.kind transformers: leaves out kv_cache_mb of kind vllm\n"
    engine = load(*own, "--generator.engine.kind", "vllm").generator.engine
    assert (engine.kind, engine.kv_cache_mb) == ("vllm", 64)
    assert capsys.readouterr().out == ""


OWN = "generator: {model: a}\ndiscriminator: {model: b}\n"
IMPLIED = [
    (  # as grpo_mbpp says it
        "problems: {file: a.json, held_out: {file: b.json, split: test}}",
        ("--problems.held-out.kind", "share"),
        {"file": "a.json", "held_out": {"fraction": 0.2}},
        "problems.held_out.kind share: leaves out file, split of kind file\n",
    ),
    (
        "problems: {file: a.json, held_out: {fraction: 0.3}}",
        ("--problems.held-out.kind", "file", "--problems.held-out.file", "b.json"),
        {"file": "a.json", "held_out": {"kind": "file"}},
        "problems.held_out.kind file: leaves out fraction of kind share\n",
    ),
    (
        "problems: {file: a.json, held_out: {fraction: 0.3}}",
        ("--problems.held-out.file", "b.json"),
        {"held_out": {"kind": "file"}},
        "problems.held_out.kind file: leaves out fraction of kind share\n",
    ),
    ("problems: {file: a.json}", ("--problems-file", "c.json"), {"file": "c.json"}, ""),
    ("problems: {file: a.json, held_out: {fraction: 0.3}}", ("--problems-file", "c.json"), {"held_out": {"fraction": 0.3}}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "arguments", "expected", "said"), IMPLIED)
def test_a_kind_that_a_key_implies_is_seen_as_if_said(recipe, capsys, text, arguments, expected, said):
    got = dict(leaves(load(*recipe(OWN + text), *arguments).problems.model_dump()))
    assert capsys.readouterr().out == said
    assert dict(leaves(expected)).items() <= got.items()


def test_another_kind_of_game_is_taken_where_the_recipe_only_implies_its_own(capsys):
    with pytest.raises(ConfigError, match="discriminator has no effect with game kuhn"):
        load("--config", "debug", "--game.kind", "kuhn")
    left_out = "leaves out input_limits, max_tests, rewards, test_format of kind multistage"
    assert f"game.kind kuhn: {left_out}" in capsys.readouterr().out


def test_a_kind_on_the_command_line_gets_round_a_variable_that_implies_another(monkeypatch, capsys):
    monkeypatch.setenv("MBPP_DATASET_PATH", "/data/mbpp.jsonl")
    assert load("--config", "grpo_mbpp").problems.held_out.file == Path("/data/mbpp.jsonl")
    capsys.readouterr()
    problems = load("--config", "grpo_mbpp", "--problems.held-out.kind", "share").problems
    assert (problems.held_out.kind, problems.held_out.fraction) == ("share", 0.2)
    assert str(problems.file) == "/data/mbpp.jsonl"
    assert "problems.held_out.kind share: leaves out file, " in capsys.readouterr().out


@pytest.mark.parametrize("text", ["generator: 5", "generator: {engine: 5}"])
def test_a_section_that_is_no_mapping_is_refused_whatever_is_said_beneath_it(recipe, text):
    with pytest.raises(ConfigError, match=r"mine\.yaml: generator(\.engine)?: .*\(got 5\)"):
        load(*recipe(text), "--generator.engine.kind", "transformers")


def test_a_section_that_is_none_is_laid_out_above(recipe):
    text = "generator: {learner: {lora: null}}"
    assert load(*recipe(text), "--generator.learner.lora.rank", "4").generator.learner.lora.rank == 4


def test_what_the_command_line_itself_says_of_another_kind_is_refused():
    both = ("--generator.engine.kind", "transformers", "--generator.engine.kv-cache-mb", "64")
    with pytest.raises(ConfigError, match=r"unknown key generator\.engine\.kv_cache_mb: kind transformers"):
        load("--config", "unit_tests_lua", *both)


def test_another_kind_in_the_environment_does_the_same(monkeypatch):
    monkeypatch.setenv("SPARRING_GENERATOR__ENGINE__KIND", "transformers")
    assert load("--config", "unit_tests_lua").generator.engine.kind == "transformers"


@pytest.mark.parametrize(
    ("more", "who"),
    [((), "SPARRING_PROBLEMS__HELD_OUT__FILE"), (("--problems.held-out.file", "c.json"), "command line")],
)
def test_an_unknown_key_comes_with_who_else_set_keys_of_its_section(recipe, monkeypatch, more, who):
    monkeypatch.setenv("SPARRING_PROBLEMS__HELD_OUT__FILE", "b.json")
    arguments = recipe(OWN + "problems: {file: a.json, held_out: {fractoin: 0.3}}")
    unknown = r"unknown key problems\.held_out\.fractoin: kind file takes file, format, split"
    with pytest.raises(ConfigError, match=rf"{unknown}; {who} sets problems\.held_out\.file$"):
        load(*arguments, *more)


def test_no_misspelt_key_is_left_out_with_the_others(recipe):
    with pytest.raises(ConfigError, match=r"unknown key generator\.engine\.kv_cash_mb"):
        load(*recipe("generator: {engine: {kv_cash_mb: 64}}"), "--generator.engine.kind", "transformers")


def test_the_upper_layer_wins_key_by_key():
    below = {"a": 1, "problems": {"fields": {"id": "x", "description": "y"}}, "seed": 3}
    above = {"problems": {"fields": {"id": "z"}}, "seed": 4}
    expected = {"a": 1, "problems": {"fields": {"id": "z", "description": "y"}}, "seed": 4}
    assert overlay(below, above, Config) == expected


@pytest.mark.parametrize(
    ("arguments", "variable", "who"),
    [
        (("--seed", "many"), None, "command line"),
        ((), "many", "SPARRING_SEED"),
        ((), None, r".*mine\.yaml"),
        (("--seed", "many"), "3", "command line"),
    ],
)
def test_an_error_names_who_set_the_key(recipe, monkeypatch, arguments, variable, who):
    text = "seed: much" if who.endswith("yaml") else "seed: 4"
    if variable is not None:
        monkeypatch.setenv("SPARRING_SEED", variable)
    with pytest.raises(ConfigError, match=rf"^{who}: seed: "):
        load(*recipe(text), *arguments)


def test_a_section_of_both_kinds_keeps_only_what_the_new_kind_has(capsys):
    """Both games have game.rewards, with other keys in it. A key that no kind has is kept, for validation to refuse."""
    below = {"game": {"kind": "multistage", "rewards": {"validity_slots": 3, "typo": 1}, "stages": 2}}
    above = {"game": {"kind": "code_golf", "rewards": {"length_weight": 0.1}}}
    merged = overlay(below, above, Run)
    assert merged["game"] == {"kind": "code_golf", "rewards": {"length_weight": 0.1, "typo": 1}}
    assert "leaves out rewards.validity_slots, stages of kind multistage" in capsys.readouterr().out
