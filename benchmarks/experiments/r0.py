"""Does R0's own setting learn, and in which stages? In it, the discriminator earns (1 - pass rate) * validity and no
more, a suite of one valid test has full validity, and each stage is trained by itself, on its own tokens. It is
compared with the same setting in which the tokens of all stages are trained at once; the recipe, which also pays for
validity alone, is in experiments/sparring.py. Tests are inputs, since the toy models are not trained to compute
outputs; and R0's asserts, for models that were (the arms r0_strict). For these arms, the share of valid asserts is
counted, too: of those on inputs on which hardly any mistake shows, and of the others.

    python -m benchmarks.experiments.r0 --output output/experiments

Steps and samples are equal, the supervised warm-up is the same; there are several seeds. Runs are local and
bit-identical (experiments/runs.py), and several can run in parallel; finished runs are not repeated.
"""

import argparse
import ast
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.experiments.runs import writer
from benchmarks.experiments.sparring import compare
from benchmarks.report import arguments, write
from configs.load import load_run
from configs.schema import Config
from lab.examples import models_as_options
from lab.problems import toy_problems, toy_specs
from lab.sampling import run_reference
from lab.traces import weak_input
from sparring.core.evaluation import mean
from sparring.evaluation.intervals import print_table
from sparring.evaluation.writing import write_suites
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules

_PROBLEMS, _SUITES = 100, 5
"""Number of problems on which asserts are counted, and of suites for each."""
_EARNS = ["--game.rewards.validity-weight", "0", "--game.rewards.validity-slots", "1"]
_STAGE = ["--credit.kind", "stage"]
_STRICT = ["--game.test-format", "strict"]
ARMS: dict[str, list[str]] = {
    "r0": [*_EARNS, *_STAGE],
    "r0_all_stages": _EARNS,
    "r0_strict": [*_EARNS, *_STAGE, *_STRICT],
    "r0_strict_all_stages": [*_EARNS, *_STRICT],
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    options = parser.parse_args()
    options.local, options.config = True, "debug" if options.quick else "toy"
    with tempfile.TemporaryDirectory() as directory:
        if options.quick:
            options.seeds, options.arms, options.output = [1], ["r0"], Path(directory)
        arms = {arm: ARMS[arm] + (strict_models() if "strict" in arm else []) for arm in options.arms}
        figures = compare(options, arms)
        for arm in options.arms:
            if "strict" in arm:
                figures[arm] |= asserts_of(arm, arms[arm], options)
    write(options.json, figures, {})


def strict_models() -> list[str]:
    """Returns the arguments for models whose discriminator was shown 16 times as many asserts, a fifth of them good."""
    return models_as_options("toy", _STRICT, discriminator_steps=9600, weak_suites=0.8)


def asserts_of(arm: str, given: Sequence[str], options: argparse.Namespace) -> dict[str, list[float | None]]:
    """Returns by seed, before and after training, for asserts on weak inputs and on others: the share of all asserts
    that they make up, and the share of valid ones among them."""
    config = load_run(["--config", options.config, *given])[0].to_config()
    untrained = Path(config.policy("discriminator").model)
    found: dict[str, list[float | None]] = {}
    for seed in options.seeds:
        trained = options.output / f"{arm}-seed{seed}" / "checkpoints" / "best" / "discriminator"
        for when, directory in (("before", untrained), ("after", trained)):
            by_kind = asyncio.run(which_hold(directory, config, seed))
            tests = sum(map(len, by_kind.values()))
            for kind, those in by_kind.items():
                found.setdefault(f"{kind}, {when}: share", []).append(len(those) / tests if tests else None)
                found.setdefault(f"{kind}, {when}: hold", []).append(mean(those))
    rows = [
        [name, *("-" if share is None else f"{share:.3f}" for share in shares)]
        for name, shares in found.items()
    ]
    print_table(f"asserts of {arm}", ["", *(f"seed {seed}" for seed in options.seeds)], rows)
    return found


async def which_hold(directory: Path, config: Config, seed: int) -> dict[str, list[bool]]:
    """Returns by kind of input whether each assert that a discriminator writes for held-out problems is valid. Lines
    that are not such asserts are left out."""
    rules = MultistageRules.model_validate(config.game)
    pairs = list(zip(toy_problems("held_out"), toy_specs("held_out"), strict=True))[:_PROBLEMS]
    async with writer(directory, "discriminator", config, seed) as discriminator:
        problems = [problem for problem, _ in pairs]
        suites = await write_suites(problems, discriminator, MultistageGame(rules), _SUITES, "asserts")
    found: dict[str, list[bool]] = {"weak inputs": [], "other inputs": []}
    for (_, spec), written in zip(pairs, suites, strict=True):
        weak = {repr(weak_input(spec, Random(draw))) for draw in range(100)}
        lines = (line for s in written for line in s.artifact.strip().splitlines()[: rules.max_tests])
        for given, expected in filter(None, map(read_assert, lines)):
            try:
                holds = run_reference(spec, [given]) == [expected]
            except (TypeError, AttributeError):  # an input of another type
                holds = False
            found["weak inputs" if repr(given) in weak else "other inputs"].append(holds)
    return found


def read_assert(line: str) -> tuple[Any, Any] | None:
    """Returns (input, output) of "assert f(input) == output"; None if the line is something else."""
    given, equals, expected = line.removeprefix("assert f(").partition(") == ")
    try:
        return (ast.literal_eval(given), ast.literal_eval(expected)) if equals else None
    except (SyntaxError, ValueError):
        return None


if __name__ == "__main__":
    main()
