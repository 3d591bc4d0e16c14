"""The rollout actor: the Ray shell around EpisodeRunner."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.metrics import Gauge

from actors.engines import publish_seconds, warnings_heard
from actors.episodes import EpisodeRunner
from core.play import PlayRequest, PlayResult
from core.problem import Problem
from core.weights import PublishReceipt, WeightUpdate

log = logging.getLogger(__name__)
# For a process in which engines run on a CPU: one thread, no lazy compiles.
ENGINE_ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
}


def runtime_env(device: str) -> dict[str, Any]:
    """Of an actor that holds engines."""
    return {"env_vars": ENGINE_ENVIRONMENT if device == "cpu" else {"VLLM_LOGGING_LEVEL": "ERROR"}}


class RolloutShell:
    """Async actor: many episodes at once on its engines."""

    def __init__(self, build: Callable[[int], EpisodeRunner], index: int = 0) -> None:
        self._index = index
        with warnings_heard() as self._warnings:
            self._runner = build(index)
        self._playing = 0
        self._in_flight = Gauge(
            "sparring_problems_in_flight", "Problems whose episodes are being played.", ("actor",)
        )
        self._publish_seconds = publish_seconds()

    def __repr__(self) -> str:
        """Its name in Ray's dashboard."""
        return f"rollout {self._index}"

    async def ready(self) -> list[str]:
        """What its parts warned of while they started: Ray keeps an actor's log to itself."""
        return self._warnings

    async def sleep(self) -> None:
        await self._runner.sleep()

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
        self,
        build: Callable[[int], EpisodeRunner],
        options: Sequence[Mapping[str, Any]],
        device: str,
        engines: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """options: Ray's, of each actor; engines: actors of actors/engines.py by policy, which are closed with these."""
        self.engines = dict(engines or {})
        self.actors, self._said = [], set[str]()
        self._playing: dict[Any, tuple[int, int]] = {}
        """By reference: (actor, problems)."""
        for index, own in enumerate(options):
            actor = RolloutActor.options(max_concurrency=64, runtime_env=runtime_env(device), **own)
            self.actors.append(actor.remote(build, index))
            # an engine takes for its own whatever another allocates while it starts
            if device == "cuda" and own["num_gpus"] < 1:
                ray.get(self.actors[-1].ready.remote())

    def wait_ready(self) -> None:
        for warnings in ray.get([a.ready.remote() for a in self._all()]):
            for warning in set(warnings) - self._said:
                log.warning("%s", warning)
            self._said.update(warnings)

    def _all(self) -> list[Any]:
        """An engine of several policies is there once."""
        return list(dict.fromkeys([*self.actors, *(e for engines in self.engines.values() for e in engines)]))

    def begin(self, request: PlayRequest) -> Callable[[], PlayResult]:
        """Problem by problem goes to the actor with the fewest that are still played; results are in their order."""
        finished = (
            ray.wait(list(self._playing), num_returns=len(self._playing), timeout=0)[0]
            if self._playing
            else []
        )
        for reference in finished:
            del self._playing[reference]
        load = [0] * len(self.actors)
        for index, problems in self._playing.values():
            load[index] += problems
        shares: list[list[Problem]] = [[] for _ in self.actors]
        for problem in request.problems:
            least = min(range(len(load)), key=load.__getitem__)
            shares[least].append(problem)
            load[least] += 1
        mine = {}
        for index, share in enumerate(shares):
            if share:
                mine[self.actors[index].play.remote(replace(request, problems=tuple(share)))] = (
                    index,
                    len(share),
                )
        self._playing |= mine
        return lambda: merge_results(request, {i: ray.get(reference) for reference, (i, _) in mine.items()})

    def publish(self, policy: str, update: Any) -> list[PublishReceipt]:
        """update: a reference; each actor fetches the weights itself."""
        holders = self.engines.get(policy, self.actors)
        return ray.get([a.publish.remote(policy, update) for a in holders])

    def sleep(self) -> None:
        ray.get([a.sleep.remote() for a in self.actors])

    def close(self) -> None:
        for actor in self._all():
            with contextlib.suppress(RayError):  # it is ended next in any case
                ray.get(actor.close.remote(), timeout=20)
            ray.kill(actor)


def merge_results(request: PlayRequest, results: Mapping[int, PlayResult]) -> PlayResult:
    """One result of several actors', by number: episodes in the request's order, summed counters."""
    order = {problem.id: i for i, problem in enumerate(request.problems)}
    counters = [result.sandbox for result in results.values()]
    return PlayResult(
        episodes=sorted(
            (e for result in results.values() for e in result.episodes), key=lambda e: order[e.problem_id]
        ),
        sandbox={name: sum(own.get(name, 0.0) for own in counters) for name in counters[0]},
        spans=[
            (f"rollout {i}: {kind}", began, ended)
            for i, result in results.items()
            for kind, began, ended in result.spans
        ],
    )
