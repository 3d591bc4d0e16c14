"""Reads a run's configuration: schema defaults, then a recipe's YAML, the environment, and the command line."""

import argparse
import inspect
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn, Self

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from configs.command_line import CommandLine
from configs.environment import HELP, NOTES, effective, read_environment
from configs.layers import leaves, nested, other_kinds, overlay, place
from configs.options import similar
from configs.other_names import OPTIONS_OF_RECIPES, OTHER_NAMES
from configs.schema import Config
from learners.checkpoints import RUN_STATE
from learners.mirror import fetch
from sparring.core.errors import SparringError
from sparring.core.play import POLICIES
from sparring.core.project_files import is_example

RECIPES = Path(__file__).parent
DEFAULT_RECIPE, CHAT_RECIPE = "toy:edges", "chat"
_HELP = ("-h", "--help")

# Short names of nested keys on the command line.
SHORTCUTS = {
    "generator.model": ["generator-model", "model"],
    "discriminator.model": "discriminator-model",
    "curriculum.n-discriminator-steps": "n-discriminator-steps",
    "curriculum.n-generator-steps": "n-generator-steps",
    "curriculum.k-alternating-steps": "k-alternating-steps",
    "problems.file": "problems-file",
    "tracking.name": "wandb-name",
    "tracking.project": "wandb-project",
    "tracking.trace": "trace",
    "temperature": "generation-temp",
    "evaluation.every": "eval-steps",
    "evaluation.problems": "simple-eval-problems",
    "evaluation.samples": "repeat-eval-problems",
    "game.base-weight": "base-reward-weight",
    "game.perfect-weight": "perfect-reward-weight",
    "game.max-tests": "max-tests-per-problem",
    "generator.engine.max-model-len": "max-model-len",
}

_SHORT = {
    short.replace("-", "_"): key.replace("-", "_")
    for key, names in SHORTCUTS.items()
    for short in ([names] if isinstance(names, str) else names)
} | {"use_reasoning_format": "game.answer_format"}
_OTHERS = _SHORT | OTHER_NAMES

_FIRST_DAY = (
    "config", "plan", "plan_for", "resume", "resume_from", "fresh", "output_dir", "run_name", "seed", "local", "device", "learning_rate",
    "generator.model", "discriminator.model", "problems.file", "curriculum.n_discriminator_steps",
    "curriculum.n_generator_steps", "curriculum.k_alternating_steps",
)  # fmt: skip
_OWN = ("generator.model", "discriminator.model", "problems.file")
"""If the user sets one of these keys and names no recipe, the recipe is CHAT_RECIPE, because the default recipe is for
the project's toy models and toy problems."""


class _EachKeyOnce(yaml.SafeLoader):
    """Refuses a mapping that has a key twice: YAML forbids it, and PyYAML would drop the first value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        first = {key.value: key for key in reversed(keys)}
        for key in keys:
            if first[key.value] is not key:
                places = f"lines {first[key.value].start_mark.line + 1} and {key.start_mark.line + 1}"
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} is there twice, in {places}"
                )
        return super().construct_mapping(node, deep)


class ConfigError(SparringError):
    """A faulty configuration. The message consists of lines that a user can act on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeRecipe:
    """A recipe that a program made from another one."""

    made_from: Path
    """File of the other recipe; errors name it."""
    values: Mapping[str, Any]
    set_by: Mapping[str, str]
    """The source of each key that differs from the other recipe, by key; errors name it."""


class Run(Config):
    """One command of the user: a configuration, and what the run continues from."""

    resume: bool = False
    """Continue the latest run of output_dir (or run_name) from its latest checkpoint."""
    resume_from: Annotated[str, Field(pattern=r"^\w+://")] | Path | None = None
    """Start a new run from this checkpoint directory (output/<run>/checkpoints/step_000012), with its run's settings if
    no --config is given; or from a checkpoint in a mirror: s3://BUCKET/PREFIX/RUN for the newest,
    s3://BUCKET/PREFIX/RUN/step_000012."""

    fresh: bool = False
    """With --resume-from: take the checkpoint's weights only. Optimizers, critic, curriculum and counters start anew."""

    plan: bool = False
    """Print what would run (models, sandbox, devices, steps, memory, disk), or why it cannot, and start nothing."""
    plan_for: str | None = None
    """Make the plan for another machine: T4, 24GB (a GPU of that size), 8xH100, 2x8xH100 (two nodes of eight), or
    cpu-16GB (no GPU)."""

    use_wandb: bool = False
    """Add wandb to tracking.to. Default: true if WANDB_API_KEY is set and tracking.to is not given."""
    use_vllm: bool = False
    """Set engine.kind of the policies to vllm if the recipe has another kind."""
    use_reasoning_format: bool = False
    """Set game.answer_format to reasoning."""

    @model_validator(mode="before")
    @classmethod
    def _r4s_switches(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        meant: dict[str, Any] = {}
        if values.get("use_vllm") in (True, "true"):
            meant |= {f"{role}.engine.kind": "vllm" for role in POLICIES if role in values}
        if values.get("use_reasoning_format") in (True, "true"):
            meant["game.answer_format"] = "reasoning"
        return overlay(values, nested(meant), cls)

    @model_validator(mode="before")
    @classmethod
    def _wandb_is_used(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("use_wandb") not in (True, "true"):
            return values
        tracking = values.get("tracking", {})
        to = tracking.get("to", ()) if isinstance(tracking, Mapping) else None
        if not isinstance(to, list | tuple):
            return values  # validation refuses it
        return {**values, "tracking": {**tracking, "to": [*to, "wandb"]}}

    @model_validator(mode="after")
    def _one_way_to_resume(self) -> Self:
        if self.resume and self.resume_from is not None:
            raise ValueError("--resume continues a run, --resume-from starts a new one: give one of them")
        if self.fresh and self.resume_from is None:
            raise ValueError(
                "--fresh needs --resume-from, with the checkpoint whose weights the run starts from"
            )
        return self

    def to_config(self) -> Config:
        return Config.model_validate(
            self.model_dump(exclude=set(Run.model_fields) - set(Config.model_fields))
        )


class _Command(Run, BaseSettings):
    """Sparring: a generator and a discriminator train against each other through five reasoning stages.

    Settings come from the recipe (--config NAME|FILE.yaml; default: toy:edges, or chat if you give a model or
    problems of your own) and are overridden by the environment (see the end) and the options below. Examples:
      python driver.py                                   the recipe toy:edges
      python driver.py --config debug                    one process, under a minute
      python driver.py --config q:14b                    a variant of a recipe
      python driver.py --generator-model A --discriminator-model B --problems-file F
      python driver.py --plan ...                        what would run, and whether it can
      python driver.py --plan-for 24GB ...               the same for a machine that you do not have yet
      python driver.py --curriculum.attempts 16 --generator.learner.estimator.kind grpo
      python driver.py --resume                          continue the latest run
    """

    config: str | None = None
    """Recipe: a name in configs/ or a YAML file."""

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


def load_run(arguments: list[str], made: MadeRecipe | None = None) -> tuple[Run, str]:
    """Returns (run, recipe's name) from the command line and the environment, and prints what the environment sets.

    Args:
        made: takes the place of the recipe that the arguments name

    Raises ConfigError; exits on --help.
    """
    command_line = CommandLine(_Command)
    parser = command_line.root_parser
    parser.error = lambda message: _refuse(
        message + (_named_otherwise(message) or similar(parser, message))
    )  # argparse would print the usage and exit
    given = [_dashed(word) for word in arguments if word not in _HELP]
    try:
        environment = read_environment(os.environ)
        command_line(args=given)
        said = command_line()
    except (SettingsError, ValueError) as error:
        raise ConfigError(str(error)) from error
    path, size = (made.made_from, "") if made else _recipe(said, environment)
    said.pop("config", None)
    recipe = dict(made.values) if made else read_recipe(path, size)
    name = f"{path.stem}-{size}" if size else path.stem
    if path.name in ("config.yaml", RUN_STATE):  # of a run
        name = re.sub(r"-\d{8}-\d{6}$", "", path.parents[0 if path.name == "config.yaml" else 2].name)
    if len(given) < len(arguments):
        _print_help(command_line.root_parser, dict(leaves(recipe)), name)
    in_recipe, on_command_line = dict(leaves(recipe)), dict(leaves(said))
    try:
        variables = effective(environment, in_recipe, on_command_line)
        from_environment = {key: value for key, (_, value) in variables.items()}
        values = with_keys(with_keys(recipe, nested(from_environment)), said)
        run = Run.model_validate(values)
    except ValidationError as error:
        by_variable = {key: variable for key, (variable, _) in variables.items()}
        who = dict.fromkeys(in_recipe, str(path)) | dict(made.set_by if made else {}) | by_variable
        who |= dict.fromkeys(on_command_line, "command line")
        names = set(by_variable.values())
        faults = [_explain(e, who, str(path), names) for e in error.errors()]
        raise ConfigError("\n".join([*faults, *_recipes_meant(given, faults, path.stem)])) from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    for pattern, where in _idle(run).items():
        if idle := sorted(key for key in on_command_line if re.fullmatch(pattern, key)):
            raise ConfigError(f"command line: {idle[0]} has no effect {where}: leave it out")
    kept = dict(leaves(values))
    for key, (variable, value) in variables.items():
        if key in kept:
            print(f"from the environment: {key} = {value}{NOTES.get(variable, '')}", flush=True)
    return run, name


def _idle(run: Run) -> dict[str, str]:
    """Returns the keys that have no effect with these settings, as {pattern: reason}. A recipe may hold such keys, for
    users who change those settings."""
    idle = {}
    if not run.evaluation.enabled:
        idle[r"evaluation\.(?!enabled$).*"] = "while evaluation.enabled is false"
    if run.local:
        alone = r"rollout\.(actors|[cg]pus)|sandbox\.workers|\w+\.learner\.([cg]pus|min_workers)"
        idle[alone] = "with local, because everything runs in one process"
    return idle


def _dashed(word: str) -> str:
    """Replaces the underscores in an option's name by dashes; both spellings are accepted."""
    option, equals, value = word.partition("=")
    return option.replace("_", "-") + equals + value if option.startswith("--") else word


def _recipe(said: dict[str, Any], environment: Mapping[str, Mapping[str, Any]]) -> tuple[Path, str]:
    """Returns (file, size) of the recipe to use. A resumed run takes the settings that it began with, and a run that
    starts from a checkpoint those of the checkpoint's run; a checkpoint in a mirror is fetched. Raises SparringError."""
    given = {key: value for values in environment.values() for key, value in values.items()}
    given |= dict(leaves(said))
    output = Path(given.get("output_dir", Config.model_fields["output_dir"].default)).expanduser()
    if "config" not in said and given.get("resume") in (True, "true"):
        return latest_run(output, given.get("run_name")) / "config.yaml", ""
    if "config" not in said and (start := given.get("resume_from")) is not None:
        if "://" in str(start):
            start = said["resume_from"] = str(fetch(str(start), output.resolve() / "fetched"))
        if (state := Path(start).resolve() / RUN_STATE).is_file():
            return state, ""
    own = any(key in given and not is_example(str(given[key])) for key in _OWN)
    return recipe_path(said.get("config") or (CHAT_RECIPE if own else DEFAULT_RECIPE))


def with_keys(recipe: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a recipe with further keys, which override its own. If it holds out toy problems, and the keys give another
    file to train on, other problems are held out as well: the toy problems beside that file, or else a part of it."""
    aside, train = (
        dict(leaves(of)).get(f"problems.{key}") for of, key in ((recipe, "held_out.file"), (keys, "file"))
    )
    if aside and train and is_example(str(aside)) and Path(str(train)).parent != Path(str(aside)).parent:
        beside = {"file": str(Path(str(train)).with_name("held_out.json"))} if is_example(str(train)) else {}
        recipe = {**recipe, "problems": {**recipe["problems"], "held_out": beside}}
    return overlay(recipe, keys, Run)


def latest_run(output: Path, name: str | None) -> Path:
    """Returns the directory of the named run, or of the run that was started last. Raises ConfigError."""
    if name is not None:
        runs = [output / name / "config.yaml"]
    else:
        runs = sorted(output.glob("*/config.yaml"), key=lambda p: p.stat().st_mtime)
    if not runs or not runs[-1].is_file():
        raise ConfigError(f"--resume: no run at {output / (name or '*')}; start one without --resume")
    return runs[-1].parent.resolve()


def recipe_path(name: str, directory: Path = Path()) -> tuple[Path, str]:
    """Returns (file, size) for a path, relative to the directory, or for the name of a recipe in configs/; NAME:SIZE names one
    of its sizes. Raises ConfigError."""
    base, _, size = (name, "", "") if (directory / name).is_file() else name.partition(":")
    for candidate in (directory / base, RECIPES / f"{base}.yaml"):
        if candidate.is_file():
            return candidate, size
    known = ", ".join(sorted(p.stem for p in RECIPES.glob("*.yaml")))
    raise ConfigError(f"--config {name}: no such file, and no recipe of that name (recipes: {known})")


def read_recipe(path: Path, size: str = "", above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Returns a recipe's keys. They override the keys of its `base`, another recipe, and are overridden by the keys of
    the given size. above: the recipes that are built on this one. Raises ConfigError."""
    try:
        if path.name == RUN_STATE:  # of a checkpoint
            return {
                key: value
                for key, value in json.loads(path.read_text("utf-8"))["config"].items()
                if key != "run_name"
            }
        values = yaml.load(path.read_text("utf-8"), _EachKeyOnce)
    except (OSError, ValueError, KeyError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())  # a YAML error draws its place over several lines
        raise ConfigError(f"{path}: not readable as YAML: {reason}; correct it there") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of configuration keys")
    if (base := values.pop("base", None)) is not None:
        try:
            below, its_size = recipe_path(str(base), path.parent)
        except ConfigError as error:
            raise ConfigError(f"{path}: base {base}: {str(error).partition(': ')[2]}") from None
        if below.resolve() in (path.resolve(), *above):
            raise ConfigError(
                f"{path}: base {base}: that recipe is itself built on this one; name another base"
            )
        values = with_keys(read_recipe(below, its_size, (path.resolve(), *above)), values)
    sizes = values.pop("sizes", None) or {}
    if not isinstance(sizes, dict):
        raise ConfigError(f"{path}: sizes: expected a mapping of names to configuration keys (got {sizes!r})")
    sizes = {str(name): keys for name, keys in sizes.items()}
    for name, keys in sizes.items():
        if not isinstance(keys, dict):
            raise ConfigError(
                f"{path}: sizes.{name}: expected a mapping of configuration keys (got {keys!r})"
            )
    if size and size not in sizes:
        there = f"give one of {', '.join(sizes)}" if sizes else "it has none"
        raise ConfigError(f"{path}: has no size {size}: {there}")
    return with_keys(values, sizes[size]) if size else values


def _print_help(parser: argparse.ArgumentParser, recipe: Mapping[str, Any], name: str) -> NoReturn:
    """Prints the help and exits. The keys that a new user needs are in a group at the top, and the recipe's value
    stands beside each default."""
    parser.usage = "driver.py [--config RECIPE] [--resume | --resume-from DIR] [--KEY VALUE ...]"
    parser.description = inspect.cleandoc(_Command.__doc__ or "")
    parser.epilog = HELP
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    kinds = {key: str(kind) for key, kind in leaves(Config().model_dump()) if key.endswith(".kind")}
    groups = parser._action_groups
    first = argparse._ArgumentGroup(parser, "the first day")
    for action in parser._actions:
        if action.help:  # pydantic-settings' word for a key of one kind
            action.help = action.help.replace(
                "(ifdef: required)", "(required if its section is of this kind)"
            )
        keys = {option.lstrip("-").replace("-", "_") for option in action.option_strings}
        for key in keys & kinds.keys():  # the parser shows the default of the union's last member
            action.help = re.sub(r"default: \w+", f"default: {kinds[key]}", str(action.help))
        for key in keys & recipe.keys():
            action.help = f"{action.help} (recipe {name}: {recipe[key]})"
        if keys & set(_FIRST_DAY):
            group = next(g for g in groups if action in g._group_actions)
            group._group_actions.remove(action)
            first._group_actions.append(action)
    groups.insert(0, first)
    parser.print_help()
    raise SystemExit(0)


def _here(key: str, value: Any) -> str:
    """Returns a text that names our key for another trainer's key, or for each key under it; empty if none is known."""
    theirs = [f"{key}.{name}" for name in value] if isinstance(value, Mapping) else [key]
    return "".join(f"{name} is {_OTHERS[name]} here; " for name in theirs if name in _OTHERS)


def _named_otherwise(message: str) -> str:
    """Returns what the unknown options in argparse's message are called here, or ""."""
    unknown = [word.partition("=")[0] for word in message.split() if word.startswith("--")]
    names = {word: OTHER_NAMES.get(word[2:].replace("-", "_")) for word in unknown}
    return "".join(f"; {word} is --{key.replace('_', '-')} here" for word, key in names.items() if key)


def _recipes_meant(given: Sequence[str], faults: Sequence[str], recipe: str) -> list[str]:
    """Returns a line for each recipe whose options were given to another recipe, which refuses them."""
    meant: dict[str, list[str]] = {}
    for option in (word.partition("=")[0] for word in given):
        other = OPTIONS_OF_RECIPES.get(option.removeprefix("--"))
        key = _SHORT.get(option.removeprefix("--").replace("-", "_"), "").removesuffix(".model")
        if other and other != recipe and any(key in fault for fault in faults):
            meant.setdefault(other, []).append(option)
    return [
        f"command line: {', '.join(options)}: of the recipe {other} (give --config {other}), and this is {recipe}"
        for other, options in meant.items()
    ]


def _refuse(message: str) -> NoReturn:
    raise ConfigError(f"command line: {message}: see --help for the keys there are")


def _explain(error: Any, who: Mapping[str, str], recipe: str, variables: Collection[str]) -> str:
    """Explains a validation error in one line. who: the source that set each key; variables: the sources that are
    environment variables."""
    key, _ = place(error["loc"], Run)
    unknown = error["type"] == "extra_forbidden"
    said_it = [
        name
        for k, name in who.items()
        if f"{key}.".startswith(f"{k}.") or (unknown and k.startswith(f"{key}."))
    ]
    origin = said_it[-1] if said_it else f"{recipe} or command line"
    if unknown:
        path, section = place(error["loc"][:-1], Run)
        if section is None or "kind" not in section.model_fields:
            here = _here(key, error["input"]) or other_kinds(error["loc"], Run)
            near = get_close_matches(
                key.replace("-", "_"), dict(leaves(Config().model_dump())), n=1, cutoff=0.8
            )
            meant = f"did you mean {near[0]}? " if near and not here else ""
            return f"{origin}: unknown key {key}: {here}{meant}see --help for the keys there are"
        beside = [  # these keys may name, or imply, the kind
            f"; {name} sets {k}"
            for k, name in who.items()
            if k.startswith(f"{path}.")
            and name != origin
            and k.removeprefix(f"{path}.") in section.model_fields
        ]
        keys = ", ".join(name for name in section.model_fields if name != "kind")
        takes = f"kind {error['loc'][-2]} {f'takes {keys}' if keys else 'has no further keys'}"
        return f"{origin}: unknown key {key}: {takes}{''.join(beside)}"
    message = error["msg"].removeprefix("Value error, ")
    if isinstance(error["input"], dict):
        below = {name for k, name in who.items() if k.startswith(f"{key}." if key else "")}
        also = sorted(below.intersection(variables))
        also = f" (the environment sets {', '.join(also)})" if also else ""
        return f"{origin}: {key or '(combination)'}: {message}{also}"
    got = f" (got {error['input']!r})" if error["loc"] else ""
    return f"{origin}: {key or '(combination)'}: {message}{got}"
