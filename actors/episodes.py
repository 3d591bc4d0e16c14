"""Plays requests: many episodes at once, as coroutines on the engines of one process. Does not use Ray."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from actors.rows import episode_rows
from sparring.core.batch import Transcript, transcript_of
from sparring.core.episode import Completion, Episode
from sparring.core.interfaces import Game, Player, Policy, PromptFormat, Sampling, Sandbox
from sparring.core.play import GENERATOR, PLAY, PlayProgress, PlayRequest, PlayResult, usage_of
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.tracing import BusyTimer
from sparring.core.verdict import Limits, Test, Verdict
from sparring.core.weights import PublishReceipt, WeightUpdate, check_receipt


@dataclass(frozen=True, kw_only=True)
class PolicyClient:
    """A policy for a whole run, with its prompt format, decoder and limits."""

    policy: Policy
    format: PromptFormat
    decode: Callable[[Sequence[int]], str]
    """Decodes all tokens, special ones included, for episodes.jsonl."""
    max_tokens: int
    """Maximum number of tokens per turn."""
    probe_tolerance: float
    more: tuple[Policy, ...] = ()
    """The same policy on further engines. Each problem is assigned to one engine, so that its attempts share a prefix
    cache."""


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
        self, request: PlayRequest, heard: Callable[[PlayProgress], None] = lambda progress: None
    ) -> tuple[PlayResult, list[Transcript]]:
        """Plays all problems of the request at once. Raises what a policy raises; a sandbox failure only leaves trajectories
        without reward.

        Args:
            heard: is called with the progress after each completion.

        Returns:
            The result and, if the request is for training, the transcripts of all trajectories.
        """
        PLAY.set(object())
        occupancy, counter = BusyTimer("generate", "sandbox"), _Counter(self._expected(request), heard)
        episodes = await asyncio.gather(
            *(
                self._play_one(request, problem, self._index + i, occupancy, counter)
                for i, problem in enumerate(request.problems)
            )
        )
        result = PlayResult(episodes=list(episodes), sandbox=self._sandbox.stats(), spans=occupancy.spans())
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

    async def publish(self, policy: str, update: WeightUpdate) -> PublishReceipt:
        """Replaces a policy's weights in place and verifies them. Raises PublishError."""
        speaker = self._speakers[policy]
        receipt = await speaker.policy.load_weights(update)
        check_receipt(update, receipt, speaker.probe_tolerance)
        return receipt

    async def sleep(self) -> None:
        for speaker in self._speakers.values():
            await speaker.policy.sleep()

    async def close(self) -> None:
        for speaker in self._speakers.values():
            await speaker.policy.close()

    async def _play_one(
        self, request: PlayRequest, problem: Problem, turn: int, occupancy: BusyTimer, counter: "_Counter"
    ) -> Episode:
        players = {}
        for name, role in self._seats.items():
            speaker = self._speakers[role]
            engines = (speaker.policy, *speaker.more)
            players[name] = Player(
                name=name,
                policy=_TimedPolicy(engines[turn % len(engines)], occupancy, counter),
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

    def __init__(self, expected: int, heard: Callable[[PlayProgress], None]) -> None:
        self._progress, self._heard = PlayProgress(expected=expected), heard
        self._began = time.monotonic()
        heard(self._progress)

    def add(self, completion: Completion) -> None:
        self._progress = replace(
            self._progress,
            done=self._progress.done + 1,
            tokens=self._progress.tokens + len(completion.tokens),
            seconds=time.monotonic() - self._began,
        )
        self._heard(self._progress)


class _TimedPolicy:
    def __init__(self, policy: Policy, occupancy: BusyTimer, counter: _Counter) -> None:
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
