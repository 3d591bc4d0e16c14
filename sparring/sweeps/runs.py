"""Reads run directories: those of a sweep by setting and replicate, or any finished runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from configs.layers import leaves
from sparring.sweeps.spec import SPEC, Sweep, SweepError, load_sweep
from sparring.tracking.rows import read_json, read_rows, write_json
from sparring.tracking.run_record import CATEGORIES

State = Literal["finished", "stopped", "failed", "unfinished"]
_STOPPED, _FAILED, _RESULTS = "stopped.json", "failed.json", "training_results.json"
_STARTED_FROM = "started_from.txt"
_OF_THE_RUN = ("seed", "run_name", "output_dir")


@dataclass(frozen=True)
class RunFiles:
    """One run, as its files show it."""

    directory: Path
    setting: str = ""
    replicate: str = ""
    amount: float | None = None
    """See Setting.amount."""

    @property
    def state(self) -> State:
        if (self.directory / _RESULTS).is_file():
            return "finished"
        if (self.directory / _STOPPED).is_file():
            return "stopped"
        return "failed" if (self.directory / _FAILED).is_file() else "unfinished"

    @property
    def error(self) -> str:
        """Error of a run that failed."""
        return read_json(self.directory / _FAILED).get("error", "")

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of the run's metrics. If the run began from another run's checkpoint, the other run's rows up to there
        come first."""
        return self._with_those_before("metrics.jsonl")

    def _with_those_before(self, file: str) -> list[dict[str, Any]]:
        earlier: list[dict[str, Any]] = []
        if checkpoint := start_of(self.directory):
            began = RunFiles(checkpoint.parent.parent)._with_those_before(file)
            earlier = [row for row in began if row["step"] <= step_of(checkpoint)]
        return earlier + list(read_rows(self.directory / file))

    @cached_property
    def results(self) -> Mapping[str, Any]:
        """Results of the run; empty until it is finished."""
        return read_json(self.directory / _RESULTS)

    @cached_property
    def config(self) -> dict[str, Any]:
        file = self.directory / "config.yaml"
        return yaml.safe_load(file.read_text("utf-8")) if file.is_file() else {}

    def curve(self, metric: str) -> list[tuple[int, float]]:
        """Returns (step, value) for each step at which the metric was measured; step 0 is before the first training
        step."""
        points = ((row["step"], value_of(row, metric)) for row in self.rows)
        return [(step, value) for step, value in points if value is not None]

    def before(self, metric: str) -> float | None:
        curve = self.curve(metric)
        return curve[0][1] if curve and curve[0][0] == 0 else None

    def last(self, metric: str) -> float | None:
        curve = self.curve(metric)
        return curve[-1][1] if curve else None

    def tasks(self) -> dict[str, list[tuple[int, float]]]:
        """Returns (step, share of tests passed) of each evaluation, by held-out problem."""
        found: dict[str, list[tuple[int, float]]] = {}
        for row in self._with_those_before("task_history.jsonl"):
            for task, value in row["tasks"].items():
                found.setdefault(task, []).append((row["step"], value))
        return found

    @property
    def categories(self) -> Mapping[str, Any]:
        """{"held_out": {problem: tags}, "trained": tags}; empty if the run kept none."""
        return read_json(self.directory / CATEGORIES)


def value_of(row: Mapping[str, Any], metric: str) -> float | None:
    """Returns a held-out score, or else a column, such as generator_reward, or generator.entropy; None if the row has
    neither."""
    if metric in row.get("held_out", ()):
        return row["held_out"][metric]
    found: Any = row
    for part in metric.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) else None


def step_of(checkpoint: Path) -> int:
    """Returns the last step that a checkpoint contains; a link such as `best` is followed."""
    return int(checkpoint.resolve().name.removeprefix("step_"))


def note_start(run: Path, checkpoint: Path) -> None:
    """Records which checkpoint a run is to start from, in case it ends before it can record that itself."""
    run.mkdir(parents=True, exist_ok=True)
    (run / _STARTED_FROM).write_text(str(checkpoint), "utf-8")


def start_of(run: Path) -> Path | None:
    """Returns the checkpoint of another run that this run continues, or None. A run that took only the weights of a
    checkpoint counts its steps anew."""
    note = run / _STARTED_FROM
    checkpoint, *fresh = note.read_text("utf-8").splitlines() if note.is_file() else ("",)
    return Path(checkpoint) if checkpoint and not fresh else None


def mark_stopped(run: Path, step: int, by: str) -> None:
    write_json(run / _STOPPED, {"step": step, "by": by})


def mark_failed(run: Path, error: str) -> None:
    run.mkdir(parents=True, exist_ok=True)
    write_json(run / _FAILED, {"error": error})


def forget_failure(run: Path) -> None:
    """Removes the mark of a failure, so that the run can be tried again."""
    (run / _FAILED).unlink(missing_ok=True)


def generation(directory: Path, trial: str) -> int:
    """Returns how often a member of PBT began anew from a checkpoint, which is the number of its newest run."""
    numbers = [int(path.suffix[2:]) for path in (directory / "runs").glob(f"{trial}.g*") if path.is_dir()]
    return max(numbers, default=0)


def run_name(trial: str, number: int) -> str:
    return f"{trial}.g{number}" if number else trial


def newest_run(directory: Path, trial: str) -> Path:
    return directory / "runs" / run_name(trial, generation(directory, trial))


def runs_of(sweep: Sweep, directory: Path) -> list[RunFiles]:
    """Returns one entry for each trial, whether it has begun or not."""
    return [
        RunFiles(
            newest_run(directory, trial.name),
            trial.setting.name,
            trial.replicate.name,
            trial.setting.amount,
        )
        for trial in sweep.trials
    ]


def read_runs(directories: Sequence[Path]) -> tuple[list[RunFiles], Sweep | None]:
    """Reads the runs of a sweep's directory, or single runs. The settings of single runs are the keys in which their
    configs differ.

    Raises SweepError.
    """
    if len(directories) == 1 and (directories[0] / SPEC).is_file():
        sweep = load_sweep(directories[0])
        return runs_of(sweep, directories[0]), sweep
    for directory in directories:
        if (directory / SPEC).is_file():
            raise SweepError(f"{directory}: is a sweep; report one sweep at a time, or name runs in it")
        if not (directory / "config.yaml").is_file():
            raise SweepError(f"{directory}: neither a sweep (no {SPEC}) nor a run (no config.yaml)")
    found = [dict(leaves(RunFiles(d).config)) for d in directories]
    differ = [
        key
        for key in dict.fromkeys(key for config in found for key in config)
        if key not in _OF_THE_RUN and len({repr(config.get(key)) for config in found}) > 1
    ]
    return [
        RunFiles(
            directory,
            " ".join(f"{key}={config.get(key)}" for key in differ) or "run",
            f"seed{config['seed']}",
        )
        for directory, config in zip(directories, found, strict=True)
    ], None
