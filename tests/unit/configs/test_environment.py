"""Settings from environment variables."""

from operator import attrgetter
from pathlib import Path

import pytest
import yaml

import sparring.tracking.settings
from configs.environment import read_environment
from configs.load import ConfigError, Run, load_run

MINE = "generator: {model: a}\ndiscriminator: {model: b}\nproblems: {file: my.json}\nevaluation: {problems: 30}\n"
MBPP = MINE.replace("file: my.json", "file: my.jsonl, format: mbpp")


@pytest.fixture
def mine(recipe) -> tuple[str, str]:
    return recipe(MINE)


@pytest.fixture
def mbpp(recipe) -> tuple[str, str]:
    return recipe(MBPP)


def load(*arguments: str) -> Run:
    return load_run(list(arguments))[0]


# ---------------------------------------------------------------------- what a variable sets
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("evaluation.problems", "10", 10),
        ("problems.file", "other.json", "other.json"),
        ("seed", "3", 3),
        ("local", "true", True),
        ("curriculum.stages", "[1, 5]", (1, 5)),
        ("generator.learner.estimator.kind", "rloo", "rloo"),
        ("generator.learner.lora.rank", "8", 8),
        ("game.max_tests", "2", 2),
        ("game.rewards.validity_weight", "0.5", 0.5),
        ("evaluation.every", "None", None),
    ],
)
def test_a_variable_sets_its_key_and_says_so(monkeypatch, capsys, mine, key, value, expected) -> None:
    monkeypatch.setenv("SPARRING_" + key.upper().replace(".", "__"), value)
    assert attrgetter(key)(load(*mine)) == expected
    assert capsys.readouterr().out == f"from the environment: {key} = {value}\n"


# ---------------------------------------------------------------------- R1's two variables
def test_the_mbpp_path_is_the_held_out_file(monkeypatch, mbpp) -> None:
    monkeypatch.setenv("MBPP_DATASET_PATH", "/data/mbpp.jsonl")
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "5")
    config = load(*mbpp)
    problems, held_out = config.problems, config.problems.held_out
    assert (held_out.file, held_out.format) == (Path("/data/mbpp.jsonl"), "mbpp")
    assert held_out.split == "test"  # else training on its other part would be all held out
    assert (problems.file, problems.format) == ("my.jsonl", "mbpp")
    assert config.evaluation.problems == 5


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({"FORMAT": "mbpp", "FILE": "other.jsonl"}, ()),
        ({}, ("--problems.format", "mbpp")),
    ],
    ids=["in the environment", "on the command line"],
)
def test_where_the_problems_are_said_to_be_mbpp_does_not_matter(monkeypatch, mine, variables, options):
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "5")
    for name, value in variables.items():
        monkeypatch.setenv(f"SPARRING_PROBLEMS__HELD_OUT__{name}", value)
    assert load(*mine, *options).evaluation.problems == 5


def test_a_held_out_file_on_the_command_line_is_read_as_the_recipe_says(monkeypatch, capsys, mbpp) -> None:
    monkeypatch.setenv("MBPP_DATASET_PATH", "/data/mbpp.jsonl")
    held_out = load(*mbpp, "--problems.held-out.file", "mine.json").problems.held_out
    assert (held_out.file, held_out.format, held_out.split) == (Path("mine.json"), None, None)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("config", ["grpo_mbpp", "grpo_mbpp:16gb"])
def test_a_recipe_with_both_parts_of_mbpp_in_one_file_takes_both_from_there(monkeypatch, config) -> None:
    before = load("--config", config)
    monkeypatch.setenv("MBPP_DATASET_PATH", "/data/mbpp.jsonl")
    problems = load("--config", config).problems
    assert (problems.file, problems.split) == ("/data/mbpp.jsonl", before.problems.split)
    assert (problems.held_out.file, problems.held_out.split) == (Path("/data/mbpp.jsonl"), "test")
    own = load("--config", config, "--problems.file", "mine.jsonl").problems
    assert (own.file, own.held_out.file) == ("mine.jsonl", Path("/data/mbpp.jsonl"))
    own = load("--config", config, "--problems.held-out.file", "mine.jsonl").problems
    assert (own.file, own.held_out.file) == ("/data/mbpp.jsonl", Path("mine.jsonl"))


def test_code_execution_is_evaluated_on_mbpp(monkeypatch) -> None:
    recipe = ("--config", "grpo_code_execution:1.5b")
    before = load(*recipe)
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "5")
    assert load(*recipe) == before, "its held-out problems are not MBPP's"
    monkeypatch.setenv("MBPP_DATASET_PATH", "/data/mbpp.jsonl")
    config = load(*recipe)
    held_out = config.problems.held_out
    assert (held_out.file, held_out.format, held_out.split) == (Path("/data/mbpp.jsonl"), "mbpp", "test")
    assert (config.problems.file, config.problems.format) == (before.problems.file, "problems")
    assert config.evaluation.problems == 5
    assert config.problems.failing_references == "leave_out", "a few of MBPP's fail"
    assert load(*recipe, "--problems.held-out.fraction", "0.3").problems.held_out.fraction == 0.3


@pytest.mark.parametrize("config", ["toy", "debug", "spiral_kuhn", "grpo_code_execution"])
def test_other_problems_have_nothing_to_do_with_mbpp(monkeypatch, capsys, config) -> None:
    before = load("--config", config)
    monkeypatch.setenv("MBPP_DATASET_PATH", "/data/mbpp.jsonl")
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "5")
    assert load("--config", config) == before
    (line,) = capsys.readouterr().out.splitlines()
    assert "MBPP_DATASET_PATH and MBPP_EVAL_NUM_QUESTIONS left alone" in line


# ---------------------------------------------------------------------- W&B
@pytest.fixture
def key(monkeypatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)


def test_a_key_of_wandb_turns_it_on_and_says_how_to_turn_it_off(key, capsys, mine) -> None:
    assert load(*mine, "--wandb-name", "n").to_config().tracking.to == ("wandb",)
    (line,) = capsys.readouterr().out.splitlines()
    assert all(said in line for said in ("tracking.to", "WANDB_API_KEY", "--no-use-wandb"))
    assert "000" not in line, "the key is a secret"


@pytest.mark.parametrize(
    ("recipe_says", "variable", "options", "to"),
    [
        ("", None, ("--no-use-wandb",), ()),
        ("use_wandb: false\n", None, (), ()),
        ("", None, ("--use-wandb",), ("wandb",)),
        ("", None, ("--tracking.to", "tensorboard"), ("tensorboard",)),
        ("tracking: {to: []}\n", None, (), ()),
        ("", '["tensorboard"]', (), ("tensorboard",)),
    ],
)
def test_what_is_said_of_trackers_holds_whatever_key_there_is(
    key, capsys, monkeypatch, recipe, recipe_says, variable, options, to
):
    if variable:
        monkeypatch.setenv("SPARRING_TRACKING__TO", variable)
    assert load(*recipe(MINE + recipe_says), *options).to_config().tracking.to == to
    assert "WANDB_API_KEY" not in capsys.readouterr().out


def test_a_run_that_began_without_wandb_goes_on_without(key, tmp_path) -> None:
    config = load("--config", "debug", "--no-use-wandb").to_config()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load("--resume", "--output-dir", str(tmp_path)).to_config().tracking.to == ()


def test_a_key_without_the_library_is_left_alone(key, capsys, monkeypatch, mine) -> None:
    monkeypatch.setattr(sparring.tracking.settings, "find_spec", lambda name: None)
    assert load(*mine).to_config().tracking.to == ()
    assert "WANDB_API_KEY left alone: wandb is not installed" in capsys.readouterr().out


def test_command_line_over_environment_over_recipe_over_default(monkeypatch, capsys, mine) -> None:
    assert load(*mine).evaluation.problems == 30
    monkeypatch.setenv("SPARRING_EVALUATION__PROBLEMS", "20")
    monkeypatch.setenv("SPARRING_EVALUATION__SUITES", "3")
    found = load(*mine).evaluation
    assert (found.problems, found.suites, found.bank_programs) == (20, 3, 4)
    capsys.readouterr()
    found = load(*mine, "--evaluation.problems", "10").evaluation
    assert (found.problems, found.suites) == (10, 3)
    assert capsys.readouterr().out == "from the environment: evaluation.suites = 3\n", "only what is taken"


def test_a_short_option_beats_the_variable_of_its_key(monkeypatch, mine) -> None:
    monkeypatch.setenv("SPARRING_CURRICULUM__N_GENERATOR_STEPS", "4")
    assert load(*mine).curriculum.n_generator_steps == 4
    assert load(*mine, "--n-generator-steps", "9").curriculum.n_generator_steps == 9


@pytest.mark.parametrize(
    "name",
    ["SPARRING_LOGS", "SPARRING_REQUIRE_DOCKER", "SPARRING_ENGINE_DIR", "SPARRING_RESUME", "SPARRINGX__Y"],
)
def test_other_variables_are_left_alone(monkeypatch, capsys, mine, name: str) -> None:
    before = load(*mine)
    monkeypatch.setenv(name, "1")
    assert load(*mine) == before
    assert capsys.readouterr().out == ""


def test_an_empty_variable_is_not_set(monkeypatch, mine) -> None:
    before = load(*mine)
    for name in ("SPARRING_EVALUATION__PROBLEMS", "MBPP_DATASET_PATH", "MBPP_EVAL_NUM_QUESTIONS"):
        monkeypatch.setenv(name, "")
    assert load(*mine) == before


# ---------------------------------------------------------------------- what is wrong, by its variable
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SPARRING_EVALUATON__PROBLEMS", "10", "^SPARRING_EVALUATON__PROBLEMS: no such section"),
        ("SPARRING_EVALUATION__PROBLEMZ", "10", "^SPARRING_EVALUATION__PROBLEMZ: unknown key"),
        ("SPARRING_GAME__TESTS", "10", "^SPARRING_GAME__TESTS: unknown key game.tests"),
        ("SPARRING_GAME__MAX_PROGRAM_CHARS", "10", r"^\w+_CHARS: unknown key game\.max_program_chars: kind"),
        ("SPARRING_SEED__X", "10", "^SPARRING_SEED__X: "),
        ("SPARRING_EVALUATION__PROBLEMS", "many", r"^SPARRING_EVALUATION__PROBLEMS: .*\(got 'many'\)$"),
        ("SPARRING_CURRICULUM__STAGES", "1, 5", "^SPARRING_CURRICULUM__STAGES: expected JSON"),
        ("SPARRING_CURRICULUM__STAGES", "[1, 7]", r"^SPARRING_CURRICULUM__STAGES: curriculum\.stages\.1"),
        ("SPARRING_EVALUATION__TEMPERATURE", "0.5", "has no effect while samples is 0"),
        ("SPARRING_SANDBOX__MAX_WORKERS", "0", "^SPARRING_SANDBOX__MAX_WORKERS: "),
    ],
)
def test_a_wrong_variable_is_named_in_one_line(monkeypatch, mine, name, value, words) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=words) as caught:
        load(*mine)
    assert "\n" not in str(caught.value) and name in str(caught.value)


def test_a_wrong_number_of_questions_is_named(monkeypatch, mbpp) -> None:
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "0")
    with pytest.raises(ConfigError, match=r"^MBPP_EVAL_NUM_QUESTIONS: evaluation\.problems: .*greater"):
        load(*mbpp)


def test_two_variables_for_one_key_are_refused(monkeypatch, recipe) -> None:
    monkeypatch.setenv("SPARRING_EVALUATION__PROBLEMS", "4")
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "5")
    with pytest.raises(ConfigError, match=r"both set evaluation\.problems: unset one"):
        load(*recipe(MBPP))
    assert load(*recipe(MINE)).evaluation.problems == 4, "R1's is left alone"


# ---------------------------------------------------------------------- resuming
def test_a_resumed_run_takes_what_the_environment_sets_now(monkeypatch, tmp_path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.yaml").write_text(MINE + "seed: 11\n")
    monkeypatch.setenv("SPARRING_OUTPUT_DIR", str(tmp_path))
    monkeypatch.setenv("SPARRING_EVALUATION__PROBLEMS", "6")
    run = load("--resume")
    assert (run.seed, run.evaluation.problems, run.output_dir) == (11, 6, tmp_path)


def test_a_key_with_single_underscores_is_refused_with_the_name_that_sets_it():
    with pytest.raises(ValueError, match=r"write SPARRING_PROBLEMS__FILE$"):
        read_environment({"SPARRING_PROBLEMS_FILE": "x.json"})
    assert read_environment({"SPARRING_LOGS": "x", "SPARRING_VENV": "y"}) == {}
