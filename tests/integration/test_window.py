"""Runs whose steps are played ahead of the learners, in one process. On Ray: tests/integration/test_two_nodes.py."""

from pathlib import Path

from tests.integration.conftest import Drive, rows_of

AHEAD = (
    "--n-discriminator-steps", "1", "--n-generator-steps", "1", "--k-alternating-steps", "4",
    "--curriculum.stages", "1", "--curriculum.problems-per-step", "4", "--curriculum.attempts", "4",
    "--evaluation.problems", "2", "--rollout.max-policy-lag", "2",
)  # fmt: skip


def lags(run: Path, role: str) -> list[float]:
    return [row[role]["policy_lag_max"] for row in rows_of(run)[1:] if "samples" in row.get(role, {})]


def test_one_process_plays_ahead_too(
    local_drive: Drive, small_problems: tuple[Path, Path], tmp_path: Path
) -> None:
    """Nothing goes on at the same time there, but weights are as old: what asynchrony does to learning can be tried."""
    run = tmp_path / local_drive.name()
    files = ("--problems-file", small_problems[0], "--problems.held-out.file", small_problems[1])
    done = local_drive.run(
        "--config", "debug", *AHEAD, *files, "--output-dir", tmp_path, "--run-name", run.name
    )
    assert done.code == 0, done.err
    for role in ("discriminator", "generator"):
        assert max(lags(run, role)) == 2.0
    assert lags(run, "discriminator")[0] == 0.0
