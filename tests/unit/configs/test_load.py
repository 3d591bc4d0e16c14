import json
import os
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

from configs.layers import nested
from configs.load import RECIPES, ConfigError, load_run, read_recipe, recipe_path
from configs.other_names import OPTIONS_OF_RECIPES, OTHER_NAMES
from configs.schema import Config

ALL = sorted(RECIPES.glob("*.yaml"))
REAL = "generator: {model: a}\ndiscriminator: {model: b}\nproblems: {file: my.json}\n"
NOTHING = "curriculum: there is nothing to train"


def load(*arguments: str) -> Config:
    return load_run(list(arguments))[0].to_config()


# ---------------------------------------------------------------------- recipes
@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_every_recipe_loads_by_name_and_by_path(path):
    run, name = load_run(["--config", path.stem])
    assert name == path.stem
    assert run.to_config() == load("--config", str(path))
    assert not run.resume and run.resume_from is None


SIZES = [(path, size) for path in ALL for size in ("", *yaml.safe_load(path.read_text()).get("sizes", {}))]


@pytest.mark.parametrize(("path", "size"), SIZES, ids=lambda value: getattr(value, "stem", value))
def test_every_key_of_every_recipe_and_size_arrives(path, size):
    def check(values, section):
        for key, value in values.items():
            got = getattr(section, key)
            if isinstance(value, dict):
                check(value, got)
            else:
                assert (str(got) if isinstance(got, Path) else got) == (
                    tuple(value) if isinstance(value, list) else value
                )

    check(read_recipe(path, size), load("--config", f"{path.stem}:{size}" if size else path.stem))


def test_only_toy_models_on_toy_problems_are_trusted_with_a_sandbox_that_does_not_contain():
    assert load().trusts_programs and load("--config", "spiral_kuhn").trusts_programs
    assert not load("--config", "qwen_1_5b_cpu").trusts_programs
    for key in ("discriminator.model", "problems.file", "problems.held-out.file"):
        assert not load("--config", "debug", f"--{key}", "mine.json").trusts_programs


def test_the_toy_recipe_is_the_default():
    assert load_run([]) == load_run(["--config", "toy:edges"])


def test_an_unknown_recipe_names_those_there_are():
    with pytest.raises(ConfigError, match=r"--config nonesuch: no such file.*debug.*toy"):
        load("--config", "nonesuch")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: 3\nseed: 4\n", "seed is there twice, in lines 1 and 2"),
        ("curriculum: {attempts: 4}\nseed: 1\ncurriculum: {stages: 2}\n", "curriculum is there twice"),
        ("generator: {max_tokens: 4, model: a, max_tokens: 5}\n", "max_tokens is there twice"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(recipe, text, said):
    with pytest.raises(ConfigError, match=rf"mine\.yaml: .*{said}"):
        load(*recipe(text))


def test_a_tilde_is_the_home_directory(recipe, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    in_recipe = load(*recipe(REAL + "output_dir: ~/runs\n"))
    as_option = load(*recipe(REAL), "--output-dir=~/runs")
    assert in_recipe.output_dir == as_option.output_dir == Path("/home/ada/runs")


@pytest.mark.parametrize("text", [".inf", "-.inf", ".nan"])
def test_a_rate_is_a_number(recipe, text):
    with pytest.raises(ConfigError, match="learning_rate"):
        load(*recipe(REAL + f"learning_rate: {text}\n"))


def test_a_recipe_is_utf_8_whatever_the_locale(recipe):
    given = recipe(REAL + "# größe\nrun_name: größe\n")
    code = f"from configs.load import load_run; print(ascii(load_run({list(given)})[0].run_name))"
    environment = {**os.environ, "LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == ascii("größe"), done.stderr


@pytest.mark.parametrize("text", ["[1, 2]", "just text", "", "a: [1"])
def test_a_recipe_that_is_no_mapping_is_refused(recipe, text):
    with pytest.raises(ConfigError, match=r"mine\.yaml"):
        load(*recipe(text))


def test_the_name_of_a_size_may_be_a_number(recipe):
    option, path = recipe("sizes: {7: {seed: 8}}")
    assert load(option, f"{path}:7").seed == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sizes: [a]", r"mine\.yaml: sizes: expected a mapping.*\(got \['a'\]\)"),
        ("sizes: a", r"mine\.yaml: sizes: expected a mapping.*\(got 'a'\)"),
        ("sizes: {a: 5}", r"mine\.yaml: sizes\.a: expected a mapping.*\(got 5\)"),
        ("sizes: {a: }", r"mine\.yaml: sizes\.a: expected a mapping.*\(got None\)"),
        ("sizes: {7: {}}", r"mine\.yaml: has no size a: give one of 7"),
        ("seed: 1", r"mine\.yaml: has no size a"),
    ],
)
def test_sizes_that_are_no_mappings_are_refused(recipe, text, words):
    option, path = recipe(text)
    with pytest.raises(ConfigError, match=words):
        load(option, f"{path}:a")


def test_a_recipe_with_a_base_is_laid_over_it(recipe, tmp_path):
    below = "curriculum: {attempts: 6, n_generator_steps: 3}\nsizes: {big: {curriculum: {attempts: 9}}}\n"
    (tmp_path / "below.yaml").write_text(REAL + below)
    above = "seed: 5\ncurriculum: {n_generator_steps: 4}\nsizes: {a: {seed: 8}}\n"
    for base, attempts in (("below.yaml", 6), ("below.yaml:big", 9)):
        option, path = recipe(f"base: {tmp_path / base}\n{above}")
        found = load(option, path)
        assert (found.seed, found.curriculum.attempts) == (5, attempts)
        assert found.curriculum.n_generator_steps == 4 and load(option, f"{path}:a").seed == 8


def test_a_base_is_looked_for_beside_the_recipe(tmp_path):
    (tmp_path / "below.yaml").write_text(REAL + "seed: 7\n")
    above = tmp_path / "above.yaml"
    above.write_text("base: below.yaml\n")
    assert load("--config", str(above)).seed == 7
    above.write_text("base: nowhere.yaml\n")
    with pytest.raises(ConfigError, match=r"above\.yaml: base nowhere\.yaml: no such file"):
        load("--config", str(above))


def test_the_recipe_smollm2_is_the_recipe_chat_in_another_size():
    chat, found = load("--config", "chat"), load("--config", "smollm2")
    assert found.game == chat.game.model_copy(update={"stages": 1})
    assert (found.credit, found.problems) == (chat.credit, chat.problems)
    assert found.engines() == [("generator", "discriminator")], "one backbone, one engine"


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("nonesuch", "base nonesuch: no such file"),
        ("5", "base 5: no such file"),
        ("[a]", "no such file"),
        ("mine.yaml", "itself"),
        ("other.yaml", "itself"),
    ],
)
def test_a_base_that_is_no_other_recipe_is_refused(recipe, tmp_path, base, words):
    (tmp_path / "other.yaml").write_text("base: mine.yaml\n")
    with pytest.raises(ConfigError, match=words):
        load(*recipe(f"base: {base}\n"))


def test_reading_a_recipe_names_the_file():
    assert recipe_path("debug") == (RECIPES / "debug.yaml", "")
    assert read_recipe(*recipe_path("debug"))["local"] is True
    with pytest.raises(ConfigError, match="not readable"):
        read_recipe(RECIPES)


# ---------------------------------------------------------------------- what is wrong, by its key
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("sede: 2", "sede"),
        ("generator: {modle: x}", "generator.modle"),
        ("generator: {learner: {lr: 1}}", "generator.learner.lr"),
        ("game: {rewards: {tau: 2}}", "game.rewards.tau"),
        ("curriculum: {n_steps: 2}", "curriculum.n_steps"),
    ],
)
def test_an_unknown_key_is_named(recipe, text, key):
    with pytest.raises(ConfigError, match=f"unknown key {key}"):
        load(*recipe(text))


def test_an_unknown_option_is_refused():
    with pytest.raises(ConfigError, match=r"--lerning-rate 2; did you mean --learning-rate\?"):
        load("--lerning-rate", "2")
    with pytest.raises(ConfigError, match=r"--zzz 2: see --help"):
        load("--zzz", "2")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("temperature: 0", "temperature"),
        ("learning_rate: -1", "learning_rate"),
        ("seed: many", "seed"),
        ("device: tpu", "device"),
        ("credit: all", "credit"),
        ("run_name: a/b", "run_name"),
        ("generator: {learner: {clip_low: 1.0}}", "generator.learner.clip_low"),
        ("generator: {learner: {estimator: gae}}", "generator.learner.estimator"),
        ("generator: {engine: {max_num_seqs: 0}}", "generator.engine.max_num_seqs"),
        ("generator: {learner: {lora: {rank: 0}}}", "generator.learner.lora.rank"),
        ("curriculum: {attempts: 1}", "curriculum.attempts"),
        ("curriculum: {stages: [1, 6]}", "curriculum.stages.1"),
        ("curriculum: {stages: [0]}", "curriculum.stages.0"),
        ("curriculum: {frozen_players: [judge]}", "curriculum.frozen_players.0"),
        ("game: {test_format: loose}", "game.test_format"),
        ("game: {rewards: {unsolved_weight: 1.5}}", "game.rewards.unsolved_weight"),
        ("problems: {file: a.json, held_out: {fraction: 1.0}}", "problems.held_out.fraction"),
        ("sandbox: {backend: host}", "sandbox.backend"),
        ("checkpoint: {keep: 0}", "checkpoint.keep"),
    ],
)
def test_a_value_out_of_range_is_named_with_the_value(recipe, text, key):
    with pytest.raises(ConfigError, match=rf"mine\.yaml: {key}: .*\(got "):
        load(*recipe(text))


def test_all_that_is_wrong_is_said_at_once(recipe):
    with pytest.raises(ConfigError) as caught:
        load(*recipe("sede: 2\ntemperature: 0\n"))
    assert "sede" in str(caught.value) and "temperature" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "discriminator: {model: b, max_tokens: 64, engine: {max_model_len: 64}}",
            "discriminator: max_tokens must be below engine.max_model_len",
        ),
        ("sandbox: {backend: process, runtime: runsc}", "runtime has no effect with sandbox.backend process"),
        (
            "curriculum: {n_discriminator_steps: 0, n_generator_steps: 0, k_alternating_steps: 0}",
            NOTHING,
        ),
        ("curriculum: {frozen_players: [generator, discriminator]}", NOTHING),
        (
            "curriculum: {frozen_players: [generator], n_discriminator_steps: 0, k_alternating_steps: 0}",
            NOTHING,
        ),
        ("curriculum: {stages: []}", NOTHING),
        (
            "generator: {model: a, engine: {adapter: true}}",
            r"engine\.adapter has no effect without learner\.lora",
        ),
        (
            "generator: {model: a, engine: {adapter: true}, learner: {lora: {quantize: 4bit}}}",
            r"engine\.adapter: the engine's backbone is not learner\.lora\.quantize 4bit",
        ),
        (
            "{device: cuda, generator: {model: a, engine: {adapter: true, dtype: float32}, learner: {lora: {}}}}",
            r"generator\.engine\.adapter: on a GPU vLLM's adapters are in 16 bits",
        ),
    ],
)
def test_a_combination_that_makes_no_sense_is_refused(recipe, text, words):
    with pytest.raises(ConfigError, match=words):
        load(*recipe(yaml.safe_dump(yaml.safe_load(REAL) | yaml.safe_load(text))))


# ---------------------------------------------------------------------- the command line
@pytest.mark.parametrize(
    ("option", "key", "value"),
    [
        ("--generator-model", "generator.model", "some/model"),
        ("--discriminator-model", "discriminator.model", "other/model"),
        ("--problems-file", "problems.file", "problems.json"),
        ("--n-discriminator-steps", "curriculum.n_discriminator_steps", 11),
        ("--n-generator-steps", "curriculum.n_generator_steps", 12),
        ("--k-alternating-steps", "curriculum.k_alternating_steps", 13),
        ("--learning-rate", "learning_rate", 0.002),
        ("--output-dir", "output_dir", Path("elsewhere")),
        ("--run-name", "run_name", "mine"),
        ("--seed", "seed", 7),
        ("--curriculum.attempts", "curriculum.attempts", 16),
        ("--generator.learner.estimator.kind", "generator.learner.estimator.kind", "grpo"),
    ],
)
def test_options_set_their_keys(option, key, value):
    assert attrgetter(key)(load(option, str(value))) == value


@pytest.mark.parametrize(
    ("recipe", "kind", "option", "value"),
    [
        ("code_golf", "code_golf", "rewards.length-weight", 0.1),
        ("code_golf", "code_golf", "rewards.pass-weight", 2.0),
        ("toy", "multistage", "rewards.validity-slots", 5),
        ("unit_tests_lua", "unit_tests", "max-tests", 5),
        ("output_prediction", "output_prediction", "max-output-chars", 9),
    ],
)
def test_a_section_has_options_for_each_kind_of_game(recipe, kind, option, value):
    run, _ = load_run(["--config", recipe, f"--game.{option}", str(value)])
    assert run.game.kind == kind and attrgetter(option.replace("-", "_"))(run.game) == value


def test_a_key_of_another_game_names_that_game():
    words = r"unknown key game\.rewards\.length_weight: game\.kind code_golf takes it, not mult"
    with pytest.raises(ConfigError, match=words):
        load_run(["--game.rewards.length-weight", "0.1"])


def test_the_command_line_beats_the_recipe_and_the_recipe_beats_the_default(recipe):
    arguments = recipe(REAL + "seed: 5\ncurriculum: {attempts: 6, n_generator_steps: 3}\n")
    from_recipe = load(*arguments)
    assert (from_recipe.seed, from_recipe.curriculum.attempts) == (5, 6)
    assert from_recipe.curriculum.frozen_suites == 1
    overridden = load(*arguments, "--seed", "9", "--curriculum.attempts", "12")
    assert (overridden.seed, overridden.curriculum.attempts) == (9, 12)
    assert overridden.curriculum.n_generator_steps == 3  # a neighbour of an overridden key stays


def test_flags():
    assert load("--local").local is True
    run, _ = load_run(["--resume-from", "output/x/checkpoints/step_000012"])
    assert run.resume_from == Path("output/x/checkpoints/step_000012") and not run.fresh
    assert load_run(["--resume-from", "output/x/checkpoints/step_000012", "--fresh"])[0].fresh
    with pytest.raises(ConfigError, match="--fresh needs --resume-from"):
        load_run(["--fresh"])


# ---------------------------------------------------------------------- resuming
@pytest.fixture
def runs(tmp_path) -> Path:
    """An output directory with two runs, of which "late" was begun last."""
    for age, (name, seed) in enumerate([("late", 22), ("early", 11)]):
        file = tmp_path / name / "config.yaml"
        file.parent.mkdir()
        file.write_text(REAL + f"seed: {seed}\n")
        os.utime(file, (1000 - age, 1000 - age))
    return tmp_path


def test_a_resumed_run_goes_on_with_its_settings_unless_they_are_overridden(runs):
    resumed = ("--resume", "--output-dir", str(runs))
    run, _ = load_run([*resumed])
    assert run.resume and run.seed == 22
    assert load(*resumed, "--run-name", "early").seed == 11
    assert load(*resumed, "--seed", "5").seed == 5
    assert load(*resumed, "--config", "debug").local is True


def test_what_starts_from_a_checkpoint_has_its_runs_settings(tmp_path):
    """R0's whole command is --resume-from CHECKPOINT."""
    checkpoint = tmp_path / "chat-20261124-101112" / "checkpoints" / "step_000012"
    checkpoint.mkdir(parents=True)
    config = load("--config", "debug", "--seed", "7", "--run-name", "first", "--learning-rate", "1e-5")
    (checkpoint / "state.json").write_text(json.dumps({"config": config.model_dump(mode="json")}))
    run, name = load_run(["--resume-from", str(checkpoint), "--curriculum.attempts", "3"])
    assert (run.local, run.seed, run.learning_rate, run.run_name) == (True, 7, 1e-5, None) and name == "chat"
    assert run.curriculum.attempts == 3
    assert load("--resume-from", str(checkpoint), "--config", "toy").seed == 1
    (checkpoint / "manifest.json").touch()
    (tmp_path / "mirror").symlink_to(checkpoint.parents[0])
    there = f"file://{tmp_path}/mirror"
    mirrored, _ = load_run(["--resume-from", there, "--output-dir", str(tmp_path / "new")])
    assert mirrored.seed == 7
    assert mirrored.resume_from == tmp_path / "new/fetched/mirror/checkpoints/step_000012"


def test_resuming_where_there_is_no_run_says_so(runs, tmp_path):
    with pytest.raises(ConfigError, match=r"--resume: no run at .*start one without --resume"):
        load("--resume", "--output-dir", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"--resume: no run at .*nonesuch"):
        load("--resume", "--output-dir", str(runs), "--run-name", "nonesuch")


# ---------------------------------------------------------------------- help
def test_help_lists_the_keys_their_kinds_and_the_environment_and_exits_with_0(capsys):
    with pytest.raises(SystemExit) as caught:
        load("--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for said in ("--n-discriminator-steps", "--curriculum.attempts", "--game.rewards.validity-weight", "--resume",
                 "SPARRING_EVALUATION__PROBLEMS=10", "MBPP_DATASET_PATH"):  # fmt: skip
        assert said in text
    words = " ".join(text.split())
    for section, kind in (("game", "multistage"), ("generator.engine", "vllm")):
        assert f"(default: {kind})" in words.split(f"--{section}.kind ")[1].split(" --")[0]
    assert "ifdef" not in words and "(required if its section is of this kind)" in words


def test_help_begins_with_the_first_day_and_shows_the_recipes_values(capsys):
    with pytest.raises(SystemExit):
        load("--config", "debug", "--help")
    text = capsys.readouterr().out
    first, rest = text.split("the first day:")[1].split("generator.engine options:")
    assert "--generator-model" in first and "--plan" in first and "--problems-file" in first
    assert "--generator-model" not in rest
    assert "(recipe debug: 0.0003)" in " ".join(first.split())  # of --learning-rate, beside its default
    assert "(default: 1e-05)" in " ".join(first.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--generator-model", "a/b"),
        ("--discriminator.model=a/b",),
        ("--generator-model", "a/b", "--discriminator-model", "c/d", "--problems-file", "f.json"),
        ("--problems.file", "f.json"),
    ],
)
def test_models_and_problems_of_ones_own_take_the_chat_recipe(arguments):
    run, name = load_run(list(arguments))
    assert name == "chat"
    assert (run.generator.max_tokens, run.credit.kind, run.learning_rate) == (512, "stage", 1e-5)
    assert run.game.test_format == "relabel"


HELD_OUT = "sparring/examples/toy/held_out.json"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {"kind": "file", "file": Path(HELD_OUT), "format": None, "split": None}),
        (("--problems-file", "mine.json"), {"kind": "share", "fraction": 0.2}),
        (("--problems-file", "mine.json", "--problems.held-out.file", "b.json"), {"file": Path("b.json")}),
        (("--problems.held-out.kind", "share"), {"kind": "share", "fraction": 0.2}),
        (
            ("--problems-file", "sparring/examples/lua/train.json"),
            {"file": Path("sparring/examples/lua/held_out.json")},
        ),
    ],
)
def test_held_out_toy_problems_go_with_the_training_problems_that_they_belong_to(arguments, expected):
    found = load("--config", "toy", *arguments).problems.held_out.model_dump()
    assert expected.items() <= found.items()


def test_a_size_with_problems_of_its_own_leaves_out_the_toy_problems():
    problems = load("--config", "output_prediction:1.5b").problems
    assert problems.held_out.kind == "share" and not problems.are_examples


def test_a_model_in_the_environment_takes_the_chat_recipe_too(monkeypatch):
    monkeypatch.setenv("SPARRING_GENERATOR__MODEL", "a/b")
    assert load_run([])[1] == "chat"
    assert load_run(["--config", "q:7b"])[1] == "q-7b"
    assert load_run(["--generator-model", "sparring/examples/toy/generator"])[1] == "toy-edges"


def test_toy_problems_by_their_path_keep_the_default_recipe():
    run, name = load_run(["--problems-file", "sparring/examples/toy/train.json"])
    assert name == "toy-edges" and run.trusts_programs


# ---------------------------------------------------------------------- the schema
def test_a_policys_learning_rate_is_a_multiple_of_the_runs(recipe):
    config = load(*recipe(REAL + "learning_rate: 0.001\n"), "--generator.learner.learning-rate-scale", "2")
    assert config.policy_learning_rate("generator") == pytest.approx(0.002)
    assert config.policy_learning_rate("discriminator") == 0.001


def test_reading_a_config_imports_nothing_heavy():
    code = (
        "import sys; from configs.load import load_run; load_run([]); "
        "print([m for m in ('torch', 'ray', 'vllm', 'transformers') if m in sys.modules])"
    )
    path = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------- without evaluation
def test_evaluation_is_switched_off_whatever_else_the_recipe_says_of_it() -> None:
    config = load("--no-evaluation.enabled")
    assert not config.evaluation.enabled and config.evaluation.problems == 120


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ("--no-evaluation.enabled --evaluation.problems 5", "evaluation.problems has no effect while"),
        ("--local --rollout.actors 2", "rollout.actors has no effect with local"),
        ("--local --sandbox.workers 2", "sandbox.workers has no effect with local"),
        ("--local --generator.learner.cpus 2", "generator.learner.cpus has no effect with local"),
    ],
)
def test_a_key_without_effect_is_refused_on_the_command_line(arguments: str, refused: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(refused)):
        load(*arguments.split())


def test_a_recipe_may_have_keys_for_those_who_run_it_otherwise() -> None:
    assert load("--config", "toy", "--local", "--sandbox.slots", "2").rollout.actors == 2


# ---------------------------------------------------------------------- what other trainers call it
def test_a_file_with_another_trainers_keys_is_refused_with_ours(recipe):
    with pytest.raises(ConfigError) as refused:
        load(*recipe(yaml.safe_dump(nested(dict.fromkeys(OTHER_NAMES, 1)))))
    for name, ours in OTHER_NAMES.items():
        assert f"{name} is {ours} here" in str(refused.value)


def test_a_short_option_as_a_key_of_a_file_is_refused_with_the_key(recipe):
    with pytest.raises(ConfigError, match=r"unknown key eval_steps: eval_steps is evaluation\.every here"):
        load(*recipe("eval_steps: 25"))


def test_another_trainers_option_is_refused_with_ours():
    said = r"--num-processes is --generator\.learner\.workers here"
    with pytest.raises(ConfigError, match=said):
        load("--config", "q", "--num_processes=7")


def test_every_name_that_is_said_is_a_key(capsys):
    with pytest.raises(SystemExit):
        load("--help")
    known = set(re.findall(r"--[\w.-]+", capsys.readouterr().out))
    assert {f"--{key.replace('_', '-')}" for key in OTHER_NAMES.values()} <= known
    assert {f"--{option}" for option in OPTIONS_OF_RECIPES} <= known


R4 = [
    "--use_vllm",
    "--learning_rate=2e-6",
    "--simple_eval_problems=15",
    "--eval_steps=25",
    "--generation_temp=.8",
]


@pytest.mark.parametrize(
    ("config", "options", "named", "meant"),
    [
        ((), ("--model", "a/b", *R4, "--repeat_eval_problems", "4"), "--repeat-eval-problems", "q"),
        ((), ("--model", "a/b", *R4, "--use_reasoning_format"), "--use-reasoning-format", "q"),
        ((), ("--base_reward_weight=1.0",), "--base-reward-weight", "q"),
        (("q:3b",), ("--discriminator-model", "a/b"), "--discriminator-model", "chat"),
        (("code_golf",), ("--k-alternating-steps", "3"), "--k-alternating-steps", "chat"),
    ],
)
def test_options_of_another_recipe_name_it(config, options, named, meant):
    with pytest.raises(ConfigError) as refused:
        load(*(word for name in config for word in ("--config", name)), *options)
    (line,) = [said for said in str(refused.value).splitlines() if f"--config {meant}" in said]
    assert line.startswith(f"command line: {named}: of the recipe {meant} ")


def test_another_fault_names_no_other_recipe():
    with pytest.raises(ConfigError) as refused:
        load("--config", "q", "--repeat-eval-problems", "x")
    assert "--config" not in str(refused.value)
