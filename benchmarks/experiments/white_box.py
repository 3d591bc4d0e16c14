"""Does a discriminator that sees the program which it is to break (game.attack program) break more programs, and does
the generator learn more by it? The recipe `toy` with suites that are written against the problem, as in the recipe,
and against one program each; both have eight suites while the discriminator is frozen, so that programs are judged by
equally many tests. Steps and samples are equal; the initial generator and the hidden tests on held-out problems are the
same; there are several seeds.

    python -m benchmarks.experiments.white_box --output output/white_box

Afterwards, wrong programs that no policy was trained on are attacked with 1, 2, 4 tests: programs with the
misconceptions of the warm-up demonstrations for held-out problems, and mutants of the references. The discriminators of
both kinds are compared with random inputs, which use only the parameter's type, and with inputs that are chosen with
the reference: of 40 random ones, repeatedly the one that fails most of the remaining mutants. The mutants for this
choice are not those that are attacked.

Runs are local and bit-identical (experiments/runs.py), and several can run in parallel; finished runs are not repeated.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.experiments.runs import SHORT, finished_run, in_one_process, results_of, writer
from benchmarks.report import arguments, write
from configs.load import load_run
from lab.examples import MADE, models_as_options
from lab.grammar import Spec
from lab.problems import toy_problems, toy_specs
from lab.sampling import bland_input, edge_input
from lab.traces import flawed_trace
from sandbox_workers.local import LocalSandbox
from sparring.core.evaluation import mean
from sparring.core.interfaces import Sandbox
from sparring.core.play import DISCRIMINATOR
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.evaluation.intervals import intervals, print_table
from sparring.evaluation.mutants import Mutant, non_equivalent, seeded_bugs
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules

ARMS: dict[str, list[str]] = {
    "problem": [],
    "program": [
        "--game.attack",
        "program",
        "--game.shown-chars",
        "160",
        "--discriminator.engine.max-model-len",
        "384",
    ],
}
EIGHT = ["--curriculum.frozen-suites", "8"]
COUNTS = (1, 2, 4)
CANDIDATES = 40
DEMONSTRATED, MUTANTS = 12, 4
"""For each held-out problem: the number of traces drawn, of which some are wrong; and of mutants that are attacked, and
of as many that choose inputs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackedProblem:
    """A held-out problem and wrong programs for it."""

    problem: Problem
    spec: Spec
    wrong: Mapping[str, Sequence[str]]
    """The wrong programs by kind."""
    choosing: Sequence[str]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/white_box"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=list(ARMS))
    parser.add_argument("--problems", type=int, default=60, help="held-out ones that are attacked")
    options = parser.parse_args()
    options.config = "debug" if options.quick else "toy"
    if not options.quick:
        write(options.json, asyncio.run(compare(options)), {})
        return
    options.seeds, options.problems = options.seeds[:1], 12
    with tempfile.TemporaryDirectory() as directory:
        options.output = Path(directory)
        write(options.json, asyncio.run(compare(options)), {})


async def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Makes the runs, prints the tables and returns the figures."""
    more = SHORT if options.quick else EIGHT
    few = {"generator_steps": 10, "discriminator_steps": 10} if options.quick else {}
    # the warm-up of an arm's discriminator shows what stands in the arm's prompts
    arms = {arm: [*ARMS[arm], *models_as_options("toy", ARMS[arm], **few)] for arm in options.arms}
    runs = {
        arm: [
            finished_run(
                options.config,
                f"{arm}-seed{seed}",
                options.output,
                ["--seed", str(seed), *given, *in_one_process(options.config), *more],
            )
            for seed in options.seeds
        ]
        for arm, given in arms.items()
    }
    figures: dict[str, Any] = {}
    for arm, of_arm in runs.items():
        results = [results_of(run) for run in of_arm]
        after = [result["held_out"]["after"] for result in results]
        stages = [
            [stage["held_out"].get("generator_pass_rate") for stage in result["stages"]] for result in results
        ]
        of_seeds = [
            {"pass rate": scores.get("generator_pass_rate"), "validity": scores.get("test_validity")}
            for scores in after
        ]
        figures[arm] = {"before": results[0]["held_out"]["before"], "after": after} | {
            "by stage": [mean(of_stage) for of_stage in zip(*stages, strict=True)],
            **{name: found.plain() for name, found in intervals(of_seeds).items()},
        }
    header = ["suites against", *(str(seed) for seed in options.seeds)]
    rows = [
        [
            a,
            *(
                f"{rate:.3f}" if (rate := of.get("generator_pass_rate")) is not None else "-"
                for of in figures[a]["after"]
            ),
        ]
        for a in runs
    ]
    print_table("held-out pass rate by seed", header, rows)

    config = load_run(["--config", options.config])[0].to_config()
    rules = MultistageRules.model_validate(config.game)
    with LocalSandbox("auto", limits=rules.sandbox_limits) as sandbox:
        targets = await make_targets(options.problems, MADE["toy"].warm_up.misconceptions, rules, sandbox)
        known = {kind: sum(len(target.wrong[kind]) for target in targets) for kind in targets[0].wrong}
        print(f"{known} wrong programs for {len(targets)} problems")
        figures["attacked"] = known | {"problems": len(targets)}
        kills: dict[str, list[dict[str, float | None]]] = {
            arm: [await attacked_by(run, arm, options, targets, sandbox) for run in of_arm]
            for arm, of_arm in runs.items()
        }
        kills["random"] = [
            await killed(targets, random_tests(targets, seed), sandbox, rules) for seed in options.seeds
        ]
        chosen = [await chosen_tests(targets, seed, sandbox, rules) for seed in options.seeds]
        kills["chosen by mutants"] = [await killed(targets, tests, sandbox, rules) for tests in chosen]
    measured = {who: intervals(found) for who, found in kills.items()}
    names = list(dict.fromkeys(name for of in measured.values() for name in of))
    figures["kills"] = {who: {n: i.plain() for n, i in of.items()} for who, of in measured.items()}
    print_table(
        "share killed, ± 95% over seeds",
        ["", *names],
        [[who, *(of.get(name, "-") for name in names)] for who, of in measured.items()],
    )
    return figures


async def make_targets(
    count: int, misconceptions: float, rules: MultistageRules, sandbox: Sandbox
) -> list[AttackedProblem]:
    """Returns the first held-out problems with wrong programs. misconceptions: probability of each misconception in a
    trace."""
    limits = rules.sandbox_limits

    async def target(problem: Problem, spec: Spec) -> AttackedProblem:
        rng = Random(derive_seed("white box", problem.id))
        programs = {flawed_trace(spec, rng, misconceptions)[-1] for _ in range(DEMONSTRATED)}
        traces = [Mutant(source=p, operator="trace", line=0) for p in sorted(programs)]
        wrong = await non_equivalent(problem, traces, sandbox, limits=limits)
        bugs = await seeded_bugs(problem, sandbox, limits, count=2 * MUTANTS)
        return AttackedProblem(
            problem=problem,
            spec=spec,
            wrong={
                "demonstrated": [bug.source for bug in wrong],
                "mutants": [bug.source for bug in bugs[::2]],
            },
            choosing=[bug.source for bug in bugs[1::2]],
        )

    pairs = zip(toy_problems("held_out"), toy_specs("held_out"), strict=True)
    return await asyncio.gather(*(target(problem, spec) for problem, spec in list(pairs)[:count]))


Tests = list[dict[str, list[str]]]
"""The calls of each wrong program, by problem, in the order in which they are used."""


async def attacked_by(
    run: Path, arm: str, options: argparse.Namespace, targets: Sequence[AttackedProblem], sandbox: Sandbox
) -> dict[str, float | None]:
    """Attacks with the run's last discriminator: the tests of as many suites as the largest of COUNTS may take."""
    config = load_run(["--config", options.config, *ARMS[arm]])[0].to_config()
    rules = MultistageRules.model_validate(config.game)
    game = MultistageGame(rules)
    suites = -(-max(COUNTS) // rules.max_tests)
    last = max((run / "checkpoints").glob("step_*"))
    async with writer(last / DISCRIMINATOR, DISCRIMINATOR, config, 1) as author:

        async def calls(problem: Problem, program: str | None) -> list[str]:
            player = author.player(DISCRIMINATOR, problem, suites, 1.0, f"white box {program}")
            written = await asyncio.gather(*(game.attack(problem, player, i, program) for i in range(suites)))
            return game.tests_of([suite.artifact for suite in written], problem)

        async def of_problem(target: AttackedProblem) -> dict[str, list[str]]:
            programs = [program for of_kind in target.wrong.values() for program in of_kind]
            if arm == "problem":
                return dict.fromkeys(programs, await calls(target.problem, None))
            found = await asyncio.gather(*(calls(target.problem, program) for program in programs))
            return dict(zip(programs, found, strict=True))

        tests = await asyncio.gather(*(of_problem(target) for target in targets))
    return await killed(targets, tests, sandbox, rules)


def random_tests(targets: Sequence[AttackedProblem], seed: int, count: int = max(COUNTS)) -> Tests:
    def of_problem(target: AttackedProblem) -> dict[str, list[str]]:
        rng = Random(derive_seed(seed, "random tests", target.problem.id))
        blank = Spec(kind=target.spec.kind)  # without the problem's constants
        drawn = [f"f({rng.choice((bland_input, edge_input))(blank, rng)!r})" for _ in range(count)]
        return {program: drawn for of_kind in target.wrong.values() for program in of_kind}

    return [of_problem(target) for target in targets]


async def chosen_tests(
    targets: Sequence[AttackedProblem], seed: int, sandbox: Sandbox, rules: MultistageRules
) -> Tests:
    """Returns the best of CANDIDATES random tests against mutants, chosen one after the other."""
    game = MultistageGame(rules)

    async def of_problem(target: AttackedProblem, drawn: dict[str, list[str]]) -> dict[str, list[str]]:
        candidates = list(dict.fromkeys(next(iter(drawn.values()), [])))
        records = await game.judge_suites(target.problem, candidates, sandbox, target.choosing)
        kills = {
            call: {i for i, dead in enumerate(record.wrong if record else ()) if dead}
            for call, record in zip(candidates, records, strict=True)
        }
        chosen, seen = list[str](), set[int]()
        while kills and len(chosen) < max(COUNTS):
            best = max(kills, key=lambda call: len(kills[call] - seen))
            seen |= kills.pop(best)
            chosen.append(best)
        return dict.fromkeys(drawn, chosen)

    drawn = random_tests(targets, seed, CANDIDATES)
    return await asyncio.gather(*(of_problem(t, d) for t, d in zip(targets, drawn, strict=True)))


async def killed(
    targets: Sequence[AttackedProblem], tests: Tests, sandbox: Sandbox, rules: MultistageRules
) -> dict[str, float | None]:
    """Returns the share of the wrong programs that one of the first 1, 2, 4 tests fails, by kind, over programs."""
    game = MultistageGame(rules)

    async def spent(target: AttackedProblem, of_problem: Mapping[str, Sequence[str]]) -> dict[str, int]:
        """Returns by program the number of tests until one fails it; more than there are if none does. Programs that the
        sandbox could not judge are left out."""
        attacked: dict[tuple[str, ...], list[str]] = {}
        for program, calls in of_problem.items():
            attacked.setdefault(tuple(calls[: max(COUNTS)]), []).append(program)
        found = {}
        for calls, programs in attacked.items():
            records = await game.judge_suites(target.problem, calls, sandbox, programs)
            for i, program in enumerate(programs):
                outcomes = [record and record.wrong[i] for record in records]
                if outcomes and all(killed is None for killed in outcomes):
                    continue
                kills = [number for number, killed in enumerate(outcomes, 1) if killed]
                found[program] = min(kills, default=max(COUNTS) + 1)
        return found

    needed = await asyncio.gather(*(spent(t, of) for t, of in zip(targets, tests, strict=True)))
    return {
        f"{kind}, {count}": mean(
            of_problem[program] <= count
            for target, of_problem in zip(targets, needed, strict=True)
            for program in target.wrong[kind]
            if program in of_problem
        )
        for kind in targets[0].wrong
        for count in COUNTS
    }


if __name__ == "__main__":
    main()
