"""Writes the toy problems and toy models in sparring/examples.

    python -m lab.examples                    the problems and models of all examples, in half an hour on two cores
    python -m lab.examples edges rps          those of two examples
    python -m lab.examples --problems         the problems only, in seconds

Each directory gets train.json and held_out.json, a directory for each policy's model, and made_from.json. On the same kind
of machine the weights are the same to the bit.
"""

import argparse
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, ModelCardData

from configs.load import load_run
from configs.schema import Config
from lab.grid_tasks import grid_problems
from lab.lua import lua_problems
from lab.prediction import prediction_problems
from lab.problems import Split, toy_problems
from lab.settings import WarmUp
from lab.teaching import ensure_models, identity
from sparring.core.problem import Problem
from sparring.core.project_files import EXAMPLES
from sparring.problems import loader
from sparring.tracking.model_card import TOY, describe_toy
from sparring.tracking.run_record import cpu_model, versions

SPLITS: tuple[Split, ...] = ("train", "held_out")


@dataclass(frozen=True, kw_only=True)
class Example:
    """One directory of sparring/examples."""

    recipe: str
    """The recipe that trains the models."""
    warm_up: WarmUp
    problems: Callable[[Split], list[Problem]] | None = None
    """Returns the problems of a split; None if the recipe plays those of another example, or a game that makes its own."""
    example: str = ""
    """A problem that the models can solve after training."""
    function: str = "f"
    """Name of the function that their programs define."""

    def config(self) -> Config:
        return load_run(["--config", self.recipe])[0].to_config()


_SUM = "Return the sum of the above 6 numbers in xs."

MADE: Mapping[str, Example] = {
    "toy": Example(
        recipe="toy",
        problems=toy_problems,
        example=_SUM,
        warm_up=WarmUp(generator_steps=1500, discriminator_steps=600, weak_suites=0.95, invalid_suites=0.05),
    ),
    # mistakes that hardly an input shows: the generator takes the number of a condition, 100 to 999, for its neighbour. The
    # problem's text names the number, and a fifth of the discriminator's demonstrations try it (docs/when_sparring_pays.md)
    "edges": Example(
        recipe="toy:edges",
        problems=lambda split: toy_problems(split, "large"),
        example="Return the sum of the above 613 numbers in xs.",
        warm_up=WarmUp(
            generator_steps=1500,
            discriminator_steps=6000,
            numbers="large",
            misconceptions=0,
            misreadings=0.65,
            weak_suites=0.8,
            invalid_suites=0.05,
        ),
    ),
    "code_execution": Example(
        recipe="grpo_code_execution",
        example=_SUM,
        warm_up=WarmUp(generator_steps=800, misconceptions=0.93),
    ),
    "lua": Example(
        recipe="unit_tests_lua",
        problems=lua_problems,
        example=_SUM,
        warm_up=WarmUp(generator_steps=1200, misconceptions=0.6),
    ),
    "prediction": Example(
        recipe="output_prediction",
        problems=prediction_problems,
        example="mul 3 add",
        warm_up=WarmUp(generator_steps=300, discriminator_steps=600, batch_size=48, misconceptions=0.4),
    ),
    # the models have to learn what grids are, which takes a quarter of an hour
    "grids": Example(
        recipe="code_golf",
        problems=grid_problems,
        example="012/000/111>210/000/111 100/020/003>001/020/300 000/400/005>000/004/500",
        function="p",
        warm_up=WarmUp(generator_steps=2500, batch_size=48, misconceptions=0.8),
    ),
    "tictactoe": Example(
        recipe="spiral_tictactoe", warm_up=WarmUp(generator_steps=1200, batch_size=32, misconceptions=0.1)
    ),
    "kuhn": Example(
        recipe="spiral_kuhn", warm_up=WarmUp(generator_steps=200, batch_size=32, misconceptions=0.1)
    ),
    "rps": Example(
        recipe="spiral_rps", warm_up=WarmUp(generator_steps=100, batch_size=32, misconceptions=0.05)
    ),
}
"""The examples by the name of their directory."""


def models_as_options(name: str, recipe: Sequence[str] = (), **changes: Any) -> list[str]:
    """Returns the options that name an example's models, if they are made for the recipe with these options, and with these
    settings of the warm-up changed. Missing models are made, in the cache."""
    example = MADE[name]
    config = load_run(["--config", example.recipe, *recipe])[0].to_config()
    settings = WarmUp.model_validate(example.warm_up.model_dump() | changes)
    models = ensure_models(config.policies, config.game, settings)
    return [word for role, model in models.items() for word in (f"--{role}-model", str(model))]


def write_problems(name: str, target: Path) -> None:
    """Writes the problem files of an example."""
    made = MADE[name].problems
    if made is None:
        return
    for split in SPLITS:
        loader.write_problems(target / f"{split}.json", made(split))


def write_models(name: str, target: Path) -> None:
    """Trains the models of an example, and writes them with their cards and with what they are made from."""
    example = MADE[name]
    config = example.config()
    for role, model in ensure_models(config.policies, config.game, example.warm_up).items():
        shutil.rmtree(target / role, ignore_errors=True)
        shutil.copytree(model, target / role)
        (target / role / "README.md").write_text(_card(name, role, config.policy(role).max_tokens), "utf-8")
    models = {role: identity(role, config.game, example.warm_up) for role in config.policies}
    instructions = torch.backends.cpu.get_cpu_capability()
    made_on = {"cpu": cpu_model(), "instructions": instructions, "versions": versions()}
    made_from = {"warm_up": example.warm_up.model_dump(), "models": models, "made_on": made_on}
    (target / "made_from.json").write_text(json.dumps(made_from, indent=1) + "\n", "utf-8")


def _card(name: str, role: str, max_tokens: int) -> str:
    example = MADE[name]
    toy = {
        "recipe": example.recipe, "example": example.example, "function": example.function, "max_tokens": max_tokens,
    }  # fmt: skip
    facts: dict[str, Any] = {TOY: toy}
    data = ModelCardData(library_name="transformers", pipeline_tag="text-generation", **facts)
    text = f"The {role} of the recipe `{example.recipe}` before training. {describe_toy(toy)}"
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n# {name}: {role}\n\n{text}\n"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.examples", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(MADE)}. Default: all")
    parser.add_argument("--problems", action="store_true", help="write no models")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - MADE.keys():
        parser.error(f"no example {min(unknown)}; give some of {', '.join(MADE)}")
    for name in options.names or MADE:
        target = EXAMPLES / name
        target.mkdir(parents=True, exist_ok=True)
        write_problems(name, target)
        if not options.problems:
            write_models(name, target)
        print(f"made in {target}", flush=True)


if __name__ == "__main__":
    main()
