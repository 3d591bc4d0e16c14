"""A copy of the project, to be changed as a user would."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("actors", "configs", "lab", "learners", "sandbox_workers", "sparring", "docker")


def copy_house(house: Path) -> Path:
    for room in ROOMS:
        shutil.copytree(ROOT / room, house / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "driver.py", house)
    return house


def run(house: Path, *arguments: object) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=house,
        env=environment
        | {"XDG_CACHE_HOME": str(house / "cache"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
