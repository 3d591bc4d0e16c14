"""A run whose engines are in actors of their own, two of the generator's and one of the discriminator's."""

from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import ROLES, require_synced, rows_of

pytestmark = pytest.mark.slow


def test_it_plays_learns_and_publishes_as_with_engines_in_the_rollout_actors(
    drive, small: tuple[str, ...], finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / drive.name()
    done = drive.run(
        "--config", "debug", "--no-local", *small, "--generator.engine.count", "2", "--discriminator.engine.count", "1",
        "--rollout.actors", "2", "--rollout.cpus", "0.1", "--curriculum.stages", "1",
        "--output-dir", tmp_path, "--run-name", run.name,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert not done.err.strip()
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert [config[role]["engine"]["count"] for role in ROLES] == [2, 1]
    rows, local = rows_of(run), rows_of(finished)
    assert [(row["step"], row.get("phase")) for row in rows] == [
        (row["step"], row.get("phase")) for row in local if row.get("stage", 1) == 1
    ]
    assert rows[0]["held_out"] == local[0]["held_out"], "the same models played the same problems"
    require_synced(rows)
    drive.expect_nothing_left()
