"""Does each side get better against all earlier generations of the other (E5, end to end)? The generations of a
finished run are its models before training and at the end of each stage. Each generator writes programs for held-out
problems, each discriminator writes suites, and every suite is run on every program.

    python -m benchmarks.experiments.coevolution --output output/experiments
    python -m benchmarks.experiments.coevolution --run RUN [--run ...]

Two tables, means over the runs:
kills: the share of the wrong programs of the column's generator that a suite of the row's discriminator fails. A
program is wrong if it fails a hidden test.
survival: the share of all programs of the row's generator that pass every suite of the column's discriminator.
Later discriminators should find more in each column of the first table, later generators survive more in each column of
the second. `python -m sparring league` does this for any single run.
The first command takes a run of the recipe `toy` for each seed, and makes those that are missing; --quick makes a
short run of the debug recipe.
"""

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from benchmarks.experiments.runs import SHORT, finished_run, sparring_runs
from benchmarks.report import arguments, write
from configs.schema import Config
from sparring.core.evaluation import mean
from sparring.core.interfaces import SandboxKind
from sparring.core.project_files import located
from sparring.evaluation.intervals import intervals, print_table
from sparring.runtime.league import Effort, Member, play_league, read_config


def generations(run: Path, config: Config) -> list[Member]:
    """Returns the run's generations: before training, and at the end of each stage. The run must have the toy
    recipe's models."""
    ends = [stage["step"] for stage in json.loads((run / "training_results.json").read_text())["stages"]]
    roles = list(config.policies)
    found = [Member(name="before", models={role: located(config.policy(role).model) for role in roles})]
    for number, step in enumerate(ends, start=1):
        checkpoint = run / "checkpoints" / f"step_{step:06d}"
        found.append(Member(name=f"stage {number}", models={role: checkpoint / role for role in roles}))
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--run", type=Path, action="append", metavar="DIR", help="finished, of a recipe with suites"
    )
    parser.add_argument("--problems", type=int, default=120)
    parser.add_argument("--sandbox", choices=get_args(SandboxKind), default="auto")
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    if options.quick:
        with tempfile.TemporaryDirectory() as directory:
            runs = options.run or [finished_run("debug", "run", Path(directory), SHORT)]
            write(options.json, compare(runs, 4, options.sandbox), {})
    else:
        runs = options.run or sparring_runs(options.seeds, options.output)
        write(options.json, compare(runs, options.problems, options.sandbox), {})


def compare(runs: Sequence[Path], count: int, sandbox: SandboxKind) -> dict[str, object]:
    """Returns the figures on `count` held-out problems. Prints the tables."""
    start = time.perf_counter()
    played = []
    for run in runs:
        config = read_config(run)
        members = generations(run, config)
        played.append(play_league(members, config, Effort(problems=count), sandbox, lambda line: None))
    names = played[0]["members"]
    numbers = range(len(names))
    figures: dict[str, object] = {"runs": len(played), "problems": count, "generations": names}
    for title in ("kills", "survival"):
        cells = [[[of_run[title][row][column] for of_run in played] for column in numbers] for row in numbers]
        means = [[mean(cell) for cell in row] for row in cells]
        print_table(
            f"{title}: mean of {len(played)} runs",
            ["", *names],
            [
                [name, *("-" if mean is None else f"{mean:.3f}" for mean in row)]
                for name, row in zip(names, means, strict=True)
            ],
        )
        gains = intervals([_gains(of_run[title], names) for of_run in played])
        print_table("last row - first row", names, [[gains.get(name, "-") for name in names]])
        figures |= {
            title: cells,
            f"{title}, last row - first row": {name: gain.plain() for name, gain in gains.items()},
        }
    print(f"\n95% intervals, {time.perf_counter() - start:.0f} s")
    return figures


def _gains(rates: Sequence[Sequence[float | None]], names: Sequence[str]) -> dict[str, float | None]:
    """Returns the last row less the first one, by column."""
    return {
        name: None if first is None or last is None else last - first
        for name, first, last in zip(names, rates[0], rates[-1], strict=True)
    }


if __name__ == "__main__":
    main()
