"""Does sparring beat random tests if few inputs show a mistake? The default recipe is toy:edges: its generator
replaces the number of a condition, 100 to 999, by its neighbour, which shows only on inputs at that number or beside
it.

    python -m benchmarks.experiments.particular --output output/particular

Programs are judged by a discriminator that learns, by the same one frozen, or without one: by the four typical tests
that a problem comes with; by twelve tests, or ninety-six, on random inputs from the range of the numbers, drawn for
each problem, which a run plays once; or by twelve tests at the numbers in a problem's text and beside them, the tests of
an author that knows the mistakes. (If both learn, sparring judges a program by up to twenty-four tests, otherwise by
three.) Generator steps and samples are equal, the supervised warm-up is the same, as are the hidden tests on held-out
problems; there are several seeds. In addition, sparring starts from two other warm-ups, which it makes (start_1,
start_2).

Runs are local and bit-identical (experiments/runs.py), and several can run in parallel; finished runs are not repeated.
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from benchmarks.experiments.sparring import FROZEN, STATIC, compare, on_files
from benchmarks.report import arguments, write
from lab.examples import models_as_options
from lab.grammar import Spec
from lab.problems import asserts, toy_problems, toy_specs
from lab.sampling import Input, bland_input, edge_input

ARMS = {
    "adversarial": [],
    "frozen": FROZEN,
    "own_tests": STATIC,
    "random_12": STATIC,
    "random_96": STATIC,
    "near_12": STATIC,
    "start_1": [],
    "start_2": [],
}
TESTS: dict[str, tuple[Callable[[Spec, Random], Input], int]] = {
    "random_12": (bland_input, 12),
    "random_96": (bland_input, 96),
    "near_12": (edge_input, 12),
}
"""The function that draws an input, and the number of inputs per problem."""
SEEDS = {"start_1": 1, "start_2": 2}
"""The warm-up's seed for the models that an arm starts from; 0 for the others."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/particular"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=list(ARMS))
    options = parser.parse_args()
    options.config, options.local = "toy:edges", True
    with tempfile.TemporaryDirectory() as directory:
        if options.quick:
            options.seeds, options.arms = options.seeds[:1], ["adversarial", "random_12"]
            options.output = Path(directory)
        arms = {arm: [*ARMS[arm], *on_drawn_tests(arm, options), *models_of(arm)] for arm in options.arms}
        write(options.json, compare(options, arms), {})


def models_of(arm: str) -> list[str]:
    """Returns the arguments for an arm's models; none if they are the recipe's own."""
    return models_as_options("edges", seed=SEEDS[arm]) if arm in SEEDS else []


def on_drawn_tests(arm: str, options: argparse.Namespace) -> list[str]:
    """Returns the arguments of an arm's runs; none if the tests are the problems' own."""
    if arm not in TESTS:
        return []
    draw, count = TESTS[arm]
    train = [
        replace(problem, baseline_tests=asserts(spec, [draw(spec, rng) for _ in range(count)]))
        for problem, spec in zip(toy_problems("train", "large"), toy_specs("train", "large"), strict=True)
        for rng in (Random(f"{arm} {problem.id}"),)
    ]
    return on_files(train, toy_problems("held_out", "large"), arm, options)


if __name__ == "__main__":
    main()
