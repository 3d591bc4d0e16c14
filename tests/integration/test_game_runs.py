"""Whole runs of games that are not the multi-stage one: self-play at a board, and output prediction with its bank."""

import json
from pathlib import Path

import pytest

from sparring.core.project_files import EXAMPLES
from tests.integration.conftest import Drive, learned, rows_of, weights_of

KUHN = (
    "--config", "spiral_kuhn", "--local", "--generator.engine.kind", "transformers",
    "--curriculum.n-generator-steps", "3", "--curriculum.problems-per-step", "4", "--curriculum.attempts", "4",
    "--evaluation.problems", "2", "--checkpoint.every", "1",
)  # fmt: skip
PREDICTION = (
    "--config", "output_prediction", "--local",
    "--generator.engine.kind", "transformers", "--discriminator.engine.kind", "transformers",
    "--n-discriminator-steps", "1", "--n-generator-steps", "1", "--k-alternating-steps", "0",
    "--curriculum.problems-per-step", "3", "--curriculum.attempts", "2", "--curriculum.frozen-programs", "2",
    "--curriculum.frozen-suites", "2", "--evaluation.problems", "2", "--evaluation.bank-programs", "2",
    "--checkpoint.every", "1",
)  # fmt: skip


def tasks_of(run: Path) -> str:
    return (run / "task_history.jsonl").read_text()


@pytest.fixture(scope="module")
def kuhn(local_session_drive: Drive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("kuhn") / local_session_drive.name()
    done = local_session_drive.run(*KUHN, "--output-dir", run.parent, "--run-name", run.name)
    assert done.code == 0, done.err
    assert "references" not in done.out, "a board game has none"
    return run


def test_self_play_at_kuhn_poker_from_start_to_end(kuhn: Path) -> None:
    rows = rows_of(kuhn)
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert {row["phase"] for row in rows[1:]} == {"generator"} and {row["stage"] for row in rows[1:]} == {0}
    for row in rows[1:]:
        assert row["generator"]["samples"] > 16, "both sides learn from each of 16 matches"
        assert "discriminator" not in row and row["sandbox"] == {}
        parts = [row[f"{side}_components"]["illegal"] for side in ("first", "second")]
        if parts == [0.0, 0.0]:
            assert row["first_reward"] == -row["second_reward"]
    results = json.loads((kuhn / "training_results.json").read_text())
    before, after = (results["held_out"][when] for when in ("before", "after"))
    assert before == rows[0]["held_out"] and after == rows[3]["held_out"]
    assert after.keys() == before.keys() >= {"win_vs_random", "win_vs_equilibrium", "nash_conv", "illegal"}
    assert 0 <= after["exploitability"] == after["nash_conv"] / 2
    assert not (kuhn / "bank.json").exists()
    assert {p.name for p in sorted((kuhn / "checkpoints").glob("step_*"))[-1].iterdir() if p.is_dir()} == {
        "generator"
    }


@pytest.mark.nightly  # a minute for what test_resume shows of a game with a bank
def test_a_killed_run_without_a_bank_is_resumed_to_the_same_end(
    local_drive: Drive, kuhn: Path, tmp_path: Path
) -> None:
    run = tmp_path / local_drive.name()
    local_drive.kill_at_step(1, run, *KUHN)
    done = local_drive.run("--resume", "--output-dir", tmp_path, "--run-name", run.name)
    assert done.code == 0, done.err
    assert "other settings" not in done.out
    assert learned(run) == learned(kuhn)
    assert tasks_of(run) == tasks_of(kuhn)
    assert weights_of(run) == weights_of(kuhn)


@pytest.mark.slow
def test_output_prediction_trains_both_and_keeps_its_bank(local_drive: Drive, tmp_path: Path) -> None:
    run = tmp_path / local_drive.name()
    few = {}  # each program is judged before anything starts
    for name, count in (("train", 24), ("held_out", 8)):
        problems = json.loads((EXAMPLES / "prediction" / f"{name}.json").read_text())["problems"][:count]
        few[name] = tmp_path / f"{name}.json"
        few[name].write_text(json.dumps({"problems": problems}))
    files = ("--problems-file", few["train"], "--problems.held-out.file", few["held_out"])
    done = local_drive.run(*PREDICTION, *files, "--output-dir", tmp_path, "--run-name", run.name)
    assert done.code == 0, done.err
    rows = rows_of(run)
    assert [row.get("phase") for row in rows] == [None, "discriminator", "generator"]
    scores = {"author_valid", "author_stumps", "opponent_predicts_bank", "program_lines", "unjudged"}
    assert rows[0]["held_out"].keys() == rows[2]["held_out"].keys() == scores
    assert all(row["dropped"]["sandbox_failure"] == 0 for row in rows[1:])
    bank = (run / "bank.json").read_bytes()
    assert any(json.loads(bank).values()), "the first author wrote no valid program"

    more = local_drive.run(
        "--resume", "--output-dir", tmp_path, "--run-name", run.name, "--k-alternating-steps", "1"
    )
    assert more.code == 0, more.err
    assert "curriculum.k_alternating_steps 0 -> 1" in more.out
    assert rows_of(run)[-1]["phase"] == "alternating" and rows_of(run)[:2] == rows[:2]
    assert (run / "bank.json").read_bytes() == bank
