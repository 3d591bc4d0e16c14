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
the second. Ratings of all generations come from the same games (sparring/evaluation/league.py). `python -m sparring league` does
this for any single run.
The first command takes a run of the recipe `toy` for each seed, and makes those that are missing; --quick makes a
short run of the debug recipe.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import get_args

from benchmarks.experiments.runs import SHORT, finished_run, sparring_runs
from benchmarks.report import arguments, write
from configs.schema import Config
from lab.problems import toy_problems
from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import SandboxKind
from sparring.core.project_files import located
from sparring.evaluation.intervals import interval, print_table
from sparring.evaluation.league import CrossPlay, games_of_meeting, kill_rate, ratings, survival_rate
from sparring.runtime.league import Effort, Member, meetings_of, read_config


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


async def play(run: Path, count: int, sandbox_kind: SandboxKind) -> tuple[list[str], list[CrossPlay]]:
    """Returns the names of the run's generations, and their meetings on `count` held-out problems."""
    config = read_config(run)
    found, effort = generations(run, config), Effort(problems=count)
    problems = toy_problems("held_out")[:count]
    with LocalSandbox(sandbox_kind, limits=config.sandbox_limits) as sandbox:
        meetings = await meetings_of(found, problems, config, effort, sandbox, lambda line: None)
    return [generation.name for generation in found], meetings


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--run", type=Path, action="append", metavar="DIR", help="finished, of the toy models"
    )
    parser.add_argument("--problems", type=int, default=120)
    parser.add_argument("--sandbox", choices=get_args(SandboxKind), default="auto")
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    if options.quick:
        with tempfile.TemporaryDirectory() as directory:
            runs = options.run or [finished_run("debug", "run", Path(directory), SHORT)]
            write(options.json, *compare(runs, 4, options.sandbox))
    else:
        runs = options.run or sparring_runs(options.seeds, options.output)
        write(options.json, *compare(runs, options.problems, options.sandbox))


def compare(
    runs: Sequence[Path], count: int, sandbox: SandboxKind
) -> tuple[dict[str, object], dict[str, float]]:
    """Returns (figures, ratios) on `count` held-out problems. Prints the tables."""
    start = time.perf_counter()
    played = [asyncio.run(play(run, count, sandbox)) for run in runs]
    names, numbers = played[0][0], range(len(played[0][0]))
    figures: dict[str, object] = {"runs": len(played), "problems": count, "generations": names}
    ratios: dict[str, float] = {}
    for title, rate in (("kills", kill_rate), ("survival", survival_rate)):
        cells = [[[rate(met, row, column) for _, met in played] for column in numbers] for row in numbers]
        print_table(
            f"{title}: mean of {len(played)} runs",
            ["", *names],
            [[names[row], *(f"{fmean(cells[row][column]):.3f}" for column in numbers)] for row in numbers],
        )
        gains = [interval([b - a for a, b in zip(cells[0][c], cells[-1][c], strict=True)]) for c in numbers]
        print_table("last row - first row", names, [gains])
        figures |= {title: cells, f"{title}, last row - first row": [gain.plain() for gain in gains]}
        first, last = (fmean(value for cell in cells[row] for value in cell) for row in (0, -1))
        ratios[f"{title}_last_vs_first"] = last / first if first else float("inf")
    # the unit is a problem of a run: generations of the same number count as one player in all runs
    rated = ratings([games_of_meeting(meeting) for _, met in played for meeting in met])
    players = [f"{role} {name}" for role in ("generator", "discriminator") for name in names]
    print_table(
        "ratings: 400 points more win ten of eleven",
        ["player", "points", "95%"],
        [[p, f"{r.points:.0f}", f"{r.low:.0f} to {r.high:.0f}"] for p, r in zip(players, rated, strict=True)],
    )
    figures["ratings"] = {player: asdict(rating) for player, rating in zip(players, rated, strict=True)}
    print(f"\n95% intervals, {time.perf_counter() - start:.0f} s")
    return figures, ratios


if __name__ == "__main__":
    main()
