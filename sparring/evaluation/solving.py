"""Solves problems with a trained generator: from a problem's text to a program and its test results.

Several programs may be written, one of which is chosen by a discriminator's tests (choosing.py). If a program fails tests,
the generator may be told the failed tests and write the program again (multi-attempt).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sparring.core.episode import Outcome, Trajectory, Turn
from sparring.core.interfaces import Sandbox, SandboxFailure
from sparring.core.play import DISCRIMINATOR, GENERATOR
from sparring.core.problem import Problem
from sparring.core.source import is_valid_python
from sparring.core.stages import REASONING_STAGES
from sparring.core.verdict import Limits
from sparring.evaluation.choosing import votes
from sparring.evaluation.writing import PolicyWriter, ProgramGame, SuiteGame, write_suites
from sparring.games.judging import outcomes_of

_STAGE_NAMES = {stage.number: stage.name for stage in REASONING_STAGES}


@dataclass(frozen=True, kw_only=True)
class Tester:
    """A discriminator whose tests choose among programs."""

    writer: PolicyWriter
    game: SuiteGame
    suites: int
    """Number of sampled suites per problem."""
    room: int = 0
    """Maximum sequence length in tokens; 0: only the engine's own limit applies."""

    def refuses(self, problem: Problem) -> str:
        """Returns the reason why the discriminator cannot write tests for the problem; empty if it can."""
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
class Attempt:
    """One program for a problem, with the text of its stages and its test results."""

    stages: list[dict[str, str]]
    """The text of each stage: {"stage": its name, "text": …}; the last one holds the program."""
    program: str
    valid_python: bool | None = None
    """Whether the program compiles; None: it is in another language."""
    outcomes: list[Outcome] | None = None
    """Results of the tests; None: the program was not run."""
    votes: int | None = None
    """Votes of the discriminator's tests (choosing.votes); None: there was no vote."""
    cut_off: bool = False
    """Whether a turn was cut off by its token limit."""

    @property
    def solved(self) -> bool | None:
        if self.outcomes is None:
            return None
        return all(outcome.status == "PASSED" for outcome in self.outcomes)

    @property
    def passed(self) -> int:
        """Number of passed tests among those that the generator may be told about."""
        return sum(o.status == "PASSED" and o.owner == "problem" for o in self.outcomes or ())


@dataclass(frozen=True, kw_only=True)
class SolveResult:
    problem: str
    attempts: list[Attempt]
    """Successive attempts: each one follows the failure of the one before."""
    others: list[Attempt] = field(default_factory=list)
    """First attempts that were not chosen."""
    tests: list[str] = field(default_factory=list)
    """The discriminator's tests, by which the first attempt was chosen."""
    note: str = ""
    """Reason why there are fewer attempts than allowed although tests fail."""
    error: str = ""
    """Reason why there is no answer, or no answer that could be judged."""

    @property
    def answer(self) -> Attempt | None:
        """The attempt that passes the most of the problem's own tests; the first one of equals."""
        return max(self.attempts, key=lambda tried: tried.passed, default=None)

    @property
    def solved(self) -> bool | None:
        """Whether the answer passes all tests; None if it was not run."""
        return self.answer.solved if self.answer else None

    def as_dict(self) -> dict[str, Any]:
        """Returns the solution as plain JSON."""
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
    writer: PolicyWriter
    temperature: float
    """0: greedy."""
    sandbox: Sandbox | None
    """None: programs are not run."""
    limits: Limits
    """Limits per test, if the problem has none of its own."""
    attempts: int = 1
    """Maximum number of successive attempts. Another one is made as long as a test fails and the sequence has space."""
    best_of: int = 1
    """Number of programs that are written first, among which the tester's tests choose."""
    tester: Tester | None = None
    room: int = 0
    """Maximum sequence length in tokens; 0: only the engine's own limit applies."""

    async def solve(
        self,
        problem: Problem,
        on_turn: Callable[[int, Turn], None] | None = None,
        on_text: Callable[[int, str], None] | None = None,
    ) -> SolveResult:
        """Solves one problem. An error that concerns only this problem is reported in the solution's `error`.

        Args:
            on_turn: receives each finished turn, with the number of its program among the first programs.
            on_text: see Player.

        Raises RunFailed if the engine ended.
        """
        needed = self.game.longest(problem, GENERATOR, self.writer.format, self.writer.max_tokens)
        if self.room and needed > self.room:
            error = f"its prompts and completions may take {needed} tokens, and there is room for {self.room}"
            return SolveResult(problem=problem.id, attempts=[], error=error)
        if self.best_of > 1 and self.tester is not None and (error := self.tester.refuses(problem)):
            return SolveResult(problem=problem.id, attempts=[], error=error)
        player = self.writer.player(GENERATOR, problem, self.best_of, self.temperature, "solve")
        player = replace(player, on_turn=on_turn, on_text=on_text)
        programs = await self.game.solve_all(problem, player)
        tests: list[str] = []
        counted: list[int] | None = None
        tried: list[Attempt] = []
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
            return SolveResult(problem=problem.id, attempts=rest, tests=tests, error=str(error))
        others = [
            _tried(problem, program, None, counted[i] if counted else None)
            for i, program in enumerate(programs)
            if i != chosen
        ]
        return SolveResult(problem=problem.id, attempts=tried, others=others, tests=tests, note=note)

    async def _outcomes(self, problem: Problem, attempt: Trajectory) -> list[Outcome] | None:
        """Returns the outcomes of the problem's tests. Baseline tests have the owner "problem"; tests that are for evaluation
        only have the owner "hidden", and the generator is not told about them.

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
        """Returns the reason why the sequence has no space for another attempt; empty if it has."""
        said, style = attempt.turns[-1], self.writer.format
        prompt = style.say([*said.prompt_tokens, *said.completion.tokens], self.game.told(told))
        needed = len(prompt) + self.writer.max_tokens
        if not self.room or needed <= self.room:
            return ""
        return f"no room for another attempt: it may take {needed} tokens, and there are {self.room}"


def _tried(
    problem: Problem, attempt: Trajectory, outcomes: list[Outcome] | None, vote: int | None
) -> Attempt:
    return Attempt(
        stages=[{"stage": stage_name(turn.stage), "text": turn.text} for turn in attempt.turns],
        program=attempt.artifact,
        valid_python=is_valid_python(attempt.artifact) if problem.language == "python" else None,
        outcomes=outcomes,
        votes=vote,
        cut_off=attempt.is_cut_off,
    )


def stage_name(stage: int) -> str:
    """Returns the name of a turn's stage; "answer" in games without stages."""
    return _STAGE_NAMES.get(stage, "answer")
