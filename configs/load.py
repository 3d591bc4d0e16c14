"""Reads a run's configuration: schema defaults, then a recipe's YAML, the environment, and the command line."""

import argparse
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from configs.environment import DATASET, HELP, leaves, nested, read_environment, refuse_twice, without_mbpp
from configs.schema import Config
from configs.sections import EMBEDDED
from core.errors import SparringError

RECIPES = Path(__file__).parent
DEFAULT_RECIPE, CHAT_RECIPE = "embedded", "chat"

# R0's flags are the short names of nested keys.
SHORTCUTS = {
    "generator.model": "generator-model",
    "discriminator.model": "discriminator-model",
    "curriculum.n-discriminator-steps": "n-discriminator-steps",
    "curriculum.n-generator-steps": "n-generator-steps",
    "curriculum.k-alternating-steps": "k-alternating-steps",
    "problems.file": "problems-file",
}

_FIRST_DAY = (
    "config", "plan", "resume", "resume_from", "output_dir", "run_name", "seed", "local", "device", "learning_rate",
    "generator.model", "discriminator.model", "problems.file", "curriculum.n_discriminator_steps",
    "curriculum.n_generator_steps", "curriculum.k_alternating_steps",
)  # fmt: skip
_OWN = ("generator.model", "discriminator.model", "problems.file")
"""Who brings one of these and names no recipe is given CHAT_RECIPE: the default one is for the embedded models."""


class ConfigError(SparringError):
    """What is wrong with a configuration, in lines a user can act on."""


class Run(Config):
    """What one command asks for: a configuration, and where to continue."""

    resume: bool = False
    """Continue the latest run of output_dir (or run_name) from its latest checkpoint."""
    resume_from: Path | None = None
    """Start from this checkpoint directory (output/<run>/checkpoints/step_000012)."""

    plan: bool = False
    """Print what would run (models, sandbox, devices, steps, memory, disk), or why it cannot, and start nothing."""

    @model_validator(mode="after")
    def _one_way_to_resume(self) -> Self:
        if self.resume and self.resume_from is not None:
            raise ValueError("--resume continues a run, --resume-from starts a new one: give one of them")
        return self

    def to_config(self) -> Config:
        return Config.model_validate(self.model_dump(exclude={"resume", "resume_from", "plan"}))


class _Source(PydanticBaseSettingsSource):
    """A recipe, or the environment, as a settings source below the command line."""

    def __init__(self, settings_cls: type[BaseSettings], values: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._values = values

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._values


def load_run(arguments: list[str]) -> tuple[Run, str]:
    """(run, recipe's name) from command line arguments and environment, which says what it set.

    Raises ConfigError; exits on --help.
    """
    try:
        environment = read_environment(os.environ)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    set_there = {key: value for values in environment.values() for key, value in values.items()}
    chooser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    chooser.error = _refuse
    chooser.add_argument("--config")
    chosen, rest = chooser.parse_known_args(arguments)
    for key in _OWN:
        chooser.add_argument(
            f"--{SHORTCUTS[key]}", f"--{key}", dest=key, default=set_there.get(key, EMBEDDED)
        )
    chooser.add_argument("--resume", action="store_true")
    output_dir = set_there.get("output_dir", Config().output_dir)
    chooser.add_argument("--output-dir", type=Path, default=Path(output_dir))
    chooser.add_argument("--run-name", default=set_there.get("run_name"))
    where, _ = chooser.parse_known_args(arguments)
    if chosen.config is None and where.resume:  # a resumed run goes on with the settings it began with
        path = latest_run(where.output_dir, where.run_name) / "config.yaml"
    else:
        own = any(str(getattr(where, key)) != EMBEDDED for key in _OWN)
        path = recipe_path(chosen.config or (CHAT_RECIPE if own else DEFAULT_RECIPE))
    recipe = path.parent.name if path.name == "config.yaml" else path.stem
    return _resolve(read_recipe(path), environment, rest, str(path)), recipe


def latest_run(output: Path, name: str | None) -> Path:
    """Directory of the named run, or of the one begun last. Raises ConfigError."""
    if name is not None:
        runs = [output / name / "config.yaml"]
    else:
        runs = sorted(output.glob("*/config.yaml"), key=lambda p: p.stat().st_mtime)
    if not runs or not runs[-1].is_file():
        raise ConfigError(f"--resume: no run at {output / (name or '*')}; start one without --resume")
    return runs[-1].parent.resolve()


def recipe_path(name: str) -> Path:
    """A path, or the name of a recipe in configs/. Raises ConfigError."""
    for candidate in (Path(name), RECIPES / f"{name}.yaml"):
        if candidate.is_file():
            return candidate
    known = ", ".join(sorted(p.stem for p in RECIPES.glob("*.yaml")))
    raise ConfigError(f"--config {name}: no such file, and no recipe of that name (recipes: {known})")


def read_recipe(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())  # a YAML error draws its place over several lines
        raise ConfigError(f"{path}: not readable as YAML: {reason}; correct it there") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of configuration keys")
    return values


def _resolve(
    values: dict[str, Any], environment: Mapping[str, Mapping[str, Any]], arguments: list[str], origin: str
) -> Run:
    sources: list[PydanticBaseSettingsSource] = []

    class Command(Run, BaseSettings):
        """Sparring: a generator and a discriminator train against each other through five reasoning stages.

        Settings come from the recipe (--config NAME|FILE.yaml; default: embedded, or chat where you bring a model or
        problems of your own) and are overridden by the environment (see the end) and the options below. Examples:
          python driver.py                                   the embedded recipe
          python driver.py --config debug                    one process, under a minute
          python driver.py --generator-model A --discriminator-model B --problems-file F
          python driver.py --plan ...                        what would run, and whether it can
          python driver.py --curriculum.attempts 16 --generator.learner.estimator grpo
          python driver.py --resume                          continue the latest run
        """

        config: str = Field(
            "embedded", description="Recipe: a name in configs/ or a YAML file.", exclude=True
        )
        model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
            cli_prog_name="driver.py",
            cli_kebab_case=True,
            cli_implicit_flags=True,
            cli_avoid_json=True,
            cli_hide_none_type=True,
            cli_use_class_docs_for_groups=False,
            cli_shortcuts=SHORTCUTS,
            frozen=True,
            extra="forbid",
            use_attribute_docstrings=True,
            protected_namespaces=(),
        )

        @classmethod
        def settings_customise_sources(cls, settings_cls: type[BaseSettings], **_: Any) -> Any:
            return tuple(sources)

    command_line = CliSettingsSource(Command)
    command_line.root_parser.usage = (
        "driver.py [--config RECIPE] [--resume | --resume-from DIR] [--KEY VALUE ...]"
    )
    command_line.root_parser.description = inspect.cleandoc(Command.__doc__ or "")
    command_line.root_parser.epilog = HELP
    command_line.root_parser.formatter_class = argparse.RawDescriptionHelpFormatter
    command_line.root_parser.error = _refuse  # argparse would print the usage and exit
    if {"-h", "--help"} & set(arguments):
        _first_things_first(command_line.root_parser, dict(leaves(values)), Path(origin).stem)
    variables: dict[str, str] = {}
    try:
        command_line(args=arguments)
        on_command_line = dict(leaves(command_line()))
        taken = without_mbpp(environment, {**dict(leaves(values)), **on_command_line})
        refuse_twice(taken)
        taken = _not_overridden(taken, set(on_command_line))
        variables = {key: name for name, keys in taken.items() for key in keys}
        from_environment = {key: value for keys in taken.values() for key, value in keys.items()}
        sources += [command_line, _Source(Command, nested(from_environment)), _Source(Command, values)]
        command = Command()  # pyright: ignore[reportCallIssue]  (the sources fill it in)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(origin, e, variables) for e in error.errors())) from error
    except (SettingsError, ValueError) as error:
        raise ConfigError(str(error)) from error
    idle = sorted(k for k in on_command_line if k.startswith("evaluation.") and k != "evaluation.enabled")
    if idle and not command.evaluation.enabled:
        raise ConfigError(
            f"command line: {idle[0]} has no effect while evaluation.enabled is false: leave it out"
        )
    for key, value in from_environment.items():
        print(f"from the environment: {key} = {value}", flush=True)
    return Run.model_validate(command.model_dump(exclude={"config"}))


def _not_overridden(
    environment: Mapping[str, Mapping[str, Any]], on_command_line: set[str]
) -> dict[str, dict[str, Any]]:
    taken = {}
    for name, values in environment.items():
        if name == DATASET and "problems.held_out_file" in on_command_line:
            continue  # its format goes with its file
        taken[name] = {key: value for key, value in values.items() if key not in on_command_line}
    return taken


def _first_things_first(parser: argparse.ArgumentParser, recipe: Mapping[str, Any], name: str) -> None:
    """In the help: the keys of a first day in a group at the top, and beside a default what the recipe says."""
    groups = parser._action_groups
    first = argparse._ArgumentGroup(parser, "the first day")
    for action in parser._actions:
        keys = {option.lstrip("-").replace("-", "_") for option in action.option_strings}
        for key in keys & recipe.keys():
            action.help = f"{action.help} (recipe {name}: {recipe[key]})"
        if keys & set(_FIRST_DAY):
            group = next(g for g in groups if action in g._group_actions)
            group._group_actions.remove(action)
            first._group_actions.append(action)
    groups.insert(0, first)


def _refuse(message: str) -> NoReturn:
    raise ConfigError(f"command line: {message}: see --help for the keys there are")


def _explain(origin: str, error: Any, variables: Mapping[str, str]) -> str:
    """variables: keys that the environment sets, with the variable."""
    place = [str(part) for part in error["loc"]]
    if place[:1] == ["game"] and len(place) > 2:
        del place[1]  # which of the games it is, no key
    key = ".".join(place)
    sets_it = next((name for k, name in variables.items() if f"{key}.".startswith(f"{k}.")), None)
    origin = sets_it or f"{origin} or command line"
    if error["type"] == "extra_forbidden":
        return f"{origin}: unknown key {key}: see --help for the keys there are"
    message = error["msg"].removeprefix("Value error, ")
    got = f" (got {error['input']!r})" if error["loc"] and not isinstance(error["input"], dict) else ""
    involved = sorted({name for k, name in variables.items() if k.startswith(key and f"{key}.") and k != key})
    also = (
        f" (the environment sets {', '.join(involved)})"
        if involved and isinstance(error["input"], dict)
        else ""
    )
    return f"{origin}: {key or '(combination)'}: {message}{got}{also}"
