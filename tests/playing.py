"""Helpers for tests of games: whole episodes are played with scripted players, without a model."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparring.core.batch import Sample, SampleSpec, TokenSelection, make_sample, transcript_of
from sparring.core.episode import Completion, Episode, FinishReason, Trajectory
from sparring.core.interfaces import Game, Message, Player, Sampling, Sandbox, SandboxFailure
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.verdict import Limits, Test, Verdict
from sparring.core.weights import PublishReceipt, WeightUpdate

STOP = 0
Says = Callable[[str, Sampling], str]
"""Maps (prompt as text, one character per token; sampling) to the completion as text."""


class Letters:
    """A prompt format in which tokens are code points."""

    def __init__(self, *, full: bool = False) -> None:
        """full: whether messages have the full text, as for a chat model."""
        self._full = full

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        opens, asks = message.marks
        stage = asks[2:-1] if asks.startswith("<s") else ""
        if self._full or (not stage and opens == "<p>"):
            said = (message.full if self._full else message.brief) + ">"
        elif stage:
            said = stage if not opens else f"{message.brief}?{stage if stage != '1' else ''}"
        else:
            said = f"{message.brief}!"
        return [*tokens, *map(ord, said + message.begins * self._full)]

    def shown(self, message: Message) -> str:
        return message.full if self._full else message.brief

    def stop_token_ids(self) -> tuple[int, ...]:
        return (STOP,)

    def stop_texts(self, begins: str = "") -> tuple[str, ...]:
        return (f"end of {begins}",) if begins else ()

    def text(self, completion_tokens: Sequence[int], begins: str = "") -> str:
        return begins * self._full + "".join(chr(t) for t in completion_tokens if t != STOP)

    def completion(self, text: str, closes: str = "<end>") -> list[int]:
        return [*map(ord, text), STOP]


def letters(tokens: Sequence[int]) -> str:
    """Decodes the tokens as the run's record does."""
    return "".join(map(chr, tokens))


def sample_of(trajectory: Trajectory, **reading: Any) -> Sample:
    """Makes the training sample of a trajectory. reading: see TokenSelection."""
    spec = SampleSpec(None, 0, trajectory.player, 0.5, 0.25, TokenSelection(**reading))
    return make_sample(transcript_of(trajectory), spec)


class ScriptedPolicy:
    """A policy with scripted completions, without a model.

    `script` maps (prompt tokens, sampling) to the tokens of the completion, its stop token included.
    """

    def __init__(self, script: Callable[[Sequence[int], Sampling], Sequence[int]]) -> None:
        self._script = script
        self._version = 0

    @property
    def version(self) -> int:
        return self._version

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        tokens = tuple(self._script(prompt_tokens, sampling))[: sampling.max_tokens]
        for count in range(1, len(tokens) + 1) if sampling.on_tokens else ():
            sampling.on_tokens(tokens[:count])
        stopped = bool(tokens) and tokens[-1] in sampling.stop_token_ids
        return Completion(
            tokens=tokens,
            logprobs=(0.0,) * len(tokens),  # every token has probability 1
            version=self._version,
            finish_reason=FinishReason.STOP if stopped else FinishReason.LENGTH,
        )

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        """Takes the update's version and reports no difference, since the policy has no weights."""
        self._version = update.version
        return PublishReceipt(version=update.version, digest=update.digest, probe_difference=0.0)

    async def sleep(self) -> None:
        pass

    async def close(self) -> None:
        pass


def player(
    name: str,
    says: Says,
    *,
    attempts: int = 1,
    seed: int = 1,
    format: Any = None,
    max_tokens: int = 4000,
    temperature: float = 1.0,
) -> Player:
    style = format or Letters()

    def script(prompt: Sequence[int], sampling: Sampling) -> list[int]:
        return style.completion(says("".join(map(chr, prompt)), sampling))

    return Player(
        name=name,
        policy=ScriptedPolicy(script),
        format=style,
        attempts=attempts,
        temperature=temperature,
        seed=seed,
        max_tokens=max_tokens,
    )


def reader(name: str, texts: Sequence[str], *, attempts: int | None = None, seed: int = 1) -> Player:
    """Returns a player whose attempt i answers texts[i]. If it is asked more often (by several programs), it continues
    through the list."""
    by_seed = {derive_seed(seed, i, 0): text for i, text in enumerate(texts)}
    count = len(texts) if attempts is None else attempts
    return player(name, lambda _, sampling: by_seed[sampling.seed or 0], attempts=count, seed=seed)


@dataclass
class Breaking:
    """A sandbox that judges as `sandbox` does, but fails on some programs, or on all. It records the jobs that it gets."""

    sandbox: Sandbox | None = None
    on: set[str] | None = None
    """The programs on which it fails; None: all."""
    jobs: list[tuple[str, tuple[Test, ...], Limits | None, int, str]] = field(default_factory=list)

    async def judge(
        self,
        program: str,
        tests: Sequence[Test],
        *,
        limits: Limits | None = None,
        run: int = 0,
        language: str = "python",
    ) -> list[Verdict]:
        self.jobs.append((program, tuple(tests), limits, run, language))
        if self.on is None or program in self.on:
            raise SandboxFailure("broken")
        assert self.sandbox is not None
        return await self.sandbox.judge(program, tests, limits=limits, run=run, language=language)

    def stats(self) -> dict[str, float]:
        return {}


def play(
    game: Game,
    problem: Problem,
    players: Sequence[Player],
    sandbox: Sandbox | None = None,
    memory: Sequence[str] = (),
) -> Episode:
    table: Mapping[str, Player] = {p.name: p for p in players}
    return asyncio.run(game.play(problem, table, sandbox or Breaking(), memory))


def by_player(episode: Episode, name: str) -> list[Trajectory]:
    return [trajectory for trajectory in episode.trajectories if trajectory.player == name]


def lines_of(episode: Episode) -> Iterator[str]:
    """Yields an episode as JSON lines: one per turn, one per attempt, and one for the whole episode."""
    for trajectory in episode.trajectories:
        who = {"player": trajectory.player, "attempt": trajectory.attempt}
        for turn in trajectory.turns:
            said = {
                "stage": turn.stage,
                "prompt": "".join(map(chr, turn.prompt_tokens)),
                "text": turn.text,
                "tokens": len(turn.completion.tokens),
                "finish_reason": turn.completion.finish_reason,
            }
            yield json.dumps(who | said)
        earned = {
            "reward": trajectory.reward,
            "components": trajectory.components,
            "artifact": trajectory.artifact,
            "outcomes": [[o.owner, o.test, o.status, o.kills] for o in trajectory.outcomes],
        }
        group = {"group": trajectory.group} if trajectory.group else {}
        yield json.dumps(who | group | earned)
    yield json.dumps({"problem_id": episode.problem_id})


def with_tests(problem: Problem, *tests: Test) -> Problem:
    return replace(problem, baseline_tests=tests, hidden_tests=())


def a_problem(**changes: Any) -> Problem:
    """Returns the problem to double n, but for `changes`."""
    double: dict[str, Any] = {
        "id": "double",
        "description": "Return n doubled.",
        "function_signature": "def f(n: int) -> int:",
        "baseline_tests": ("assert f(2) == 4", "assert f(-1) == -2"),
        "reference_solution": "def f(n): return n * 2",
    }
    return Problem(**(double | changes))
