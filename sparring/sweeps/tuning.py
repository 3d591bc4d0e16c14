"""Runs a sweep's trials by Ray Tune: each trial is driver.py in a separate process, whose scores are reported to Tune.

The runs' own files, and not Tune, record what is finished, what was stopped, and where to continue. To resume a sweep,
the rows of the finished trials are reported to Tune again, and the other trials continue.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining, TrialScheduler

from sparring.core.errors import RunFailed
from sparring.runtime.ray_start import join_ray, start_ray
from sparring.sweeps.driving import DriverProcess
from sparring.sweeps.runs import (
    RunFiles,
    forget_failure,
    generation,
    mark_failed,
    mark_stopped,
    newest_run,
    note_start,
    run_name,
    start_of,
    step_of,
    value_of,
)
from sparring.sweeps.spec import (
    Sweep,
    SweepError,
    Trial,
    arguments_of,
    load_sweep,
    read_written,
    recipe_of,
    write_recipe,
)
from sparring.tracking.rows import read_rows, write_json

_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # an interrupt ends the sweep at once: its runs can be resumed
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_raylet_start_wait_time_s": "120",  # a sweep may begin on a machine that is busy
}
_POINTER = "checkpoint.json"
_NO_END = 10**9
_KEPT_OF = 3
"""About one in so many trials goes on after a comparison; for asha."""


class DriverTrial(tune.Trainable):
    """One trial. config: {"trial": {"directory", "omp_threads", "name", "keys"}}. A member of a population may receive another
    member's config, including its name, so a trial uses the name that Tune has for it."""

    def setup(self, config: dict[str, Any]) -> None:
        asked = config["trial"]
        self._directory, self._keys = Path(asked["directory"]), asked["keys"]
        self._omp_threads = asked["omp_threads"]
        self._sweep = load_sweep(self._directory)
        self._trial = next(t for t in self._sweep.trials if t.name == self.trial_name)
        self._number = generation(self._directory, self._trial.name)
        self._from: Path | None = None
        self._driven: DriverProcess | None = None
        self._scores: Iterator[dict[str, Any]] | None = None
        self._last: dict[str, Any] = {}

    def step(self) -> dict[str, Any]:
        """Runs until the next score."""
        try:
            self._scores = self._scores or self._scored()
            found = next(self._scores, None)
            self._last = found or self._last
            if not self._last:
                raise RunFailed(f"no row of its metrics has {self._sweep.metric}: give another --metric")
        except Exception as error:
            mark_failed(self._run, str(error) or type(error).__name__)
            raise
        return self._last | {"done": found is None}

    @property
    def _run(self) -> Path:
        return self._directory / "runs" / run_name(self._trial.name, self._number)

    def _scored(self) -> Iterator[dict[str, Any]]:
        """Yields step and score of each evaluation: of those that the run has already, and of those that follow."""
        recipe = recipe_of(self._sweep, self._trial, self._keys)
        after, start = 0, None
        if self._from is not None:  # Tune gave a checkpoint to start from
            after = step_of(self._from)
            anothers = self._from.parent.parent != self._run
            if anothers or read_written(self._directory, self._run.name) != recipe:  # new keys
                self._number += 1
                start = self._from
        elif not (self._run / "config.yaml").is_file() and (start := start_of(self._run)):
            after = step_of(start)  # interrupted before it began
        forget_failure(self._run)
        rows = read_rows(self._run / "metrics.jsonl")
        if RunFiles(self._run).state == "unfinished":
            name = self._run.name
            file = write_recipe(self._directory, name, recipe)
            arguments = [
                "--config",
                str(file),
                *arguments_of(self._sweep, self._trial, self._directory, name),
            ]
            if start is not None:
                note_start(self._run, start)
                arguments += ["--resume-from", str(start)]
            log = self._directory / "logs" / f"{name}.log"
            self._driven = DriverProcess(
                self._run, arguments, log, self._sweep.begun_in, omp_threads=self._omp_threads
            )
            rows = self._driven.rows(after or -1)
        was_there = after > 0  # a trial that goes on had it
        for row in rows:
            value = value_of(row, self._sweep.metric)
            was_there |= value is not None  # an evaluation in which nothing could be judged lacks it
            scores = row.get("held_out", {})
            is_due = row["step"] and scores and not scores.get("unjudged") and "." not in self._sweep.metric
            if value is None and is_due and not was_there:
                raise RunFailed(f"has no {self._sweep.metric}; held-out scores: {', '.join(sorted(scores))}")
            if row["step"] > after and value is not None:
                yield {"step": row["step"], self._sweep.metric: value}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Writes a note with the path of the run's own checkpoint and with the score there."""
        step = self._last["step"]
        path = self._run / "checkpoints" / f"step_{step:06d}"
        if self._driven is not None:
            path = self._driven.checkpoint(step)
        write_json(Path(checkpoint_dir) / _POINTER, {"checkpoint": str(path), "last": self._last})

    def load_checkpoint(self, checkpoint: str) -> None:
        note = json.loads((Path(checkpoint) / _POINTER).read_text("utf-8"))
        self._from, self._last = Path(note["checkpoint"]), note["last"]

    def cleanup(self) -> None:
        if self._driven is not None:
            self._driven.stop()


class _Told(tune.Callback):
    """Prints a line for each score and each end, and records that a trial was stopped."""

    def __init__(self, sweep: Sweep, directory: Path) -> None:
        self._sweep, self._directory = sweep, directory
        self._named = {trial.name: trial.setting.name for trial in sweep.trials}

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any) -> None:
        if not result.get("done"):
            value = result[self._sweep.metric]
            self._say(trial, f"step {result['step']}: {self._sweep.metric} {value:.3f}")

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        run = newest_run(self._directory, str(trial))
        if RunFiles(run).state == "unfinished":
            mark_stopped(run, trial.last_result["step"], self._sweep.kind)
        self._say(trial, RunFiles(run).state)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        run = newest_run(self._directory, str(trial))
        error = RunFiles(run).error
        if not error:  # its actor died
            error = (str(trial.get_error()).strip().splitlines() or ["it told no reason"])[-1]
            mark_failed(run, error)
        self._say(trial, f"failed: {error}")

    def _say(self, trial: Any, text: str) -> None:
        print(f"{trial} ({self._named[str(trial)]}): {text}", flush=True)


def run_sweep(sweep: Sweep, directory: Path, parallel: int, gpus: float) -> None:
    """Runs every trial that is not finished. A trial that fails is marked with its error, and the others go on.

    Args:
        parallel: number of trials at once
        gpus: share of a GPU for each trial
    """
    directory = directory.resolve()
    os.environ.update(_QUIET)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # _Told reports a trial that fails, in one line
    omp_threads = os.environ.get("OMP_NUM_THREADS")
    if os.environ.get("RAY_ADDRESS"):
        if sweep.kind == "pbt" and parallel > 1:
            raise SweepError(
                "--parallel has no effect with pbt on a cluster, which runs as many members as it has CPUs"
            )
        join_ray()
    else:
        start_ray(num_cpus=parallel, include_dashboard=False)
    if gpus and gpus > (there := ray.cluster_resources().get("GPU", 0)):
        ray.shutdown()
        raise SweepError(f"--gpus {gpus:g}: Ray has {there:g} GPUs here")
    scratch = directory / ".tune"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        tune.Tuner(
            tune.with_resources(DriverTrial, {"cpu": 1.0, "gpu": gpus}),
            param_space=_space(sweep, directory, omp_threads),
            tune_config=tune.TuneConfig(
                scheduler=_scheduler(sweep),
                # a paused member counts as well: with a limit the rest of its population would never begin
                max_concurrent_trials=None if sweep.kind == "pbt" else parallel,
                trial_name_creator=lambda trial: trial.config["trial"]["name"],
                trial_dirname_creator=lambda trial: trial.config["trial"]["name"],
            ),
            run_config=tune.RunConfig(
                name=scratch.name,
                storage_path=str(directory),
                verbose=0,
                # the runs save checkpoints themselves
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                callbacks=[_Told(sweep, directory)],
            ),
        ).fit()
    finally:
        ray.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)


def _space(sweep: Sweep, directory: Path, omp_threads: str | None) -> dict[str, Any]:
    of_all = {"directory": str(directory), "omp_threads": omp_threads}
    trials = [of_all | {"name": trial.name, "keys": _keys(sweep, trial, directory)} for trial in sweep.trials]
    return {"trial": tune.grid_search(trials)}


def _keys(sweep: Sweep, trial: Trial, directory: Path) -> dict[str, Any]:
    """Returns the keys of a trial: those of its setting or, for a member of a population that continues, its latest
    ones."""
    if (number := generation(directory, trial.name)) == 0:
        return trial.setting.keys
    written = read_written(directory, run_name(trial.name, number))
    return {key: reduce(getitem, key.split("."), written) for key in trial.setting.keys}


def _scheduler(sweep: Sweep) -> TrialScheduler:
    common: dict[str, Any] = {"time_attr": "step", "metric": sweep.metric, "mode": sweep.mode}
    if sweep.kind == "asha":
        return ASHAScheduler(
            **common, max_t=_NO_END, grace_period=sweep.interval or 1, reduction_factor=_KEPT_OF
        )
    if sweep.kind == "pbt":
        keys = {key: _mutation(what) for key, what in sweep.mutations.items()}

        def within(config: dict[str, Any]) -> dict[str, Any]:
            """Returns the config with its keys within the user's ranges: Tune multiplies values by 0.8 and 1.2."""
            found = config["trial"]["keys"]
            for key, what in sweep.mutations.items():
                if isinstance(what, Mapping):
                    found[key] = min(max(found[key], what["low"]), what["high"])
            return config

        return PopulationBasedTraining(
            **common,
            perturbation_interval=sweep.interval or 1,
            hyperparam_mutations={"trial": {"keys": keys}},
            custom_explore_fn=within,
            log_config=False,
        )
    return FIFOScheduler()


def _mutation(what: Any) -> Any:
    """Converts an entry of Sweep.mutations to Tune's form."""
    if not isinstance(what, Mapping):
        return list(what)
    low, high = what["low"], what["high"]
    if isinstance(low, int) and isinstance(high, int):
        return (tune.lograndint if what["log"] else tune.randint)(low, high + 1)
    return (tune.loguniform if what["log"] else tune.uniform)(low, high)
