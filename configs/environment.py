"""Reads settings from environment variables: SPARRING_<SECTION>__<KEY>, MBPP_DATASET_PATH, MBPP_EVAL_NUM_QUESTIONS and
WANDB_API_KEY.

Other variables that begin with SPARRING_ (SPARRING_LOGS, ...) have no "__" and are no settings; they are ignored here.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from configs.layers import leaves
from configs.schema import Config
from sparring.core.project_files import is_example
from sparring.tracking.settings import is_installed

PREFIX, DELIMITER = "SPARRING_", "__"
DATASET, QUESTIONS = "MBPP_DATASET_PATH", "MBPP_EVAL_NUM_QUESTIONS"
WANDB = "WANDB_API_KEY"
NOTES = {WANDB: f" ({WANDB} is set; --no-use-wandb turns it off)"}
"""Text that is printed after the settings that a variable makes."""
_FORMATS = ("problems.format", "problems.held_out.format")
_TRAINING, _HELD_OUT = "problems.file", "problems.held_out.file"
_SHARE = ("problems.held_out.kind", "problems.held_out.fraction")

HELP = f"""\
environment:
  {PREFIX}<SECTION>{DELIMITER}<KEY>  any key, such as {PREFIX}EVALUATION{DELIMITER}PROBLEMS=10 or
                            {PREFIX}PROBLEMS{DELIMITER}FILE=my.json (lists and mappings as JSON)
  {DATASET}         problems.held_out: {{file: ..., format: mbpp, split: test}}, and problems.file if
                            the recipe reads both from one MBPP file
  {QUESTIONS}   evaluation.problems
                            (these two have an effect only if problems.format or problems.held_out.format is mbpp;
                            {DATASET} also if game.kind is code_execution with problems other than toy problems)
  {WANDB}             tracking.to: [wandb], if neither tracking.to nor use_wandb is given
The command line has precedence over the environment, and the environment over the recipe. The run prints what it takes
from the environment.
"""


class _Keys(Config, BaseSettings):
    model_config = SettingsConfigDict(protected_namespaces=())


_KEYS = {key.replace(".", "_"): key for key, _ in leaves(Config().model_dump()) if "." in key}
"""Keys by what they would be with single underscores, which is no way to give them."""


def read_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Returns what each variable sets: {variable: {dotted key: value}}. Empty variables count as not set.

    Raises ValueError if a variable names no key, or does not hold JSON although its key needs that.
    """
    given = {name: value for name, value in environment.items() if value}
    source = EnvSettingsSource(_Keys, env_prefix=PREFIX, env_nested_delimiter=DELIMITER)
    found: dict[str, dict[str, Any]] = {}
    for name, value in sorted(given.items()):
        if not name.startswith(PREFIX):
            continue
        source.env_vars = {name.lower(): value}
        try:
            values = source()
        except SettingsError as error:
            raise ValueError(f"{name}: expected JSON, such as [1, 2] (got {value!r})") from error
        if values:
            found[name] = {key: None if v == "None" else v for key, v in leaves(values)}
        elif key := _KEYS.get(name.removeprefix(PREFIX).lower()):
            raise ValueError(f"{name}: no setting: write {PREFIX}{key.replace('.', DELIMITER).upper()}")
        elif DELIMITER in name:
            raise ValueError(
                f"{name}: no such section of the configuration: see --help for the keys there are"
            )
    if DATASET in given:
        found[DATASET] = {_HELD_OUT: given[DATASET], _FORMATS[1]: "mbpp", "problems.held_out.split": "test"}
    if WANDB in given:
        found[WANDB] = {"tracking.to": ["wandb"]}
    if QUESTIONS in given:
        found[QUESTIONS] = {"evaluation.problems": given[QUESTIONS]}
    return found


def effective(
    found: Mapping[str, Mapping[str, Any]], recipe: Mapping[str, Any], command_line: Mapping[str, Any]
) -> dict[str, tuple[str, Any]]:
    """Returns the settings that a run takes from the environment: {dotted key: (variable, value)}. Keys on the command
    line are left out. The two MBPP variables are also exported for other scripts, so they have an effect only if a
    run's problems are MBPP, or can be evaluated on MBPP; a message names the variables that are ignored.

    Raises ValueError if two variables set one key.
    """
    ours = {name: keys for name, keys in found.items() if name not in (DATASET, QUESTIONS, WANDB)}
    below = dict(recipe)
    for keys in ours.values():
        below |= keys
    settings = below | dict(command_line)
    if WANDB in found and (settings.keys() & {"tracking.to", "use_wandb"} or not _has_wandb()):
        found = {name: keys for name, keys in found.items() if name != WANDB}
    mbpp = "mbpp" in (settings.get(key) for key in _FORMATS)
    own = _TRAINING in settings and not is_example(str(settings[_TRAINING]))
    programs = settings.get("game.kind") == "code_execution" and own and DATASET in found
    if not mbpp and not programs:
        if others := [name for name in found if name in (DATASET, QUESTIONS)]:
            print(
                f"from the environment: {' and '.join(others)} left alone: neither {' nor '.join(_FORMATS)} is mbpp"
                + (
                    ", and the problems are toy problems"
                    if settings.get("game.kind") == "code_execution"
                    else ""
                ),
                flush=True,
            )
        found = {name: keys for name, keys in found.items() if name not in others}
    elif (
        DATASET in found
        and settings.get(_FORMATS[0]) == "mbpp"
        and below.get(_TRAINING) == below.get(_HELD_OUT)
    ):
        found = {**found, DATASET: {_TRAINING: found[DATASET][_HELD_OUT], **found[DATASET]}}
    taken: dict[str, tuple[str, Any]] = {}
    for name, keys in found.items():
        for key, value in keys.items():
            if key in taken:
                raise ValueError(f"{taken[key][0]} and {name} both set {key}: unset one of them")
            taken[key] = name, value
    # held-out problems of the command line come with its format, or are a share of the training problems
    others = {_HELD_OUT, *_SHARE} & command_line.keys()
    return {
        key: (name, value)
        for key, (name, value) in taken.items()
        if key not in command_line and not (name == DATASET and others and key != _TRAINING)
    }


def _has_wandb() -> bool:
    if is_installed("wandb"):
        return True
    print(f"from the environment: {WANDB} left alone: wandb is not installed (pip install wandb)", flush=True)
    return False
