"""Offers the program games as an OpenEnv environment: the model of another trainer writes the program, and gets the game's
reward.

`reset` returns a problem. `step` takes the whole answer, judges its program in the sandbox and returns the reward according
to the game's rules. If game.attempts_per_episode is above 1, the model can write a program that failed a test again: the
observation lists the failed tests, as in training. An attempt that the sandbox could not judge has no reward, and ends the
episode.

Needs openenv. Games with several players, or with several turns before a reward, are not supported.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from openenv.core.env_server import (  # pyright: ignore[reportMissingImports]
    Action,
    Environment,
    Observation,
    State,
    create_fastapi_app,
)

from sparring.core.episode import Trajectory
from sparring.core.interfaces import Message, Sandbox
from sparring.core.play import GENERATOR
from sparring.core.problem import Problem
from sparring.core.verdict import Status
from sparring.games.programs.game import SolverGame

NAMED = 3
SESSIONS = 1024
"""Maximum number of sessions at a time: a trainer may have one for each of its rollouts."""


class AnswerAction(Action):
    text: str
    """The model's whole completion. The program is the last fenced block or, if there is none, the whole text."""


class PromptObservation(Observation):
    """The observation that the model gets. `reward` is None before the first program, and if the sandbox failed."""

    problem: str
    """The problem's id."""
    prompt: str = ""
    """Prompt for a chat model; empty if the episode is done."""
    brief: str = ""
    """A short prompt for a model that is trained on this game alone."""
    components: dict[str, float] = {}
    """The components of the reward."""
    outcomes: list[dict[str, Any]] = []
    """The outcome of each test: test, status, error."""


class ProgramEnvironment(Environment[AnswerAction, PromptObservation, State]):
    """A session, in which one episode is played after another."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, game: SolverGame, problems: Mapping[str, Problem], sandbox: Sandbox) -> None:
        """problems: the problems by id."""
        super().__init__()
        self._game, self._problems, self._sandbox = game, problems, sandbox
        self._problem: Problem | None = None
        self._state = State()

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, problem: str | None = None
    ) -> PromptObservation:
        """Begins an episode. problem: the problem's id. Default: a problem drawn by the seed. Raises ValueError if the id is
        unknown."""
        chosen = problem if problem is not None else random.Random(seed).choice(list(self._problems))
        if chosen not in self._problems:
            known = ", ".join(list(self._problems)[:NAMED])
            raise ValueError(
                f"problem {chosen}: there is none of this id; there are {known} … ({len(self._problems)})"
            )
        self._problem, self._state = self._problems[chosen], State(episode_id=episode_id)
        return self._put(self._game.rules.message(self._problem))

    async def step_async(self, action: AnswerAction, timeout_s: float | None = None) -> PromptObservation:
        """Judges an answer. timeout_s is ignored: the sandbox has its own limits. Raises ValueError if no episode has been
        begun."""
        if self._problem is None:
            raise ValueError(
                "no episode is under way: reset first (over a web socket: each plain request is a new session)"
            )
        rules, attempt = (
            self._game.rules,
            Trajectory(player=GENERATOR, attempt=0, turns=[], artifact=action.text),
        )
        rules.read(attempt, self._problem)
        self._state.step_count += 1
        judged = await rules.earn(self._problem, attempt, self._sandbox)
        failed = any(outcome.status != Status.PASSED for outcome in attempt.outcomes)
        if judged and failed and self._state.step_count < rules.attempts_per_episode:
            return self._put(self._game.told(attempt.outcomes), attempt)
        put = self._put(None, attempt)
        self._problem = None
        return put

    def _put(self, message: Message | None, attempt: Trajectory | None = None) -> PromptObservation:
        assert self._problem is not None
        said: dict[str, Any] = {"prompt": message.full, "brief": message.brief} if message else {"done": True}
        if attempt is not None:
            said |= {"reward": attempt.reward, "components": attempt.components}
            said["outcomes"] = [
                {"test": o.test, "status": o.status, "error": o.error} for o in attempt.outcomes
            ]
        return PromptObservation(problem=self._problem.id, **said)

    @property
    def state(self) -> State:
        return self._state

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> PromptObservation:
        return asyncio.run(self.reset_async(seed, episode_id, **more))

    def step(self, action: AnswerAction, timeout_s: float | None = None, **_: Any) -> PromptObservation:
        return asyncio.run(self.step_async(action))


def environments(game: SolverGame, problems: Mapping[str, Problem], sandbox: Sandbox) -> FastAPI:
    """Returns an app with one environment per session. problems: the problems by id."""
    return create_fastapi_app(
        lambda: ProgramEnvironment(game, problems, sandbox),
        AnswerAction,
        PromptObservation,
        max_concurrent_envs=SESSIONS,
    )
