"""Which of four programs should be taken? The value of a trained discriminator at inference.

    python -m benchmarks.experiments.best_of --output output/experiments
    python -m benchmarks.experiments.best_of output/RUN

The first command takes the run of seed 1 of the recipe `toy`, and makes it if it is missing; --quick takes the
models before play.
The problems are the held-out toy problems; at each checkpoint of the run, its generator writes four programs for each
problem. One of them is taken: the first (pass@1), or the one with the most votes (sparring/evaluation/choosing.py) on the
discriminator's tests, on the same number of tests on random inputs, or on the inputs of the problem's own baseline
tests (a majority of outputs, without their expected values). Any: whether one of the four is right, the upper bound of
any choice.
Solved means that all 20 hidden tests pass. Intervals are over sampling seeds.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from actors.settings import ENGINES
from benchmarks.experiments.runs import sparring_runs
from benchmarks.report import arguments, publish
from lab.grammar import Spec
from lab.problems import toy_problems, toy_specs
from lab.sampling import bland_input
from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import Sandbox
from sparring.core.play import GENERATOR
from sparring.core.problem import Problem
from sparring.core.project_files import EXAMPLES
from sparring.core.verdict import Limits
from sparring.evaluation.choosing import votes
from sparring.evaluation.intervals import intervals
from sparring.evaluation.solving import Tester
from sparring.evaluation.writing import PolicyWriter
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from sparring.runtime.model import loaded, open_model

PROGRAMS, SUITES = 4, 1
LIMITS = Limits()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="of the recipe toy")
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--steps", nargs="+", default=["*"], help="steps of the checkpoints; default: all")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if options.run is None and options.quick:
        checkpoints = [EXAMPLES / "toy"]
    else:
        run = options.run or sparring_runs([1], options.output)[0]
        checkpoints = checkpoints_of(run, options.steps)
        if not checkpoints:
            parser.error(f"{run}: no run with these checkpoints")
    held_out = list(zip(toy_problems("held_out"), toy_specs("held_out"), strict=True))
    if options.quick:
        checkpoints, held_out, options.seeds = checkpoints[:1], held_out[:12], 1
    figures: dict[str, Any] = {}
    with LocalSandbox(limits=LIMITS, trusted=True) as sandbox:
        for checkpoint in checkpoints:
            found = [
                asyncio.run(measure(checkpoint, held_out, sandbox, seed))
                for seed in range(1, options.seeds + 1)
            ]
            for way, result in intervals(found).items():
                figures[f"{checkpoint.name}: {way}"] = result.plain()
                print(checkpoint.name, way, result, flush=True)
    publish(options.json, figures, {})


def checkpoints_of(run: Path, steps: Sequence[str]) -> list[Path]:
    names = [step if step == "*" else f"{step:>06}" for step in steps]
    return [path for name in names for path in sorted((run / "checkpoints").glob(f"step_{name}"))]


async def measure(
    checkpoint: Path, held_out: list[tuple[Problem, Spec]], sandbox: Sandbox, seed: int
) -> dict[str, float]:
    """Returns the share of problems that are solved, by how one program is chosen, and the number of tests per problem."""
    models = {role: open_model(str(checkpoint / role), role) for role in (GENERATOR, "discriminator")}
    game = MultistageGame(MultistageRules.model_validate(models[GENERATOR].game))

    def opened(role: str):
        model = models[role]
        engine = ENGINES["transformers"](
            max_model_len=model.run[role]["engine"]["max_model_len"], max_num_seqs=256
        )
        return loaded(model, engine, "cpu", model.style(), model.max_tokens, seed)

    async with opened(GENERATOR) as writes, opened("discriminator") as attacks:
        tester = Tester(writer=attacks, game=game, suites=SUITES)
        rows = await asyncio.gather(
            *(of_problem(game, writes, tester, sandbox, problem, spec, seed) for problem, spec in held_out)
        )
    return {way: fmean(row[way] for row in rows) for way in rows[0]}


async def of_problem(
    game: MultistageGame,
    writes: PolicyWriter,
    tester: Tester,
    sandbox: Sandbox,
    problem: Problem,
    spec: Spec,
    seed: int,
) -> dict[str, float]:
    player = writes.player(GENERATOR, problem, PROGRAMS, 1.0, "solve")
    programs = [attempt.artifact for attempt in await game.solve_all(problem, player)]
    tests = {"its tests": await tester.tests(problem)}
    rng = Random(f"{seed} {problem.id}")
    drawn = [f"{problem.entry_point}({bland_input(spec, rng)!r})" for _ in tests["its tests"]]
    tests["random tests"] = list(dict.fromkeys(drawn))
    relabel = MultistageGame(MultistageRules(test_format="relabel", max_tests=100))
    tests["majority of outputs"] = relabel.tests_of(["\n".join(problem.baseline_asserts)], problem)
    ran = await asyncio.gather(
        *(sandbox.judge(program, problem.hidden_tests, limits=LIMITS) for program in programs)
    )
    solved = [all(verdict.passed for verdict in verdicts) for verdicts in ran]
    row = {"first": float(solved[0]), "any": float(any(solved)), "tests": float(len(tests["its tests"]))}
    for way, asked in tests.items():
        counted = await votes(programs, asked, sandbox, LIMITS)
        row[way] = float(solved[counted.index(max(counted))])
    return row


if __name__ == "__main__":
    main()
