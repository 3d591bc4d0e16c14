"""A player that takes as long as it is told. Rollout actors import it from here, since a test module would take seconds."""

import asyncio
import os
import time
from types import SimpleNamespace
from typing import Any

from actors.loading import LocalPolicy
from sparring.core.interfaces import EngineFailure
from sparring.core.play import PlayProgress, PlayRequest, PlayResult
from sparring.core.weights import PublishReceipt, WeightUpdate, digest_of


class Engine:
    version = 0

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        self.version = update.version
        return PublishReceipt(version=update.version, digest=digest_of(update.tensors), probe_difference=0.0)


class Runner:
    """Plays as long as a problem's description says; its episodes say who played, and by which weights."""

    def __init__(self, index: int) -> None:
        self.index, self.problems, self.slept = index, 0, False
        engine: Any = Engine()
        self.policy = LocalPolicy(engine, 1.0)

    async def play(self, request: PlayRequest, on_progress: Any) -> tuple[PlayResult, list[Any]]:
        began = time.time()
        receipts: Any = {
            policy: [await self.policy.load(weights, request.order)]
            for policy, weights in request.weights.items()
        }
        on_progress(PlayProgress(expected=len(request.problems)))
        for done, problem in enumerate(request.problems, 1):
            if problem.description == "fatal":
                raise EngineFailure("vLLM ended: no memory")
            kind, _, seconds = problem.description.rpartition(" ")
            if kind == "idle":
                await asyncio.sleep(float(seconds))
            else:
                time.sleep(float(seconds))
            on_progress(PlayProgress(done=done, expected=len(request.problems), tokens=10 * done))
        found: Any = [
            SimpleNamespace(
                problem_id=p.id,
                by=self.index,
                pid=os.getpid(),
                version=self.policy.version,
                slept=self.slept,
                began=began,
                ended=time.time(),
            )
            for p in request.problems
        ]
        self.problems += len(found)
        counts = {"problems": float(self.problems)}
        return PlayResult(episodes=found, sandbox=counts, receipts=receipts), []

    async def sleep(self) -> None:
        self.slept = True

    async def close(self) -> None: ...
