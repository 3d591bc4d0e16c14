"""Does sparring beat redrawn random tests where mistakes are particular and seldom seen? The embedded recipe with a generator
that has no misconceptions, but takes the numbers of conditions for their neighbours (warm_start.misreadings): each such
mistake belongs to a few problems and shows only on inputs at that number. 100 problems with such a condition, so that each is
met several times.

    python -m benchmarks.experiments.particular --output output/particular

Judged by a discriminator that learns, by the same one frozen, or without one: by three tests on random inputs from -99 to 99,
the same at each visit; by twelve drawn anew at each visit, as many as judge a program where sparring lets both learn, and four
times as many as elsewhere; and by twelve from 1 to 9, where all those numbers lie. Equal generator steps and samples, the
same warm start, several seeds, the same hidden tests on held-out problems with such a condition.

Runs are local and to the bit (experiments/runs.py), several may run beside each other; finished ones are not run again.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.experiments.phase_diagram import fuzzed
from benchmarks.experiments.runs import SHORT, finished_run, in_one_process, results_of
from benchmarks.experiments.sparring import ARMS as PLAYED
from benchmarks.experiments.sparring import write_problems
from benchmarks.report import arguments, write
from configs.load import load_run
from core.problem import Problem
from embedded.grammar import BOUNDARY_FILTERS, Spec
from embedded.problems import Split, asserts, embedded_problems, embedded_specs
from embedded.sampling import Input, bland_input
from embedded.teaching import ensure_embedded
from evaluation.intervals import interval, print_table

PRACTISED, HELD_OUT = 100, 120
VISITS = 10
"""Entries of the training file for each problem, so that random tests can be drawn anew."""
TAUGHT = ["--warm-start.misconceptions", "0", "--warm-start.misreadings", "0.65"]
_STATIC = PLAYED["baseline_tests"]
ARMS: dict[str, list[str]] = {
    "sparring": [],
    "frozen": PLAYED["frozen"],
    "static_3": _STATIC,
    "redrawn_12": _STATIC,
    "redrawn_12_small": _STATIC,
}


def wide(spec: Spec, rng: Random) -> Input:
    return fuzzed(spec, rng, range(-99, 100))


TESTS: dict[str, tuple[Callable[[Spec, Random], Input], int, bool]] = {
    "static_3": (wide, 3, False),
    "redrawn_12": (wide, 12, True),
    "redrawn_12_small": (bland_input, 12, True),
}
"""How an input is drawn, how many a problem, whether anew at each visit."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/particular"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=list(ARMS))
    options = parser.parse_args()
    options.config = "debug" if options.quick else "embedded"
    if not options.quick:
        write(options.json, compare(options), {})
        return
    options.seeds, options.arms = options.seeds[:1], ["redrawn_12"]
    with tempfile.TemporaryDirectory() as directory:
        options.output = Path(directory)
        write(options.json, compare(options), {})


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Figures by arm. Prints the table."""
    config = load_run(["--config", options.config, *([] if options.quick else TAUGHT)])[0].to_config()
    taught = ensure_embedded(config.policies, config.game, config.warm_start)
    models = [word for role in taught for word in (f"--{role}-model", str(taught[role]))]
    held_out = write_problems(chosen("held_out", HELD_OUT)[0], options.output / "held_out.json")
    figures, rows = {}, []
    for arm in options.arms:
        problems = write_problems(practised(arm), options.output / f"{arm}.json")
        files = ["--problems-file", str(problems), "--problems.held-out.file", str(held_out)]
        found = []
        for seed in options.seeds:
            words = ["--seed", str(seed), *ARMS[arm], *files, *models, *in_one_process(options.config)]
            words += SHORT if options.quick else []
            found.append(results_of(finished_run(options.config, f"{arm}-seed{seed}", options.output, words)))
        before, after = ([r["held_out"][at] for r in found] for at in ("before", "after"))
        rates = [[stage["held_out"]["generator_pass_rate"] for stage in result["stages"]] for result in found]
        figures[arm] = {
            "before": before,
            "after": after,
            "pass rate": interval([scores["generator_pass_rate"] for scores in after]).plain(),
            "pass rate by stage": [statistics.fmean(of_stage) for of_stage in zip(*rates, strict=True)],
        }
        rows.append(
            [
                arm,
                f"{before[0]['generator_pass_rate']:.3f}",
                " ".join(f"{rate:.3f}" for rate in figures[arm]["pass rate by stage"]),
                interval([scores["generator_pass_rate"] for scores in after]),
                " ".join(f"{scores['kill_rate']:.3f}" for scores in after),
            ]
        )
        print_table("held out", ["", "before", "by stage, mean", "after", "kill rate, by seed"], rows)
    return figures


def practised(arm: str) -> list[Problem]:
    """The training file of an arm: each problem as often as it may be visited."""
    problems = []
    for problem, spec in zip(*chosen("train", PRACTISED), strict=True):
        for visit in range(VISITS):
            baseline = problem.baseline_tests
            if arm in TESTS:
                draw, count, anew = TESTS[arm]
                rng = Random(f"{arm} {problem.id} {visit if anew else ''}")
                baseline = asserts(spec, [draw(spec, rng) for _ in range(count)])
            problems.append(replace(problem, id=f"{problem.id}-{visit}", baseline_tests=baseline))
    return problems


def chosen(split: Split, count: int) -> tuple[list[Problem], list[Spec]]:
    """The first problems that have a number to misread."""
    pairs = zip(embedded_problems(split), embedded_specs(split), strict=True)
    found = [(p, s) for p, s in pairs if any(op.name in BOUNDARY_FILTERS for op in s.filters)][:count]
    return [problem for problem, _ in found], [spec for _, spec in found]


if __name__ == "__main__":
    main()
