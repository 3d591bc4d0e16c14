"""A run that is killed and continued is the run that was not killed, to the last bit of its metrics."""

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import Drive, learned, rows_of, weights_of


@pytest.mark.parametrize(
    "step",
    [pytest.param(0, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.nightly)],
    ids="killed at step {}".format,
)
def test_killed_and_resumed_equals_run_in_one_go(
    local_drive: Drive, small: tuple[str, ...], finished: Path, tmp_path: Path, step: int
) -> None:
    """Checkpoints are due at every second step and at stage ends; 0 is before the first one, 3 while one is
    written."""
    run = tmp_path / local_drive.name()
    local_drive.kill_at_step(step, run, "--config", "debug", *small)
    assert not (run / "training_results.json").exists()
    done = local_drive.run("--resume", "--output-dir", tmp_path, "--run-name", run.name)
    assert done.code == 0, done.err
    saved = sorted(
        int(line.split("after step ")[1].split()[0]) for line in done.out.splitlines() if "resuming" in line
    )
    if step < 2:
        assert not saved or saved[0] <= 2  # the checkpoint may have been quicker than the kill
    else:
        assert saved and step - 2 <= saved[0] <= step + 1
        assert f"resuming after step {saved[0]} of 6" in done.out
    assert "other settings" not in done.out
    assert learned(run) == learned(finished)
    assert (run / "episodes.jsonl").read_text() == (finished / "episodes.jsonl").read_text()
    assert weights_of(run) == weights_of(finished)
    assert json.loads((run / "bank.json").read_text()) == json.loads((finished / "bank.json").read_text())
    ours, theirs = (json.loads((r / "training_results.json").read_text()) for r in (run, finished))
    assert ours["held_out"] == theirs["held_out"] and ours["best"] == theirs["best"]
    assert [s["stage"] for s in ours["stages"]] == [1, 5]
    assert os.readlink(run / "checkpoints" / "best") == os.readlink(finished / "checkpoints" / "best")


@pytest.mark.slow
def test_without_evaluation_a_run_learns_the_same_and_has_no_scores(
    local_drive: Drive, small: tuple[str, ...], finished: Path, tmp_path: Path
) -> None:
    evaluated = [i for i, word in enumerate(small) if word.startswith("--evaluation.")]
    rest = [word for i, word in enumerate(small) if not {i, i - 1} & set(evaluated)]
    run = tmp_path / local_drive.name()
    local_drive.kill_at_step(3, run, "--config", "debug", *rest, "--no-evaluation.enabled")
    done = local_drive.run("--resume", "--output-dir", tmp_path, "--run-name", run.name)
    assert done.code == 0, done.err
    assert weights_of(run) == weights_of(finished)
    assert [row["step"] for row in rows_of(run)] == [1, 2, 3, 4, 5, 6]
    assert not any("held_out" in row for row in rows_of(run))
    assert not (run / "bank.json").exists() and not (run / "task_history.jsonl").exists()
    results = json.loads((run / "training_results.json").read_text())
    assert results["held_out"] == {"before": {}, "after": {}} and results["best"] is None
    assert [(s["stage"], s["held_out"]) for s in results["stages"]] == [(1, {}), (5, {})]
    assert not (run / "checkpoints" / "best").exists() and (run / "checkpoints" / "step_000003").is_dir()
    assert "held out" not in done.out and "latest checkpoint: " in done.out
    assert (run / "learning_curves.png").is_file() and not done.err.strip()


@pytest.mark.slow
def test_a_stages_checkpoint_starts_a_new_run(local_drive: Drive, finished: Path, tmp_path: Path) -> None:
    """--resume-from leaves the run that it starts from as it is, and keeps its bank. The run's config is a recipe."""
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*") if p.is_file()}
    run = tmp_path / local_drive.name()
    checkpoint = finished / "checkpoints" / "step_000003"
    recipe = shutil.copy(finished / "config.yaml", tmp_path / "again.yaml")
    done = local_drive.run(
        "--config", recipe, "--resume-from", checkpoint, "--output-dir", tmp_path, "--run-name", run.name
    )
    assert done.code == 0, done.err
    assert f"resuming after step 3 of 6 ({checkpoint})" in done.out
    assert learned(run) == [row for row in learned(finished) if row["step"] > 3]
    assert (run / "bank.json").read_bytes() == (finished / "bank.json").read_bytes()
    assert weights_of(run) == weights_of(finished)
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*") if p.is_file()} == before
    first, again = (yaml.safe_load((d / "config.yaml").read_text()) for d in (finished, run))
    for config in (first, again):
        del config["output_dir"], config["run_name"]
    assert again == first


@pytest.mark.slow
def test_a_fresh_run_takes_a_checkpoints_weights_and_begins_at_step_1(
    local_drive: Drive, small: tuple[str, ...], finished: Path, tmp_path: Path
) -> None:
    run, checkpoint = tmp_path / local_drive.name(), finished / "checkpoints" / "step_000003"
    arguments = "--config", "debug", *small, "--resume-from", checkpoint, "--fresh"
    done = local_drive.run(*arguments, "--output-dir", tmp_path, "--run-name", run.name)
    assert done.code == 0, done.err
    assert [row["step"] for row in learned(run)] == [row["step"] for row in learned(finished)]
    before = rows_of(run)[0]
    (then,) = [row for row in rows_of(finished) if row["step"] == 3]
    assert before["step"] == 0 and before["held_out"] == then["held_out"]


def test_changed_settings_are_named(local_drive: Drive, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / local_drive.name()
    shutil.copytree(finished, run, symlinks=True)
    longer = ("--curriculum.k-alternating-steps", "2", "--temperature", "0.9")
    done = local_drive.run("--resume", "--output-dir", tmp_path, "--run-name", run.name, *longer)
    assert done.code == 0, done.err
    (told,) = [line for line in done.out.splitlines() if "other settings" in line]
    assert "curriculum.k_alternating_steps 1 -> 2" in told and "temperature 1.0 -> 0.9" in told
    assert told.count("->") == 2
    assert "resuming after step 6 of 8" in done.out
    assert rows_of(run)[-1]["step"] == 8
    results = json.loads((run / "training_results.json").read_text())
    assert results["config"]["temperature"] == 0.9
    assert yaml.safe_load((run / "config.yaml").read_text())["temperature"] == 0.9
