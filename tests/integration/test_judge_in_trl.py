"""TRL's GRPOTrainer with the judge's service for a reward: a few steps of the toy generator."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.judge_service import service
from benchmarks.trl_runner import TRL_DIRECTORY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (TRL_DIRECTORY / "trl").is_dir(), reason="`make .bench` installs TRL"),
]
ROOT = Path(__file__).parents[2]
TRAINING = (ROOT / "docs" / "use_the_judge_elsewhere.md").read_text()


def test_the_page_s_training_runs(tmp_path: Path) -> None:
    """The program of docs/use_the_judge_elsewhere.md, as it stands there."""
    (program,) = (
        block for block in re.findall(r"```python\n(.*?)```", TRAINING, re.DOTALL) if "judge_reward" in block
    )
    with service("--slots", "2") as (url, _):
        script = tmp_path / "train.py"
        script.write_text(program.replace("http://127.0.0.1:8080", url))
        environment: dict[str, Any] = {
            "PYTHONPATH": f"{ROOT}:{TRL_DIRECTORY}",
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
        }
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            env=environment | {"HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    rewards = [
        float(reward) for reward in re.findall(r"'rewards/from_code/mean': '?([0-9.e-]+)", done.stdout)
    ]
    assert len(rewards) == 3, done.stdout[-4000:]
    assert all(0 < reward <= 1 for reward in rewards)
