"""Whole runs of driver.py, for experiments that compare them, and their models."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from actors.settings import TransformersEngineSettings
from configs.load import load_run
from configs.schema import Config
from evaluation.writing import PolicyWriter
from runtime.model import loaded, open_model

SHORT = ["--curriculum.stages", "1", "--n-discriminator-steps", "1", "--n-generator-steps", "1"]
SHORT += ["--k-alternating-steps", "1", "--curriculum.problems-per-step", "2", "--curriculum.attempts", "2"]
SHORT += ["--evaluation.problems", "8"]
"""Arguments of a run that is there to see that the rest still works."""


def finished_run(recipe: str, name: str, output: Path, arguments: Sequence[str] = ()) -> Path:
    """The run's directory. It is made where it is not there, continued where it was interrupted."""
    run = output / name
    if not (run / "training_results.json").is_file():
        print(f"running {name} ...", flush=True)
        command = [sys.executable, "driver.py", "--config", recipe, *arguments]
        command += ["--output-dir", str(output), "--run-name", name]
        resume = ["--resume"] if (run / "config.yaml").is_file() else []
        subprocess.run([*command, *resume], check=True)
    return run


def sparring_runs(seeds: Sequence[int], output: Path) -> list[Path]:
    """The runs of the recipe `embedded` that experiments/sparring.py compares with others; made where they are not there."""
    return [finished_run("embedded", f"adversarial-seed{n}", output, ["--seed", str(n)]) for n in seeds]


def in_one_process(recipe: str) -> list[str]:
    """Arguments for one process, the transformers engine, one thread: the same to the bit every time, and several runs
    fit beside each other."""
    policies = load_run(["--config", recipe])[0].to_config().policies
    keys = {"engine.kind": "transformers", "learner.threads": "1"}
    return ["--local", *(word for role in policies for k, v in keys.items() for word in (f"--{role}.{k}", v))]


def writer(
    directory: Path, role: str, config: Config, seed: int
) -> AbstractAsyncContextManager[PolicyWriter]:
    """A policy of a run with this config, to write with, on the transformers engine."""
    model, seat = open_model(str(directory), role), config.policy(role)
    return loaded(
        model, TransformersEngineSettings.like(seat.engine), "cpu", model.style(), seat.max_tokens, seed
    )


def results_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "training_results.json").read_text())


def held_out(run: Path) -> list[tuple[int, dict[str, float]]]:
    """(step, scores) of each evaluation."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["held_out"]) for row in rows if "held_out" in row]
