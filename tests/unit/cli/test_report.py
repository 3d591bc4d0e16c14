"""sparring/cli/report as a command: what it writes where, what it refuses, and how it follows."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparring.cli.report import main
from sparring.games.programs.unit_tests import UnitTestsRules
from sparring.tracking.rows import append_row
from tests.recorded import record

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    record(tmp_path / "output" / "a", UnitTestsRules(), [])
    return tmp_path / "output" / "a"


def data_of(file: Path) -> dict[str, Any]:
    text = file.read_text()
    start = text.index('id="data">') + len('id="data">')
    return json.loads(text[start : text.index("</script>", start)])


def test_it_writes_beside_the_run_or_where_it_is_told(run: Path, capsys) -> None:
    main([str(run)])
    assert [r["name"] for r in data_of(run / "report.html")["runs"]] == ["a"]
    assert "report.html: 0 attempts" in capsys.readouterr().out
    record(run.parent / "b", UnitTestsRules(), [])
    both = run.parent.parent / "both.html"
    main(["a", "b", "--output-dir", str(run.parent), "--output", str(both)])
    assert [r["name"] for r in data_of(both)["runs"]] == ["a", "b"]
    assert not data_of(both)["live"]


def test_a_run_that_has_written_its_config_only(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    main([str(run)])
    assert data_of(run / "report.html")["runs"][0]["columns"] == {}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nothing"], "nothing: no run"),
        (["a", "a"], "given twice"),
        (["a", "--output", "no/such/place.html"], "place.html: its directory does not exist"),
        (["a", "--output", "."], "--output .: a directory; name a file"),
        (["a", "--follow", "--every", "0"], "--every: seconds above 0, not 0"),
        (["a", "--every", "3"], "--every: goes with --follow"),
    ],
)
def test_what_it_refuses(run: Path, refused, arguments: list[str], reason: str) -> None:
    assert reason in refused(main, *arguments, "--output-dir", run.parent)
    assert not (run / "report.html").exists()


def wait_for(found: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 180
    while not found():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)


def follow(run: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sparring", "report", str(run), "--follow", "--every", "0.1"]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def test_following_writes_again_until_the_run_is_over(run: Path) -> None:
    with follow(run) as process:
        try:
            wait_for((run / "report.html").is_file, process)
            assert data_of(run / "report.html")["live"]
            append_row(run / "metrics.jsonl", {"step": 2, "generator_reward": 1.0})
            wait_for(lambda: "2" in str(data_of(run / "report.html")["runs"][0]["columns"]["step"]), process)
            (run / "training_results.json").write_text("{}")
            assert process.wait(180) == 0
        finally:
            process.kill()
    data = data_of(run / "report.html")
    assert not data["live"] and data["runs"][0]["state"] == "finished"


def test_ctrl_c_leaves_a_page_that_waits_for_nothing(run: Path) -> None:
    with follow(run) as process:
        try:
            wait_for((run / "report.html").is_file, process)
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=180)
        finally:
            process.kill()
    assert process.returncode == 0 and "no longer following" in said and "Traceback" not in said
    assert not data_of(run / "report.html")["live"]
