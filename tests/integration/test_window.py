"""Runs whose steps are played ahead of the learners."""

from pathlib import Path

import pytest

from tests.integration.conftest import Drive, require_synced, rows_of
from tests.integration.test_ray_run import SHRUNKEN

AHEAD = (
    "--n-discriminator-steps", "1", "--n-generator-steps", "1", "--k-alternating-steps", "4",
    "--curriculum.stages", "1", "--curriculum.problems-per-step", "4", "--curriculum.attempts", "4",
    "--evaluation.problems", "2", "--rollout.max-policy-lag", "2",
)  # fmt: skip


def lags(run: Path, role: str) -> list[float]:
    return [row[role]["policy_lag_max"] for row in rows_of(run)[1:] if "samples" in row.get(role, {})]


def test_one_process_plays_ahead_too(drive: Drive, tmp_path: Path) -> None:
    """Nothing goes on at the same time there, but weights are as old: what asynchrony does to learning can be tried."""
    run = tmp_path / drive.name()
    done = drive.run("--config", "debug", *AHEAD, "--output-dir", tmp_path, "--run-name", run.name)
    assert done.code == 0, done.err
    for role in ("discriminator", "generator"):
        assert max(lags(run, role)) == 2.0
    assert lags(run, "discriminator")[0] == 0.0


@pytest.mark.slow
@pytest.mark.vllm
def test_on_ray_engines_and_learners_work_at_the_same_time(drive: Drive, tmp_path: Path) -> None:
    run, small = tmp_path / drive.name(), [*SHRUNKEN, *AHEAD[:-2]]
    done = drive.run(
        *small, "--rollout.max-policy-lag", "1", "--output-dir", tmp_path, "--run-name", run.name, timeout=400
    )
    assert done.code == 0, done.err
    rows = rows_of(run)
    require_synced(rows, lag=1)
    for role in ("generator", "discriminator"):
        assert max(lags(run, role)) == 1.0
    assert all(row["dropped"]["sandbox_failure"] == 0 for row in rows[1:])
