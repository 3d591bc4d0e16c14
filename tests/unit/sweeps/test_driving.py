"""A run under way, told by its rows; here the driver is a short script."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sparring.core.errors import RunFailed
from sparring.sweeps import driving
from sparring.sweeps.driving import DriverProcess
from sparring.tracking.rows import read_rows

ROOT = Path(__file__).resolve().parents[3]
DRIVER = """
import json, os, pathlib, sys, time
run = pathlib.Path(sys.argv[1])
run.mkdir(parents=True, exist_ok=True)
print("given", sys.argv[3:], "ray", sorted(k for k in os.environ if k.startswith("RAY_")))
for step in range(3):
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step}) + "\\n")
{end}
"""


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Makes the driver end so, and starts it."""

    def start(end: str) -> DriverProcess:
        (tmp_path / "driver.py").write_text(DRIVER.replace("{end}", end))
        monkeypatch.setattr(driving, "_ROOT", tmp_path)
        return DriverProcess(tmp_path / "run", [str(tmp_path / "run"), "x"], tmp_path / "log")

    return start


def test_rows_come_as_they_are_written_until_the_run_ends(driver, tmp_path):
    running = driver("while not (run / 'go').exists(): time.sleep(0.05)")
    rows = running.rows(after=0)
    assert [next(rows), next(rows)] == [{"step": 1}, {"step": 2}]
    (tmp_path / "run" / "go").touch()
    assert list(rows) == []


def test_a_run_is_where_its_paths_are_meant_if_there_is_such_a_place(driver, tmp_path):
    list(driver("(run / 'cwd').write_text(os.getcwd())").rows())
    assert (tmp_path / "run" / "cwd").read_text() == str(tmp_path)
    (tmp_path / "there").mkdir()
    for meant, place in (("there", tmp_path / "there"), ("gone", tmp_path)):
        run = tmp_path / f"run {meant}"
        again = DriverProcess(run, [str(run), "x"], tmp_path / "log", str(tmp_path / meant))
        assert list(again.rows()) and (run / "cwd").read_text() == str(place)


def test_a_file_that_has_not_grown_is_not_read_again(driver, monkeypatch):
    reads = []
    monkeypatch.setattr(driving, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(driving, "read_rows", lambda file: reads.append(file) or read_rows(file))
    assert len(list(driver("time.sleep(1)").rows(after=-1))) == 3
    assert len(reads) <= 3, "it was written to three times"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("print('error: no room; make some'); sys.exit(2)", "no room; make some"),
        ("raise ValueError('odd')", "ValueError: odd"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL (see "),
    ],
)
def test_a_run_that_dies_says_why_after_its_rows(driver, end, said):
    rows = driver(end).rows(after=-1)
    assert [next(rows)["step"] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RunFailed) as failed:
        next(rows)
    assert str(failed.value).startswith(said)


def test_a_run_that_is_tried_again_says_why_it_ended_this_time(driver):
    ends = {"no room": "print('error: no room'); sys.exit(2)", "ValueError: odd": "raise ValueError('odd')"}
    for said, end in ends.items():
        with pytest.raises(RunFailed, match=said):
            list(driver(end).rows())


def test_a_run_has_the_callers_threads_not_the_workers(driver, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray sets it in a worker
    list(driver("print('threads', os.environ.get('OMP_NUM_THREADS'))").rows())
    more = DriverProcess(tmp_path / "run", [str(tmp_path / "run"), "x"], tmp_path / "log", omp_threads="4")
    list(more.rows())
    said = (tmp_path / "log").read_text()
    assert "threads None" in said and "threads 4" in said


def test_a_run_that_is_there_is_continued_and_is_no_part_of_the_workers_ray(driver, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_JOB_ID", "1")
    monkeypatch.setenv("RAY_ADDRESS", "here")
    list(driver("").rows())
    (tmp_path / "run" / "config.yaml").write_text("{}")
    list(driver("").rows())
    assert (tmp_path / "log").read_text().splitlines() == [
        "given [] ray ['RAY_ADDRESS']", "given ['--resume'] ray ['RAY_ADDRESS']"
    ]  # fmt: skip


def test_a_checkpoint_is_waited_for_while_the_run_goes_on(driver, tmp_path):
    running = driver("time.sleep(0.5); (run / 'checkpoints' / 'step_000002').mkdir(parents=True)")
    list(running.rows(after=2))
    assert running.checkpoint(2) == tmp_path / "run" / "checkpoints" / "step_000002"
    with pytest.raises(RunFailed, match="ended without the checkpoint"):
        running.checkpoint(3)


def test_a_run_is_stopped(driver):
    running = driver("time.sleep(600)")
    rows = running.rows(after=1)
    next(rows)
    running.stop()
    with pytest.raises(RunFailed, match="killed by SIGTERM"):
        next(rows)


def test_a_run_ends_with_who_started_it(tmp_path: Path):
    waits = "print('pid', os.getpid(), flush=True); time.sleep(600)"
    (tmp_path / "driver.py").write_text(DRIVER.replace("{end}", waits))
    starter = (
        "import sys, time; from pathlib import Path; import sparring.sweeps.driving as d; here = Path(sys.argv[1]); d._ROOT = here;"
        "d.DriverProcess(here / 'run', [str(here / 'run'), 'x'], here / 'log'); time.sleep(600)"
    )
    command = [sys.executable, "-c", starter, str(tmp_path)]
    parent = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        log, end = tmp_path / "log", time.monotonic() + 60
        while "pid" not in (log.read_text() if log.exists() else "") and time.monotonic() < end:
            time.sleep(0.05)
        pid = int(log.read_text().rsplit("pid ", 1)[1])
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    end = time.monotonic() + 30
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
