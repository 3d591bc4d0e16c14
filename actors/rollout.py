"""The rollout actor: the Ray shell around EpisodeRunner."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.metrics import Gauge, Histogram

from actors.episodes import EpisodeRunner
from core.play import PlayRequest, PlayResult
from core.weights import PublishReceipt, WeightUpdate

# For the actor's process, in which the engines run: one thread, no lazy compiles.
ENGINE_ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
}


class RolloutShell:
    """Async actor: many episodes at once on its engines."""

    def __init__(self, build: Callable[[], EpisodeRunner], index: int = 0) -> None:
        self._runner, self._index = build(), index
        self._playing = 0
        self._in_flight = Gauge(
            "sparring_problems_in_flight", "Problems whose episodes are being played.", ("actor",)
        )
        self._publish_seconds = Histogram(
            "sparring_publish_seconds",
            "Seconds from the call to the proof that the new weights act.",
            [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
            ("actor", "policy"),
        )

    def __repr__(self) -> str:
        """Its name in Ray's dashboard."""
        return f"rollout {self._index}"

    async def ready(self) -> bool:
        return True

    async def play(self, request: PlayRequest) -> PlayResult:
        self._count(len(request.problems))
        try:
            return await self._runner.play(request)
        finally:
            self._count(-len(request.problems))

    def _count(self, change: int) -> None:
        self._playing += change
        self._in_flight.set(self._playing, {"actor": repr(self)})

    async def publish(self, policy: str, update: WeightUpdate) -> PublishReceipt:
        began = time.perf_counter()
        receipt = await self._runner.publish(policy, update)
        self._publish_seconds.observe(time.perf_counter() - began, {"actor": repr(self), "policy": policy})
        return receipt

    async def close(self) -> None:
        await self._runner.close()


RolloutActor: Any = ray.remote(RolloutShell)


class RayRollouts:
    """The driver's handle on all rollout actors. Whole problems go to one actor, so that attempts share its
    prefix cache."""

    def __init__(
        self, build: Callable[[], EpisodeRunner], count: int, cpus: float, gpus: float, device: str
    ) -> None:
        environment = ENGINE_ENVIRONMENT if device == "cpu" else {"VLLM_LOGGING_LEVEL": "ERROR"}
        actor = RolloutActor.options(
            max_concurrency=16, num_cpus=cpus, num_gpus=gpus, runtime_env={"env_vars": environment}
        )
        self.actors = []
        for index in range(count):
            self.actors.append(actor.remote(build, index))
            # an engine takes for its own whatever another allocates while it starts
            if device == "cuda" and gpus < 1:
                ray.get(self.actors[-1].ready.remote())

    def wait_ready(self) -> None:
        ray.get([a.ready.remote() for a in self.actors])

    def play(self, request: PlayRequest) -> PlayResult:
        shares = [request.problems[i :: len(self.actors)] for i in range(len(self.actors))]
        results: Sequence[PlayResult] = ray.get(
            [
                actor.play.remote(replace(request, problems=share))
                for actor, share in zip(self.actors, shares, strict=True)
                if share
            ]
        )
        return merge_results(request, results)

    def publish(self, policy: str, update: Any) -> list[PublishReceipt]:
        """update: a reference; each actor fetches the weights itself."""
        return ray.get([a.publish.remote(policy, update) for a in self.actors])

    def close(self) -> None:
        for actor in self.actors:
            with contextlib.suppress(RayError):  # it is ended next in any case
                ray.get(actor.close.remote(), timeout=20)
            ray.kill(actor)


def merge_results(request: PlayRequest, results: Sequence[PlayResult]) -> PlayResult:
    """One result of several actors': episodes in the request's order, the slowest actor's seconds, summed
    counters."""
    order = {problem.id: i for i, problem in enumerate(request.problems)}
    episodes = sorted((e for r in results for e in r.episodes), key=lambda e: order[e.problem_id])
    kinds = results[0].seconds
    counters = results[0].sandbox
    return PlayResult(
        episodes=episodes,
        seconds={kind: max(r.seconds[kind] for r in results) for kind in kinds},
        sandbox={name: sum(r.sandbox.get(name, 0.0) for r in results) for name in counters},
        spans=[
            (f"rollout {i}: {kind}", began, ended)
            for i, r in enumerate(results)
            for kind, began, ended in r.spans
        ],
    )
