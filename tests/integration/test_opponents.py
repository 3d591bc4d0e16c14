"""A run whose frozen players are now and then of the past, and the same run killed and resumed."""

from pathlib import Path

import pytest

from tests.integration.conftest import Drive, learned, rows_of, weights_of

PAST = (
    "--config", "debug", "--curriculum.stages", "1,3,5", "--n-discriminator-steps", "1",
    "--n-generator-steps", "1", "--k-alternating-steps", "1", "--curriculum.problems-per-step", "2",
    "--curriculum.attempts", "2", "--evaluation.problems", "2", "--checkpoint.every", "1",
    "--curriculum.opponents.current", "0", "--curriculum.opponents.pfsp", "0.5",
    "--curriculum.remembered-tests", "4",
    "--curriculum.remembered-wrong-programs", "4",
)  # fmt: skip


@pytest.mark.slow
def test_past_opponents_play_and_come_again_after_a_restart(
    local_drive: Drive, small_problems: tuple[Path, Path], tmp_path: Path
) -> None:
    whole, killed = tmp_path / local_drive.name(), tmp_path / local_drive.name()
    files = ("--problems-file", small_problems[0], "--problems.held-out.file", small_problems[1])
    done = local_drive.run(*PAST, *files, "--output-dir", tmp_path, "--run-name", whole.name)
    assert done.code == 0, done.err
    rows = rows_of(whole)[1:]
    assert any(row["opponents"] for row in rows), "somebody met the past"
    local_drive.kill_at_step(7, killed, *PAST, *files)
    done = local_drive.run("--resume", "--output-dir", tmp_path, "--run-name", killed.name)
    assert done.code == 0, done.err
    assert learned(killed) == learned(whole)
    assert weights_of(killed) == weights_of(whole)


@pytest.mark.nightly
@pytest.mark.vllm
def test_past_opponents_play_on_ray(drive: Drive, tmp_path: Path) -> None:
    """Their weights go from the learner's node to the driver's, and to vLLM, by reference."""
    run = tmp_path / drive.name()
    done = drive.run("--config", "toy", *PAST[2:], "--output-dir", tmp_path, "--run-name", run.name)
    assert done.code == 0, done.err
    assert any(row["opponents"] for row in rows_of(run)[1:])
    assert list((run / "opponents").glob("*.npz"))
