"""Does a model that somebody trained become better by sparring? Qwen2.5-Coder-0.5B-Instruct on MBPP by the recipe
`sparring_mbpp`, in which training knows the first of each problem's three tests.

    python -m benchmarks.experiments.real --dataset mbpp.jsonl --model DIR --output output/real [--humaneval FILE]

sparring: both policies learn. white_box: the discriminator sees the program that it is to break. frozen: the discriminator
writes tests, but does not learn. known_test: no discriminator, rewards from the known test alone. golden_tests: no
discriminator, rewards from all three tests. Generator steps and samples are equal. The scores are those of MBPP's test part,
on all tests of a problem: a greedy program, and the mean of --samples programs at temperature 0.7; a discriminator's by one
suite for each of half of the problems. Changes are against the untrained model, paired by problem, with 95% intervals over
problems.

Everything that was finished is kept in --output: a command that was interrupted goes on where it ended, and one with
more arms or seeds makes only these. With --learnable, it also shows what was practised: the programs of a run by all tests, by
quarters of its steps, compared with the untrained model's on the same problems. What stands after `--` is given to every run of driver.py.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.experiments.runs import check_same, finished_run, results_of
from benchmarks.experiments.sparring import FROZEN, STATIC
from benchmarks.report import arguments, write
from sandbox_workers.local import LocalSandbox
from sparring.core.play import GENERATOR
from sparring.core.project_files import EXAMPLES, ROOT
from sparring.core.verdict import Limits
from sparring.evaluation.intervals import print_table
from sparring.games.program_scores import judge_programs
from sparring.problems.formats import load_dataset
from sparring.tracking.episodes import episode_files
from sparring.tracking.rows import read_rows

ARMS: dict[str, list[str]] = {
    "sparring": [],
    "golden_tests": [*STATIC, "--problems.known-tests", "3"],
    "known_test": STATIC,
    "frozen": FROZEN,
    "white_box": ["--game.attack", "program"],
}
UNTRAINED = "untrained"
RECIPE = "sparring_mbpp"
_LEARNING = ("sparring", "white_box")
"""Arms whose discriminator learns."""
_QUARTERS = 4
_OF_SUITES = ("validity", "kill_rate", "mutant_kill_rate", "verifier_accuracy", "line_coverage")
PROBLEMS = ROOT / "sparring/problems/example_problems.json"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--model", default="Qwen/Qwen2.5-Coder-0.5B-Instruct", help="directory, GGUF file or hub id"
    )
    parser.add_argument("--dataset", help="mbpp.jsonl")
    parser.add_argument("--humaneval", help="HumanEval.jsonl, on which generators are evaluated, too")
    parser.add_argument("--output", type=Path, default=Path("output/real"))
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=40, help="training steps of each run")
    parser.add_argument("--problems", type=int, default=200, help="held-out problems")
    parser.add_argument(
        "--samples", type=int, default=8, help="programs for each held-out problem, besides the greedy one"
    )
    parser.add_argument("--max-tokens", type=int, default=256, help="of a program")
    parser.add_argument("--suite-tokens", type=int, default=128, help="of a suite, of which four tests count")
    parser.add_argument(
        "--learnable",
        action="store_true",
        help="train on problems that the model solves sometimes, not always",
    )
    parser.add_argument("more", nargs="*", help="after --: arguments of every run")
    options = parser.parse_args()
    if options.quick:
        with tempfile.TemporaryDirectory() as directory:
            shorten(options, Path(directory))
            write(options.json, compare(options), {})
    elif options.dataset is None:
        parser.error("--dataset: give the path of mbpp.jsonl")
    else:
        write(options.json, compare(options), {})


def shorten(options: argparse.Namespace, output: Path) -> None:
    """Sets the options of a run that only checks that everything works: two steps of the toy models on the example
    problems, in MBPP's format."""
    options.output, options.dataset = output, output / "mbpp.jsonl"
    examples = json.loads(PROBLEMS.read_text())["problems"]
    rows = (  # MBPP's test part begins at 11, its training part at 601
        {
            "task_id": (11 if place < 2 else 601) + place,
            "text": of["description"],
            "code": of["reference_solution"],
        }
        | {"test_list": of["baseline_tests"]}
        for place, of in enumerate(examples)
    )
    options.dataset.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options.model = str(EXAMPLES / "toy" / "generator")
    options.arms, options.seeds, options.steps = ["sparring"], [1], 2
    options.max_tokens = options.suite_tokens = 16
    options.more = ["--curriculum.problems-per-step", "2", "--curriculum.attempts", "2", "--local"]
    options.more += ["--generator.engine.kind", "transformers", "--discriminator.engine.kind", "transformers"]


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures by arm. Makes what is missing, seed by seed, and prints the tables after each seed."""
    options.output.mkdir(parents=True, exist_ok=True)
    base = scores_of(UNTRAINED, options.model, options, learns=True)
    figures: dict[str, Any] = {UNTRAINED: {"scores": base["figures"]}}
    for seed in options.seeds:
        for arm in options.arms:
            run = trained(arm, seed, options)
            found = scores_of(f"{arm}-seed{seed}", str(run), options, learns=arm in _LEARNING)
            of_arm = figures.setdefault(arm, {"by_seed": []})
            of_arm["by_seed"].append(
                {
                    "seed": seed,
                    "scores": found["figures"],
                    "change": {
                        key: change(base["rates"][key], rates) for key, rates in found["rates"].items()
                    },
                    "seconds": results_of(run)["wall_time_s"],
                }
                | ({"practised": asyncio.run(practised(run, options))} if options.learnable else {})
            )
            show(figures)
    return figures


def trained(arm: str, seed: int, options: argparse.Namespace) -> Path:
    """Returns the directory of a run, which is made or continued if it is not finished."""
    file = str(options.dataset)
    words = ["--seed", str(seed), "--problems.file", file, "--problems.held-out.file", file]
    words += ["--no-evaluation.enabled", "--k-alternating-steps", str(options.steps)]
    words += ["--n-discriminator-steps", "0", "--n-generator-steps", "0"]
    for role, tokens in (("generator", options.max_tokens), ("discriminator", options.suite_tokens)):
        words += [f"--{role}.model", options.model, f"--{role}.max-tokens", str(tokens)]
    if options.learnable:
        words += ["--problems.pass-rates", str(rates_in_training(options))]
    words += ["--checkpoint.every", "1", "--checkpoint.keep", "1", *ARMS[arm], *options.more]
    return finished_run(RECIPE, f"{arm}-seed{seed}", options.output, words)


def rates_in_training(options: argparse.Namespace) -> Path:
    """Returns the file with the shares of the untrained model's programs, four a problem as in training, that are right."""
    file = options.output / "training_rates.json"
    words = ["--dataset", str(options.dataset), "--format", "mbpp", "--split", "train", "--shown-tests", "1"]
    words += ["--policy", options.model, "--stages", "none", "--max-tokens", str(options.max_tokens)]
    evaluated([*words, "--samples", "4", "--temperature", "1.0"], file)
    return file


async def practised(run: Path, options: argparse.Namespace) -> list[tuple[float, float]]:
    """Returns, for each quarter of a run's steps, (mean, half of its 95% interval) over the groups of programs: the share that
    passes all tests of the problem, minus the share of the untrained model's programs that does."""
    rates = json.loads(rates_in_training(options).read_text())["pass_rates"]
    problems = {p.id: p for p in load_dataset(options.dataset, "mbpp", split="train")}
    programs: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in chain.from_iterable(map(read_rows, episode_files(run))):
        if row["player"] == GENERATOR:
            programs[row["step"]][row["problem"]].append(row.get("artifact", ""))
    gains: list[list[float]] = [[] for _ in range(_QUARTERS)]
    with LocalSandbox("auto") as sandbox:
        for step, by_problem in sorted(programs.items()):
            judged = await judge_programs(sandbox, by_problem, [problems[i] for i in by_problem], Limits())
            quarter = (step - 1) * _QUARTERS // max(programs)
            gains[quarter] += [
                statistics.fmean(known) - rates[i]
                for i, group in judged.items()
                if (known := [program.solved for program in group if program.test_rate is not None])
            ]
    return [mean_of(found) for found in gains if found]


def scores_of(
    name: str, policy: str, options: argparse.Namespace, *, learns: bool
) -> dict[str, dict[str, Any]]:
    """Returns the scores of the policies as {"figures": {name: score}, "rates": {name: {problem: share of programs}}}.

    policy: a run, or the untrained model. learns: whether the discriminator's suites are evaluated, too.
    """
    mbpp = ["--dataset", str(options.dataset), "--format", "mbpp", "--split", "test", "--shown-tests", "1"]
    programs = ["--problems", str(options.problems), "--max-tokens", str(options.max_tokens)]
    sets = {"mbpp": [*mbpp, *programs]}
    if options.humaneval:
        sets["humaneval"] = ["--dataset", options.humaneval, "--format", "humaneval", "--max-tokens", "512"]
    figures: dict[str, Any] = {}
    rates: dict[str, Mapping[str, float]] = {}
    sampled = ["--samples", str(options.samples), "--temperature", "0.7", "--stages", "none"]
    for data, words in sets.items():
        report = evaluated([*words, "--policy", policy, *sampled], options.output / f"{name}.{data}.json")
        rates[f"{data} greedy"] = {
            i: float(task["status"] == "PASSED") for i, task in report["tasks"].items()
        }
        rates[f"{data} sampled"] = report["pass_rates"]
    figures |= {key: statistics.fmean(of.values()) for key, of in rates.items()}
    if learns:
        words = [*mbpp, "--problems", str(options.problems // 2), "--max-tokens", str(options.suite_tokens)]
        words += ["--discriminator", policy, "--suites", "1", "--max-tests", "4", "--test-format", "relabel"]
        report = evaluated(words, options.output / f"{name}.suites.json")
        figures |= {f"suites: {key}": report["scores"][key] for key in _OF_SUITES}
    return {"figures": figures, "rates": rates}


def evaluated(words: Sequence[str], file: Path) -> dict[str, Any]:
    """Returns a report of sparring evaluate, from its file if it exists."""
    check_same(file, words)
    if not file.is_file():
        print(f"evaluating {file.stem} ...", flush=True)
        command = [sys.executable, "-m", "sparring", "evaluate", *words, "--json", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads(file.read_text())


def change(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[float, float]:
    """Returns (mean change, half of its 95% interval) over the problems that both have."""
    return mean_of([after[i] - before[i] for i in before.keys() & after.keys()])


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """Returns (mean, half of its 95% interval)."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return statistics.fmean(values), 1.96 * spread / len(values) ** 0.5


def show(figures: Mapping[str, Any]) -> None:
    base: Mapping[str, float | None] = figures[UNTRAINED]["scores"]
    rows: list[list[object]] = [[UNTRAINED, "", *map(_told, base.values())]]
    for arm, of_arm in figures.items():
        for of_seed in of_arm.get("by_seed", ()):
            cells = []
            for key in base:
                cell = _told(of_seed["scores"][key]) if key in of_seed["scores"] else ""
                if key in of_seed["change"]:
                    mean, half = of_seed["change"][key]
                    cell += f" ({mean:+.3f} ±{half:.3f})"
                cells.append(cell)
            rows.append([arm, of_seed["seed"], *cells])
    print_table("held out", ["", "seed", *base], rows)
    practised_rows = [
        [arm, of_seed["seed"], *(f"{mean:+.3f} ±{half:.3f}" for mean, half in of_seed["practised"])]
        for arm, of_arm in figures.items()
        for of_seed in of_arm.get("by_seed", ())
        if "practised" in of_seed
    ]
    if practised_rows:
        quarters = [f"quarter {n} of the steps" for n in range(1, _QUARTERS + 1)]
        print_table(
            "practised: right programs, minus the untrained model's", ["", "seed", *quarters], practised_rows
        )


def _told(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


if __name__ == "__main__":
    main()
