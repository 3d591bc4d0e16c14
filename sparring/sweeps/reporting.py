"""Writes a report: all tables that the runs give, on the terminal and as report.md, report.json, runs.csv, tasks.csv,
plots."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from configs.schema import Config
from learners.checkpoints import base_of
from sparring.core.errors import SparringError
from sparring.core.play import GENERATOR
from sparring.problems.contamination import normalised
from sparring.runtime import plan
from sparring.runtime.problem_sets import load_splits
from sparring.sweeps import plots, reports
from sparring.sweeps.runs import RunFiles, read_runs, value_of
from sparring.sweeps.spec import DEFAULT_METRIC, Sweep, SweepError
from sparring.sweeps.tables import Table
from sparring.tracking.plots import save_figure
from sparring.tracking.rows import write_json, write_text
from sparring.tracking.run_record import versions
from sparring.tracking.runs import played

_PROGRAMS = 200
"""Number of training programs on which tokenizers are compared."""


def write_report(
    directories: Sequence[Path],
    to: Path | None = None,
    metric: str | None = None,
    mode: str | None = None,
    threshold: float | None = None,
) -> None:
    """Writes the report. Raises SweepError.

    Args:
        to: Default: the sweep's directory
        metric, mode: Default: those of the sweep
        threshold: value of the metric; the steps until it is reached are counted
    """
    runs, sweep = read_runs(directories)
    if sweep is None and to is None:  # a run has pictures of the same names
        raise SweepError("--to: give a directory for the report (only a sweep has one)")
    metric = metric or (sweep.metric if sweep else DEFAULT_METRIC)
    mode = mode or (sweep.mode if sweep else "max")
    groups = reports.by_setting(runs)
    counted = reports.counted(groups)
    _check(runs, metric)
    tables = tables_of(groups, metric, mode, threshold, sweep)
    for table in tables:
        table.show()
    to = to or directories[0]
    to.mkdir(parents=True, exist_ok=True)
    origin = {"command": sweep.command, "versions": sweep.versions} if sweep else {"versions": versions()}
    content = {**origin, "metric": metric, "tables": [table.plain() for table in tables]}
    write_json(to / "report.json", content)
    write_text(to / "report.md", _markdown(tables, origin))
    _write_csv(to / "runs.csv", (_run_row(run, metric) for run in runs))
    _write_csv(to / "tasks.csv", (row for run in runs for row in task_rows(run)))
    save_figure(plots.learning_curves(reports.curves(counted, metric), metric), to / "learning_curves.png")
    if after := reports.after(counted, metric):
        save_figure(plots.settings_beside(after, metric), to / "settings.png")
    print(f"\nreport: {to / 'report.md'}, with report.json, runs.csv, tasks.csv and pictures beside it")


def tables_of(
    groups: reports.Groups, metric: str, mode: str, threshold: float | None, sweep: Sweep | None
) -> list[Table]:
    counted = reports.counted(groups)
    amount = _amount_of(sweep)
    found = [
        reports.summary(groups, metric),
        population(counted, metric, sweep) if sweep is not None and sweep.kind == "pbt" else None,
        reports.impact(counted, metric),
        reports.spread(counted, metric),
        reports.series(counted, metric, amount),
        reports.convergence(counted, metric, threshold, mode),
        reports.entropy(counted),
        reports.same_tasks(counted),
        _tokenizers(counted),
        reports.zero_shot(counted),
        reports.transfer(counted, likeness),
        reports.completeness(groups),
        reports.syntax(counted, programs_of),
    ]
    return [table for table in found if table is not None]


def _amount_of(sweep: Sweep | None) -> Callable[[RunFiles], float | None]:
    """Returns the function that returns the number in which the settings of a series differ."""
    if sweep is None or sweep.kind != "model-size":
        return lambda run: run.amount
    roles = [key.removesuffix(".model") for key in sweep.settings[0].keys]
    return lambda run: parameters(run, roles[0])


def population(groups: reports.Groups, metric: str, sweep: Sweep) -> Table:
    """Returns a table for PBT: the keys that each member began with and those that it ended with, the best member
    first."""
    better = -1 if sweep.mode == "max" else 1
    rows = []
    for run in sorted(chain(*groups.values()), key=lambda run: better * (run.last(metric) or 0.0)):
        ended = " ".join(f"{key}={_at(run.config, key)}" for key in sweep.mutations)
        rows.append([run.directory.name.partition(".")[0], run.setting, ended, run.last(metric)])
    return Table(title="population", header=("member", "began with", "ended with", metric), rows=rows)


def _at(config: Mapping[str, Any], key: str) -> Any:
    """Returns the value of a key, such as "generator.learner.lora", or None."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _check(runs: Sequence[RunFiles], metric: str) -> None:
    """Raises SweepError if no run has the metric."""
    rows = [row for run in runs for row in run.rows]
    if rows and all(value_of(row, metric) is None for row in rows):
        known = sorted({name for row in rows for name in row.get("held_out", ())})
        raise SweepError(f"--metric {metric}: no run has it; held-out scores: {', '.join(known) or 'none'}")


def programs_of(run: RunFiles) -> list[str]:
    """Returns the generator's programs, in the order in which training played them."""
    return [
        row["artifact"]
        for row in played(run.directory)
        if row["player"] == "generator" and row.get("artifact")
    ]


def task_rows(run: RunFiles) -> Iterator[dict[str, Any]]:
    """Yields each problem's history over the steps: for training problems the share of attempts that solve it (nothing if
    the game runs no tests), for held-out problems the share of tests passed."""
    tried: dict[tuple[str, int], list[float]] = {}
    is_tested = False
    for row in played(run.directory):
        if row["player"] == "generator" and row["reward"] is not None:
            is_tested |= "solved" in row["components"]
            solved = row["components"].get("solved", 0.0)
            tried.setdefault((row["problem"], row["step"]), []).append(solved)
    origin = {"setting": run.setting, "replicate": run.replicate}
    for (problem, step), solved in sorted(tried.items()) if is_tested else ():
        value = sum(solved) / len(solved)
        yield origin | {"problem": problem, "split": "training", "step": step, "value": value}
    for problem, history in run.tasks().items():
        for step, value in history:
            yield origin | {"problem": problem, "split": "held out", "step": step, "value": value}


def parameters(run: RunFiles, role: str = GENERATOR) -> float | None:
    """Returns the number of parameters of a policy's model, or of the base model if it has an adapter; None if
    that is not known."""
    from huggingface_hub import snapshot_download

    if (folder := _policy(run, role)) is None:
        return None
    model = base_of(folder) or str(folder)
    if not Path(model).is_dir():  # a hub id: it is in the cache, since this machine has trained on it
        try:
            model = snapshot_download(model, local_files_only=True)
        except (OSError, ValueError):
            return None
    return float(plan.parameters(model)) or None


def likeness(run: RunFiles) -> dict[str, float]:
    """Returns how similar each held-out problem is to the nearest training problem: shared words, divided by all words
    of both descriptions."""
    try:
        train, held_out = load_splits(Config.model_validate(run.config))
    except SparringError:  # the files no longer exist: the other tables do not need them
        return {}
    except ValidationError as error:
        print(
            f"{run.directory}: left out of likeness and gain: its config is of another version ({error.error_count()} keys)"
        )
        return {}
    known = [set(normalised(problem.description).split()) for problem in train]
    return {
        problem.id: max(len(words & other) / max(1, len(words | other)) for other in known)
        for problem in held_out
        if known and (words := set(normalised(problem.description).split()))
    }


def _tokenizers(groups: reports.Groups) -> Table | None:
    """Returns a table if the settings' generators are different models, else None."""
    models = {setting: of[0] for setting, of in groups.items() if of}
    if len({repr(run.config.get("generator", {}).get("model")) for run in models.values()}) < 2:
        return None
    from transformers import AutoTokenizer

    folders = {setting: folder for setting, run in models.items() if (folder := _policy(run)) is not None}
    by_name: Mapping[str, Callable[[str], Sequence[str]]] = {
        setting: AutoTokenizer.from_pretrained(folder).tokenize for setting, folder in folders.items()
    }
    programs = [program for run in models.values() for program in programs_of(run)]
    return reports.tokenizers(list(dict.fromkeys(programs))[:_PROGRAMS], by_name)


def _policy(run: RunFiles, role: str = GENERATOR) -> Path | None:
    """Returns a policy in the newest checkpoint."""
    return max(run.directory.glob(f"checkpoints/step_*/{role}"), default=None)


def _run_row(run: RunFiles, metric: str) -> dict[str, Any]:
    held_out = next((row["held_out"] for row in reversed(run.rows) if "held_out" in row), {})
    row = {"setting": run.setting, "replicate": run.replicate, "state": run.state, "error": run.error}
    row |= {"directory": run.directory.name, "before": run.before(metric), "after": run.last(metric)}
    return row | {"step": run.rows[-1]["step"] if run.rows else None} | held_out


def _write_csv(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    found = list(rows)
    names = list(dict.fromkeys(name for row in found for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(found)
    write_text(path, text.getvalue())


def _markdown(tables: Sequence[Table], origin: Mapping[str, Any]) -> str:
    ran = f"`{origin['command']}`, " if "command" in origin else ""
    head = f"# Report\n\n{ran}commit {origin['versions'].get('git', 'unknown')}. Means with 95% intervals (Student's t).\n"
    return "\n".join([head, *(table.markdown() for table in tables)])
