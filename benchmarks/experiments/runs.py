"""Makes whole runs of driver.py for experiments that compare them, and opens their models."""

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
from sparring.evaluation.writing import PolicyWriter
from sparring.runtime.model import loaded, open_model

SHORT = ["--curriculum.stages", "1", "--n-discriminator-steps", "1", "--n-generator-steps", "1"]
SHORT += ["--k-alternating-steps", "1", "--curriculum.problems-per-step", "2", "--curriculum.attempts", "2"]
SHORT += ["--evaluation.problems", "8"]
"""Arguments of a run that only checks that everything works."""


def check_same(place: Path, arguments: Sequence[str]) -> None:
    """Ends the experiment if what is kept at a place was made with other arguments, which are kept beside it."""
    file = place.with_name(f"{place.name}.arguments.json")
    if not file.is_file() or not place.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(arguments))
    elif json.loads(file.read_text()) != list(arguments):
        raise SystemExit(f"{place} was made with other arguments ({file}): give another --output")


def finished_run(recipe: str, name: str, output: Path, arguments: Sequence[str] = ()) -> Path:
    """Returns the run's directory. A missing run is made, and an interrupted one is continued."""
    run = output / name
    check_same(run, [recipe, *arguments])
    if not (run / "training_results.json").is_file():
        print(f"running {name} ...", flush=True)
        command = [sys.executable, "driver.py", "--config", recipe, *arguments]
        command += ["--output-dir", str(output), "--run-name", name]
        resume = ["--resume"] if (run / "config.yaml").is_file() else []
        subprocess.run([*command, *resume], check=True)
    return run


def sparring_runs(seeds: Sequence[int], output: Path) -> list[Path]:
    """Returns the runs of the recipe `toy` that experiments/sparring.py compares with others. Missing runs are
    made."""
    return [finished_run("toy", f"adversarial-seed{n}", output, ["--seed", str(n)]) for n in seeds]


def in_one_process(recipe: str) -> list[str]:
    """Returns the arguments for one process, the transformers engine and one thread: such runs are bit-identical every
    time, and several can run in parallel."""
    policies = load_run(["--config", recipe])[0].to_config().policies
    keys = {"engine.kind": "transformers", "learner.threads": "1"}
    return ["--local", *(word for role in policies for k, v in keys.items() for word in (f"--{role}.{k}", v))]


def writer(
    directory: Path, role: str, config: Config, seed: int
) -> AbstractAsyncContextManager[PolicyWriter]:
    """Opens a policy of a run with this config, to generate with the transformers engine."""
    model, seat = open_model(str(directory), role), config.policy(role)
    return loaded(
        model, TransformersEngineSettings.like(seat.engine), "cpu", model.style(), seat.max_tokens, seed
    )


def results_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "training_results.json").read_text())


def held_out(run: Path) -> list[tuple[int, dict[str, float]]]:
    """Returns (step, scores) of each evaluation."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["held_out"]) for row in rows if "held_out" in row]
