"""Every benchmark still runs: the whole set, as `make bench ARGS=--quick` does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.catalogue import BENCHMARKS
from benchmarks.report import ROOT, read

pytestmark = [pytest.mark.nightly, pytest.mark.vllm]
needs_them = pytest.mark.skipif(
    not (ROOT / ".bench" / ".installed").is_file(), reason="`make .bench` installs TRL and verl"
)
needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="only root can make network namespaces, by `ip`"
)


def needs(name: str) -> list[pytest.MarkDecorator]:
    if name.startswith(("trl_", "verl_")):
        return [needs_them]
    return [needs_namespaces] if name == "scale_far" else []


EXPERIMENTS = [
    name
    for name, found in BENCHMARKS.items()
    if found.module.startswith("experiments.") and name != "asynchrony_busy"  # that one's runs are on Ray
]
OTHERS = [
    pytest.param(name, marks=needs(name))
    for name in BENCHMARKS
    if name not in (*EXPERIMENTS, "serve")  # serve_mixed is the same, and more
]


@pytest.mark.parametrize("name", OTHERS)
def test_a_benchmark_runs_to_the_end(name: str, tmp_path: Path) -> None:
    runs_to_the_end(name, tmp_path)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_to_the_end(name: str, tmp_path: Path) -> None:
    runs_to_the_end(name, tmp_path)


def runs_to_the_end(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
    result = read(tmp_path / f"{name}.json")
    assert result["figures"] and "--quick" in result["command"]
    template = ROOT / "benchmarks" / "results" / f"{name}.md"
    if template.is_file() and result["figures"].get("backend") != "namespace":  # its table is of containers
        assert template.read_text().format_map(result)
