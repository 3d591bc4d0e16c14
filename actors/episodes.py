"""Plays requests: many episodes at once, as coroutines on the engines of one process. Does not use Ray."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from actors.loading import RolloutPolicy
from actors.rows import episode_rows
from sparring.core.batch import Transcript, transcript_of
from sparring.core.episode import Completion, Episode
from sparring.core.interfaces import Actor, Game, Player, PromptFormat, Sampling, Sandbox
from sparring.core.play import GENERATOR, PLAY, PlayProgress, PlayRequest, PlayResult, usage_of
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.tracing import BusyTimer
from sparring.core.verdict import Limits, Test, Verdict
from sparring.core.weights import PublishReceipt


@dataclass(frozen=True, kw_only=True)
class PolicyClient:
    """A policy for a whole run, with its prompt format, decoder and limits."""

    engines: Sequence[RolloutPolicy]
    """The policy on each of its engines. Each problem is assigned to one engine, so that its attempts share a prefix cache."""
    format: PromptFormat
    decode: Callable[[Sequence[int]], str]
    """Decodes all tokens, special ones included, for episodes.jsonl."""
    max_tokens: int
    """Maximum number of tokens per turn."""


class EpisodeRunner:
    def __init__(
        self,
        game: Game,
        sandbox: Sandbox,
        speakers: Mapping[str, PolicyClient],
        seats: Mapping[str, str],
        run_seed: int,
        index: int = 0,
        stages: Sequence[int] = (),
    ) -> None:
        """Creates a runner.

        Args:
            speakers: by policy.
            seats: the policy of each player (in self-play two players have the same one).
            index: index of this runner among those that assign problems to the same engines.
            stages: the generator's stage numbers, if the game has stages.
        """
        self._game, self._speakers, self._seats, self._run_seed = game, speakers, seats, run_seed
        self._index, self._stages = index, stages or (0,)
        self._sandbox = sandbox

    async def play(
        self, request: PlayRequest, on_progress: Callable[[PlayProgress], None] = lambda progress: None
    ) -> tuple[PlayResult, list[Transcript]]:
        """Plays all problems of the request at once, after the engines have loaded its weights. Raises PublishError, and what
        a policy raises; a sandbox failure only leaves trajectories without reward.

        Args:
            on_progress: is called with the progress after each completion.

        Returns:
            The result and, if the request is for training, the transcripts of all trajectories.
        """
        PLAY.set(object())
        occupancy = BusyTimer("generate", "sandbox", "publish")
        with occupancy.working("publish"):
            receipts = {role: await self._load(role, request) for role in self._speakers}
        counter = _Counter(self._expected(request), on_progress)
        episodes = await asyncio.gather(
            *(
                self._play_one(request, problem, self._index + i, occupancy, counter)
                for i, problem in enumerate(request.problems)
            )
        )
        result = PlayResult(
            episodes=list(episodes),
            sandbox=self._sandbox.stats(),
            spans=occupancy.spans(),
            receipts=receipts,
        )
        if request.recorded is None:
            return result, []
        transcripts = [transcript_of(t) for e in episodes for t in e.trajectories]
        recorded = replace(
            result, episodes=self._recorded(episodes, request.recorded), usage=usage_of(episodes)
        )
        return recorded, transcripts

    def _expected(self, request: PlayRequest) -> int:
        """Returns the number of completions that the request needs unless attempts are repeated or matches are long."""
        each = 0
        for player, policy in self._seats.items():
            attempts, stages = request.attempts[player], self._stages if policy == GENERATOR else (0,)
            branching = request.branching.get(player)
            each += branching.turns(attempts, stages) if branching else attempts * len(stages)
        return each * len(request.problems)

    def _recorded(self, episodes: Sequence[Episode], begins: Mapping[str, Any]) -> list[Episode]:
        """Returns the episodes with their rows for episodes.jsonl, and with trajectories without their turns."""
        decode = {policy: speaker.decode for policy, speaker in self._speakers.items()}
        index = count()
        return [
            replace(
                episode,
                rows=episode_rows(begins, episode, self._seats, decode),
                trajectories=[t.without_turns(next(index)) for t in episode.trajectories],
            )
            for episode in episodes
        ]

    async def _load(self, policy: str, request: PlayRequest) -> list[PublishReceipt]:
        weights, engines = request.weights.get(policy), self._speakers[policy].engines
        receipts = await asyncio.gather(*(engine.load(weights, request.order) for engine in engines))
        return [receipt for receipt in receipts if receipt is not None]

    async def sleep(self) -> None:
        for engine in self._engines():
            await engine.sleep()

    async def close(self) -> None:
        for engine in self._engines():
            await engine.close()

    def _engines(self) -> list[RolloutPolicy]:
        return [engine for speaker in self._speakers.values() for engine in speaker.engines]

    async def _play_one(
        self, request: PlayRequest, problem: Problem, turn: int, occupancy: BusyTimer, counter: "_Counter"
    ) -> Episode:
        players = {}
        for name, role in self._seats.items():
            speaker = self._speakers[role]
            engine = speaker.engines[turn % len(speaker.engines)]
            players[name] = Player(
                name=name,
                policy=_TimedPolicy(engine, occupancy, counter),
                format=speaker.format,
                attempts=request.attempts[name],
                temperature=request.temperatures[name],
                seed=derive_seed(self._run_seed, *request.address, problem.id, name),
                max_tokens=speaker.max_tokens,
                branching=request.branching.get(name),
                once=request.once,
                past=request.past.get(problem.id, {}).get(name, ()),
            )
        sandbox = _TimedSandbox(self._sandbox, occupancy)
        return await self._game.play(problem, players, sandbox, request.memory.get(problem.id, ()))


class _Counter:
    """Counts the completions of one request."""

    def __init__(self, expected: int, on_progress: Callable[[PlayProgress], None]) -> None:
        self._progress, self._on_progress = PlayProgress(expected=expected), on_progress
        self._began = time.monotonic()
        on_progress(self._progress)

    def add(self, completion: Completion) -> None:
        self._progress = replace(
            self._progress,
            done=self._progress.done + 1,
            tokens=self._progress.tokens + len(completion.tokens),
            seconds=time.monotonic() - self._began,
        )
        self._on_progress(self._progress)


class _TimedPolicy:
    def __init__(self, policy: Actor, occupancy: BusyTimer, counter: _Counter) -> None:
        self._policy, self._occupancy, self._counter = policy, occupancy, counter

    @property
    def version(self) -> int:
        return self._policy.version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        with self._occupancy.working("generate"):
            completion = await self._policy.generate(prompt_tokens, sampling)
        self._counter.add(completion)
        return completion


class _TimedSandbox:
    def __init__(self, sandbox: Sandbox, occupancy: BusyTimer) -> None:
        self._sandbox, self._occupancy = sandbox, occupancy

    async def judge(
        self,
        program: str,
        tests: Sequence[Test],
        *,
        limits: Limits | None = None,
        run: int = 0,
        language: str = "python",
    ) -> list[Verdict]:
        with self._occupancy.working("sandbox"):
            return await self._sandbox.judge(program, tests, limits=limits, run=run, language=language)

    def stats(self) -> dict[str, float]:
        return self._sandbox.stats()
