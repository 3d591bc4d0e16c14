"""The command: what it refuses at once, what it writes down, what it reports. No run is started."""

import csv
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from configs.load import RECIPES
from sparring.cli.sweep import _options, main, new_sweep
from sparring.core.project_files import EXAMPLES
from sparring.runtime.problem_sets import load_splits
from sparring.sweeps.runs import mark_failed
from sparring.sweeps.spec import Sweep, SweepError, config_of, load_sweep
from sparring.tracking.run_record import RunRecord

SHORT = ("--curriculum.stages", "1")


RATES = ("--key", "learning_rate=1e-4,2e-4")


def made(to: Path, *arguments: str, rest: tuple[str, ...] = SHORT, config: str = "debug") -> Sweep:
    return new_sweep(_options([*arguments, "--config", config, "--to", str(to)]), rest, to)


def test_a_grid_is_written_down_with_what_it_takes_to_repeat_it(tmp_path):
    sweep = made(tmp_path, "grid", *RATES, "--seeds", "3", "--local")
    assert load_sweep(tmp_path) == sweep
    assert [t.name for t in sweep.trials][:4] == ["0-seed1", "0-seed2", "0-seed3", "1-seed1"]
    assert sweep.arguments == SHORT and sweep.versions["git"]
    assert sweep.base["local"] is True and sweep.base["discriminator.engine.kind"] == "transformers"


def test_asha_and_pbt_look_at_a_trial_at_every_interval(tmp_path):
    key = ("--key", "learning_rate=1e-4..1e-3:log", "--samples", "3", "--interval", "2")
    sweep = made(tmp_path / "a", "asha", *key)
    assert sweep.base == {"evaluation.every": 2} and len(sweep.settings) == 3
    sweep = made(tmp_path / "p", "pbt", *key)
    assert sweep.base["checkpoint.keep"] > 1000
    assert sweep.mutations == {"learning_rate": {"low": 1e-4, "high": 1e-3, "log": True}}


def test_a_key_that_is_given_twice_is_refused(tmp_path):
    with pytest.raises(SweepError, match="learning_rate was given before"):
        made(tmp_path, "grid", *RATES, "--key", "learning-rate=2e-4")


def test_a_recipe_of_ones_own_is_found_from_a_trials_directory(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text((RECIPES / "debug.yaml").read_text())
    (tmp_path / "other.yaml").write_text("base: mine.yaml\nsizes: {big: {curriculum: {attempts: 6}}}\n")
    monkeypatch.chdir(tmp_path)
    sweep = made(tmp_path / "one", "grid", *RATES, config="mine.yaml")
    assert sweep.config == str(tmp_path / "mine.yaml") and sweep.begun_in == str(tmp_path)
    sweep = made(tmp_path / "two", "grid", *RATES, config="other.yaml:big")
    monkeypatch.chdir("/")  # as for a trial
    assert sweep.config == f"{tmp_path / 'other.yaml'}:big"
    assert config_of(sweep, sweep.trials[0], tmp_path / "two").curriculum.attempts == 6


def test_data_size_is_a_series_of_parts_read_as_written_whatever_the_recipe_reads(tmp_path):
    entries = [
        {
            "task": str(i),
            "text": f"Add {i}.",
            "code": f"def f(x): return x + {i}",
            "tests": [f"assert f(0) == {i}"],
        }
        for i in range(5)
    ]
    (tmp_path / "mine.json").write_text(json.dumps(entries))
    fields = {"id": "task", "description": "text", "reference_solution": "code", "baseline_tests": "tests"}
    recipe = {
        "game": {"kind": "unit_tests"},
        "generator": {"model": str(EXAMPLES / "toy/generator")},
        "problems": {"file": str(tmp_path / "mine.json"), "format": "fields", "fields": fields},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe))
    to = tmp_path / "sweep"
    sweep = made(to, "data-size", "--sizes", "4,2", rest=(), config=str(tmp_path / "mine.yaml"))
    assert [(s.name, s.amount) for s in sweep.settings] == [("2 problems", 2), ("4 problems", 4)]
    (small, held_out), (large, again) = (load_splits(config_of(sweep, t, to)) for t in sweep.trials)
    assert (len(small), len(large)) == (2, 4)
    assert len(held_out) == 1 and held_out == again, "one held-out file"


def test_cross_validation_has_a_fold_as_another_has_a_seed(tmp_path):
    sweep = made(tmp_path, "cross-validate", "--folds", "3", "--seeds", "2")
    assert [t.name for t in sweep.trials] == [f"0-fold{f}-seed{s}" for f in (1, 2, 3) for s in (1, 2)]
    held_out = [Path(r.keys["problems"]["held_out"]["file"]) for r in sweep.replicates[::2]]
    ids = [{p["id"] for p in json.loads(file.read_text())["problems"]} for file in held_out]
    assert len(set.union(*ids)) == sum(map(len, ids)) == 1000


def test_an_ablation_that_changes_nothing_is_left_out_and_said(tmp_path, capsys):
    sweep = made(tmp_path, "ablate", "credit")
    said = capsys.readouterr().out
    assert "credit to all stages: left out: it is what the recipe does" in said and "gae: left out" in said
    assert [s.name for s in sweep.settings] == ["baseline", "credit to the stage", "grpo", "reinforce_pp"]


@pytest.mark.parametrize(
    "recipe", ["code_golf", "grpo_code_execution", "output_prediction", "spiral_tictactoe"]
)
def test_parts_that_a_game_does_not_have_are_left_out_and_said(tmp_path, capsys, recipe):
    parts = ("stages", "guards", "opponents", "credit")
    sweep = made(tmp_path, "ablate", *parts, rest=(), config=recipe)
    said = capsys.readouterr().out
    assert "without missing tests counted: left out: unknown key game.rewards" in said
    assert "reinforce_pp" in [setting.name for setting in sweep.settings]


def test_an_ablation_of_parts_that_a_game_does_not_have_is_refused_with_the_others(tmp_path):
    with pytest.raises(SweepError, match=r"game code_golf\) has none of these parts; give another of .*golf"):
        made(tmp_path, "ablate", "guards", rest=(), config="code_golf")
    assert not (tmp_path / "sweep.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("grid", "--key", "no_such=1,2"), "error: setting no_such=1: unknown key no_such"),
        (("grid", "--key", "learning_rate=-1,2"), "error: setting learning_rate=-1: learning_rate: "),
        (("grid", "--key", "learning_rate=1..2"), "takes values, not a range"),
        (("grid", *RATES, "--seeds", "0"), "--seeds 0: expected 1 or more"),
        (("cross-validate", "--folds", "1"), "--folds 1: expected 2 to 1000"),
        (("random", "--key", "learning_rate=1..2", "--samples", "0"), "--samples 0: expected 1 or more"),
        (("grid", *RATES, "--parallel", "0"), "--parallel 0: expected 1 or more"),
        (("grid", *RATES, "--gpus", "-1"), "--gpus -1: expected 0 or more"),
        (("data-size", "--sizes", "10,x"), "--sizes 10,x: expected whole numbers"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(tmp_path, refused, arguments, said):
    assert said in refused(main, *arguments, "--config", "debug", "--to", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_directory_with_a_sweep_is_not_taken_again_and_one_without_is_not_resumed(tmp_path, refused):
    made(tmp_path, "grid", *RATES)
    arguments = ("grid", *RATES, "--config", "debug", "--to", tmp_path)
    assert "holds a sweep already; continue it with: resume" in refused(main, *arguments)
    assert "no sweep" in refused(main, "resume", tmp_path / "elsewhere")


@pytest.mark.parametrize("when", ["while Ray is loaded", "while it runs"])
def test_who_interrupts_a_sweep_is_told_how_to_go_on(tmp_path, monkeypatch, capsys, when):
    class Tuning(ModuleType):
        def __getattr__(self, name: str):
            if when == "while Ray is loaded":
                raise KeyboardInterrupt
            return interrupted

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "sparring.sweeps.tuning", Tuning("sparring.sweeps.tuning"))
    with pytest.raises(SystemExit) as ended:
        main(["grid", *RATES, "--config", "debug", "--to", str(tmp_path), "--parallel", "2"])
    assert ended.value.code == 130
    said = capsys.readouterr().err
    assert re.match(f"interrupted; continue with: .* resume {tmp_path} --parallel 2$", said.strip())


def test_a_report_of_what_there_is(tmp_path, capsys, refused):
    sweep = made(tmp_path, "grid", *RATES, "--seeds", "2")
    for trial in sweep.trials[:3]:
        run = tmp_path / "runs" / trial.name
        run.mkdir()
        record = RunRecord(run)
        for step, value in enumerate((0.25, 0.5 + trial.number / 4)):
            record.add({"step": step, "held_out": {"generator_pass_rate": value}, "generator_reward": 0.5})
        record.finish({})
    mark_failed(tmp_path / "runs" / "1-seed2", "killed by SIGKILL")
    main(["report", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "1-seed2 (learning_rate=0.0002) failed: killed by SIGKILL" in shown
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["finished"] * 3 + ["failed"]
    assert [row["after"] for row in rows] == ["0.5", "0.5", "0.75", ""]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["tables"][0]["rows"][1]["finished"] == "1 of 2"
    assert {p.name for p in tmp_path.glob("*.png")} == {"learning_curves.png", "settings.png"}
    assert "held-out scores: generator_pass_rate" in refused(main, "report", tmp_path, "--metric", "x")
    runs = [tmp_path / "runs" / trial.name for trial in sweep.trials[:2]]
    for run in runs:
        (run / "config.yaml").write_text("seed: 1")
    assert "--to: give a directory" in refused(main, "report", *runs)
    assert not list(runs[0].glob("*.png")), "a run has a picture of that name"
