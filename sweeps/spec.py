"""What a sweep is: settings of a run, each played with several seeds or folds, all written out before anything runs.

A sweep's directory:
    sweep.json                     this: settings, replicates, metric, the command, commit and versions
    configs/TRIAL.yaml             the recipe of one trial
    runs/TRIAL/                    its run, as driver.py leaves it; of PBT also TRIAL.g1, TRIAL.g2 …
    logs/TRIAL.log                 what it printed
"""

import itertools
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from configs.layers import leaves, nested, overlay
from configs.load import load_run, read_recipe, recipe_path
from configs.schema import Config
from core.errors import SparringError
from core.settings import Settings
from tracking.rows import write_json, write_text

Kind = Literal["grid", "random", "asha", "pbt", "ablate", "cross-validate", "data-size", "model-size"]
SPEC = "sweep.json"
DEFAULT_METRIC = "generator_pass_rate"
_OWN_KEYS = ("seed", "output_dir", "run_name", "resume", "resume_from", "plan")
"""Of a run, what the sweep itself decides."""


class SweepError(SparringError):
    """A sweep cannot start or go on; the message says why, and how to mend it."""


class Setting(Settings):
    """Keys that a trial has and the recipe has not; a row of the table."""

    name: str
    keys: dict[str, Any]
    amount: float | None = None
    """Where settings are a series: of what there is more or less (problems, a key's number)."""


class Replicate(Settings):
    """What a setting is repeated with: a seed, or a fold and a seed."""

    name: str
    seed: int
    keys: dict[str, Any] = {}


class Sweep(Settings):
    kind: Kind
    config: str
    """The recipe."""
    arguments: tuple[str, ...] = ()
    """Of driver.py, for every trial."""
    base: dict[str, Any] = {}
    """Keys of every trial."""
    settings: tuple[Setting, ...]
    replicates: tuple[Replicate, ...]
    metric: str = DEFAULT_METRIC
    """A held-out score, or a column of metrics.jsonl."""
    mode: Literal["max", "min"] = "max"
    interval: int | None = None
    """asha, pbt: steps between two looks at a trial."""
    keep: int = 3
    """asha: of so many trials that come to a look, about one goes on."""
    mutations: dict[str, Any] = {}
    """pbt: by key, what a member may change to: a list, or {"low", "high", "log"}."""
    command: str = ""
    begun_in: str = ""
    """The working directory, from which paths in recipe and arguments are meant."""
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
    """The setting's."""
    setting: Setting
    replicate: Replicate

    @property
    def name(self) -> str:
        return f"{self.number}-{self.replicate.name}"


def load_sweep(directory: Path) -> Sweep:
    """Raises SweepError."""
    file = directory / SPEC
    try:
        return Sweep.model_validate_json(file.read_text())
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
    """A --key option. Raises SweepError.

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
    """YAML takes 1e-4, without a point, for a word."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


def grid(keys: Mapping[str, Values | Range]) -> list[Setting]:
    """Every combination. Raises SweepError for a range."""
    for key, values in keys.items():
        if isinstance(values, Range):
            raise SweepError(f"--key {key}: a grid takes values, not a range: give some, or --samples")
    choices = itertools.product(*(values.choices for values in keys.values() if isinstance(values, Values)))
    return [setting_of(dict(zip(keys, combination, strict=True))) for combination in choices]


def draws(keys: Mapping[str, Values | Range], samples: int, seed: int) -> list[Setting]:
    """Distinct ones, as many as there are. The same for the same seed."""
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
    """The sweep's recipe with the trial's keys laid over it; a whole section takes the place of the recipe's. keys:
    instead of the setting's own."""
    recipe = read_recipe(*recipe_path(sweep.config))
    for layer in (sweep.base, trial.replicate.keys, trial.setting.keys if keys is None else keys):
        kept = {key: value for key, value in recipe.items() if not isinstance(layer.get(key), Mapping)}
        recipe = overlay(kept, nested(layer), Config)
    return recipe


def write_recipe(directory: Path, name: str, recipe: Mapping[str, Any]) -> Path:
    file = directory / "configs" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, yaml.safe_dump(dict(recipe), sort_keys=False))
    return file


def read_written(directory: Path, name: str) -> dict[str, Any]:
    """What write_recipe wrote; empty where it did not."""
    file = directory / "configs" / f"{name}.yaml"
    return yaml.safe_load(file.read_text()) if file.is_file() else {}


def arguments_of(sweep: Sweep, trial: Trial, recipe: Path, directory: Path, run: str) -> list[str]:
    """Of driver.py."""
    own = ["--seed", str(trial.replicate.seed), "--output-dir", str(directory / "runs"), "--run-name", run]
    return ["--config", str(recipe), *sweep.arguments, *own]


def base_config(config: str, arguments: Sequence[str], keys: Mapping[str, Any], directory: Path) -> Config:
    """That of a run without the sweep's settings. Raises ConfigError, SweepError."""
    options = [word for word in arguments if word.startswith("--")]  # the others are values
    if words := [word for word in options if word[2:].replace("-", "_").split("=")[0] in _OWN_KEYS]:
        raise SweepError(f"{words[0]}: that is the sweep's own: leave it out after --")
    recipe = overlay(read_recipe(*recipe_path(config)), nested(keys), Config)
    file = write_recipe(directory, "base", recipe)
    return load_run(["--config", str(file), *arguments])[0].to_config()


def config_of(sweep: Sweep, trial: Trial, directory: Path) -> Config:
    """Writes the trial's recipe, and reads it as driver.py will. Raises ConfigError for what that would refuse."""
    file = write_recipe(directory, trial.name, recipe_of(sweep, trial))
    return load_run(arguments_of(sweep, trial, file, directory, trial.name))[0].to_config()


def check(sweep: Sweep, directory: Path) -> None:
    """Each setting and each replicate, before anything runs. Raises ConfigError, SweepError."""
    first: dict[tuple[str, str], str] = {}
    for trial in sweep.trials:
        if trial.number and trial.replicate != sweep.replicates[0]:
            continue
        config = config_of(sweep, trial, directory)
        if not config.evaluation.enabled:
            raise SweepError("a sweep compares held-out scores: evaluation.enabled must be true")
        other = first.setdefault((content(config), trial.replicate.name), trial.setting.name)
        if other != trial.setting.name:
            raise SweepError(
                f"settings {other!r} and {trial.setting.name!r} come to the same run: the environment or the arguments "
                "after -- say otherwise, or both say what the recipe says"
            )


def without_idle(sweep: Sweep, directory: Path) -> tuple[Sweep, list[str]]:
    """(without the settings that are what the first one is, their names)."""
    trials = [trial for trial in sweep.trials if trial.replicate == sweep.replicates[0]]
    found = {trial.setting.name: content(config_of(sweep, trial, directory)) for trial in trials}
    base, *others = sweep.settings
    idle = [setting.name for setting in others if found[setting.name] == found[base.name]]
    kept = tuple(setting for setting in sweep.settings if setting.name not in idle)
    return sweep.model_copy(update={"settings": kept}), idle


def content(config: Config) -> str:
    """What decides a run, its seed among it."""
    return repr([(k, v) for k, v in leaves(config.model_dump(mode="json")) if k != "run_name"])
