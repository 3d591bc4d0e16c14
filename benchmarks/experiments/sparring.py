"""Does sparring cause the improvement, and does it beat static tests? The recipe `toy` with both policies learning,
with the discriminator frozen, and with GRPO in place of PPO; and without a discriminator: rewards from the problems'
own four baseline tests, which catch 73% of single misconceptions, from three tests on random inputs, which catch 68%,
or from twelve that share a blind spot: no input lies at a boundary (static_tests.py). Generator steps and samples are
equal, the supervised warm-up is the same, as are the hidden tests on held-out problems; there are several seeds.

    python -m benchmarks.experiments.sparring --output output/experiments

Finished runs are not repeated. With --local each run is one process with the transformers engine and one thread: it is
bit-identical every time, and several can run in parallel. --quick makes two arms' runs of the debug recipe with one
stage and seed, always anew.
"""

import argparse
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments.runs import SHORT, finished_run, in_one_process, results_of
from benchmarks.report import arguments, write
from lab.problems import toy_problems, with_random_tests
from sparring.core.evaluation import mean
from sparring.core.problem import Problem
from sparring.evaluation.intervals import print_table
from sparring.problems.loader import write_problems

FROZEN = ["--curriculum.frozen-players", "discriminator"]
STATIC = [*FROZEN, "--curriculum.frozen-suites", "0", "--game.baseline-in-reward"]
_ROLES = ("generator", "discriminator")
ARMS: dict[str, list[str]] = {
    "adversarial": [],
    "frozen": FROZEN,
    "adversarial_grpo": [word for role in _ROLES for word in (f"--{role}.learner.estimator.kind", "grpo")],
    "baseline_tests": STATIC,
    "random_tests": STATIC,
    "blind_tests": STATIC,
}
_RANDOM_TESTS = {"random_tests": (3, True), "blind_tests": (12, False)}
"""Number of tests, and whether an input may lie at a boundary."""
KEYS, AT = ("generator_pass_rate", "test_validity", "kill_rate"), ("before", "after")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--config", help="default: toy, with --quick debug")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--local", action="store_true", help="in one process each, not on Ray")
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=list(ARMS))
    options = parser.parse_args()
    options.config = options.config or ("debug" if options.quick else "toy")
    if not options.quick:
        write(options.json, compare(options, ARMS), {})
        return
    options.seeds, options.arms = options.seeds[:1], ["adversarial", "blind_tests"]
    with tempfile.TemporaryDirectory() as directory:
        options.output = Path(directory)
        write(options.json, compare(options, ARMS), {})


def compare(options: argparse.Namespace, arms: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Returns the figures by arm. Prints the table. arms: the arguments of each arm's runs."""
    figures: dict[str, Any] = {}
    rows: list[list[object]] = []
    for arm in options.arms:
        results = [run(arm, arms[arm], seed, options) for seed in options.seeds]
        rates = list(zip(*map(by_stage, results), strict=True))
        when = [result["held_out"] for result in results]
        scores = {f"{key} {at}": [held_out[at].get(key) for held_out in when] for key in KEYS for at in AT}
        gains = [_gain(held_out) for held_out in when]
        by_stages = [mean(of_stage) for of_stage in rates]
        figures[arm] = {"pass rate by stage": by_stages, **scores, "gain": mean(gains)}
        rows.append([arm, *(_row(values) for values in (by_stages, *scores.values()))])
    print_table("held out, by seed", ["", "pass rate by stage, mean", *scores], rows)
    return figures


def _gain(held_out: Mapping[str, Mapping[str, float]]) -> float | None:
    before, after = (held_out[at].get(KEYS[0]) for at in AT)
    return None if before is None or after is None else after - before


def by_stage(result: Mapping[str, Any]) -> list[float | None]:
    return [stage["held_out"].get("generator_pass_rate") for stage in result["stages"]]


def _row(rates: Iterable[float | None]) -> str:
    return " ".join("-" if rate is None else f"{rate:.3f}" for rate in rates)


def run(arm: str, words: Sequence[str], seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the results of one run, from its file if it exists."""
    arguments = ["--seed", str(seed), *words]
    if arm in _RANDOM_TESTS:
        count, at_boundaries = _RANDOM_TESTS[arm]
        train = with_random_tests(toy_problems("train"), count, at_boundaries)
        arguments += on_files(train, toy_problems("held_out"), f"{count}_random_tests", options)
    arguments += in_one_process(options.config) if options.local else []
    arguments += SHORT if options.quick else []
    return results_of(finished_run(options.config, f"{arm}-seed{seed}", options.output, arguments))


def on_files(
    train: Sequence[Problem], held_out: Sequence[Problem], name: str, options: argparse.Namespace
) -> list[str]:
    """Returns the arguments for runs on these problems."""
    files = [write_problems(options.output / f"{name}.json", train)]
    files += [write_problems(options.output / "held_out.json", held_out)]
    return ["--problems-file", str(files[0]), "--problems.held-out.file", str(files[1])]


if __name__ == "__main__":
    main()
