"""Config of the adversarial multi-stage game."""

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from sparring.core.episode import Trajectory
from sparring.core.evaluation import EvaluationSettings, Evaluator
from sparring.core.interfaces import Game, Sandbox
from sparring.core.play import DISCRIMINATOR, GENERATOR
from sparring.core.problem import Problem
from sparring.core.stages import REASONING_STAGES, ReasoningStage, first_stages
from sparring.core.verdict import Limits
from sparring.games.multistage.emitted import InputLimits
from sparring.games.multistage.rewards import RewardRules, reward_in_words
from sparring.games.rules import Need, Rules


class MultistageRules(Rules):
    """Config of the multi-stage game: a generator that reasons in stages against a discriminator that writes tests."""

    kind: Literal["multistage"] = "multistage"
    stages: int | None = Field(default=None, ge=0, lt=len(REASONING_STAGES))
    """Number of reasoning stages before the program, the first ones of sparring/core/stages.py. Each stage costs a completion; 0 asks for
    the program at once. Default: all."""
    test_format: Literal["strict", "relabel", "input_only"] = "relabel"
    """Form of the discriminator's tests. relabel: an assertion, whose expected value is replaced by the reference's output;
    strict: an assertion about calls with literal arguments, which the reference must pass as it was written (for models that
    can compute outputs); input_only: a call, whose expected value is the reference's output."""
    max_tests: int = Field(default=8, ge=1)
    """Maximum number of tests per suite. Further ones are not run, and count as invalid."""
    attack: Literal["problem", "program"] = "problem"
    """Content of the discriminator's prompt. problem: the problem alone; program: also one of the generator's programs;
    the suite's reward then depends on that program alone (Code-A1, arXiv:2603.15611). In both cases every program runs
    on every suite."""
    shown_chars: int = Field(default=2000, ge=1)
    """Maximum number of characters of a program that the discriminator sees; the rest is cut off. The prompt must have room for
    as many tokens."""
    attempts_per_episode: int = Field(default=1, ge=1)
    """Maximum number of programs per conversation. If a program fails a baseline test of the problem, the generator is
    shown the failed tests and writes the program again, up to this number. Each program has its own reward."""
    baseline_in_reward: bool = False
    """Count the problem's own baseline tests in the generator's pass rate, too."""
    rewards: RewardRules = RewardRules()
    input_limits: InputLimits = InputLimits()
    sandbox_limits: Limits = Limits()

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if self.test_format == "input_only":
            self.rewards.refuse_changed(
                ("wrong_output_penalty",), "has no effect with test_format input_only", "game.rewards"
            )
        if self.attack == "problem":
            self.refuse_changed(("shown_chars",), "needs attack: program", "game")
        if self.rewards.partial_credit == "baseline_passed" and not self.baseline_in_reward:
            raise ValueError("game.rewards.partial_credit baseline_passed needs game.baseline_in_reward")
        return self

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset(("sandbox", "problems", "stages", "suites", "bank"))

    @property
    def seats(self) -> dict[str, str]:
        return {GENERATOR: GENERATOR, DISCRIMINATOR: DISCRIMINATOR}

    @property
    def played(self) -> tuple[ReasoningStage, ...]:
        """The generator's stages; the last one writes the program."""
        return first_stages(len(REASONING_STAGES) - 1 if self.stages is None else self.stages)

    @property
    def stage_numbers(self) -> tuple[int, ...]:
        return tuple(stage.number for stage in self.played)

    @property
    def turns(self) -> int:
        return len(self.played)

    def game(self) -> Game:
        from sparring.games.multistage.game import MultistageGame

        return MultistageGame(self)

    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator:
        from sparring.games.multistage.evaluator import MultistageEvaluator

        return MultistageEvaluator(held_out, sandbox, self, settings.suites, settings.bank_programs)

    def won(self, attempt: Trajectory) -> float:
        """Returns the share of tests that a program passed, or the share of programs that a suite killed."""
        return attempt.components["kill_rate" if attempt.player == DISCRIMINATOR else "pass_rate"]

    def why(self, player: str, components: Mapping[str, float]) -> str:
        if player == DISCRIMINATOR:
            return reward_in_words(components, self.rewards)
        share = "share of the tests passed, of those that count"
        return {
            "always": share,
            "baseline_passed": f"{share}, if all baseline tests are passed, else 0 (game.rewards.partial_credit)",
            "never": "1 if all tests that count are passed, else 0 (game.rewards.partial_credit)",
        }[self.rewards.partial_credit]

    def refuse(self, problem: Problem) -> str | None:
        reads_baseline = self.baseline_in_reward or self.attempts_per_episode > 1
        if reads_baseline and len(problem.baseline_asserts) < len(problem.baseline_tests):
            return (
                "game multistage needs baseline tests in Python for game.baseline_in_reward and game.attempts_per_episode, "
                "not tests of output; game unit_tests takes both"
            )
        if problem.is_function and problem.reference_solution:
            return None if problem.evaluation_tests else "it has no tests, by which programs could be judged"
        return (
            "game multistage needs Python functions with a reference solution; game unit_tests takes any language and "
            "whole programs"
        )
