"""Does the discriminator learn to find bugs? The bugs are seeded in the reference solutions of held-out toy
problems; compared are the suites of trained discriminators, of the one before training, and of random inputs.

    python -m benchmarks.experiments.bug_finding --output output/experiments
    python -m benchmarks.experiments.bug_finding --checkpoint RUN/checkpoints/best/discriminator

The first command takes a run of the recipe `toy` for each seed, and makes those that are missing. --checkpoint may
be repeated, once for each seed of a run. --untrained defaults to the recipe's discriminator before play.
Bugs: mutants of the syntax tree that the sandbox can tell from the reference (`sparring.evaluation.mutants`). Most are coarse,
and any input shows them; --operators comparison boolean keeps only those that need well-chosen inputs.
kill@k: the probability that one of k suites fails a bug, mean over a problem's bugs, then over problems; five suites
are written for each problem.
Random inputs are uniform over values of the right type and range, use nothing else of the problem, and come in suites
of the discriminator's size and in large ones. Two further arms know at which numbers the conditions change: inputs at
those numbers only, and these mixed with random ones, which a discriminator could learn to write.
Intervals are over checkpoints for the trained, and over sampling seeds for the others.
"""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, get_args

from benchmarks.experiments.runs import sparring_runs, writer
from benchmarks.report import arguments, write
from configs.load import load_run
from configs.schema import Config
from lab.examples import MADE
from lab.grammar import Spec
from lab.problems import toy_problems, toy_specs
from lab.sampling import Input, bland_input, edge_input
from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import Sandbox, SandboxKind
from sparring.core.problem import Problem
from sparring.core.project_files import located
from sparring.core.seeding import derive_seed
from sparring.evaluation.intervals import intervals, print_table
from sparring.evaluation.mutants import OPERATORS, Mutant, seeded_bugs
from sparring.evaluation.writing import write_suites
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from sparring.games.suite_scores import discriminator_scores, mean_kill_at_k

SUITES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A held-out problem and its bugs."""

    problem: Problem
    spec: Spec
    bugs: Sequence[Mutant]


async def make_targets(options: argparse.Namespace, sandbox: Sandbox, config: Config) -> list[Target]:
    """Returns the first held-out problems with their bugs; problems without a bug are left out."""
    numbers = MADE[Path(config.problems.file).parent.name].warm_up.numbers
    held_out = zip(toy_problems("held_out", numbers), toy_specs("held_out", numbers), strict=True)
    chosen = list(held_out)[: options.problems]

    async def bugs(problem: Problem, spec: Spec) -> list[Mutant]:
        return await seeded_bugs(
            problem,
            sandbox,
            MultistageRules.model_validate(config.game).sandbox_limits,
            count=options.mutants,
            operators=options.operators,
            probe=lambda rng: f"f({edge_input(spec, rng)!r})",
        )

    found = await asyncio.gather(*(bugs(problem, spec) for problem, spec in chosen))
    return [Target(problem=p, spec=s, bugs=b) for (p, s), b in zip(chosen, found, strict=True) if b]


async def written_suites(
    directory: Path, targets: Sequence[Target], config: Config, seed: int
) -> list[list[str]]:
    """Returns SUITES suites of a discriminator for each problem."""
    game = MultistageGame(MultistageRules.model_validate(config.game))
    async with writer(directory, "discriminator", config, seed) as discriminator:
        problems = [target.problem for target in targets]
        written = await write_suites(problems, discriminator, game, SUITES, "bug_finding")
    return [[suite.artifact for suite in of_problem] for of_problem in written]


def random_input(spec: Spec, rng: Random) -> Input:
    blank = Spec(kind=spec.kind)  # without the problem's constants
    return rng.choice((partial(bland_input, spec), partial(edge_input, blank)))(rng)


def mixed_input(spec: Spec, rng: Random) -> Input:
    return rng.choice((random_input, edge_input))(spec, rng)


DRAWN: dict[str, Callable[[Spec, Random], Input]] = {
    "random": random_input,
    "named": edge_input,
    "mixed": mixed_input,
}


def drawn_suites(
    targets: Sequence[Target], draw: Callable[[Spec, Random], Input], tests: int, seed: int
) -> list[list[str]]:
    """Returns SUITES suites of `tests` calls for each problem."""

    def suite(target: Target, number: int) -> str:
        rng = Random(derive_seed(seed, "random suite", target.problem.id, number))
        return "\n".join(f"f({draw(target.spec, rng)!r})" for _ in range(tests))

    return [[suite(target, number) for number in range(SUITES)] for target in targets]


async def measure(
    targets: Sequence[Target], suites: Sequence[Sequence[str]], sandbox: Sandbox, rules: MultistageRules
) -> dict[str, float | None]:
    """Returns the figures of all suites of one checkpoint or seed. validity: share of the written tests that are valid
    and no repetition; tests: number of tests in a suite."""
    game = MultistageGame(rules)
    judged = await asyncio.gather(
        *(
            game.judge_suites(
                target.problem, of_problem, sandbox, mutants=[bug.source for bug in target.bugs]
            )
            for target, of_problem in zip(targets, suites, strict=True)
        )
    )
    scores = discriminator_scores([record for records in judged for record in records])
    if scores.unjudged:
        print(f"{scores.unjudged} suites and pairs could not be judged and are left out")
    emitted = [record.emitted for records in judged for record in records if record]
    found: dict[str, list[bool]] = {}
    for target, records in zip(targets, judged, strict=True):
        outcomes = zip(*(record.mutants for record in records if record), strict=True)
        for bug, of_bug in zip(target.bugs, outcomes, strict=False):  # empty if no suite could be judged
            if None not in of_bug:
                found.setdefault(bug.operator, []).append(any(of_bug))
    return {
        "kill_at_1": mean_kill_at_k(judged, 1),
        "kill_at_5": mean_kill_at_k(judged, SUITES),
        "validity": scores.distinct,
        "duplicates": scores.duplicates,
        "tests": fmean(emitted) if emitted else None,
        **{f"found, {operator}": fmean(of_bugs) for operator, of_bugs in sorted(found.items())},
    }


async def compare(options: argparse.Namespace, config: Config, untrained: Path) -> dict[str, Any]:
    """Measures all arms, prints the table and returns the figures."""
    rules, seeds = MultistageRules.model_validate(config.game), options.seeds
    with LocalSandbox(options.sandbox, limits=rules.sandbox_limits) as sandbox:
        print(sandbox.description)
        targets = await make_targets(options, sandbox, config)
        by_arm: dict[str, list[dict[str, float | None]]] = {}
        models = {"trained": options.checkpoint, "untrained": [untrained] * len(seeds)}
        for arm, directories in models.items():
            for number, directory in enumerate(directories, start=1):
                suites = await written_suites(directory, targets, config, number)
                by_arm.setdefault(arm, []).append(await measure(targets, suites, sandbox, rules))
        for (of, draw), tests in product(DRAWN.items(), (rules.max_tests, options.random_tests)):
            long = rules.model_copy(update={"max_tests": tests, "test_format": "input_only"})
            by_arm[f"{of}, {tests} tests"] = [
                await measure(targets, drawn_suites(targets, draw, tests, seed), sandbox, long)
                for seed in seeds
            ]
    kinds = Counter(bug.operator for target in targets for bug in target.bugs)
    figures: dict[str, Any] = {"problems": len(targets), "bugs": kinds.total(), "bugs by kind": kinds}
    rows: list[list[object]] = []
    columns = list(dict.fromkeys(name for measures in by_arm.values() for of in measures for name in of))
    for arm, measures in by_arm.items():
        results = intervals(measures)
        rows.append([arm, len(measures), *(results.get(name, "-") for name in columns)])
        figures |= {f"{arm}, {of}": result.plain() for of, result in results.items()}
    print_table(
        f"{figures['bugs']} bugs in {len(targets)} held-out problems, {SUITES} suites for each problem",
        ["", "seeds", *columns],
        rows,
    )
    return figures


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--checkpoint", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--untrained", type=Path, metavar="DIR")
    parser.add_argument("--config", help="the recipe of the runs (toy; with --quick debug)")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 6)))
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--mutants", type=int, default=12, help="drawn for each problem")
    parser.add_argument("--operators", nargs="+", choices=OPERATORS, default=OPERATORS)
    parser.add_argument("--random-tests", type=int, default=50, help="in a large random suite")
    parser.add_argument("--sandbox", choices=get_args(SandboxKind), default="auto")
    options = parser.parse_args()
    if options.config and not options.checkpoint and not options.quick:
        parser.error("--config is the recipe of the runs that --checkpoint names: give one")
    if options.quick:
        options.problems, options.mutants, options.seeds = 8, 6, options.seeds[:2]
    recipe = options.config or ("debug" if options.quick else "toy")
    config = load_run(["--config", recipe])[0].to_config()
    untrained = options.untrained
    if untrained is None:
        untrained = located(config.policy("discriminator").model)
    if not options.checkpoint:
        runs = [] if options.quick else sparring_runs(options.seeds, options.output)
        options.checkpoint = [run / "checkpoints" / "best" / "discriminator" for run in runs] or [untrained]
    start = time.perf_counter()
    figures = asyncio.run(compare(options, config, untrained))
    seconds = time.perf_counter() - start
    print(f"\n95% intervals, {seconds:.0f} s")
    trained, before = (figures.get(f"{arm}, kill_at_5") for arm in ("trained", "untrained"))
    ratios = {}
    if trained and before and before["mean"]:
        ratios["kill_at_5_vs_untrained"] = trained["mean"] / before["mean"]
    write(options.json, {**figures, "seconds": seconds}, ratios)


if __name__ == "__main__":
    main()
