"""Runs several trainings that differ in some keys, by Ray Tune, and reports means with 95% intervals.

    python -m sparring sweep grid --config debug --key learning_rate=1e-4,3e-4 --seeds 3
    python -m sparring sweep random --key learning_rate=1e-5..1e-3:log --samples 8 --to output/rates
    python -m sparring sweep asha --key learning_rate=1e-5..1e-3:log --samples 16 --interval 2
    python -m sparring sweep pbt --key learning_rate=1e-5..1e-3:log --samples 4 --interval 4
    python -m sparring sweep ablate guards --config toy --seeds 3
    python -m sparring sweep ablate golf --config code_golf --seeds 3
    python -m sparring sweep cross-validate --folds 5
    python -m sparring sweep data-size --sizes 50,200,800 --seeds 3
    python -m sparring sweep model-size --models path/a,path/b --config chat
    python -m sparring sweep resume output/rates
    python -m sparring sweep report output/rates

The options after -- are options of driver.py, which every run gets: ... --seeds 3 -- --n-generator-steps 10
"""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs.load import DEFAULT_RECIPE, RECIPES, recipe_path
from configs.schema import Config
from sparring.core.commands import home_path, parser_of, plain_endings
from sparring.runtime.logs import quiet_logs
from sparring.sweeps.ablations import NAMES, ablation
from sparring.sweeps.problem_files import folds, keys_of, nested_parts, write_problems
from sparring.sweeps.reporting import write_report
from sparring.sweeps.runs import runs_of
from sparring.sweeps.spec import (
    DEFAULT_METRIC,
    SPEC,
    Range,
    Replicate,
    Setting,
    Sweep,
    SweepError,
    Values,
    base_config,
    check,
    comparable,
    draws,
    grid,
    load_sweep,
    parse_key,
)
from sparring.tracking.run_record import versions

BASELINE = "baseline"
_DRAWN = ("random", "asha", "pbt")
_ALONE = {"parallel": 1, "gpus": 0.0}
"""Defaults of the options that say how many trials run at once."""
_REPORT = "Prints tables, and writes report.md, report.json, runs.csv and pictures to --to, or to the sweep's directory."


def main(arguments: Sequence[str]) -> None:
    own, rest = list(arguments), []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    options = _options(own)
    with plain_endings():
        if options.kind == "report":
            write_report(options.runs, options.to, options.metric, options.mode, options.threshold)
        elif options.kind == "resume":
            carry_out(load_sweep(options.directory), options.directory, options)
        else:
            directory = options.to or Path("output") / f"sweep-{time.strftime('%Y%m%d-%H%M%S')}"
            carry_out(new_sweep(options, rest, directory), directory, options)


def carry_out(sweep: Sweep, directory: Path, options: argparse.Namespace) -> None:
    """Runs a sweep to its end and reports. Raises SparringError, or SystemExit if trials failed."""
    print(f"sweep: {directory}: {len(sweep.settings)} settings x {len(sweep.replicates)}", flush=True)
    _check_places(options)
    again = f"python -m sparring sweep resume {directory}"
    again += "".join(
        f" --{name} {value:g}"
        for name, value in (("parallel", options.parallel), ("gpus", options.gpus))
        if value != _ALONE[name]
    )
    try:
        from sparring.sweeps.tuning import (
            run_sweep,  # imports all of Ray: a second in which Ctrl-C may come, too
        )

        run_sweep(sweep, directory, options.parallel, options.gpus)
        write_report([directory])
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; continue with: {again}") from None
    if failed := [run for run in runs_of(sweep, directory) if run.state == "failed"]:
        raise SystemExit(f"{len(failed)} trials failed, see above; try them again: {again}")


def _check_places(options: argparse.Namespace) -> None:
    if options.parallel < 1:
        raise SweepError(f"--parallel {options.parallel}: expected 1 or more")
    if options.gpus < 0:
        raise SweepError(f"--gpus {options.gpus:g}: expected 0 or more")


# ---------------------------------------------------------------------- what is to be run
def new_sweep(options: argparse.Namespace, rest: Sequence[str], directory: Path) -> Sweep:
    """Returns a new sweep, which is checked and saved. Raises SparringError."""
    if (directory / SPEC).exists():
        raise SweepError(
            f"{directory}: holds a sweep already; continue it with: resume {directory}, or give another --to"
        )
    if options.seeds < 1:
        raise SweepError(f"--seeds {options.seeds}: expected 1 or more")
    if options.samples is not None and options.samples < 1:
        raise SweepError(f"--samples {options.samples}: expected 1 or more")
    _check_places(options)
    file, size = recipe_path(options.config)
    if file.parent != RECIPES:  # a trial has a working directory of its own
        options.config = f"{file.resolve()}:{size}" if size else str(file.resolve())
    base: dict[str, Any] = {}
    if options.local:
        config = base_config(options.config, rest, {})
        base["local"] = True
        for role in config.policies:
            base |= {f"{role}.engine.kind": "transformers", f"{role}.learner.threads": 1}
    if options.kind in ("asha", "pbt"):
        base["evaluation.every"] = options.interval
    if options.kind == "pbt":
        base["checkpoint.keep"] = 10**6  # a member may start from any checkpoint of another member
    config = base_config(options.config, rest, base)
    settings, replicates = _expanded(options, config, directory)
    keys = _keys(options)
    sweep = Sweep(
        kind=options.kind,
        config=options.config,
        arguments=tuple(rest),
        base=base,
        settings=tuple(settings),
        replicates=tuple(replicates),
        metric=options.metric,
        mode=options.mode,
        interval=getattr(options, "interval", None),
        mutations={k: v.plain() for k, v in keys.items()} if options.kind == "pbt" else {},
        command=shlex.join(["python", "-m", "sparring", "sweep", *sys.argv[1:]]),
        begun_in=os.getcwd(),
        versions=versions(),
    )
    if options.kind == "ablate":
        sweep, left_out = comparable(sweep, directory)
        for name, reason in left_out.items():
            print(f"{name}: left out: {reason}")
        if len(sweep.settings) == 1:
            others = ", ".join(name for name in NAMES if name not in options.names)
            raise SweepError(
                f"ablate {' '.join(options.names)}: recipe {options.config} (game {config.game.kind}) has none of these parts; "
                f"give another of {others}, or keys of your own: sweep grid --key"
            )
    check(sweep, directory)
    sweep.save(directory)
    return sweep


def _expanded(
    options: argparse.Namespace, config: Config, directory: Path
) -> tuple[list[Setting], list[Replicate]]:
    kind, seeds = options.kind, range(1, options.seeds + 1)
    replicates = [Replicate(name=f"seed{seed}", seed=seed) for seed in seeds]
    if kind in ("grid", *_DRAWN):
        keys = _keys(options)
        if kind == "grid":
            return grid(keys), replicates
        return draws(keys, options.samples, options.draw_seed), replicates
    if kind == "ablate":
        entries = {BASELINE: {}} | {
            k: dict(v) for name in options.names for k, v in ablation(name, config).items()
        }
        return [Setting(name=name, keys=keys) for name, keys in entries.items()], replicates
    if kind == "model-size":
        roles = options.roles or config.policies
        return [
            Setting(name=model, keys={f"{role}.model": model for role in roles})
            for model in options.models.split(",")
        ], replicates
    return _divided(options, config, directory, replicates)


def _keys(options: argparse.Namespace) -> dict[str, Values | Range]:
    """Returns the values of each --key. Raises SweepError."""
    keys: dict[str, Values | Range] = {}
    for text in getattr(options, "key", ()):
        key, values = parse_key(text)
        if key in keys:
            raise SweepError(
                f"--key {text}: {key} was given before; give all its values at once, separated by commas"
            )
        keys[key] = values
    return keys


def _divided(
    options: argparse.Namespace, config: Config, directory: Path, replicates: list[Replicate]
) -> tuple[list[Setting], list[Replicate]]:
    """Returns the settings and replicates of a series over the training problems: folds or sizes."""
    from sparring.runtime.problem_sets import load_splits

    if "problems" not in config.game.uses:
        raise SweepError(f"{options.kind}: game {config.game.kind} uses no problems that could be divided")
    train, held_out = load_splits(config)
    files = directory / "problems"
    kept = {key: getattr(config.problems, key) for key in ("failing_references", "too_long")}
    if options.kind == "data-size":
        try:
            sizes = [int(size) for size in options.sizes.split(",")]
        except ValueError:
            raise SweepError(f"--sizes {options.sizes}: expected whole numbers, such as 50,200") from None
        parts = nested_parts(train, sizes, options.draw_seed)
        aside = write_problems(files / "held_out.json", held_out)
        return [
            Setting(
                name=f"{size} problems",
                keys=keys_of(write_problems(files / f"train_{size}.json", part), aside, kept),
                amount=size,
            )
            for size, part in parts.items()
        ], replicates
    divided = []
    for number, (rest, part) in enumerate(folds(train, options.folds, options.draw_seed), start=1):
        training = write_problems(files / f"fold{number}_train.json", rest)
        aside = write_problems(files / f"fold{number}_held_out.json", part)
        keys = keys_of(training, aside, kept)
        divided += [
            Replicate(name=f"fold{number}-{replicate.name}", seed=replicate.seed, keys=keys)
            for replicate in replicates
        ]
    keys = _keys(options)
    return (grid(keys) if keys else [Setting(name=BASELINE, keys={})]), divided


# ---------------------------------------------------------------------- the command line
def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("sparring sweep", __doc__)
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="WHAT")
    run = argparse.ArgumentParser(add_help=False)
    run.add_argument(
        "--parallel",
        type=int,
        default=_ALONE["parallel"],
        help="number of trials that run at once. Default: %(default)s",
    )
    run.add_argument(
        "--gpus",
        type=float,
        default=_ALONE["gpus"],
        help="GPUs of each trial, or a share of one. Default: %(default)s, with which all trials see all GPUs",
    )
    common = argparse.ArgumentParser(add_help=False, parents=[run])
    common.add_argument(
        "--config", default=DEFAULT_RECIPE, help="recipe: a name or a YAML file. Default: %(default)s"
    )
    common.add_argument(
        "--seeds",
        type=int,
        default=1,
        help="number of seeds of each setting, counted from 1. Default: %(default)s",
    )
    common.set_defaults(samples=None)
    common.add_argument("--local", action="store_true", help="run each trial in one process, without Ray")
    common.add_argument(
        "--metric",
        default=DEFAULT_METRIC,
        help="a held-out score, or a column of the metrics. Default: %(default)s",
    )
    common.add_argument(
        "--mode", choices=("max", "min"), default="max", help="whether a larger or a smaller metric is better"
    )
    common.add_argument("--to", type=home_path, help="directory of the sweep. Default: output/sweep-TIME")
    common.add_argument(
        "--draw-seed",
        type=int,
        default=1,
        help="seed with which settings are drawn and problems are divided. Default: %(default)s",
    )

    _add_series(kinds, common)
    resume = kinds.add_parser("resume", help="continue a sweep that was interrupted", parents=[run])
    resume.add_argument("directory", type=home_path)
    of = kinds.add_parser("report", help="report on a sweep, or on several runs", description=_REPORT)
    of.add_argument("runs", nargs="+", type=home_path, help="a sweep's directory, or runs' directories")
    of.add_argument("--metric", help=f"metric. Default: the sweep's, else {DEFAULT_METRIC}")
    of.add_argument(
        "--mode",
        choices=("max", "min"),
        help="whether a larger or a smaller metric is better. Default: the sweep's, else max",
    )
    of.add_argument(
        "--threshold",
        type=float,
        help="value of the metric; the report says after how many steps each run reaches it",
    )
    of.add_argument("--to", type=home_path, help="directory of the report's files")
    return parser.parse_args(arguments)


def _add_series(kinds: Any, common: argparse.ArgumentParser) -> None:
    """Adds the parsers of the commands that run trials."""

    def kind(name: str, text: str) -> argparse.ArgumentParser:
        return kinds.add_parser(name, help=text, description=text, parents=[common])

    texts = {
        "grid": "every combination of the keys' values",
        "random": "settings drawn from values and ranges",
        "asha": "settings as in random; at growing intervals the worst are stopped (asynchronous successive halving)",
        "pbt": "population-based training: the worst quarter continues from checkpoints of the best, with changed keys",
    }
    for name, text in texts.items():
        of = kind(name, text)
        of.add_argument(
            "--key", action="append", required=True, help="KEY=V,V,... or KEY=LOW..HIGH[:log]; repeat"
        )
        if name in _DRAWN:
            of.add_argument(
                "--samples",
                type=int,
                default=8,
                help="number of settings; with pbt, of members. Default: %(default)s",
            )
        if name in ("asha", "pbt"):
            of.add_argument(
                "--interval", type=int, default=2, help="steps between two comparisons. Default: %(default)s"
            )
    of = kind("ablate", "the recipe, and the recipe with one part at a time turned off")
    of.add_argument("names", nargs="+", choices=NAMES, help="names of the parts that are turned off")
    of = kind("cross-validate", "folds of the training problems")
    of.add_argument("--folds", type=int, default=5, help="number of folds. Default: %(default)s")
    of.add_argument(
        "--key", action="append", default=[], help="KEY=V,V,...: also run every combination; repeat"
    )
    of = kind("data-size", "nested parts of the training problems")
    of.add_argument("--sizes", required=True, help="numbers of training problems, such as 50,200,800")
    of = kind("model-size", "several models")
    of.add_argument("--models", required=True, help="directories or hub ids, separated by commas")
    of.add_argument(
        "--roles",
        nargs="+",
        choices=("generator", "discriminator"),
        help="policies that get the model. Default: all that learn",
    )


if __name__ == "__main__":
    quiet_logs()
    main(sys.argv[1:])
