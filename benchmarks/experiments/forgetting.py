"""Why does the code golf score fall again? Large learning rates, as the recipe had them, against the same with tasks in
random order, and against small learning rates.

    python -m benchmarks.experiments.forgetting --output output/experiments

Held out: 300 tasks whose rules occur in training, on new grids (half of the recipe's own sixty tasks follow unknown
rules, and hardly any of these is ever solved). Figures: the greedy programs for these tasks at each evaluation; how
many tasks that are solved at the start are not solved at the end, and how many others are. Runs are local and
bit-identical (experiments/runs.py), and several can run in parallel; finished runs are not repeated.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.experiments.runs import finished_run, held_out, in_one_process
from benchmarks.report import arguments, write
from lab.grid_tasks import grid_problems, named, random_task
from sparring.core.evaluation import mean
from sparring.core.problem import Problem
from sparring.evaluation.intervals import interval, print_table
from sparring.problems.grids import compact_description, to_problem
from sparring.problems.loader import write_problems
from sparring.tracking.rows import read_rows

HELD_OUT = 300
LARGE, SMALL = ["--learning-rate", "1.5e-4"], ["--learning-rate", "3e-5"]
ARMS: dict[str, list[str]] = {
    "large_steps": LARGE,
    "any_order": [*LARGE, "--curriculum.order", "random"],
    "small_steps": SMALL,
}
SHORT = ["--n-generator-steps", "2", "--evaluation.every", "1"]
SHORT += ["--curriculum.problems-per-step", "2", "--curriculum.attempts", "2"]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    options = parser.parse_args()
    if not options.quick:
        write(options.json, compare(options, HELD_OUT, []), {})
        return
    options.seeds, options.arms = [1], ["any_order"]
    with tempfile.TemporaryDirectory() as directory:
        options.output = Path(directory)
        write(options.json, compare(options, 4, SHORT), {})


def compare(options: argparse.Namespace, tasks: int, more: Sequence[str]) -> dict[str, Any]:
    """Returns the figures by arm and prints the table. more: arguments of every run."""
    train = write_problems(options.output / "tasks.json", grid_problems("train"))
    known = write_problems(options.output / f"{tasks}_known_tasks.json", fresh_tasks(tasks))
    words = [
        "--problems-file",
        str(train),
        "--problems.held-out.file",
        str(known),
    ]
    words += ["--evaluation.problems", str(tasks), *in_one_process("code_golf"), *more]
    figures: dict[str, Any] = {}
    rows: list[list[object]] = []
    for arm in options.arms:
        given = [*words, *ARMS[arm]]
        runs = [
            finished_run("code_golf", f"golf-{arm}-seed{n}", options.output, ["--seed", str(n), *given])
            for n in options.seeds
        ]
        found = [dict(held_out(run)) for run in runs]
        solved = [solved_tasks(run) for run in runs]
        first, *_, last = steps = list(solved[0])
        rates = {
            step: interval([mean(of_seed[step].values()) or 0.0 for of_seed in solved]) for step in steps
        }
        gains = [changed(of_seed[first], of_seed[last]) for of_seed in solved]
        figures[arm] = {
            "solved": {step: rate.plain() for step, rate in rates.items()},
            "bytes": {step: mean(of_seed[step].get("bytes") for of_seed in found) for step in steps},
            "no longer solved": fmean(gained.count(False) for gained in gains),
            "newly solved": fmean(gained.count(True) for gained in gains),
        }
        counts = [f"{figures[arm][key]:.1f}" for key in ("no longer solved", "newly solved")]
        size = figures[arm]["bytes"][last]
        rows.append([arm, *rates.values(), "-" if size is None else f"{size:.0f}", *counts])
        print_table(f"solved of {tasks}", ["", *map(str, steps), "bytes", "no longer", "newly"], rows)
    return figures


def fresh_tasks(count: int) -> list[Problem]:
    """Returns tasks with known rules that are in neither the recipe nor its warm-up demonstrations."""
    rng, problems = Random("known rules, new grids"), []
    for task, programs in (random_task(rng) for _ in range(count)):
        problem = to_problem(task, hold_out_arc_gen=True, reference_solution=named(programs.verbose, task))
        problems.append(replace(problem, description=compact_description(task)))
    return problems


def changed(before: Mapping[str, bool], after: Mapping[str, bool]) -> list[bool]:
    """Returns, for each task that was judged both times and with another result, whether it is solved now."""
    return [after[task] for task, was in before.items() if task in after and after[task] != was]


def solved_tasks(run: Path) -> Mapping[int, Mapping[str, bool]]:
    """Returns whether each task that was judged is solved, by step of the evaluation."""
    return {
        row["step"]: {task: passed == 1.0 for task, passed in row["tasks"].items()}
        for row in read_rows(run / "task_history.jsonl")
    }


if __name__ == "__main__":
    main()
