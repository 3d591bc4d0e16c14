"""Scores a generator's programs, a data set's own solutions, or a discriminator's suites, on any data set.

    python -m sparring evaluate --dataset mbpp.jsonl --format mbpp --split test --policy output/RUN
    python -m sparring evaluate --dataset mbpp.jsonl --format mbpp --policy reference --json rates.json
    python -m sparring evaluate --discriminator output/RUN
    python -m sparring evaluate --dataset mbpp.jsonl --format mbpp --discriminator baseline

A generator writes one program for each problem greedily, and with --samples further ones. They are judged on the
problem's evaluation tests, in its language and limits. `--policy reference` checks a data set and its tests by the
solutions that come with it, `--policy empty` by empty programs. `--discriminator baseline` shows which seeded bugs the
data set's own tests detect.

--json writes the file that a run reads as problems.pass_rates: the share of each problem's programs that solve it. The
command needs no Ray. It does not evaluate games without programs, such as board games.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from random import Random
from typing import Any

from actors.settings import ENGINES
from configs.evaluate import ARMS, FIXED, OWN_TESTS, EvaluateOptions
from sandbox_workers.local import LocalSandbox
from sparring.core.commands import plain_endings
from sparring.core.episode import Trajectory
from sparring.core.errors import SparringError
from sparring.core.evaluation import mean
from sparring.core.interfaces import Sandbox, SandboxFailure
from sparring.core.play import DISCRIMINATOR, GENERATOR
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.verdict import Limits, Status
from sparring.evaluation.best_of import choice_scores, sampled_programs
from sparring.evaluation.coverage import Coverage, coverage
from sparring.evaluation.mutants import mutants, non_equivalent, seeded_bugs
from sparring.evaluation.near_inputs import near_inputs
from sparring.evaluation.writing import ProgramGame, SuiteGame, write_programs, write_suites
from sparring.games.program_scores import (
    JudgedProgram,
    judge_programs,
    pass_rates,
    program_scores,
    status_counts,
)
from sparring.games.programs.game import SolverGame
from sparring.games.suite_scores import SuiteRecord, discriminator_scores, mean_kill_at_k
from sparring.problems.formats import load_written
from sparring.problems.packages import missing_packages
from sparring.problems.references import judge_references
from sparring.problems.shown_tests import with_shown_tests
from sparring.runtime.hardware import of_engine
from sparring.runtime.logs import quiet_logs
from sparring.runtime.model import Model, find_policy, loaded, open_model, program_game, room_for, suite_game
from sparring.runtime.problem_sets import load_splits
from sparring.tracking.progress import counter
from sparring.tracking.rows import write_json
from sparring.tracking.run_record import versions
from sparring.tracking.score_table import print_failures, print_scores

Judged = Mapping[str, Sequence[JudgedProgram]]


def evaluate(settings: EvaluateOptions) -> dict[str, Any]:
    """Judges, prints and writes the scores. Returns what --json holds.

    Raises SparringError or OSError.
    """
    started = time.perf_counter()
    name = settings.policy or settings.discriminator or ""
    model = None
    if settings.policy not in FIXED and settings.discriminator != OWN_TESTS:
        key, role = ("--policy", GENERATOR) if settings.policy else ("--discriminator", DISCRIMINATOR)
        model = open_model(find_policy(name, role, key), key)
    problems = _problems(settings, model)
    if settings.dataset is None:
        settings = settings.model_copy(update={"dataset": f"held-out problems of {name}", **_read_as(model)})
    if settings.policy and (bare := next((p for p in problems if not p.evaluation_tests), None)) is not None:
        raise SparringError(
            f"{settings.dataset}: problem {bare.id} has no tests, by which programs could be judged; give --discriminator"
        )
    if model is not None:
        if note := model.note(problems):
            print(note, flush=True)
        chosen = of_engine(settings.device, settings.dtype, exact_on_cpu=model.is_toy)
        settings = settings.model_copy(update=chosen)
    limits = settings.limits
    if model is None:
        of = partial(fixed_programs_report if settings.policy else own_tests_report, settings, problems)
    elif settings.policy:
        of = partial(programs_report, settings, problems, model)
    else:
        game = changed_game(settings, model)
        limits = game.limits
        of = partial(suites_report, settings, problems, model, game)
    with LocalSandbox(settings.sandbox, limits=limits) as sandbox:
        print(sandbox.description, flush=True)

        async def judged() -> dict[str, Any]:
            if missing := await missing_packages(problems, sandbox):
                print(missing, flush=True)
            return await of(sandbox)

        found = asyncio.run(judged())
    report = {
        "dataset": settings.dataset,
        "format": settings.format,
        "policy": name,
        **found,
        "seconds": time.perf_counter() - started,
        "versions": versions(),
        "settings": settings.model_dump(mode="json") | {"limits": limits.model_dump()},
    }
    if settings.json_file is not None:
        write_json(settings.json_file, report)
    _print(report)
    return report


def _problems(settings: EvaluateOptions, model: Model | None) -> list[Problem]:
    if settings.dataset is not None:
        problems = load_written(settings.dataset, settings)
    elif model is None or (config := model.config) is None or "problems" not in config.game.uses:
        raise SparringError("--dataset is missing: the model is of no run with held-out problems")
    else:
        problems = model.evaluated(load_splits(config)[1])
        if not problems:
            raise SparringError("--dataset is missing: the model's run holds out no problems")
    return with_shown_tests(problems[: settings.problems], settings.shown_tests)


def _read_as(model: Model | None) -> dict[str, Any]:
    """Returns the options by which the model's run reads its held-out problems."""
    assert model is not None and model.config is not None
    problems = model.config.problems
    form, split = problems.format, problems.split
    if problems.held_out.kind == "file":
        form, split = problems.held_out.format or form, problems.held_out.split
    return {
        "format": form,
        "split": split,
        "fields": problems.fields if form == "fields" else {},
        "exact_outputs": problems.exact_outputs,
        "shown_tests": problems.shown_tests,
    }


# ---------------------------------------------------------------------- programs
async def fixed_programs_report(
    settings: EvaluateOptions, problems: list[Problem], sandbox: Sandbox
) -> dict[str, Any]:
    if settings.policy == "empty":
        programs = {p.id: [""] for p in problems}
    else:
        programs = {p.id: [p.reference_solution] for p in problems if p.reference_solution.strip()}
        if not programs:
            raise SparringError(
                f"{settings.dataset}: no problem has a reference solution; give another --policy"
            )
    known = [p for p in problems if p.id in programs]
    report = _programs_report(await judge_programs(sandbox, programs, known, settings.limits), {}, ())
    return {"problems": len(known), "without_reference": len(problems) - len(known), **report}


async def programs_report(
    settings: EvaluateOptions, problems: list[Problem], model: Model, sandbox: Sandbox
) -> dict[str, Any]:
    """Returns a report. With --ablate it is the report for all stages, and `ablation` holds those for every number of
    stages."""
    arms = ARMS if settings.ablate else (settings.stages or _usual_stages(model, problems),)
    games = {arm: _game(arm, settings, problems, model) for arm in arms}
    max_tokens, style = settings.max_tokens or model.max_tokens, model.style()

    def longest(problem: Problem) -> int:
        return max(game.longest(problem, GENERATOR, style, max_tokens) for game in games.values())

    room = room_for(problems, longest, model, max_tokens, settings.max_model_len)
    engine = ENGINES[settings.engine](dtype=settings.dtype, max_model_len=room)
    problems, failing = await judge_references(
        problems, sandbox
    )  # if the sandbox fails, it does so before the engine starts
    asked = [(1, 0.0), *([(settings.samples, settings.temperature)] if settings.samples else [])]
    reports: dict[str, dict[str, Any]] = {}
    async with loaded(model, engine, settings.device, style, max_tokens, settings.seed) as writer:
        for arm, game in games.items():
            print(f"stages {arm}: {settings.policy} writes, at most {max_tokens} tokens a turn", flush=True)
            writer = replace(writer, top_p=settings.top_p, top_k=settings.top_k)
            attempts = []
            for n, temperature in asked:
                with counter(f"problems, {n} answers each", len(problems)) as tick:
                    attempts.append(await write_programs(problems, writer, game, n, temperature, tick))
            reports[arm] = await _judged_report(settings, problems, game, attempts, sandbox)
            if settings.ablate:  # each arm takes long: a command that is ended keeps those that are finished
                rate = reports[arm]["scores"]["generator_pass_rate"]
                shown = "none was judged" if rate is None else f"{rate:.3f}"
                print(f"stages {arm}: generator pass rate {shown}", flush=True)
                if settings.json_file is not None:
                    write_json(settings.json_file, {"ablation": reports})
    report = {"problems": len(problems), "stages": arms[-1], "max_tokens": max_tokens, **reports[arms[-1]]}
    report["failing_references"] = {i: sorted({o.status for o in found}) for i, found in failing.items()}
    return report | ({"ablation": reports} if settings.ablate else {})


async def _judged_report(
    settings: EvaluateOptions,
    problems: Sequence[Problem],
    game: ProgramGame,
    attempts: Sequence[Mapping[str, Sequence[Trajectory]]],
    sandbox: Sandbox,
) -> dict[str, Any]:
    """Returns the report of one arm. attempts: by problem, the greedy ones and then the sampled ones."""
    greedy, *sampled = [
        await judge_programs(
            sandbox, {i: [t.artifact for t in ts] for i, ts in of.items()}, problems, settings.limits
        )
        for of in attempts
    ]
    report = _programs_report(greedy, sampled[0] if sampled else {}, settings.pass_at)
    if isinstance(game, SolverGame):
        report["scores"] |= game.rules.further_scores([program for (program,) in greedy.values()])
    report["scores"]["cut_off"] = sum(t.is_cut_off for (t,) in attempts[0].values())
    for i, (program,) in greedy.items():
        report["tasks"][i]["program"] = program.program
    for i, found in (sampled[0] if sampled else {}).items():
        report["tasks"][i]["samples"] = [{"program": p.program, "test_rate": p.test_rate} for p in found]
    return report


def _usual_stages(model: Model, problems: Sequence[Problem]) -> str:
    return model.usual_stages if model.knows_stages and all(p.is_function for p in problems) else "none"


def _game(arm: str, settings: EvaluateOptions, problems: Sequence[Problem], model: Model) -> ProgramGame:
    """Returns the game of an arm. Raises SparringError if the arm has stages and a problem is not suited to them."""
    other = next((p for p in problems if not p.is_function), None)
    if arm != "none" and other is not None:
        raise SparringError(
            f"{settings.dataset}: problem {other.id} is no Python function with a signature, and has no stages: give "
            "--stages none"
        )
    return program_game(model, arm, settings.answer_format, problems)


def _programs_report(greedy: Judged, sampled: Judged, pass_at: Sequence[int]) -> dict[str, Any]:
    scores = program_scores(greedy, sampled, pass_at)
    programs = {i: program for i, (program,) in greedy.items()}
    return {
        "scores": {**scores, "unjudged": int(scores["unjudged"] or 0)},
        "statuses": status_counts(greedy),
        "pass_rates": pass_rates(sampled or greedy),
        "tasks": {i: {"test_rate": p.test_rate, "status": str(p.status)} for i, p in programs.items()},
        "failures": [
            {"id": i, "status": str(p.status), "error": p.error} for i, p in programs.items() if not p.solved
        ],
    }


# ---------------------------------------------------------------------- suites
def changed_game(settings: EvaluateOptions, model: Model) -> SuiteGame:
    """Returns the game of the checkpoint's run, or the usual one, with the changes that the options make."""
    named = f"--discriminator {settings.discriminator}"
    game = suite_game(named, model)
    changes: dict[str, Any] = {}
    if settings.test_format:
        changes["test_format"] = settings.test_format
    if settings.max_tests:
        changes["max_tests"] = settings.max_tests
    if settings.cpu_s:
        changes["sandbox_limits"] = game.limits.model_copy(
            update=settings.limits.model_dump(include={"cpu_s", "wall_s"})
        )
    return suite_game(named, model, changes)


async def suites_report(
    settings: EvaluateOptions, problems: list[Problem], model: Model, game: SuiteGame, sandbox: Sandbox
) -> dict[str, Any]:
    """Returns what the suites detect (seeded bugs, the data set's wrong solutions, and, falsely, its correct ones), and what
    they cover of the reference. If a problem has no tests, all mutants count, since it is not known which of them are
    bugs.
    """
    _need_references(settings, problems)
    sampled = sampled_programs(settings.programs, problems) if settings.programs else {}
    style, max_tokens = model.style(), settings.max_tokens or model.max_tokens
    rules = game.rules.model_dump(mode="json")

    def longest(problem: Problem) -> int:
        return game.longest(problem, DISCRIMINATOR, style, max_tokens)

    room = room_for(problems, longest, model, max_tokens, settings.max_model_len)
    engine = ENGINES[settings.engine](dtype=settings.dtype, max_model_len=room)
    print(f"test format {rules['test_format']}, at most {game.max_tests} tests a suite", flush=True)
    async with loaded(model, engine, settings.device, style, max_tokens, settings.seed) as writer:
        with counter("problems", len(problems)) as tick:
            written = await write_suites(problems, writer, game, settings.suites, "suites", tick)
    suites = [[suite.artifact for suite in of_problem] for of_problem in written]
    cut = [sum(suite.is_cut_off for suite in of_problem) for of_problem in written]

    async def judged(
        problem: Problem, of_problem: Sequence[str]
    ) -> tuple[int, list[SuiteRecord | None], list[Coverage | None]]:
        if problem.evaluation_tests:
            try:
                bugs = await seeded_bugs(problem, sandbox, game.limits, count=settings.mutants)
            except SandboxFailure:  # of this problem; what was written for the others is not lost
                return 0, [None] * len(of_problem), []
        else:
            bugs = mutants(problem.reference_solution, settings.mutants, derive_seed("bugs", problem.id))
        changed = [bug.source for bug in bugs]
        judged = await game.judge_suites(
            problem, of_problem, sandbox, problem.wrong_solutions, changed, style
        )
        tests = [record.valid for record in judged if record is not None]
        covered = [coverage(problem, of_suite, sandbox, game.limits) for of_suite in tests]
        return len(bugs), judged, await asyncio.gather(*covered)

    found = await asyncio.gather(*(judged(p, of) for p, of in zip(problems, suites, strict=True)))
    by_problem = [records for _, records, _ in found]
    scores = asdict(discriminator_scores([r for records in by_problem for r in records]))
    scores["surplus"] = sum(r.surplus for records in by_problem for r in records if r is not None)
    for k in dict.fromkeys((1, settings.suites)):
        scores[f"kill_at_{k}"] = mean_kill_at_k(by_problem, k)
    covered = [of_suite for _, _, of_problem in found for of_suite in of_problem if of_suite is not None]
    scores["line_coverage"] = mean(of_suite.lines for of_suite in covered)
    scores["branch_coverage"] = mean(of_suite.branches for of_suite in covered)
    if sampled:
        scores |= await choice_scores(problems, suites, sampled, game, sandbox, settings.shown_tests)
    scores["cut_off"] = sum(cut)
    tasks = {
        p.id: {**asdict(discriminator_scores(records)), "bugs": bugs, "cut_off": ends, "suites": list(of)}
        for p, (bugs, records, _), of, ends in zip(problems, found, suites, cut, strict=True)
    }
    return {
        "problems": len(problems),
        "bugs": sum(bugs for bugs, _, _ in found),
        "max_tokens": max_tokens,
        "rules": rules,
        "scores": scores,
        "tasks": tasks,
    }


async def own_tests_report(
    settings: EvaluateOptions, problems: list[Problem], sandbox: Sandbox
) -> dict[str, Any]:
    """Returns three shares of the seeded bugs: those that the problems' baseline tests detect, those that as many
    inputs near the inputs of these tests detect, and those that eight times as many detect.

    The seeded bugs are those that all tests of a problem, or 40 inputs near theirs, detect. A problem whose tests name
    no input has no near inputs and is left out of the shares for near inputs. The limit is half a second of CPU,
    unless a problem states one, since many references loop forever on an input that they were not made for.
    """
    _need_references(settings, problems)
    limits = settings.limits if settings.cpu_s else Limits(cpu_s=0.5)

    async def shown(problem: Problem) -> tuple[int, int, list[int]]:
        near = near_inputs(problem)
        bugs = await seeded_bugs(problem, sandbox, limits, count=settings.mutants, probe=near)
        rng, count = Random(derive_seed("near inputs", problem.id)), len(problem.baseline_tests)
        own, bare = replace(problem, hidden_tests=()), replace(problem, hidden_tests=(), baseline_tests=())
        by_own = await non_equivalent(own, bugs, sandbox, (), limits)
        drawn = [near(rng) for _ in range(8 * count)] if near else []
        by_near = [
            await non_equivalent(bare, bugs, sandbox, drawn[:most], limits)
            for most in (count, 8 * count)
            if near
        ]
        return len(bugs), len(by_own), [len(found) for found in by_near]

    found = await asyncio.gather(*map(shown, problems))
    names = ("as_many_near_inputs", "8_times_as_many")
    bugs, own = sum(bugs for bugs, _, _ in found), sum(own for _, own, _ in found)
    near_bugs = sum(bugs for bugs, _, near in found if near)
    by_near = [sum(counts) for counts in zip(*(near for _, _, near in found if near), strict=True)]
    scores = {"own_tests": own / bugs if bugs else None, **dict.fromkeys(names)}
    if near_bugs:
        scores |= {name: count / near_bugs for name, count in zip(names, by_near, strict=True)}
    return {
        "problems": len(problems),
        "bugs": bugs,
        "without_near_inputs": sum(not near for _, _, near in found),
        "scores": scores,
        "tasks": {
            problem.id: {"bugs": bugs, "own_tests": own, **dict(zip(names, near, strict=False))}
            for problem, (bugs, own, near) in zip(problems, found, strict=True)
        },
    }


def _need_references(settings: EvaluateOptions, problems: Sequence[Problem]) -> None:
    other = next((p for p in problems if not (p.is_function and p.reference_solution)), None)
    if other is not None:
        raise SparringError(
            f"{settings.dataset}: problem {other.id}: suites need Python functions with a reference solution"
        )


# ---------------------------------------------------------------------- the terminal
def _print(report: Mapping[str, Any]) -> None:
    title = f"{report['problems']} problems of {report['dataset']}: {report['policy']}"
    if report["policy"] == OWN_TESTS:
        title += f", shares of {report['bugs']} seeded bugs that tests find"
    arms = report.get("ablation") or {"": report}
    shown = {arm: {k: v for k, v in of["scores"].items() if k != "cut_off"} for arm, of in arms.items()}
    print_scores(title, {arm: {**shown[arm], **of.get("statuses", {})} for arm, of in arms.items()})
    if report.get("without_reference"):
        print(f"{report['without_reference']} problems have no reference solution and are in no score")
    if report.get("without_near_inputs"):
        print(
            f"the tests of {report['without_near_inputs']} problems have no call with literal arguments, so no "
            "near inputs can be made from them: their bugs count only for the score own tests"
        )
    if failing := report.get("failing_references"):
        unserved = sum(Status.UNSUPPORTED in statuses for statuses in failing.values())
        print(
            f"{len(failing)} problems cannot be solved: their own references fail a test; {unserved} of them because "
            "the sandbox does not run that test (UNSUPPORTED)"
        )
    if report["scores"].get("cut_off"):
        print(
            f"{report['scores']['cut_off']} answers were cut off: raise --max-tokens ({report['max_tokens']})"
        )
    if report.get("failures") and report["policy"] != "empty":
        print(f"{len(report['failures'])} problems are not solved:")
        print_failures(report["failures"])


def main(arguments: Sequence[str]) -> None:
    with plain_endings():
        evaluate(EvaluateOptions.read(arguments))


if __name__ == "__main__":
    quiet_logs()
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # vLLM would compile a helper at its first request
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main(sys.argv[1:])
