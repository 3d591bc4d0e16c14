"""Solves problems with a trained generator: prints the five reasoning stages, the program, and the results of its
tests.

    python -m sparring solve --problem "Return the sum of the above 613 numbers in xs." --signature "def f(xs):"
    python -m sparring solve --checkpoint output/RUN --batch --problems-file problems.json --output results.json

With --attempts N, the generator is prompted with the tests that its program failed, and writes the program again. With
--best-of N, it writes N programs, and the discriminator's own tests choose one. No Ray is needed. If a problem of a batch
cannot be answered, it is named, in the results as well, and the others are answered. The exit status is 1 if the answer to
a single problem fails a test.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from actors.settings import ENGINES
from configs.solve import SolveOptions
from sandbox_workers.local import LocalSandbox
from sparring.core.commands import plain_endings
from sparring.core.episode import Outcome, Turn
from sparring.core.errors import RunFailed, SparringError
from sparring.core.interfaces import Sandbox
from sparring.core.play import DISCRIMINATOR, GENERATOR
from sparring.core.problem import Problem
from sparring.core.project_files import located
from sparring.core.source import parse_signature
from sparring.core.verdict import Status
from sparring.evaluation.solving import Solver, SolveResult, Tester, stage_name
from sparring.problems.formats import load_written
from sparring.problems.formats.sources import with_signature
from sparring.problems.loader import ProblemFileError, load_to_solve
from sparring.runtime.hardware import of_engine
from sparring.runtime.logs import quiet_logs
from sparring.runtime.model import (
    Model,
    check_writes_programs,
    find_policies,
    find_policy,
    loaded,
    open_model,
    program_game,
    suite_game,
)
from sparring.tracking.progress import counter
from sparring.tracking.rows import write_json
from sparring.tracking.run_record import versions
from sparring.tracking.score_table import print_failures

_LEAST_ROOM = 32


def solve(settings: SolveOptions) -> dict[str, Any]:
    """Solves, prints and writes. Returns what --output holds.

    Raises SparringError or OSError.
    """
    started = time.perf_counter()
    problems, faults = problems_of(settings)
    generator, discriminator = find_policies(settings.checkpoint, settings.output_dir)
    if settings.discriminator is not None:
        discriminator = find_policy(settings.discriminator, DISCRIMINATOR, "--discriminator")
    if settings.best_of > 1 and discriminator is None:
        raise SparringError(f"--best-of: {generator} comes with no discriminator; give --discriminator")
    model = open_model(generator, "--checkpoint")
    chosen = of_engine(settings.device, settings.dtype, exact_on_cpu=model.is_toy)
    settings = settings.model_copy(update=chosen)
    check_writes_programs(f"--checkpoint {generator}", model)
    tester = None
    if settings.best_of > 1 and discriminator is not None:
        tester = open_model(discriminator, "--discriminator")
        suite_game(f"--discriminator {discriminator}", tester)
    if settings.answer_format and (settings.stages or model.usual_stages) != "none":
        raise SparringError(
            "--answer-format applies only to answers in one message: give --stages none as well"
        )
    if note := model.note(problems):
        print(note, flush=True)
    screen = _Screen()
    with ExitStack() as stack:
        sandbox = None
        if settings.runs_programs:
            sandbox = stack.enter_context(LocalSandbox(settings.sandbox, limits=settings.limits))
            print(sandbox.description, flush=True)
        solutions, ended = asyncio.run(_solve_all(settings, problems, (model, tester), sandbox, screen))
    solutions += [SolveResult(problem=i, attempts=[], error=fault) for i, fault in faults.items()]
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
    _print(settings, report, solutions, screen)
    if ended is not None:  # what was answered before is kept
        raise ended
    return report


def problems_of(settings: SolveOptions) -> tuple[list[Problem], dict[str, str]]:
    """Returns (problems to solve, reasons why others cannot be solved, by id)."""
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
        stated, faults = load_to_solve(located(settings.problems_file))
        problems = [*map(with_signature, stated)]
    else:
        left_out: list[ProblemFileError] = []
        problems = load_written(settings.problems_file, settings, faults=left_out)
        faults = {f"faulty entry {number}": str(fault) for number, fault in enumerate(left_out, start=1)}
    if not problems:
        raise SparringError("; ".join(faults.values()))
    return problems[: settings.problems], faults


def _text_of(file: Path | None) -> str:
    assert file is not None
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise SparringError(f"--problem-file {file}: not UTF-8 text (byte {error.start})") from None


async def _solve_all(
    settings: SolveOptions,
    problems: Sequence[Problem],
    models: tuple[Model, Model | None],
    sandbox: Sandbox | None,
    screen: "_Screen",
) -> tuple[list[SolveResult], RunFailed | None]:
    """Returns the solutions, and the error that ended the engine, if one did. models: the generator, and the
    discriminator if its tests choose."""
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

    async with AsyncExitStack() as engines:

        async def writer(model: Model, room: int, max_tokens: int):
            engine = ENGINES[kind](dtype=settings.dtype, max_model_len=room)
            opened = loaded(model, engine, settings.device, model.style(), max_tokens, settings.seed)
            return await engines.enter_async_context(opened)

        writes = replace(await writer(model, room, max_tokens), top_p=settings.top_p, top_k=settings.top_k)
        chooses = None
        if tester is not None:
            attacking = suite_game("--discriminator", tester)
            of, named = (
                (DISCRIMINATOR, tester.style(), tester.max_tokens),
                (p for p in problems if p.is_function),
            )
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
        with counter("problems", len(problems)) if settings.batch else nullcontext(lambda: None) as tick:
            show = _shown_at_once(settings)
            ended = list[RunFailed]()

            async def one(problem: Problem) -> SolveResult:
                try:
                    return await solver.solve(
                        problem, screen.turn if show else None, screen.writing if show else None
                    )
                except SparringError as error:
                    if isinstance(error, RunFailed):
                        ended.append(error)
                    return SolveResult(problem=problem.id, attempts=[], error=str(error))
                finally:
                    tick()

            return await asyncio.gather(*map(one, problems)), next(iter(ended), None)


def _room(limits: Sequence[int | None], needs: Iterable[tuple[int, int]]) -> int:
    """Returns the number of tokens of the longest sequence for which the engine must have room. A problem of which not
    even one attempt fits is not counted: it will be named as not answered, and must not enlarge the engine for the
    others.

    Args:
        limits: of the model, and of the user
        needs: tokens for each problem, for one attempt and for all attempts
    """
    limit = min((limit for limit in limits if limit), default=sys.maxsize)
    return max([_LEAST_ROOM, *(min(all_of_them, limit) for one, all_of_them in needs if one <= limit)])


# ---------------------------------------------------------------------- the terminal
def _shown_at_once(settings: SolveOptions) -> bool:
    """Returns whether stages are shown while they are written, which needs one problem and one program."""
    return not settings.batch and settings.best_of == 1 and settings.reasoning


class _Screen:
    """Terminal output for a problem."""

    def __init__(self) -> None:
        self._console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
        self._written = ""
        """Part of the current turn that is shown already."""
        self._turns: list[tuple[str, str]] = []
        """(stage, text) of the turns that were shown."""

    def writing(self, stage: int, text: str) -> None:
        """Shows what the current turn has more than before, on a terminal."""
        more = text.strip("\n").removesuffix("\ufffd")[len(self._written) :]
        if not more or not self._console.is_terminal:
            return
        if not self._written:
            self._begin(stage)
        self._console.print(more, end="")
        self._written += more

    def turn(self, attempt: int, turn: Turn) -> None:
        """Shows the rest of a turn that is complete."""
        text = turn.text.strip("\n")
        if not self._written:
            self._begin(turn.stage)
        self._console.print(text[len(self._written) :])
        self._turns.append((stage_name(turn.stage), text))
        self._written = ""

    def _begin(self, stage: int) -> None:
        name = stage_name(stage)
        earlier = sum(name == shown for shown, _ in self._turns)
        self.head(f"{name}, attempt {earlier + 1}" if earlier else name)

    def head(self, name: str) -> None:
        self._console.rule(name, align="left")

    def section(self, name: str, text: str) -> None:
        self.head(name)
        self._console.print(text.strip("\n"))

    def say(self, line: str) -> None:
        self._console.print(line)

    def has_shown(self, program: str) -> bool:
        """Returns whether a program is part of a turn that was shown."""
        return any(program.strip() in text for _, text in self._turns)


def _print(
    settings: SolveOptions, report: dict[str, Any], solutions: Sequence[SolveResult], screen: _Screen
) -> None:
    for solution in solutions:
        if not settings.batch:
            _print_one(screen, settings, solution)
        elif solution.error:
            screen.say(f"{solution.problem}: {solution.error}")
    if settings.batch:
        ran = [s for s in solutions if s.solved is not None]
        solved = f"{report['solved']} of {len(ran)} pass all of their tests" if ran else "no tests were run"
        failed = f"; {len(report['failed'])} could not be answered or judged" if report["failed"] else ""
        broken = sum(s.answer is not None and s.answer.valid_python is False for s in solutions)
        invalid = f"; {broken} programs are no valid Python" if broken else ""
        print(f"{len(solutions)} problems in {report['seconds']:.1f} s: {solved}{invalid}{failed}")
        if unsolved := [s for s in ran if not s.solved]:
            print(f"{len(unsolved)} problems are not solved:")
            print_failures([_failure(s) for s in unsolved])
    if settings.output is not None:
        print(f"results: {settings.output}")


def _failure(solution: SolveResult) -> dict[str, str]:
    """Returns the first failed test of an answer, as print_failures takes it."""
    assert solution.answer is not None
    first = next(o for o in solution.answer.outcomes or () if o.status != "PASSED")
    return {"id": solution.problem, "status": first.status, "error": first.error}


def _print_one(screen: _Screen, settings: SolveOptions, solution: SolveResult) -> None:
    for number, tried in enumerate(solution.attempts, start=1):
        if settings.best_of > 1 and settings.reasoning:
            for stage in tried.stages[:-1]:
                screen.section(stage["stage"], stage["text"])
        if tried.votes is not None:
            said = f"best of {settings.best_of} by the discriminator's {len(solution.tests)} tests"
            screen.say(
                f"{said}: {f'{tried.votes} votes' if tried.votes else 'no votes, so the first is shown'}"
            )
        attempt = ""
        if len(solution.attempts) > 1:
            attempt = f"attempt {number}{' (the answer)' if tried is solution.answer else ''}"
        if not screen.has_shown(tried.program):
            screen.section(f"program, {attempt}" if attempt else "program", tried.program)
        elif attempt:
            screen.head(attempt)
        if tried.valid_python is False:
            screen.say("this is no valid Python program")
        if tried.cut_off:
            screen.say("a turn was cut off: raise --max-tokens")
        for status, test, error in _results(tried.outcomes or ()):
            screen.say(f"{status:<14} {test}{f': {error}' if error else ''}")
    if solution.note:
        screen.say(solution.note)
    if solution.error:
        raise SparringError(solution.error)


def _results(outcomes: Sequence[Outcome]) -> list[tuple[str, str, str]]:
    """Returns (status, test, error) of each outcome; if the program does not parse, which each test reports, one row for
    all tests."""
    reported = {(outcome.status, outcome.error) for outcome in outcomes}
    if len(outcomes) > 1 and len(reported) == 1 and outcomes[0].status == Status.SYNTAX_ERROR:
        return [(outcomes[0].status, f"all {len(outcomes)} tests", outcomes[0].error)]
    return [(outcome.status, outcome.test, outcome.error) for outcome in outcomes]


def main(arguments: Sequence[str]) -> None:
    with plain_endings():
        options = SolveOptions.read(arguments)
        report = solve(options)
        if not options.batch and report["results"][0]["solved"] is False:
            raise SystemExit(1)


if __name__ == "__main__":
    quiet_logs()
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # vLLM would compile a helper at its first request
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main(sys.argv[1:])
