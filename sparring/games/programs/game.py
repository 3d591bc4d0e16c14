"""Games in which one policy writes a program for a problem. The game config defines the message and the reward."""

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import Field

from sparring.core.episode import Episode, Outcome, Trajectory
from sparring.core.evaluation import EvaluationSettings, Evaluator
from sparring.core.interfaces import Game, Message, Player, PromptFormat, Sandbox
from sparring.core.play import GENERATOR
from sparring.core.problem import Problem
from sparring.core.verdict import Limits, OutputTest, Status
from sparring.games.parsing import read_program
from sparring.games.program_scores import JudgedProgram
from sparring.games.rules import Rules
from sparring.games.turns import again_message, answer_all, further, try_again, worst


class SolverRules(Rules):
    attempts_per_episode: int = Field(default=1, ge=1)
    """Maximum number of programs that are written one after another. While a program fails a rewarded test, the generator
    is shown the failed tests, and writes the program again. Each program has its own reward."""
    sandbox_limits: Limits

    @property
    def seats(self) -> dict[str, str]:
        return {GENERATOR: GENERATOR}

    @abstractmethod
    def message(self, problem: Problem, memory: Sequence[str] = ()) -> Message:
        """Returns the message that asks for a program. memory: programs known to solve the problem, the best first."""

    def read(self, attempt: Trajectory, problem: Problem) -> None:
        """Replaces the attempt's artifact, the text of a completion, by the program in it."""
        attempt.artifact = read_program(attempt.artifact, problem)

    @abstractmethod
    async def earn(self, problem: Problem, attempt: Trajectory, sandbox: Sandbox) -> bool:
        """Judges the program and sets the attempt's reward, components and outcomes. Returns False if the sandbox
        failed."""

    def shown_tokens(self, max_tokens: int) -> int:
        """Returns the maximum number of tokens that `memory` adds to a message."""
        return 0

    @property
    def rewarded_tests(self) -> int | None:
        """Number of a problem's baseline tests that the reward uses, from the first one; None: all."""
        return None

    def further_scores(self, greedy: Sequence[JudgedProgram]) -> dict[str, float]:
        """Returns scores of greedy programs, one for each problem, besides those of every game."""
        return {}

    def game(self) -> Game:
        return SolverGame(self)

    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator:
        from sparring.games.programs.evaluator import SolverEvaluator

        return SolverEvaluator(held_out, sandbox, self, settings)

    def refuse(self, problem: Problem) -> str | None:
        if "rewarded tests" in self.uses and not problem.baseline_tests:
            return "it has no test that a reward may use (baseline_tests)"
        return None if problem.evaluation_tests else "it has no tests, by which programs could be judged"

    def refuse_but_python(self, problem: Problem) -> str | None:
        if problem.language == "python":
            return None
        return f"game {self.kind} runs Python, not {problem.language}; game unit_tests takes any language"


class SolverGame:
    def __init__(self, rules: SolverRules) -> None:
        self.rules = rules

    async def play(
        self, problem: Problem, players: Mapping[str, Player], sandbox: Sandbox, memory: Sequence[str] = ()
    ) -> Episode:
        player = players[GENERATOR]
        chains = await self.solve_all(problem, player, memory)
        attempts = list(chains)
        await self._earn(problem, chains, sandbox)
        for number in range(2, 2 if player.once else self.rules.attempts_per_episode + 1):
            failed = [chain for chain in chains if any(o.status != Status.PASSED for o in chain.outcomes)]
            chains = await asyncio.gather(
                *(self.again(problem, player, chain, chain.outcomes) for chain in failed)
            )
            await self._earn(problem, chains, sandbox)
            attempts += [further(chain, number, player.attempts) for chain in chains]
        return Episode(problem_id=problem.id, trajectories=attempts)

    async def _earn(self, problem: Problem, attempts: Sequence[Trajectory], sandbox: Sandbox) -> None:
        judged = await asyncio.gather(*(self.rules.earn(problem, a, sandbox) for a in attempts))
        for attempt, done in zip(attempts, judged, strict=True):
            if not done:
                attempt.components["sandbox_failure"] = 1.0

    async def solve_all(
        self, problem: Problem, player: Player, memory: Sequence[str] = ()
    ) -> list[Trajectory]:
        """Returns all first attempts of the player, not yet judged."""
        attempts = await answer_all(player, self.rules.message(problem, memory))
        for attempt in attempts:
            self.rules.read(attempt, problem)
        return attempts

    def told(self, outcomes: Sequence[Outcome]) -> Message:
        """Returns the message that shows the generator the tests that its program failed, among these."""
        return again_message(outcomes)

    async def again(
        self, problem: Problem, player: Player, attempt: Trajectory, outcomes: Sequence[Outcome]
    ) -> Trajectory:
        """Shows the player the tests that its program failed, and lets it write the program again. Returns the attempt
        with this turn added."""
        turn = await try_again(player, attempt, self.told(outcomes))
        attempt = replace(
            attempt, turns=[*attempt.turns, turn], artifact=turn.text, reward=None, components={}, outcomes=()
        )
        self.rules.read(attempt, problem)
        return attempt

    def longest(self, problem: Problem, player: str, style: PromptFormat, max_tokens: int) -> int:
        tokens = style.say((), self.rules.message(problem, ("x",)))
        told = self.told(
            worst([OutputTest(stdout=None), *problem.baseline_tests])
        )  # the run of the program alone may fail, too
        for _ in range(self.rules.attempts_per_episode - 1):
            tokens = style.say([*tokens, *[0] * max_tokens], told)
        return len(tokens) + self.rules.shown_tokens(max_tokens) + max_tokens
