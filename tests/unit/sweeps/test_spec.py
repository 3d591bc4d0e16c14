"""What a sweep is made of: keys, settings, trials; and what is refused before anything runs."""

from dataclasses import replace

import pytest

from sparring.core.problem import Problem
from sparring.core.verdict import Limits
from sparring.problems.loader import load_problems
from sparring.sweeps.ablations import NAMES, ablation
from sparring.sweeps.problem_files import folds, keys_of, nested_parts, write_problems
from sparring.sweeps.spec import (
    Range,
    Replicate,
    Setting,
    Sweep,
    SweepError,
    Values,
    arguments_of,
    base_config,
    check,
    comparable,
    draws,
    grid,
    load_sweep,
    parse_key,
    read_written,
    recipe_of,
    write_recipe,
)
from tests.recorded import DOUBLE

SEEDS = (Replicate(name="seed1", seed=1), Replicate(name="seed2", seed=2))


def sweep_of(*settings: Setting, **more) -> Sweep:
    of = {"kind": "grid", "config": "debug", "settings": settings, "replicates": SEEDS}
    return Sweep.model_validate(of | more)


# ---------------------------------------------------------------------- keys
@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("learning-rate=1e-4,3.0e-4", "learning_rate", Values((1e-4, 3e-4))),
        ("curriculum.stages=[1,5],[5]", "curriculum.stages", Values(([1, 5], [5]))),
        ("credit.kind=stage,all", "credit.kind", Values(("stage", "all"))),
        ("game.baseline_in_reward=true,false", "game.baseline_in_reward", Values((True, False))),
        ("learning_rate=1e-5..1e-3:log", "learning_rate", Range(1e-5, 1e-3, log=True)),
        ("curriculum.attempts=2..8", "curriculum.attempts", Range(2, 8)),
    ],
)
def test_a_key_takes_values_or_a_range(text, key, expected):
    assert parse_key(text) == (key, expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learning_rate", "give KEY=VALUE"),
        ("learning_rate=", "give KEY=VALUE"),
        ("=1", "give KEY=VALUE"),
        ("seed=1,2", "seed is the sweep's own; give --seeds"),
        ("learning_rate=2..1", "two numbers, the lower first"),
        ("learning_rate=0..1:log", "lies above 0"),
        ("learning_rate=1e-4,1.0e-4", "gives a value twice"),
        ("curriculum.stages=[1", "cannot be read"),
    ],
)
def test_a_key_that_cannot_be_read_is_refused(text, said):
    with pytest.raises(SweepError, match=said.replace("(", r"\(")):
        parse_key(text)


def test_a_grid_is_every_combination():
    keys = {"learning_rate": Values((1e-4, 3e-4)), "credit.kind": Values(("stage", "all"))}
    rates, kinds = ("0.0001", "0.0003"), ("stage", "all")
    assert [s.name for s in grid(keys)] == [
        f"learning_rate={r} credit.kind={k}" for r in rates for k in kinds
    ]
    assert [s.amount for s in grid({"learning_rate": Values((1e-4, 3e-4))})] == [1e-4, 3e-4]


def test_draws_are_distinct_within_their_range_and_the_same_for_a_seed():
    keys = {"learning_rate": Range(1e-5, 1e-3, log=True), "curriculum.attempts": Range(2, 4)}
    drawn = draws(keys, 20, seed=3)
    assert drawn == draws(keys, 20, seed=3) != draws(keys, 20, seed=4)
    assert len({s.name for s in drawn}) == 20
    assert all(1e-5 <= s.keys["learning_rate"] <= 1e-3 for s in drawn)
    assert {s.keys["curriculum.attempts"] for s in drawn} == {2, 3, 4}
    assert sum(s.keys["learning_rate"] < 1e-4 for s in drawn) > 4, "evenly by order of magnitude"
    assert len(draws({"curriculum.attempts": Range(2, 4)}, 9, seed=1)) == 3, "as many as there are"


# ---------------------------------------------------------------------- the sweep and its trials


def test_no_sweep_and_half_a_sweep_are_refused(tmp_path):
    with pytest.raises(SweepError, match="no sweep"):
        load_sweep(tmp_path)
    (tmp_path / "sweep.json").write_text('{"kind": "grid"')
    with pytest.raises(SweepError, match="not a sweep's"):
        load_sweep(tmp_path)


def test_a_trial_is_the_recipe_with_its_keys_laid_over(tmp_path):
    keys = {"learning_rate": 1e-4, "curriculum.stages": [5], "generator.learner.estimator.kind": "grpo"}
    extra = {"base": {"evaluation.every": 1}, "arguments": ("--temperature", "0.5")}
    sweep = sweep_of(Setting(name="s", keys=keys), **extra)
    check(sweep, tmp_path)
    recipe = recipe_of(sweep, sweep.trials[1])
    sweep.save(tmp_path)
    write_recipe(tmp_path, "0-seed2", recipe)
    assert read_written(tmp_path, "0-seed2") == recipe
    assert recipe["learning_rate"] == 1e-4 and recipe["curriculum"]["stages"] == [5]
    assert recipe["evaluation"]["every"] == 1 and recipe["local"] is True
    arguments = arguments_of(sweep, sweep.trials[1], tmp_path, "0-seed2")
    assert arguments[:2] == ["--temperature", "0.5"]
    assert arguments[2:] == ["--seed", "2", "--output-dir", str(tmp_path / "runs"), "--run-name", "0-seed2"]


@pytest.mark.parametrize(
    ("keys", "arguments", "said"),
    [
        ({"evaluation.enabled": False}, (), "evaluation.enabled must be true"),
        ({"learning_rate": 3.0e-4}, (), "come to the same run"),  # as the recipe says
        ({"learning_rate": 1e-4}, ("--learning-rate", "1e-3"), "come to the same run"),
    ],
)
def test_what_would_not_be_evaluated_or_differs_in_nothing_is_refused_at_once(
    tmp_path, keys, arguments, said
):
    settings = (Setting(name="recipe", keys={}), Setting(name="other", keys=keys))
    with pytest.raises(Exception, match=said):
        check(sweep_of(*settings, arguments=arguments), tmp_path)


def test_the_sweep_decides_what_is_its_own(tmp_path):
    with pytest.raises(SweepError, match=r"--run-name: that is the sweep's own"):
        base_config("debug", ["--run-name", "x"], {})
    with pytest.raises(SweepError, match=r"--seed=2: that is the sweep's own"):
        base_config("debug", ["--seed=2"], {})
    named = ["--tracking.to", "mlflow", "--tracking.name", "seed"]
    assert base_config("debug", named, {}).tracking.name == "seed", "a value is no key"


# ---------------------------------------------------------------------- where settings come from
@pytest.mark.parametrize("name", NAMES)
def test_every_ablation_is_a_configuration_that_differs_from_the_baseline(tmp_path, name):
    recipe = "code_golf" if name == "golf" else "debug"
    config = base_config(recipe, [], {})
    entries = {"baseline": {}} | ablation(name, config)
    settings = [Setting(name=n, keys=dict(keys)) for n, keys in entries.items()]
    sweep = sweep_of(*settings, kind="ablate", config=recipe)
    kept, left_out = comparable(sweep, tmp_path)
    check(kept, tmp_path)
    assert len(kept.settings) > 1 and len(kept.settings) + len(left_out) == len(settings)
    idle = ["credit to all stages", "gae"] if name == "credit" else []
    assert left_out == dict.fromkeys(idle, "it is what the recipe does")


def test_with_one_policy_an_ablation_has_no_key_of_the_other(tmp_path):
    config = base_config("grpo_code_execution", [], {})
    assert ablation("credit", config)["reinforce_pp"] == {"generator.learner.estimator.kind": "reinforce_pp"}


def problems(count: int) -> list[Problem]:
    return [
        replace(DOUBLE, id=f"p{i}", description=f"add {i}", reference_solution=f"def f(n): return n + {i}")
        for i in range(count)
    ]


def test_folds_hold_each_problem_out_once():
    found = folds(problems(10), 3, seed=1)
    assert sorted(p.id for _, part in found for p in part) == sorted(p.id for p in problems(10))
    for rest, part in found:
        assert len(rest) + len(part) == 10 and not {p.id for p in rest} & {p.id for p in part}
        assert len(part) in (3, 4)
    for count in (1, 11):
        with pytest.raises(SweepError, match="--folds"):
            folds(problems(10), count, seed=1)


def test_parts_of_a_data_size_series_are_nested():
    parts = nested_parts(problems(10), [8, 2, 5], seed=1)
    ids = {size: {p.id for p in part} for size, part in parts.items()}
    assert list(ids) == [2, 5, 8] and ids[2] < ids[5] < ids[8] and [len(i) for i in ids.values()] == [2, 5, 8]
    with pytest.raises(SweepError, match="--sizes 11"):
        nested_parts(problems(10), [2, 11], seed=1)


def test_a_part_is_a_problem_file_that_a_run_reads(tmp_path):
    train = write_problems(tmp_path / "p" / "train.json", problems(3))
    assert load_problems(train) == problems(3)
    check(sweep_of(Setting(name="s", keys=keys_of(train, train))), tmp_path)
    (first,) = problems(1)
    slow = replace(first, limits=Limits(cpu_s=9.0), wrong_solutions=("def f(x): return x",))
    (read,) = load_problems(write_problems(tmp_path / "slow.json", [slow]))
    assert read == slow and read.limits is not None and read.limits.model_fields_set == {"cpu_s"}
    with pytest.raises(SweepError, match=r"problem p0: .* with a reference solution"):
        write_problems(tmp_path / "unsolved.json", [replace(first, reference_solution="")])


def test_a_setting_with_problems_of_its_own_holds_out_no_toy_problems():
    sweep = sweep_of(Setting(name="s", keys={"problems.file": "mine.json"}), config="toy")
    assert recipe_of(sweep, sweep.trials[0])["problems"] == {"file": "mine.json", "held_out": {}}


@pytest.mark.parametrize("kind", ["cross-validate", "data-size"])
def test_a_sweep_that_divides_the_problems_takes_no_others(tmp_path, monkeypatch, kind):
    sweep = sweep_of(Setting(name="s", keys={}), kind=kind)
    with pytest.raises(SweepError, match=r"--problems\.file: .* divides the problems itself"):
        check(sweep.model_copy(update={"arguments": ("--problems.file", "mine.json")}), tmp_path)
    for name, value in (("__FILE", "mine.json"), ("", '{"file": "mine.json"}')):
        with monkeypatch.context() as patch, pytest.raises(SweepError, match=f"SPARRING_PROBLEMS{name}"):
            patch.setenv(f"SPARRING_PROBLEMS{name}", value)
            check(sweep, tmp_path)
