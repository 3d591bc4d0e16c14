"""What a sweep is: settings of a run, each played with several seeds or folds, all written out before anything runs.

A sweep's directory:
    sweep.json                     this: settings, replicates, metric, the command, commit and versions
    configs/TRIAL.yaml             the recipe of one trial
    runs/TRIAL/                    its run, as driver.py writes it; of PBT also TRIAL.g1, TRIAL.g2 …
    logs/TRIAL.log                 what driver.py printed
"""

import itertools
import math
import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from configs.environment import DATASET
from configs.layers import leaves, nested, overlay
from configs.load import ConfigError, MadeRecipe, load_run, read_recipe, recipe_path, with_keys
from configs.schema import Config
from sparring.core.errors import SparringError
from sparring.core.settings import Settings
from sparring.tracking.rows import write_json, write_text

Kind = Literal["grid", "random", "asha", "pbt", "ablate", "cross-validate", "data-size", "model-size"]
SPEC = "sweep.json"
DEFAULT_METRIC = "generator_pass_rate"
_OWN_KEYS = ("config", "seed", "output_dir", "run_name", "resume", "resume_from", "fresh", "plan", "plan_for")
"""Keys of a run that the sweep itself sets."""
_OF_PROBLEMS = ("--problems", "SPARRING_PROBLEMS")
"""Beginnings of arguments and environment variables that set keys of problems."""


class SweepError(SparringError):
    """A sweep cannot start or continue; the message says why, and what to do."""


class Setting(Settings):
    """Keys that a trial has in addition to the recipe; a row of the table."""

    name: str
    keys: dict[str, Any]
    amount: float | None = None
    """The number that the settings of a series differ in (number of problems, a key's number)."""


class Replicate(Settings):
    """A repetition of a setting: a seed, or a fold and a seed."""

    name: str
    seed: int
    keys: dict[str, Any] = {}


class Sweep(Settings):
    kind: Kind
    config: str
    """Name or path of the recipe."""
    arguments: tuple[str, ...] = ()
    """Arguments of driver.py for every trial."""
    base: dict[str, Any] = {}
    """Keys of every trial."""
    settings: tuple[Setting, ...]
    replicates: tuple[Replicate, ...]
    metric: str = DEFAULT_METRIC
    """A held-out score, or a column of metrics.jsonl."""
    mode: Literal["max", "min"] = "max"
    interval: int | None = None
    """Number of steps between two comparisons of a trial with others; for asha and pbt."""
    mutations: dict[str, Any] = {}
    """Values that a member may change each key to: a list, or {"low", "high", "log"}; for pbt."""
    command: str = ""
    begun_in: str = ""
    """Working directory that paths in the recipe and in the arguments are relative to."""
    versions: dict[str, str] = {}

    @property
    def trials(self) -> list["Trial"]:
        pairs = itertools.product(enumerate(self.settings), self.replicates)
        return [Trial(number, setting, replicate) for (number, setting), replicate in pairs]

    def save(self, directory: Path) -> None:
        for folder in ("configs", "runs", "logs"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        write_json(directory / SPEC, self.model_dump(mode="json"))


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: a setting with a replicate."""

    number: int
    """Number of the setting."""
    setting: Setting
    replicate: Replicate

    @property
    def name(self) -> str:
        return f"{self.number}-{self.replicate.name}"


def load_sweep(directory: Path) -> Sweep:
    """Reads a sweep from its directory. Raises SweepError."""
    file = directory / SPEC
    try:
        return Sweep.model_validate_json(file.read_text("utf-8"))
    except FileNotFoundError:
        raise SweepError(
            f"{directory}: no sweep: it has no {SPEC}; start one with --to {directory}"
        ) from None
    except (OSError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise SweepError(
            f"{file}: not a sweep's ({reason}); restore it, or start a sweep elsewhere"
        ) from error


# ---------------------------------------------------------------------- what the keys may be
@dataclass(frozen=True, slots=True)
class Values:
    choices: tuple[Any, ...]

    def draw(self, rng: random.Random) -> Any:
        return rng.choice(self.choices)

    def plain(self) -> Any:
        return list(self.choices)


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, rng: random.Random) -> float:
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = rng.uniform(self.low, self.high)
        if self.whole:
            return min(max(round(value), int(self.low)), int(self.high))
        return float(f"{value:.4g}")

    def plain(self) -> Any:
        return {"low": self.low, "high": self.high, "log": self.log}


def parse_key(text: str) -> tuple[str, Values | Range]:
    """Parses a --key option. Raises SweepError.

    Example: "curriculum.stages=[1,5],[5]", "learning_rate=1e-5..1e-3:log"
    """
    key, equals, said = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or not key or not said.strip():
        raise SweepError(f"--key {text}: give KEY=VALUE,VALUE,... or KEY=LOW..HIGH, or KEY=LOW..HIGH:log")
    if key in _OWN_KEYS:
        hint = "; give --seeds" if key == "seed" else ""
        raise SweepError(f"--key {text}: {key} is the sweep's own{hint}")
    if found := re.fullmatch(r"\s*([-+.\de]+?)\.\.([-+.\de]+?)(:log)?\s*", said):
        return key, _range(text, found[1], found[2], found[3] is not None)
    try:
        values = yaml.safe_load(f"[{said}]")
    except yaml.YAMLError:
        raise SweepError(f"--key {text}: its values cannot be read; separate them by commas") from None
    choices = tuple(_number(value) for value in values)
    if len({repr(choice) for choice in choices}) < len(choices):
        raise SweepError(f"--key {text}: gives a value twice; give each once")
    return key, Values(choices)


def _range(text: str, low: str, high: str, log: bool) -> Range:
    ends = [_number(end) for end in (low, high)]
    if not all(isinstance(end, int | float) for end in ends) or not ends[0] < ends[1]:
        raise SweepError(f"--key {text}: expected LOW..HIGH, two numbers, the lower first")
    if log and ends[0] <= 0:
        raise SweepError(f"--key {text}: a :log range lies above 0")
    return Range(ends[0], ends[1], log)


def _number(value: Any) -> Any:
    """Converts a text to a number if possible, since YAML reads 1e-4, without a point, as text."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


def grid(keys: Mapping[str, Values | Range]) -> list[Setting]:
    """Returns a setting for every combination of values. Raises SweepError for a range."""
    for key, values in keys.items():
        if isinstance(values, Range):
            raise SweepError(
                f"--key {key}: a grid takes values, not a range: give some, or draw them: sweep random"
            )
    choices = itertools.product(*(values.choices for values in keys.values() if isinstance(values, Values)))
    return [setting_of(dict(zip(keys, combination, strict=True))) for combination in choices]


def draws(keys: Mapping[str, Values | Range], samples: int, seed: int) -> list[Setting]:
    """Returns random settings, all distinct, as many as there are up to `samples`. The same seed gives the same
    settings."""
    rng, found = random.Random(seed), {}
    for _ in range(50 * samples):
        drawn = setting_of({key: values.draw(rng) for key, values in keys.items()})
        found.setdefault(drawn.name, drawn)
        if len(found) == samples:
            break
    return list(found.values())


def setting_of(keys: Mapping[str, Any]) -> Setting:
    name = " ".join(f"{key}={_said(value)}" for key, value in keys.items())
    (*_, value) = keys.values()
    single = len(keys) == 1 and isinstance(value, int | float) and not isinstance(value, bool)
    return Setting(name=name, keys=dict(keys), amount=float(value) if single else None)


def _said(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", "")


# ---------------------------------------------------------------------- from a trial to a run
def recipe_of(sweep: Sweep, trial: Trial, keys: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the sweep's recipe with the trial's keys merged over it. If a trial gives a whole section, that replaces
    the recipe's section. keys: replace the setting's own."""
    recipe = read_recipe(*recipe_path(sweep.config))
    for layer in (sweep.base, trial.replicate.keys, trial.setting.keys if keys is None else keys):
        kept = {key: value for key, value in recipe.items() if not isinstance(layer.get(key), Mapping)}
        recipe = with_keys(kept, nested(layer))
    return recipe


def write_recipe(directory: Path, name: str, recipe: Mapping[str, Any]) -> Path:
    file = directory / "configs" / f"{name}.yaml"
    write_text(file, yaml.safe_dump(dict(recipe), sort_keys=False))
    return file


def read_written(directory: Path, name: str) -> dict[str, Any]:
    """Returns what write_recipe wrote; empty if it wrote nothing."""
    file = directory / "configs" / f"{name}.yaml"
    return yaml.safe_load(file.read_text("utf-8")) if file.is_file() else {}


def arguments_of(sweep: Sweep, trial: Trial, directory: Path, run: str) -> list[str]:
    """Returns the arguments of driver.py for a trial, without its recipe."""
    own = ["--seed", str(trial.replicate.seed), "--output-dir", str(directory / "runs"), "--run-name", run]
    return [*sweep.arguments, *own]


def base_config(config: str, arguments: Sequence[str], keys: Mapping[str, Any]) -> Config:
    """Returns the config of a run without the sweep's settings. Raises ConfigError or SweepError."""
    options = [word for word in arguments if word.startswith("--")]  # the others are values
    if words := [word for word in options if word[2:].replace("-", "_").split("=")[0] in _OWN_KEYS]:
        raise SweepError(f"{words[0]}: that is the sweep's own: leave it out after --")
    file, size = recipe_path(config)
    values = overlay(read_recipe(file, size), nested(keys), Config)
    made = MadeRecipe(made_from=file, values=values, set_by={})
    return load_run([*arguments], made)[0].to_config()


def config_of(sweep: Sweep, trial: Trial, directory: Path) -> Config:
    """Returns the config of a trial as driver.py will read it. Raises ConfigError if driver.py would refuse it."""
    made = MadeRecipe(
        made_from=recipe_path(sweep.config)[0],
        values=recipe_of(sweep, trial),
        set_by={key: f"setting {trial.setting.name}" for key, _ in leaves(trial.setting.keys)},
    )
    return load_run(arguments_of(sweep, trial, directory, trial.name), made)[0].to_config()


def check(sweep: Sweep, directory: Path) -> None:
    """Checks each setting and each replicate, before anything runs. Raises ConfigError or SweepError."""
    divides = sweep.kind in ("cross-validate", "data-size")
    if divides:
        given = [*sweep.arguments, *(name for name, value in os.environ.items() if value)]
        others = [word for word in given if word.startswith(_OF_PROBLEMS)]
        if others:
            raise SweepError(
                f"{others[0]}: a sweep of kind {sweep.kind} divides the problems itself: put the keys of problems into a "
                "recipe file, and give that as --config"
            )
    first: dict[tuple[str, str], str] = {}
    for trial in sweep.trials:
        if trial.number and trial.replicate != sweep.replicates[0]:
            continue
        config = config_of(sweep, trial, directory)
        if divides and config.game.kind == "code_execution" and os.environ.get(DATASET):
            raise SweepError(
                f"{DATASET} would take the place of the problems that the sweep divides: unset it"
            )
        if not config.evaluation.enabled:
            raise SweepError("a sweep compares held-out scores: evaluation.enabled must be true")
        other = first.setdefault((content(config), trial.replicate.name), trial.setting.name)
        if other != trial.setting.name:
            raise SweepError(
                f"settings {other!r} and {trial.setting.name!r} come to the same run: the environment or the arguments "
                "after -- say otherwise, or both say what the recipe says"
            )


def comparable(sweep: Sweep, directory: Path) -> tuple[Sweep, dict[str, str]]:
    """Returns (the sweep with the settings that can run and differ from the first one, why each other is left out)."""
    base, *others = [trial for trial in sweep.trials if trial.replicate == sweep.replicates[0]]
    baseline, left_out = content(config_of(sweep, base, directory)), dict[str, str]()
    for trial in others:
        try:
            if content(config_of(sweep, trial, directory)) == baseline:
                left_out[trial.setting.name] = "it is what the recipe does"
        except ConfigError as error:
            reason = str(error).splitlines()[0].partition(": ")[2]
            left_out[trial.setting.name] = reason.removeprefix("(combination): ")
    kept = tuple(setting for setting in sweep.settings if setting.name not in left_out)
    return sweep.model_copy(update={"settings": kept}), left_out


def content(config: Config) -> str:
    """Returns all that determines a run, including its seed, as text."""
    return repr([(k, v) for k, v in leaves(config.model_dump(mode="json")) if k != "run_name"])
