"""What one model writes for problems, outside of a run: programs and test suites. Nothing is judged here."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from core.episode import Outcome, Trajectory
from core.interfaces import Actor, Game, Message, Player, PromptFormat, Sandbox
from core.play import DISCRIMINATOR, GENERATOR
from core.problem import Problem
from core.seeding import derive_seed
from core.verdict import Limits
from games.rules import Rules
from games.suite_scores import SuiteRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Writer:
    """A model, and how it is spoken to."""

    policy: Actor
    format: PromptFormat
    max_tokens: int
    """Per turn."""
    seed: int
    top_p: float = 1.0
    top_k: int = 0
    """See Sampling; of what is sampled, not of greedy turns."""

    def player(self, name: str, problem: Problem, attempts: int, temperature: float, purpose: str) -> Player:
        """purpose: decides the seeds, with the writer's own and the problem."""
        return Player(
            name=name,
            policy=self.policy,
            format=self.format,
            attempts=attempts,
            temperature=temperature,
            seed=derive_seed(self.seed, purpose, problem.id),
            max_tokens=self.max_tokens,
            top_p=self.top_p if temperature else 1.0,
            top_k=self.top_k if temperature else 0,
        )


class ProgramGame(Game, Protocol):
    """A game in which the generator writes programs, whose move may be played alone."""

    @property
    def rules(self) -> Rules: ...

    async def solve_all(self, problem: Problem, player: Player) -> list[Trajectory]: ...

    def told(self, outcomes: Sequence[Outcome]) -> Message:
        """To the generator, of a program that failed some of these tests."""
        ...

    async def again(
        self, problem: Problem, player: Player, attempt: Trajectory, outcomes: Sequence[Outcome]
    ) -> Trajectory:
        """The attempt with one turn more, by who has been told."""
        ...


@runtime_checkable
class SuiteGame(ProgramGame, Protocol):
    """One in which the discriminator writes test suites against them (games that use "suites")."""

    @property
    def limits(self) -> Limits:
        """Of a program on a test."""
        ...

    @property
    def max_tests(self) -> int:
        """Of a suite that are read."""
        ...

    async def attack(
        self, problem: Problem, player: Player, attempt: int, program: str | None = None
    ) -> Trajectory:
        """A suite, one test a line. Not yet judged. program: the one that it is to break, where its author is shown it."""
        ...

    def tests_of(self, suites: Sequence[str], problem: Problem) -> list[str]:
        """What programs can be run on, each once, without a reference that confirms it."""
        ...

    async def judge_suites(
        self,
        problem: Problem,
        suites: Sequence[str],
        sandbox: Sandbox,
        wrong: Sequence[str] = (),
        mutants: Sequence[str] = (),
    ) -> list[SuiteRecord | None]:
        """One record per suite; None where the sandbox could not say which of its tests hold.

        Args:
            wrong: programs that are known to be wrong.
            mutants: of the reference, none of them equivalent to it.
        """
        ...


async def write_programs(
    problems: Sequence[Problem],
    writer: Writer,
    game: ProgramGame,
    attempts: int,
    temperature: float,
    written: Callable[[], None] = lambda: None,
) -> dict[str, list[Trajectory]]:
    """By problem id; a trajectory's artifact is its program. written: called after each problem."""
    purpose = "samples" if temperature else "greedy"

    async def of(problem: Problem) -> list[Trajectory]:
        player = writer.player(GENERATOR, problem, attempts, temperature, purpose)
        programs = await game.solve_all(problem, player)
        written()
        return programs

    found = await asyncio.gather(*(of(problem) for problem in problems))
    return {problem.id: programs for problem, programs in zip(problems, found, strict=True)}


async def write_suites(
    problems: Sequence[Problem],
    writer: Writer,
    game: SuiteGame,
    suites: int,
    purpose: str,
    written: Callable[[], None] = lambda: None,
) -> list[list[Trajectory]]:
    """`suites` sampled ones of each problem; a trajectory's artifact is its text."""

    async def of(problem: Problem) -> list[Trajectory]:
        player = writer.player(DISCRIMINATOR, problem, suites, 1.0, purpose)
        attacks = await asyncio.gather(*(game.attack(problem, player, i) for i in range(suites)))
        written()
        return attacks

    return await asyncio.gather(*(of(problem) for problem in problems))
