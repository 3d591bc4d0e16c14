"""Solves problems with a trained generator: the five reasoning stages, the program, and what tests say of it.

    python -m scripts.solve --problem "Return the sum of two numbers." --tests "assert add(2, 3) == 5" --execute-tests
    python -m scripts.solve --checkpoint output/RUN --batch --problems-file problems.json --output results.json

--attempts N tells the generator which tests its program failed, and has it write the program again. --best-of N writes N
programs and has the discriminator's own tests choose. No Ray is needed. A problem that cannot be answered is named, in
the results as well, and the others are answered.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the rooms are found from the root
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from rich.console import Console

from actors.settings import ENGINES
from configs.solve import SolveOptions
from core.commands import plain_endings
from core.episode import Outcome, Turn
from core.errors import RunFailed, SparringError
from core.interfaces import Sandbox
from core.play import DISCRIMINATOR, GENERATOR
from core.problem import Problem
from core.source import parse_signature
from evaluation.solving import Solution, Solver, Tester, is_function, stage_name
from problems.formats import load_dataset
from problems.formats.sources import with_signature
from problems.loader import load_to_solve
from runtime.hardware import of_engine
from runtime.logs import quiet_logs
from runtime.model import (
    Model,
    check_writes_programs,
    find_policies,
    loaded,
    open_model,
    program_game,
    suite_game,
)
from sandbox_workers.local import LocalSandbox
from tracking.progress import counter
from tracking.rows import write_json
from tracking.run_record import versions

_LEAST_ROOM = 32


def solve(settings: SolveOptions) -> dict[str, Any]:
    """Print and write. Returns what --output holds.

    Raises SparringError, OSError.
    """
    started = time.perf_counter()
    settings = settings.model_copy(update=of_engine(settings.device, settings.dtype))
    problems, faults = problems_of(settings)
    generator, own_discriminator = find_policies(settings.checkpoint, settings.output_dir)
    model = open_model(generator, "--checkpoint")
    check_writes_programs(f"--checkpoint {generator}", model)
    tester = None
    if settings.best_of > 1:
        name = own_discriminator
        if settings.discriminator is not None:
            name = find_policies(settings.discriminator, settings.output_dir)[1] or settings.discriminator
        if name is None:
            raise SparringError(f"--best-of: {generator} comes with no discriminator; give --discriminator")
        tester = open_model(name, "--discriminator")
        suite_game(f"--discriminator {name}", tester)
    if settings.answer_format and (settings.stages or model.usual_stages) != "none":
        raise SparringError("--answer-format is that of one message: give --stages none as well")
    with contextlib.ExitStack() as stack:
        sandbox = None
        if settings.runs_programs:
            sandbox = stack.enter_context(LocalSandbox(settings.sandbox, limits=settings.limits))
            print(sandbox.description, flush=True)
        solutions, ended = asyncio.run(_solve_all(settings, problems, (model, tester), sandbox))
    solutions += [Solution(problem=i, attempts=[], error=fault) for i, fault in faults.items()]
    report = {
        "checkpoint": generator,
        "problems": len(solutions),
        "solved": sum(bool(s.solved) for s in solutions),
        "failed": [s.problem for s in solutions if s.error],
        "results": [s.as_dict() for s in solutions],
        "seconds": time.perf_counter() - started,
        "versions": versions(),
        "settings": settings.model_dump(mode="json"),
    }
    if settings.output is not None:
        write_json(settings.output, report)
    _print(settings, report, solutions)
    if ended is not None:  # what was answered before is kept
        raise ended
    return report


def problems_of(settings: SolveOptions) -> tuple[list[Problem], dict[str, str]]:
    """(those to solve, why others cannot be, by id)."""
    if not settings.batch:
        text = settings.problem if settings.problem is not None else _text_of(settings.problem_file)
        if not text.strip():
            raise SparringError("the problem's text is empty: say what the program shall do")
        if settings.signature and parse_signature(settings.signature) is None:
            raise SparringError(f"--signature {settings.signature}: expected one such as 'def add(a, b):'")
        one = Problem(
            id="problem",
            description=text.strip(),
            function_signature=settings.signature,
            baseline_tests=settings.separate_tests,
            reference_solution="",
        )
        return [with_signature(one)], {}
    assert settings.problems_file is not None
    if settings.format == "problems":
        stated, faults = load_to_solve(Path(settings.problems_file))
        problems = [*map(with_signature, stated)]
    else:
        problems = load_dataset(
            settings.problems_file, settings.format, fields=settings.fields, split=settings.split
        )
        faults = {}
    if not problems:
        raise SparringError("; ".join(faults.values()))
    return problems[: settings.problems], faults


def _text_of(file: Path | None) -> str:
    assert file is not None
    try:
        return file.read_text()
    except UnicodeDecodeError as error:
        raise SparringError(f"--problem-file {file}: not UTF-8 text (byte {error.start})") from None


async def _solve_all(
    settings: SolveOptions,
    problems: Sequence[Problem],
    models: tuple[Model, Model | None],
    sandbox: Sandbox | None,
) -> tuple[list[Solution], RunFailed | None]:
    """Also how the engine ended, where it did. models: the generator, and the discriminator where its tests choose."""
    model, tester = models
    stages = settings.stages or model.usual_stages
    game = program_game(model, stages, settings.answer_format, problems)
    all_attempts = program_game(model, stages, settings.answer_format, problems, settings.attempts)
    max_tokens = settings.max_tokens or model.max_tokens
    of = GENERATOR, model.style(), max_tokens
    needs = ((game.longest(p, *of), all_attempts.longest(p, *of)) for p in problems)
    room = _room((model.context, settings.max_model_len), needs)
    kind = settings.engine or ("vllm" if settings.batch else "transformers")
    print(
        f"{model.path} writes, stages {stages}, at most {max_tokens} tokens a turn, on {settings.device} in {settings.dtype}",
        flush=True,
    )

    async with contextlib.AsyncExitStack() as engines:

        async def writer(model: Model, room: int, max_tokens: int):
            engine = ENGINES[kind](dtype=settings.dtype, max_model_len=room)
            opened = loaded(model, engine, settings.device, model.style(), max_tokens, settings.seed)
            return await engines.enter_async_context(opened)

        writes = replace(await writer(model, room, max_tokens), top_p=settings.top_p, top_k=settings.top_k)
        chooses = None
        if tester is not None:
            attacking = suite_game("--discriminator", tester)
            of, named = (DISCRIMINATOR, tester.style(), tester.max_tokens), filter(is_function, problems)
            lengths = [attacking.longest(p, *of) for p in named]
            space = _room((tester.context, settings.max_model_len), zip(lengths, lengths, strict=True))
            attacks = await writer(tester, space, tester.max_tokens)
            chooses = Tester(writer=attacks, game=attacking, suites=settings.suites, room=space)
        solver = Solver(
            game=game,
            writer=writes,
            temperature=settings.temperature,
            sandbox=sandbox,
            limits=settings.limits,
            attempts=settings.attempts,
            best_of=settings.best_of,
            tester=chooses,
            room=room,
        )
        with counter("problems", len(problems)) as tick:
            show, ended = _shown_at_once(settings), list[RunFailed]()

            async def one(problem: Problem) -> Solution:
                try:
                    return await solver.solve(problem, show)
                except SparringError as error:
                    if isinstance(error, RunFailed):
                        ended.append(error)
                    return Solution(problem=problem.id, attempts=[], error=str(error))
                finally:
                    tick()

            return await asyncio.gather(*map(one, problems)), next(iter(ended), None)


def _room(limits: Sequence[int | None], needs: Iterable[tuple[int, int]]) -> int:
    """Tokens of the longest sequence. limits: of the model, of the user. needs: of each problem, for one attempt and for
    all; one that does not fit even once is its own failure, and takes no memory from the others."""
    limit = min((limit for limit in limits if limit), default=sys.maxsize)
    return max([_LEAST_ROOM, *(min(all_of_them, limit) for one, all_of_them in needs if one <= limit)])


# ---------------------------------------------------------------------- the terminal
def _shown_at_once(settings: SolveOptions) -> Callable[[int, Turn], None] | None:
    """Where there is one problem and one program, its stages are shown as they come."""
    if settings.batch or settings.best_of > 1 or not settings.reasoning:
        return None
    console = Console()

    def show(attempt: int, turn: Turn) -> None:
        _print_stage(console, stage_name(turn), turn.text)

    return show


def _print(settings: SolveOptions, report: dict[str, Any], solutions: Sequence[Solution]) -> None:
    console = Console()
    for solution in solutions:
        if not settings.batch:
            _print_one(console, settings, solution)
        elif solution.error:
            console.print(
                f"{solution.problem}: {solution.error}", markup=False, highlight=False, soft_wrap=True
            )
    if settings.batch:
        ran = [s for s in solutions if s.solved is not None]
        solved = f"{report['solved']} of {len(ran)} pass all of their tests" if ran else "no tests were run"
        failed = f"; {len(report['failed'])} could not be answered or judged" if report["failed"] else ""
        print(f"{len(solutions)} problems in {report['seconds']:.1f} s: {solved}{failed}")
    if settings.output is not None:
        print(f"results: {settings.output}")


def _print_one(console: Console, settings: SolveOptions, solution: Solution) -> None:
    for number, tried in enumerate(solution.attempts, start=1):
        if settings.best_of > 1 and settings.reasoning:
            for stage in tried.stages[:-1]:
                _print_stage(console, stage["stage"], stage["text"])
        if tried.votes is not None:
            said = f"chosen of {settings.best_of} by {len(solution.tests)} tests of the discriminator"
            console.print(f"{said}: {tried.votes} votes", markup=False, highlight=False)
        _print_stage(console, "program" if number == 1 else f"program, attempt {number}", tried.program)
        if tried.cut_off:
            console.print("a turn was cut off: raise --max-tokens", markup=False, highlight=False)
        for outcome in tried.outcomes or ():
            _print_outcome(console, outcome)
    if solution.note:
        console.print(solution.note, markup=False, highlight=False, soft_wrap=True)
    if solution.error:
        raise SparringError(solution.error)


def _print_stage(console: Console, name: str, text: str) -> None:
    console.rule(name, align="left")
    console.print(text.strip("\n"), markup=False, highlight=False, soft_wrap=True)


def _print_outcome(console: Console, outcome: Outcome) -> None:
    error = f": {outcome.error}" if outcome.error else ""
    console.print(
        f"{outcome.status:<14} {outcome.test}{error}", markup=False, highlight=False, soft_wrap=True
    )


def main(arguments: Sequence[str]) -> None:
    with plain_endings():
        solve(SolveOptions.read(arguments))


if __name__ == "__main__":
    quiet_logs()
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # vLLM would compile a helper at its first request
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main(sys.argv[1:])
