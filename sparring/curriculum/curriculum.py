"""The training schedule. For each stage: N discriminator steps with the generator frozen, N generator steps with the
discriminator frozen, and K alternating steps in which both learn from the same episodes."""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from sparring.core.episode import Mistakes
from sparring.core.play import DISCRIMINATOR, GENERATOR, POLICIES
from sparring.core.seeding import derive_seed
from sparring.core.settings import Settings
from sparring.core.stages import REASONING_STAGES
from sparring.curriculum.opponents import OpponentMix
from sparring.curriculum.past import MistakeBook, WrongPrograms


class Phase(StrEnum):
    DISCRIMINATOR = "discriminator"
    GENERATOR = "generator"
    ALTERNATING = "alternating"


class Schedule(Settings):
    stages: tuple[Annotated[int, Field(ge=1, le=len(REASONING_STAGES))], ...] = tuple(
        stage.number for stage in REASONING_STAGES
    )
    """Reasoning stages (sparring/core/stages.py) to train, in this order. Games without reasoning stages have one stage."""
    n_discriminator_steps: int = Field(default=2, ge=0)
    """Training steps per stage in which the discriminator learns and the generator is frozen."""
    n_generator_steps: int = Field(default=2, ge=0)
    """Training steps per stage in which the generator learns and the discriminator is frozen; in games with one policy, all
    steps."""
    k_alternating_steps: int = Field(default=2, ge=0)
    """Training steps per stage in which both learn from the same episodes."""
    problems_per_step: int = Field(default=16, ge=1)
    order: Literal["random", "difficulty"] = "random"
    """random: a step plays a random sample of the problems; difficulty: the steps go from the easiest problems to the hardest
    over the run."""
    attempts: int = Field(default=8, ge=2)
    """Number of attempts per problem of a player that learns (the group size)."""
    frozen_programs: int = Field(default=4, ge=1)
    """Number of attempts per problem of the generator while it is frozen."""
    frozen_suites: int = Field(default=1, ge=0)
    """Number of attempts per problem of the discriminator while it is frozen. 0: none; the reward then comes from the problems'
    own tests (game.baseline_in_reward)."""
    dynamic_sampling: int = Field(default=0, ge=0)
    """Maximum number of further problems per step, which replace zero-variance groups: problems at which all attempts of each
    learning policy earn the same (DAPO, arXiv:2503.14476, section 3.2; DAPO samples until the batch is full)."""
    frozen_players: tuple[Literal["generator", "discriminator"], ...] = ()
    """Players that never learn (for control experiments)."""
    remembered_programs: int = Field(default=1, ge=0)
    """Number of best programs per problem that are kept for the solvability gate."""
    remembered_tests: int = Field(default=0, ge=0)
    """Size of the mistake book: number of tests per problem that failed programs in earlier steps and are added to the tests
    of the generator's programs when it learns. Code-A1 keeps 8."""
    opponents: OpponentMix = OpponentMix()
    """Version of a policy that plays while it is frozen, drawn once per phase: the current version, a past version that is a
    fair match (prioritized fictitious self-play), or any past version; current 0.5 and pfsp 0.35 are usual. A past
    version is kept each time a policy stops learning."""
    remembered_wrong_programs: int = Field(default=0, ge=0)
    """Number of wrong programs per problem, from all earlier steps, that suites are also rewarded for failing when the
    discriminator learns."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One training step: its stage and phase, its problems, and the policies that learn."""

    step: int
    """Number of the step, counted from 1 over the whole run."""
    stage: int
    phase: Phase
    learning: tuple[str, ...]
    problem_ids: tuple[str, ...]
    attempts: Mapping[str, int]
    """Number of attempts per problem, by policy."""
    memory: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Remembered programs by problem id."""
    spare: tuple[str, ...] = ()
    """Further problems, in order, that are played if there are zero-variance groups (Schedule.dynamic_sampling)."""
    phase_began: int = 0
    """First step of this phase."""
    stops_learning: tuple[str, ...] = ()
    """Policies that learn in this step and are frozen in the next."""
    past: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Programs or tests that a policy wrote in earlier steps and that its learning opponent plays against, by problem id and
    policy."""


class Curriculum:
    def __init__(
        self,
        schedule: Schedule,
        problem_ids: Sequence[str],
        seed: int,
        *,
        policies: Sequence[str] = POLICIES,
        stages: Sequence[int] | None = None,
    ) -> None:
        """Plans all steps of the run.

        Args:
            problem_ids: the problems; in order of difficulty, the easiest first, if the schedule's order is "difficulty".
            policies: the policies of the game.
            stages: the stages to train, in this order; (0,) for a game without reasoning stages. Default: the schedule's.
        """
        self._schedule, self._problem_ids, self._seed = schedule, tuple(problem_ids), seed
        self._plan = list(_plan(schedule, policies, schedule.stages if stages is None else stages))
        self._done = 0
        self._memory: dict[str, list[tuple[float, str]]] = {}
        self._mistake_book = MistakeBook(schedule.remembered_tests)
        self._wrong_programs = WrongPrograms(schedule.remembered_wrong_programs, seed)

    @property
    def total_steps(self) -> int:
        return len(self._plan)

    def leave_out(self, problem_ids: Collection[str]) -> None:
        """Excludes problems from training. Call it before the first step, and before a state is loaded."""
        self._problem_ids = tuple(i for i in self._problem_ids if i not in problem_ids)

    def next(self, ahead: int = 0) -> Assignment | None:
        """Returns the step after the last observed step, or a later one, or None if the schedule ends before it. Two calls
        return the same step.

        ahead: number of steps that are skipped. What the step remembers of earlier steps is taken from the observed steps.
        """
        step = self._done + 1 + ahead
        if step > len(self._plan):
            return None
        stage, phase, learning = self._plan[step - 1]
        schedule = self._schedule
        chosen, spare = self._choose(step)
        attempts = {
            GENERATOR: schedule.attempts if GENERATOR in learning else schedule.frozen_programs,
            DISCRIMINATOR: schedule.attempts if DISCRIMINATOR in learning else schedule.frozen_suites,
        }
        all_ids = chosen + spare
        memory = {i: tuple(p for _, p in self._memory[i]) for i in all_ids if i in self._memory}
        return Assignment(
            step=step,
            stage=stage,
            phase=phase,
            learning=learning,
            problem_ids=chosen,
            attempts=attempts,
            memory=memory,
            spare=spare,
            phase_began=self._began(step),
            stops_learning=tuple(p for p in learning if p not in self._learning(step + 1)),
            past={i: past for i in all_ids if (past := self._past(i, learning))},
        )

    def _began(self, step: int) -> int:
        while step > 1 and self._plan[step - 2] == self._plan[step - 1]:
            step -= 1
        return step

    def _learning(self, step: int) -> tuple[str, ...]:
        return self._plan[step - 1][2] if step <= len(self._plan) else ()

    def _past(self, problem_id: str, learning: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Returns the past of each policy whose opponent learns: the opponent plays against it."""
        past = {}
        if GENERATOR in learning:
            past[DISCRIMINATOR] = self._mistake_book.tests(problem_id)
        if DISCRIMINATOR in learning:
            past[GENERATOR] = self._wrong_programs.programs(problem_id)
        return {policy: wrote for policy, wrote in past.items() if wrote}

    def _choose(self, step: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns (the step's problems, the spare problems)."""
        count, spare = (
            min(self._schedule.problems_per_step, len(self._problem_ids)),
            self._schedule.dynamic_sampling,
        )
        if self._schedule.order == "random":
            rng = random.Random(derive_seed(self._seed, "problems", step))
            chosen = tuple(rng.sample(self._problem_ids, count))
            taken = set(chosen)
            others = [i for i in self._problem_ids if i not in taken]
            rng.shuffle(others)
            return chosen, tuple(others[:spare])
        # The window moves from the easy end to the hard end: every step is at least as hard as the one before.
        last = len(self._problem_ids) - count
        first = last * (step - 1) // max(1, len(self._plan) - 1)
        easier, harder = self._problem_ids[:first], self._problem_ids[first + count :]
        return self._problem_ids[first : first + count], (*harder, *reversed(easier))[:spare]

    def observe(
        self,
        step: int,
        best_programs: Mapping[str, tuple[float, str]],
        mistakes: Mapping[str, Mistakes] = MappingProxyType({}),
    ) -> None:
        """Records a finished step. best_programs: (reward, program) by problem id. mistakes: by problem id."""
        assert step == self._done + 1, f"observed step {step} after {self._done}"
        self._done = step
        for problem_id, entry in best_programs.items():
            known = {program: reward for reward, program in self._memory.get(problem_id, [])}
            known[entry[1]] = max(entry[0], known.get(entry[1], entry[0]))
            ranked = sorted(((r, p) for p, r in known.items()), key=lambda e: (-e[0], e[1]))
            self._memory[problem_id] = ranked[: self._schedule.remembered_programs]
        for problem_id, made in mistakes.items():
            self._mistake_book.observe(problem_id, made.tests)
            self._wrong_programs.observe(problem_id, made.programs)

    def is_last_of_stage(self, step: int) -> bool:
        return step == len(self._plan) or self._plan[step][0] != self._plan[step - 1][0]

    def state_dict(self) -> dict[str, Any]:
        return {
            "done": self._done,
            "memory": {k: [list(e) for e in v] for k, v in self._memory.items()},
            "mistake_book": self._mistake_book.state_dict(),
            "wrong_programs": self._wrong_programs.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._done = state["done"]
        self._memory = {k: [(float(r), p) for r, p in v] for k, v in state["memory"].items()}
        self._mistake_book.load_state_dict(state["mistake_book"])
        self._wrong_programs.load_state_dict(state["wrong_programs"])


def _plan(
    schedule: Schedule, policies: Sequence[str], stages: Sequence[int]
) -> Iterator[tuple[int, Phase, tuple[str, ...]]]:
    """Yields (stage, phase, learning policies) of every step. Steps in which no policy learns are left out, and so are the
    phases of policies that the game does not have."""
    phases = (
        (Phase.DISCRIMINATOR, (DISCRIMINATOR,), schedule.n_discriminator_steps),
        (Phase.GENERATOR, (GENERATOR,), schedule.n_generator_steps),
        (Phase.ALTERNATING, (DISCRIMINATOR, GENERATOR), schedule.k_alternating_steps),
    )
    for stage in stages:
        for phase, players, count in phases:
            if not set(players) <= set(policies):
                continue
            learning = tuple(p for p in players if p not in schedule.frozen_players)
            if learning:
                yield from [(stage, phase, learning)] * count
