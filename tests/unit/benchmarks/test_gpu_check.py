"""The parts of a check on a GPU: each ends by its limit, and none can stop the others."""

import argparse
import json
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu_check import CheckPart, parts, steps_of, tried


def part(program: str, limit_s: int = 60, *needs: str) -> CheckPart:
    return CheckPart("part", [sys.executable, "-c", program], limit_s, needs)


def outcome(of: CheckPart, place: Path, within_s: float = 60) -> dict:
    return tried(of, time.monotonic() + within_s, place)


def test_a_part_that_passes_brings_its_figures(tmp_path: Path) -> None:
    writes = f"open({str(tmp_path / 'part.json')!r}, 'w').write('[1]')"
    found = outcome(part(f"{writes}; print('memory of the GPU: 5.4 of 9')"), tmp_path)
    assert (found["ended"], found["figures"], found["planned_gb"]) == ("passed", [1], 5.4)


def test_a_part_that_fails_says_why(tmp_path: Path) -> None:
    found = outcome(part("raise SystemExit('no driver')"), tmp_path)
    assert found["ended"] == "failed with code 1" and "no driver" in found["tail"]


def test_a_part_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    found = outcome(part(f"{child}; print('begun', flush=True); time.sleep(600)", 3), tmp_path)
    assert found["ended"] == "not done in 3 s" and "begun" in found["tail"]
    left = psutil.Process().children(recursive=True)
    assert not [p for p in left if "time.sleep(600)" in " ".join(p.cmdline())]


@pytest.mark.parametrize(
    ("what", "within_s", "said"),
    [(part("", 60, "no_such_module"), 60, "no no_such_module"), (part(""), -1, "no time left")],
)
def test_what_cannot_be_tried_is_named(what: CheckPart, within_s: float, said: str, tmp_path: Path) -> None:
    assert outcome(what, tmp_path, within_s) == {"ended": f"skipped: {said}"}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_part_has_a_name_and_a_limit_of_its_own(device: str, tmp_path: Path) -> None:
    options = argparse.Namespace(device=device, model="m", peak_tflops=989.0)
    found = list(parts(options, tmp_path))
    assert len({part.name for part in found}) == len(found) > 4
    assert all(part.limit_s <= 200 for part in found)


def test_the_steps_of_a_run_that_did_not_begin_are_none(tmp_path: Path) -> None:
    assert steps_of(tmp_path) == []
    row = {"seconds": {"total": 2.0}, "tokens_per_s": 7.0, "generator": {"samples": 4}}
    row["weights"] = {"generator": {"version": 1, "probe_difference": 0.1}}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ({"step": 0}, row)))
    [step] = steps_of(tmp_path)
    assert step["weights"] == row["weights"] and step["generator"]["samples"] == 4
    assert "discriminator" not in step
