"""`pip install .` in another directory: the command `sparring` plays, learns and writes, far from the clone."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.houses import ROOT, copy_house, run


@pytest.mark.slow  # a wheel is built, and a run in a process of its own
def test_the_installed_package_trains(tmp_path: Path) -> None:
    house, site = copy_house(tmp_path / "house"), tmp_path / "site"
    shutil.rmtree(house / "docker")
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, house)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", site, house], check=True, capture_output=True, text=True)
    shutil.rmtree(house)
    (tmp_path / "empty").mkdir()
    start = f"import sys; sys.path.insert(0, {str(site)!r}); from sparring.__main__ import main; main()"
    run(
        tmp_path / "empty", "-c", start, "train", "--config", "debug", "--run-name", "own", "--sandbox.backend", "process",
        "--n-discriminator-steps", 0, "--n-generator-steps", 0, "--k-alternating-steps", 1, "--no-evaluation.enabled",
    )  # fmt: skip
    assert (tmp_path / "empty/output/own/training_results.json").is_file()
