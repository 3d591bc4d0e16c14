"""Whole runs on Ray: vLLM engines, the sandbox pool, Ray Train learners.

What a killed driver leaves behind: its processes live in sessions of their own, outside its process group, but the
raylet and the GCS watch the driver's process (or its pipe), take down the workers and end themselves; the containers end with
their workers. Files stay: the session directory in RAY_TMPDIR (default /tmp/ray), and the plasma store's memory only as
long as the raylet. So nothing has to be cleaned before --resume.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ROLES, Drive, require_synced, rows_of

SHRUNKEN = (
    "--config", "toy", "--curriculum.stages", "1", "--curriculum.n-discriminator-steps", "1",
    "--curriculum.n-generator-steps", "1", "--curriculum.k-alternating-steps", "1",
    "--curriculum.problems-per-step", "4", "--curriculum.attempts", "4", "--curriculum.frozen-programs", "2",
    "--evaluation.bank-programs", "2", "--evaluation.suites", "1",
)  # fmt: skip

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]


@pytest.fixture
def no_network() -> dict[str, Any]:
    """Returns what starts a run (Drive.run) in a network namespace of its own, with nothing in it but lo, and tells it
    nothing of being offline. Only root makes one this way: others have their network."""
    place = ["unshare", "-n", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
    if os.geteuid() != 0:
        return {}
    if tried := subprocess.run([*place, "true"], capture_output=True, text=True, check=False).stderr:
        assert os.environ.get("SPARRING_REQUIRE_CLUSTER") != "1", tried
        return {}
    return {"place": place, "HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": ""}


@pytest.mark.slow  # two starts of everything
def test_killed_in_the_middle_and_continued_without_a_network(
    drive: Drive, small: tuple[str, ...], no_network: dict[str, Any], tmp_path: Path
) -> None:
    """kill -9 of the driver's process group once step 1 is in the metrics; --resume goes on to a whole result, and needs no
    network but loopback."""
    run = tmp_path / drive.name()
    killed = drive.kill_at_step(
        1, run, *SHRUNKEN, *small, "--evaluation.problems", "8", "--checkpoint.every", "1"
    )
    assert "Ray at" in killed.out
    assert not (run / "training_results.json").exists()
    drive.expect_nothing_left()
    fewer = ("--rollout.actors", "1")  # each has engines to start
    place = ("--output-dir", tmp_path, "--run-name", run.name)
    done = drive.run("--resume", *fewer, *place, timeout=400, **no_network)
    assert done.code == 0, done.err
    rays_own = "Failed to determine local IP via external connectivity"
    assert not [line for line in done.err.splitlines() if not (no_network and rays_own in line)]
    assert ("Ray at 127.0.0.1" if no_network else "Ray at") in done.out and "sandbox: " in done.out
    assert {p.name for p in run.iterdir()} >= {
        "config.yaml", "versions.json", "metrics.jsonl", "bank.json", "samples", "checkpoints",
        "training_results.json", "learning_curves.png",
    }  # fmt: skip

    rows = rows_of(run)
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert [row["phase"] for row in rows[1:]] == ["discriminator", "generator", "alternating"]
    learned = {role: [row for row in rows if "samples" in row.get(role, {})] for role in ROLES}
    for role in ROLES:
        assert learned[role], f"the {role} did not learn"
        for row in learned[role]:
            assert row[role]["mismatch_max"] < 1e-3
            assert row[role]["samples"] > 0
        assert max(row[role]["gradient_norm"] for row in learned[role]) > 0
    require_synced(rows)
    assert all(row["dropped"]["sandbox_failure"] == 0 for row in rows[1:])
    assert all(row["tokens_per_s"] > 0 for row in rows[1:])

    results = json.loads((run / "training_results.json").read_text())
    assert results["held_out"]["before"] == rows[0]["held_out"]
    assert results["held_out"]["after"] == rows[3]["held_out"]
    assert all(
        results["wall_time_s"][part] > 0 for part in ("total", "rollout", "sandbox", "learn", "publish")
    )
    state = json.loads((run / "checkpoints" / "step_000003" / "state.json").read_text())
    assert state["versions"] == {role: len(learned[role]) for role in ROLES}
