"""Does each side get better against all of the other's past (E5, end to end)? The generations of a finished run are its
models before training and at the end of each stage. Each generator writes programs for held-out problems, each
discriminator suites, and every suite meets every program.

    python -m benchmarks.experiments.coevolution --run output/experiments/adversarial-seed1 [--run ...]

Two tables, means over the runs:
kills: of the wrong programs of the column's generator, the share that a suite of the row's discriminator finds. A program
is wrong if it fails a hidden test.
survival: of all programs of the row's generator, the share that every suite of the column's discriminator lets pass.
Later discriminators should find more in each column of the first, later generators survive more in each of the second.
--quick makes a short run of the debug recipe for it.
"""

import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.experiments.runs import SHORT, finished_run, writer
from benchmarks.report import arguments, write
from configs.load import load_run
from configs.schema import Config
from core.interfaces import Sandbox
from core.problem import Problem
from embedded.problems import embedded_problems
from embedded.teaching import ensure_embedded
from evaluation.discriminator import SuiteRecord, judge_suites
from evaluation.intervals import interval, print_table
from evaluation.writing import write_programs, write_suites
from games.multistage.game import MultistageGame
from games.multistage.rules import MultistageRules
from games.program_scores import judge_program
from sandbox_workers.backends import Kind
from sandbox_workers.local import LocalSandbox

PROGRAMS, SUITES = 4, 2
"""Of each generation for each problem."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    name: str
    models: dict[str, Path]
    """By policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """One problem's programs and suites of all generations."""

    programs: Sequence[Sequence[str]]
    """By generation."""
    wrong: frozenset[str]
    killed: Sequence[Sequence[frozenset[str]]]
    """By generation and suite: the programs that it fails."""


def generations(run: Path, config: Config) -> list[Generation]:
    """Before training, and at the end of each stage. The embedded recipe's models."""
    ends = [stage["step"] for stage in json.loads((run / "training_results.json").read_text())["stages"]]
    roles = list(config.policies)
    found = [Generation(name="before", models=ensure_embedded(roles, config.game, config.warm_start))]
    for number, step in enumerate(ends, start=1):
        checkpoint = run / "checkpoints" / f"step_{step:06d}"
        found.append(Generation(name=f"stage {number}", models={role: checkpoint / role for role in roles}))
    return found


async def written(
    generation: Generation, problems: Sequence[Problem], config: Config
) -> tuple[list[list[str]], list[list[str]]]:
    """By problem: programs, suites."""
    game = MultistageGame(MultistageRules.model_validate(config.game))
    models = generation.models
    async with writer(models["generator"], "generator", config, config.seed) as generator:
        programs = await write_programs(problems, generator, game, PROGRAMS, 1.0)
    async with writer(models["discriminator"], "discriminator", config, config.seed) as discriminator:
        suites = await write_suites(problems, discriminator, game, SUITES, "coevolution")
    return [[program.artifact for program in programs[problem.id]] for problem in problems], suites


async def meet(
    problem: Problem,
    programs: Sequence[Sequence[str]],
    suites: Sequence[Sequence[str]],
    sandbox: Sandbox,
    config: Config,
) -> Meeting:
    """programs, suites: by generation. What the sandbox could not judge counts as not killed, and not wrong."""
    rules = MultistageRules.model_validate(config.game)
    distinct = list(dict.fromkeys(text for of_one in programs for text in of_one))
    judged = await asyncio.gather(
        *(judge_program(sandbox, text, problem, rules.sandbox_limits) for text in distinct)
    )
    wrong = frozenset(j.program for j in judged if j.test_rate is not None and not j.solved)
    flat = [suite for of_one in suites for suite in of_one]
    records = await judge_suites(problem, flat, sandbox, rules, wrong=distinct)
    fails = [_failed(record, distinct) for record in records]
    killed = [fails[start : start + SUITES] for start in range(0, len(fails), SUITES)]
    return Meeting(programs=programs, wrong=wrong, killed=killed)


def _failed(record: SuiteRecord | None, programs: Sequence[str]) -> frozenset[str]:
    killed = record.wrong if record else ()
    return frozenset(text for text, dead in zip(programs, killed, strict=False) if dead)


def kill_rate(meetings: Sequence[Meeting], discriminator: int, generator: int) -> float:
    pairs = Counter(
        program in suite
        for meeting in meetings
        for program in meeting.programs[generator]
        if program in meeting.wrong
        for suite in meeting.killed[discriminator]
    )
    return pairs[True] / pairs.total() if pairs else float("nan")


def survival_rate(meetings: Sequence[Meeting], generator: int, discriminator: int) -> float:
    return fmean(
        not any(program in suite for suite in meeting.killed[discriminator])
        for meeting in meetings
        for program in meeting.programs[generator]
    )


async def play(run: Path, count: int, sandbox_kind: Kind) -> tuple[list[str], list[Meeting]]:
    """Names of the run's generations, and their meetings on `count` held-out problems."""
    config = load_run(["--config", str(run / "config.yaml")])[0].to_config()
    problems = embedded_problems("held_out")[:count]
    found = generations(run, config)
    texts = [await written(generation, problems, config) for generation in found]
    with LocalSandbox(
        sandbox_kind, limits=MultistageRules.model_validate(config.game).sandbox_limits
    ) as sandbox:
        meetings = await asyncio.gather(
            *(
                meet(problem, [p[i] for p, _ in texts], [s[i] for _, s in texts], sandbox, config)
                for i, problem in enumerate(problems)
            )
        )
    return [generation.name for generation in found], list(meetings)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--run", type=Path, action="append", metavar="DIR", help="finished, of the embedded models"
    )
    parser.add_argument("--problems", type=int, default=120)
    parser.add_argument("--sandbox", choices=["auto", "docker", "namespace", "process"], default="auto")
    options = parser.parse_args()
    count = 4 if options.quick else options.problems
    if options.run:
        write(options.json, *compare(options.run, count, options.sandbox))
    elif options.quick:
        with tempfile.TemporaryDirectory() as directory:
            run = finished_run("debug", "run", Path(directory), SHORT)
            write(options.json, *compare([run], count, options.sandbox))
    else:
        parser.error("--run DIR is missing: a finished run, such as benchmarks.experiments.sparring makes")


def compare(runs: Sequence[Path], count: int, sandbox: Kind) -> tuple[dict[str, object], dict[str, float]]:
    """(figures, ratios) on `count` held-out problems. Prints the tables."""
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
    print(f"\n95% intervals, {time.perf_counter() - start:.0f} s")
    return figures, ratios


if __name__ == "__main__":
    main()
