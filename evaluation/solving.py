"""A trained generator at work: from a problem's text to a program, and what tests say of it.

Several programs may be written and one chosen by a discriminator's tests (choosing.py); a program that fails tests may
be written again by a generator that was told which (R0's multi-attempt).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from core.episode import Outcome, Trajectory, Turn
from core.interfaces import Sandbox, SandboxFailure
from core.play import DISCRIMINATOR, GENERATOR
from core.problem import Problem
from core.source import is_valid_python
from core.stages import REASONING_STAGES
from core.verdict import Limits
from evaluation.choosing import votes
from evaluation.writing import ProgramGame, SuiteGame, Writer, write_suites
from games.judging import outcomes_of

_STAGE_NAMES = {stage.number: stage.name for stage in REASONING_STAGES}


@dataclass(frozen=True, kw_only=True)
class Tester:
    """A discriminator, whose tests choose among programs."""

    writer: Writer
    game: SuiteGame
    suites: int
    """Sampled ones per problem."""
    room: int = 0
    """Tokens of the longest sequence; 0: the engine has the last word."""

    def refuses(self, problem: Problem) -> str:
        """Why it can write no tests for the problem; empty where it can."""
        if not problem.is_function:
            return "it names no Python function for the discriminator's tests; give a signature"
        needed = self.game.longest(problem, DISCRIMINATOR, self.writer.format, self.writer.max_tokens)
        if self.room and needed > self.room:
            return f"the discriminator's tests may take {needed} tokens, and there is room for {self.room}"
        return ""

    async def tests(self, problem: Problem) -> list[str]:
        (written,) = await write_suites([problem], self.writer, self.game, self.suites, "suites")
        return self.game.tests_of([suite.artifact for suite in written], problem)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One program for a problem, and how it came about."""

    stages: list[dict[str, str]]
    """What was written: {"stage": its name, "text": …}; the last one holds the program."""
    program: str
    valid_python: bool | None = None
    """Whether it compiles; None: it is in another language."""
    outcomes: list[Outcome] | None = None
    """Of the tests that it was run on; None: it was not run."""
    votes: int | None = None
    """Of those who chose among several; None: nobody did."""
    cut_off: bool = False
    """A turn ended for want of tokens."""

    @property
    def solved(self) -> bool | None:
        if self.outcomes is None:
            return None
        return all(outcome.status == "PASSED" for outcome in self.outcomes)

    @property
    def passed(self) -> int:
        """Tests that it was told of, or would be."""
        return sum(o.status == "PASSED" and o.owner == "problem" for o in self.outcomes or ())


@dataclass(frozen=True, kw_only=True)
class Solution:
    problem: str
    attempts: list[Tried]
    """One after another."""
    others: list[Tried] = field(default_factory=list)
    """First attempts that were not chosen."""
    tests: list[str] = field(default_factory=list)
    """The discriminator's, by which one was chosen."""
    note: str = ""
    """Why there were fewer attempts than asked for, though tests fail."""
    error: str = ""
    """Why there is no answer, or none that could be judged."""

    @property
    def answer(self) -> Tried | None:
        """The attempt that passes the most of the problem's own tests, the first of several."""
        return max(self.attempts, key=lambda tried: tried.passed, default=None)

    @property
    def solved(self) -> bool | None:
        """None where nothing was run."""
        return self.answer.solved if self.answer else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        answer = self.answer
        return {
            "id": self.problem,
            "solved": self.solved,
            "program": answer.program if answer else None,
            "valid_python": answer.valid_python if answer else None,
            **asdict(self),
        }


@dataclass(frozen=True, kw_only=True)
class Solver:
    game: ProgramGame
    writer: Writer
    temperature: float
    """0: greedy."""
    sandbox: Sandbox | None
    """None: programs are not run."""
    limits: Limits
    """Of a test, where the problem has none of its own."""
    attempts: int = 1
    """One after another, as long as a test fails and there is room."""
    best_of: int = 1
    """Programs written at first, among which the tester's tests choose."""
    tester: Tester | None = None
    room: int = 0
    """Tokens of the longest sequence; 0: the engine has the last word."""

    async def solve(
        self,
        problem: Problem,
        heard: Callable[[int, Turn], None] | None = None,
        writing: Callable[[int, str], None] | None = None,
    ) -> Solution:
        """heard: told of each turn when it is there, with the number of its program among the first ones. writing: see
        Player.

        What goes wrong with this problem alone is the solution's `error`. Raises RunFailed where the engine ended.
        """
        needed = self.game.longest(problem, GENERATOR, self.writer.format, self.writer.max_tokens)
        if self.room and needed > self.room:
            error = f"its prompts and completions may take {needed} tokens, and there is room for {self.room}"
            return Solution(problem=problem.id, attempts=[], error=error)
        if self.best_of > 1 and self.tester is not None and (error := self.tester.refuses(problem)):
            return Solution(problem=problem.id, attempts=[], error=error)
        player = self.writer.player(GENERATOR, problem, self.best_of, self.temperature, "solve")
        player = replace(player, heard=heard, writing=writing)
        programs = await self.game.solve_all(problem, player)
        tests: list[str] = []
        counted: list[int] | None = None
        tried: list[Tried] = []
        note = ""
        try:
            if self.best_of > 1 and self.sandbox is not None and self.tester is not None:
                tests = await self.tester.tests(problem)
                limits = problem.limits_over(self.limits)
                sources = [problem.in_harness(p.artifact) for p in programs]
                counted = await votes(sources, tests, self.sandbox, limits)
            chosen = counted.index(max(counted)) if counted else 0
            attempt = programs[chosen]
            vote = counted[chosen] if counted else None
            for turn in range(self.attempts):
                outcomes = await self._outcomes(problem, attempt)
                tried.append(_tried(problem, attempt, outcomes, vote if turn == 0 else None))
                told = [o for o in outcomes or () if o.owner == "problem"]
                if all(o.status == "PASSED" for o in told) or turn + 1 == self.attempts:
                    break
                if note := self._too_long(attempt, told):
                    break
                attempt = await self.game.again(problem, player, attempt, told)
        except SandboxFailure as error:
            rest = tried or [_tried(problem, programs[0], None, None)]
            return Solution(problem=problem.id, attempts=rest, tests=tests, error=str(error))
        others = [
            _tried(problem, program, None, counted[i] if counted else None)
            for i, program in enumerate(programs)
            if i != chosen
        ]
        return Solution(problem=problem.id, attempts=tried, others=others, tests=tests, note=note)

    async def _outcomes(self, problem: Problem, attempt: Trajectory) -> list[Outcome] | None:
        """Those of the problem's baseline tests are its own; those that it has for evaluation alone are told to nobody.

        Raises SandboxFailure."""
        given = problem.baseline_tests
        tests = (*given, *(t for t in problem.evaluation_tests if t not in given))
        if self.sandbox is None or not tests:
            return None
        verdicts = await self.sandbox.judge(
            problem.in_harness(attempt.artifact),
            tests,
            limits=problem.limits_over(self.limits),
            language=problem.language,
        )
        shown = outcomes_of(given, verdicts[: len(given)])
        return [*shown, *outcomes_of(tests[len(given) :], verdicts[len(given) :], "hidden")]

    def _too_long(self, attempt: Trajectory, told: Sequence[Outcome]) -> str:
        """Why there is no room for one attempt more; empty where there is."""
        said, style = attempt.turns[-1], self.writer.format
        prompt = style.say([*said.prompt_tokens, *said.completion.tokens], self.game.told(told))
        needed = len(prompt) + self.writer.max_tokens
        if not self.room or needed <= self.room:
            return ""
        return f"no room for another attempt: it may take {needed} tokens, and there are {self.room}"


def _tried(problem: Problem, attempt: Trajectory, outcomes: list[Outcome] | None, vote: int | None) -> Tried:
    return Tried(
        stages=[{"stage": stage_name(turn.stage), "text": turn.text} for turn in attempt.turns],
        program=attempt.artifact,
        valid_python=is_valid_python(attempt.artifact) if problem.language == "python" else None,
        outcomes=outcomes,
        votes=vote,
        cut_off=attempt.is_cut_off,
    )


def stage_name(stage: int) -> str:
    """stage: of a turn. In games without stages there is one: the answer."""
    return _STAGE_NAMES.get(stage, "answer")
