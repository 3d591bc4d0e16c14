"""A run whose checkpoints go to an S3 server, and one on another disk that begins from there."""

import hashlib
from pathlib import Path

import boto3
import pytest

from tests.integration.conftest import ROLES, Drive, rows_of
from tests.s3 import s3_server

KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_EC2_METADATA_DISABLED": "true"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def digests(checkpoint: Path) -> dict[str, str]:
    return {
        role: hashlib.sha256((checkpoint / role / "model.safetensors").read_bytes()).hexdigest()
        for role in ROLES
    }


def test_a_lost_machines_run_goes_on_elsewhere(
    local_drive: Drive,
    finished: Path,
    small: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the mirror the second half of a run comes out as without an interruption, to the bit; a mirror that is not
    there is refused before anything starts."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    local_drive.environment = {**local_drive.environment, **KEYS}
    with s3_server() as (host, port):
        at = f"?scheme=http&endpoint_override={host}:{port}&region=us-east-1"
        boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1").create_bucket(
            Bucket="runs"
        )

        refused = local_drive.run(
            "--config", "debug", *small, "--output-dir", tmp_path / "a", "--checkpoint.mirror", f"s3://other/x{at}"
        )  # fmt: skip
        assert refused.code == 2 and "checkpoint.mirror s3://other/x" in refused.err
        assert not list((tmp_path / "a").glob("*/metrics.jsonl"))

        first = tmp_path / "a" / local_drive.name()
        stopped = local_drive.kill_at_step(  # by then step 3 has been sent: step 4's checkpoint waits for that
            5, first, "--config", "debug", *small, "--checkpoint.mirror", f"s3://runs/team{at}", "--checkpoint.keep", "9"
        )  # fmt: skip
        assert f"s3://runs/team{at}" in (first / "config.yaml").read_text(), stopped.err
        second = tmp_path / "b" / local_drive.name()
        done = local_drive.run(
            "--config", "debug", *small, "--resume-from", f"s3://runs/team/{first.name}/step_000003{at}",
            "--output-dir", second.parent, "--run-name", second.name,
        )  # fmt: skip
        assert done.code == 0, done.err
    assert [row["step"] for row in rows_of(second)] == [4, 5, 6]
    assert digests(second / "checkpoints" / "step_000006") == digests(
        finished / "checkpoints" / "step_000006"
    )
