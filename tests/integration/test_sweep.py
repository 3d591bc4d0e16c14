"""A real sweep: Ray Tune over real runs, one of them killed, the whole interrupted, and then completed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import ROOT, Drive, eventually, rows_of

RATES = ("learning_rate=0.0001", "learning_rate=0.0003")


def start(drive: Drive, log: Path, *arguments: object) -> subprocess.Popen[str]:
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sparring", "sweep", *map(str, arguments)],
            cwd=ROOT,
            env=dict(drive.environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    drive.started.append(process)
    return process


def driver_of(trial: str) -> psutil.Process | None:
    for process in psutil.Process().children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if any(word.endswith("/driver.py") for word in words) and trial in words:
            return process
    return None


def finished(sweep: Path) -> dict[str, float]:
    """By trial, when."""
    return {file.parent.name: file.stat().st_mtime for file in sweep.glob("runs/*/training_results.json")}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_sweep_with_a_trial_killed_and_itself_interrupted_is_completed(
    drive: Drive, small: tuple[str, ...], tmp_path: Path
) -> None:
    sweep, log = tmp_path / "sweep", tmp_path / "log"
    short = (*small, "--curriculum.stages", "1")
    asked = ("grid", "--config", "debug", "--key", "learning_rate=1e-4,3e-4", "--seeds", 2)
    process = start(drive, log, *asked, "--parallel", 2, "--to", sweep, "--", *short)

    victim = sweep / "runs" / "0-seed1"
    assert eventually(lambda: bool(rows_of(victim)) or process.poll() is not None, 200), log.read_text()
    found = driver_of("0-seed1")
    assert found is not None, log.read_text()
    found.kill()
    assert eventually(lambda: (victim / "failed.json").is_file(), 30), log.read_text()
    assert eventually(lambda: bool(finished(sweep)), 200), log.read_text()
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(180) == 130
    said = log.read_text()
    assert "0-seed1 (learning_rate=0.0001): failed: killed by SIGKILL" in said
    assert f"interrupted; continue with: python -m sparring sweep resume {sweep}" in said
    drive.expect_nothing_left()
    before = finished(sweep)
    assert 0 < len(before) < 4 and "0-seed1" not in before

    process = start(drive, log, "resume", sweep, "--parallel", 2)
    assert process.wait(300) == 0, log.read_text()
    after = finished(sweep)
    assert after.keys() == {"0-seed1", "0-seed2", "1-seed1", "1-seed2"}
    assert before.items() <= after.items(), "a finished trial was run again"
    steps = {trial: [row["step"] for row in rows_of(sweep / "runs" / trial)] for trial in after}
    assert all(of == [0, 1, 2, 3] for of in steps.values()), steps

    report = json.loads((sweep / "report.json").read_text())
    summary, impact, *_ = report["tables"]
    assert [(row["setting"], row["finished"]) for row in summary["rows"]] == [(r, "2 of 2") for r in RATES]
    by_seed = {
        rate: [
            json.loads((sweep / "runs" / f"{i}-seed{s}" / "training_results.json").read_text())
            for s in (1, 2)
        ]
        for i, rate in enumerate(RATES)
    }
    for row in summary["rows"]:
        expected = [r["held_out"]["after"]["generator_pass_rate"] for r in by_seed[row["setting"]]]
        assert row["after"]["by_seed"] == expected
    assert impact["rows"][0]["pairs"] == 2
    assert report["versions"]["git"] and "grid --config debug" in report["command"]
    assert (sweep / "learning_curves.png").read_bytes()[:4] == b"\x89PNG"
    assert f"| {RATES[0]} | 2 of 2 |" in (sweep / "report.md").read_text()
