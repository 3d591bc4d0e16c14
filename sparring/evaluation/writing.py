"""Generates programs and test suites with one model, outside of a training run. Nothing is judged here."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sparring.core.episode import Outcome, Trajectory
from sparring.core.interfaces import Actor, Game, Message, Player, PromptFormat, Sandbox
from sparring.core.play import DISCRIMINATOR, GENERATOR
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.verdict import Limits
from sparring.games.rules import Rules
from sparring.games.suite_scores import SuiteRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyWriter:
    """A model with its prompt format and its sampling parameters."""

    policy: Actor
    format: PromptFormat
    max_tokens: int
    """Maximum number of tokens per turn."""
    seed: int
    top_p: float = 1.0
    top_k: int = 0
    """See Sampling. top_p and top_k do not apply to greedy turns."""

    def player(self, name: str, problem: Problem, attempts: int, temperature: float, purpose: str) -> Player:
        """Returns a player of this model. purpose: the seeds are derived from it, the writer's seed and the problem."""
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
    """A game in which the generator writes programs, and in which the generator may play alone."""

    @property
    def rules(self) -> Rules: ...

    async def solve_all(self, problem: Problem, player: Player) -> list[Trajectory]: ...

    def told(self, outcomes: Sequence[Outcome]) -> Message:
        """Returns the message to the generator about a program that failed some of these tests."""
        ...

    async def again(
        self, problem: Problem, player: Player, attempt: Trajectory, outcomes: Sequence[Outcome]
    ) -> Trajectory:
        """Returns the attempt with one more turn, which the player writes after the message about the outcomes."""
        ...


@runtime_checkable
class SuiteGame(ProgramGame, Protocol):
    """A game in which the discriminator also writes test suites against the programs (games that use "suites")."""

    @property
    def limits(self) -> Limits:
        """Limits of a program on a test."""
        ...

    @property
    def max_tests(self) -> int:
        """Maximum number of tests that are read of a suite."""
        ...

    async def attack(
        self, problem: Problem, player: Player, attempt: int, program: str | None = None
    ) -> Trajectory:
        """Has the player write one suite, one test per line. The suite is not judged yet.

        program: the program that the suite should fail, in games that show it to the discriminator.
        """
        ...

    def tests_of(self, suites: Sequence[str], problem: Problem) -> list[str]:
        """Returns the distinct tests of the suites on which programs can be run, without validation by a reference
        solution."""
        ...

    async def judge_suites(
        self,
        problem: Problem,
        suites: Sequence[str],
        sandbox: Sandbox,
        wrong: Sequence[str] = (),
        mutants: Sequence[str] = (),
        style: PromptFormat | None = None,
    ) -> list[SuiteRecord | None]:
        """Returns one record per suite; None if the sandbox could not determine the suite's valid tests.

        Args:
            wrong: programs that are known to be wrong.
            mutants: mutants of the reference solution, none of them equivalent to it.
            style: the prompt format in which the suites' author was asked, since tests that a prompt shows are not valid;
                None: it was not asked by a prompt.
        """
        ...


async def write_programs(
    problems: Sequence[Problem],
    writer: PolicyWriter,
    game: ProgramGame,
    attempts: int,
    temperature: float,
    written: Callable[[], None] = lambda: None,
) -> dict[str, list[Trajectory]]:
    """Returns the trajectories by problem id. A trajectory's artifact is its program. written: called after each problem."""
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
    writer: PolicyWriter,
    game: SuiteGame,
    suites: int,
    purpose: str,
    written: Callable[[], None] = lambda: None,
) -> list[list[Trajectory]]:
    """Returns `suites` sampled suites for each problem. A trajectory's artifact is the suite's text. written: called after
    each problem."""

    async def of(problem: Problem) -> list[Trajectory]:
        player = writer.player(DISCRIMINATOR, problem, suites, 1.0, purpose)
        attacks = await asyncio.gather(*(game.attack(problem, player, i) for i in range(suites)))
        written()
        return attacks

    return await asyncio.gather(*(of(problem) for problem in problems))
