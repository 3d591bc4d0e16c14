"""Runs by their files: states, curves, what a run that began from another's checkpoint has of it; tables of them."""

import json
import math
from pathlib import Path

import pytest

from sparring.core.evaluation import Scores
from sparring.evaluation.intervals import interval
from sparring.sweeps import reports
from sparring.sweeps.runs import (
    RunFiles,
    forget_failure,
    generation,
    mark_failed,
    mark_stopped,
    read_runs,
    run_name,
    runs_of,
    value_of,
)
from sparring.sweeps.spec import Replicate, Setting, Sweep, SweepError
from sparring.sweeps.tables import Table
from sparring.tracking.run_record import RunRecord


def run_at(directory: Path, *scores: float, finish: bool = True) -> RunFiles:
    directory.mkdir(parents=True)
    record = RunRecord(directory)
    for step, score in enumerate(scores):
        record.add({"step": step, "held_out": {"score": score}, "generator": {"entropy": step / 2}})
    if finish:
        record.finish({"wall_time_s": {"total": 9.0}})
    return RunFiles(directory, "s", "seed1")


def test_a_run_is_what_its_files_say(tmp_path):
    run = run_at(tmp_path / "a", 0.5, 0.25, finish=False)
    assert run.state == "unfinished"
    mark_failed(run.directory, "killed by SIGKILL")
    assert (run.state, run.error) == ("failed", "killed by SIGKILL")
    forget_failure(run.directory)
    mark_stopped(run.directory, 1, "asha")
    assert run.state == "stopped"
    RunRecord(run.directory).finish({})
    assert run.state == "finished"
    assert (run.before("score"), run.last("score")) == (0.5, 0.25)
    assert run.curve("generator.entropy") == [(0, 0.0), (1, 0.5)]
    assert RunFiles(tmp_path / "not there", "s", "seed1").state == "unfinished"
    mark_failed(tmp_path / "never began", "refused")
    assert RunFiles(tmp_path / "never began", "s", "seed1").last("score") is None


def test_a_value_is_a_held_out_score_or_else_a_column():
    row = {"step": 1, "reward": 0.5, "held_out": {"reward": 0.75}, "generator": {"entropy": 1}, "phase": "x"}
    assert value_of(row, "reward") == 0.75
    assert value_of(row, "generator.entropy") == 1.0
    assert value_of(row, "phase") is value_of(row, "nothing.there") is None


def test_a_run_that_began_from_a_checkpoint_has_its_rows_up_to_there(tmp_path):
    first = run_at(tmp_path / "m", 0.0, 0.1, 0.2, 0.9, finish=False)
    second = run_at(tmp_path / "m.g1", finish=False)
    checkpoint = first.directory / "checkpoints" / "step_000002"
    checkpoint.mkdir(parents=True)
    (second.directory / "started_from.txt").write_text(str(checkpoint))
    RunRecord(second.directory).add({"step": 3, "held_out": {"score": 0.3}})
    assert second.curve("score") == [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.3)]
    for run, step in ((first, 1), (first, 3), (second, 3)):
        RunRecord(run.directory).add_evaluation(step, Scores({}, 0.0, {"a": step / 4}))
    assert second.tasks() == {"a": [(1, 0.25), (3, 0.75)]}
    assert (generation(tmp_path, "m"), generation(tmp_path, "x")) == (0, 0)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / run_name("m", 2)).mkdir()
    assert generation(tmp_path, "m") == 2


def test_a_sweep_has_a_run_for_each_trial_begun_or_not(tmp_path):
    settings = (Setting(name="a", keys={}), Setting(name="b", keys={"learning_rate": 1e-4}, amount=1e-4))
    seeds = (Replicate(name="seed1", seed=1),)
    sweep = Sweep(kind="grid", config="debug", settings=settings, replicates=seeds)
    sweep.save(tmp_path)
    run_at(tmp_path / "runs" / "1-seed1", 0.5)
    (first, second), read = read_runs([tmp_path])
    assert read == sweep and [first, second] == runs_of(sweep, tmp_path)
    assert (first.setting, first.state, first.amount) == ("a", "unfinished", None)
    assert (second.setting, second.state, second.amount) == ("b", "finished", 1e-4)


def test_runs_by_themselves_are_told_apart_by_what_differs(tmp_path):
    for name, seed, rate in (("x", 1, 0.1), ("y", 2, 0.1), ("z", 1, 0.2)):
        run_at(tmp_path / name, 0.5)
        config = {"seed": seed, "run_name": name, "credit": {"rate": rate}}
        (tmp_path / name / "config.yaml").write_text(json.dumps(config))
    runs, sweep = read_runs([tmp_path / name for name in "xyz"])
    assert sweep is None
    assert [run.setting for run in runs] == ["credit.rate=0.1", "credit.rate=0.1", "credit.rate=0.2"]
    assert [run.replicate for run in runs] == ["seed1", "seed2", "seed1"]
    with pytest.raises(SweepError, match="neither a sweep"):
        read_runs([tmp_path])


def folds_at(directory: Path, seeds: int = 1) -> list[RunFiles]:
    """Two folds, each with seeds: fold 1 holds out a and b, solves both, and trains on what has the tag `rows`; fold 2
    holds out c and d, solves neither, and trains on `columns`. All held-out problems have the tag `rows`."""
    runs = []
    for fold, tasks, trained, scores in ((1, "ab", "rows", (1.0, 0.5)), (2, "cd", "columns", (0.25, 0.25))):
        for seed in range(seeds):
            run = run_at(directory / f"fold{fold}-seed{seed}", 0.0, scores[seed])
            record = RunRecord(run.directory)
            for step, value in enumerate((0.0, 2.0 - fold)):
                record.add_evaluation(step, Scores({}, 0.0, dict.fromkeys(tasks, value)))
            record.write_categories({task: ["rows"] for task in tasks}, [trained])
            runs.append(RunFiles(run.directory, "s", f"fold{fold}-seed{seed}"))
    return runs


def test_a_series_names_the_setting_at_which_it_falls_though_an_earlier_one_has_no_value(tmp_path):
    groups = {}
    for amount, rewards in ((1, [0.1]), (2, [0.4, 0.4]), (4, [0.5, 0.5]), (8, [0.3, 0.3])):
        directory = tmp_path / str(amount)
        directory.mkdir()
        for step, reward in enumerate(rewards, start=1):
            RunRecord(directory).add({"step": step, "generator_reward": reward, "held_out": {"score": 0.5}})
        groups[f"k={amount}"] = [RunFiles(directory, f"k={amount}", "seed1", amount)]
    table = reports.series(groups, "score", lambda run: run.amount)
    assert table is not None and "training reward falls at k=8; score rises, or stays" in table.note


def test_seeds_of_a_fold_are_one_value_of_an_interval_over_folds(tmp_path):
    groups = {"s": folds_at(tmp_path, seeds=2)}
    over_folds = interval([0.75, 0.25])
    assert reports.summary(groups, "score").rows[0][4] == over_folds
    assert reports.after(groups, "score") == {"s": over_folds}
    spread = reports.spread(groups, "score")
    assert spread is not None and spread.rows[0][1:3] == [2, over_folds]
    assert reports.curves(groups, "score")["s"]["validation"] == [(0, interval([0.0, 0.0])), (1, over_folds)]


def test_a_category_is_zero_shot_for_those_folds_that_do_not_train_on_it(tmp_path):
    table = reports.zero_shot({"s": folds_at(tmp_path)})
    assert table is not None
    zero_shot, trained = (
        ["s", "rows", where, 2, interval([rate])] for where, rate in (("zero-shot", 0.0), ("trained", 1.0))
    )
    assert table.rows == [zero_shot, trained]


def test_likeness_is_that_of_every_folds_own_problems(tmp_path):
    near = {"fold1-seed0": {"a": 0.9, "b": 0.8}, "fold2-seed0": {"c": 0.1, "d": 0.2}}
    table = reports.transfer({"s": folds_at(tmp_path)}, lambda run: near[run.replicate])
    assert table is not None and table.rows[0][1] == 4


def test_the_summary_names_what_failed_and_counts_only_what_is_finished(tmp_path):
    runs = [run_at(tmp_path / "a", 0.5, 0.75), run_at(tmp_path / "b", 0.5, 0.0, finish=False)]
    mark_failed(tmp_path / "b", "killed by SIGKILL")
    table = reports.summary({"s": runs}, "score")
    (row,) = table.rows
    assert row == ["s", "1 of 2", "1 failed", *map(interval, ([0.5], [0.75])), "1", interval([9.0])]
    assert table.note == "b (s) failed: killed by SIGKILL"


def test_where_all_were_stopped_their_last_scores_count(tmp_path):
    run = run_at(tmp_path / "a", 0.5, 0.75, finish=False)
    mark_stopped(run.directory, 1, "asha")
    assert reports.summary({"s": [run]}, "score").rows[0][4] == interval([0.75])


def test_a_table_is_markdown_and_json(tmp_path):
    rows = [["a|b", interval([1.0, 2.0, 3.0]), None], ["c", interval([0.5]), 0.25]]
    table = Table(title="T", header=("setting", "after", "x"), rows=rows, note="so")
    assert table.markdown() == (
        "## T\n\n| setting | after | x |\n| --- | --- | --- |\n"
        "| a\\|b | 2.000 ±2.484 | - |\n| c | 0.500 (n=1) | 0.25 |\n\nso\n"
    )
    first, second = json.loads(json.dumps(table.plain(), allow_nan=False))["rows"]
    after = {"mean": 0.5, "half_width": None, "by_seed": [0.5]}
    assert second == {"setting": "c", "after": after, "x": 0.25}
    assert math.isclose(first["after"]["half_width"], 2.484, abs_tol=1e-3)


def test_a_run_that_took_only_the_weights_of_a_checkpoint_begins_anew(tmp_path):
    first, second = run_at(tmp_path / "a", 0.1, 0.2), run_at(tmp_path / "b", 0.5, 0.6)
    checkpoint = first.directory / "checkpoints/step_000001"
    (second.directory / "started_from.txt").write_text(f"{checkpoint}\nweights only")
    assert second.before("score") == 0.5
    assert [step for step, _ in second.curve("score")] == [0, 1]


def test_two_sweeps_at_once_are_refused_as_sweeps(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "sweep.json").write_text("{}")
    with pytest.raises(SweepError, match="is a sweep; report one sweep at a time"):
        read_runs([tmp_path / "a", tmp_path / "b"])
