"""Engines that end, and their caller. Actors import them from here, since a test module would take seconds."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from actors.engines import RemotePolicy
from actors.loading import LocalPolicy
from sparring.core.episode import Completion, FinishReason
from sparring.core.interfaces import EngineFailure, Sampling
from sparring.core.play import PlayRequest, PlayResult
from sparring.core.weights import PublishReceipt, WeightUpdate

POLICIES = ("generator", "discriminator")
WRONG = 13
"""A version with which the engine computes something else than the learner."""
ASKED = Sampling(max_tokens=1, stop_token_ids=())


class Engine:
    """Takes a while, says which process it is, and ends where a file tells it to."""

    def __init__(self, ends: Path) -> None:
        self.version, self.ends = 0, ends

    async def generate(self, prompt_tokens: Any, sampling: Sampling) -> Completion:
        await asyncio.sleep(prompt_tokens[0])
        if self.ends.exists():
            self._end()
        return Completion(
            tokens=(os.getpid(),), logprobs=(0.0,), version=self.version, finish_reason=FinishReason.STOP
        )

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        if self.ends.exists() and self.version != update.version:
            self._end()
        self.version = update.version
        difference = float(update.version == WRONG)
        return PublishReceipt(version=update.version, digest=update.digest, probe_difference=difference)

    def _end(self) -> NoReturn:
        ended(self.ends).touch()
        raise EngineFailure("vLLM ended: no memory")

    async def close(self) -> None: ...


def ended(ends: Path) -> Path:
    """Is there once an engine has ended."""
    return ends.with_name("ended")


def engines(ends: Path) -> dict[str, LocalPolicy]:
    engines: list[Any] = [Engine(ends) for _ in POLICIES]
    return {policy: LocalPolicy(engine, 1e-3) for policy, engine in zip(POLICIES, engines, strict=True)}


class Runner:
    """Asks the engine once for each policy; its episodes say which process answered, by which weights."""

    def __init__(self, remote: dict[str, RemotePolicy], index: int) -> None:
        self.remote = remote

    async def play(self, request: PlayRequest, on_progress: Any) -> tuple[PlayResult, list[Any]]:
        for policy in POLICIES:
            await self.remote[policy].load(request.weights.get(policy), request.order)
        seconds = [float(p.description) for p in request.problems]
        said = [await self.remote[policy].generate([s], ASKED) for s in seconds for policy in POLICIES]  # type: ignore
        versions = dict(zip(POLICIES, [one.version for one in said], strict=False))
        episode: Any = SimpleNamespace(problem_id="p", pid=said[-1].tokens[0], versions=versions)
        return PlayResult(episodes=[episode], sandbox={}), []

    async def close(self) -> None: ...
