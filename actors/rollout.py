"""The rollout actor: the Ray shell around EpisodeRunner."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.metrics import Gauge

from actors.engines import publish_seconds, warnings_heard
from actors.episodes import EpisodeRunner
from actors.watching import HEALTH, REPLACEMENTS, Silent, answer, in_words, require_alive
from core.errors import RunFailed
from core.interfaces import EngineFailure
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

    @ray.method(concurrency_group="health")
    async def alive(self) -> None:
        """Answers while it plays."""

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


RolloutActor: Any = ray.remote(**HEALTH)(RolloutShell)
_Sent = tuple[Any, Any]
"""(the actor that was called, the reference)."""


class RayRollouts:
    """The driver's handle on all rollout actors. Whole problems go to one actor, so that attempts share its prefix cache.

    An actor that dies, falls silent, or whose engine ends is replaced by one with the weights that were published last, which
    plays again what it had: to the same episodes, where the engine is exact.
    """

    def __init__(
        self,
        build: Callable[[int], EpisodeRunner],
        options: Sequence[Mapping[str, Any]],
        device: str,
        engines: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """options: Ray's, of each actor; engines: actors of actors/engines.py by policy, which are closed with these."""
        self.engines = dict(engines or {})
        self._build, self._options, self._device = build, options, device
        self.actors, self._said = [], set[str]()
        self._replaced = [0] * len(options)
        self._playing: dict[Any, tuple[int, int]] = {}
        """By reference: (actor, problems)."""
        self._published: dict[str, Any] = {}
        """The last update of each policy whose engines the actors hold."""
        for index, own in enumerate(options):
            self.actors.append(self._start(index))
            # an engine takes for its own whatever another allocates while it starts
            if device == "cuda" and own["num_gpus"] < 1:
                ray.get(self.actors[-1].ready.remote())

    def _start(self, index: int) -> Any:
        environment = runtime_env(self._device)
        actor = RolloutActor.options(max_concurrency=64, runtime_env=environment, **self._options[index])
        return actor.remote(self._build, index)

    def wait_ready(self) -> None:
        for warnings in ray.get([a.ready.remote() for a in [*self.actors, *self._engines()]]):
            for warning in set(warnings) - self._said:
                log.warning("%s", warning)
            self._said.update(warnings)

    def _engines(self) -> list[Any]:
        """Those apart; one of several policies is there once."""
        return list(dict.fromkeys(engine for engines in self.engines.values() for engine in engines))

    def begin(self, request: PlayRequest) -> Callable[[], PlayResult]:
        """Problem by problem goes to the actor with the fewest that are still played; results are in their order."""
        playing = list(self._playing)
        for reference in ray.wait(playing, num_returns=len(playing), timeout=0)[0] if playing else ():
            del self._playing[reference]
        load = [0] * len(self.actors)
        for index, problems in self._playing.values():
            load[index] += problems
        shares: list[list[Problem]] = [[] for _ in self.actors]
        for problem in request.problems:
            least = min(range(len(load)), key=load.__getitem__)
            shares[least].append(problem)
            load[least] += 1
        sent: dict[int, tuple[PlayRequest, _Sent]] = {}
        for index, problems in enumerate(shares):
            if problems:
                share, actor = replace(request, problems=tuple(problems)), self.actors[index]
                sent[index] = share, (actor, actor.play.remote(share))
                self._playing[sent[index][1][1]] = index, len(problems)
        return lambda: merge_results(request, {i: self._result(i, *own) for i, own in sent.items()})

    def _result(self, index: int, share: PlayRequest, sent: _Sent) -> PlayResult:
        again = 0

        def play_again(actor: Any) -> Any:
            nonlocal again
            again += len(share.problems)
            return actor.play.remote(share)

        result = self._ask(index, play_again, sent)
        return replace(result, played_again=again)

    def _ask(self, index: int, call: Callable[[Any], Any], sent: _Sent | None = None) -> Any:
        """What call(actor) comes to with the actor in this place, or where that is lost, with the one that replaces it.
        sent: the actor that was called already, and the reference. Raises RunFailed where too many are lost."""
        actor, reference = sent or (self.actors[index], call(self.actors[index]))
        while True:
            try:
                return answer(reference, actor, *self._engines())
            except (RayActorError, Silent, EngineFailure) as error:
                if self.actors[index] is actor:
                    self._replace(index, in_words(error))
            actor = self.actors[index]
            reference = call(actor)

    def _replace(self, index: int, why: str) -> None:
        """Raises RunFailed."""
        try:
            require_alive(self._engines())
        except (RayActorError, Silent) as error:  # it is not the rollout actor's fault
            raise RunFailed(f"an engine was lost: {in_words(error)}") from None
        while True:
            self._replaced[index] += 1
            times = self._replaced[index]
            if times > REPLACEMENTS:
                raise RunFailed(f"rollout actor {index} was lost {times} times, the last time by {why}")
            log.warning("rollout actor %d was lost (%s): another plays again what it had", index, why)
            ray.kill(self.actors[index])
            self.actors[index] = actor = self._start(index)
            try:
                ray.get(actor.ready.remote())
                for policy, update in self._published.items():
                    answer(actor.publish.remote(policy, update), actor)
                return
            except (RayActorError, Silent, EngineFailure) as error:
                why = in_words(error)

    def publish(self, policy: str, update: Any) -> list[PublishReceipt]:
        """update: a reference; each actor fetches the weights itself. Raises RunFailed, PublishError."""
        if policy in self.engines:
            sent = [engine.publish.remote(policy, update) for engine in self.engines[policy]]
            return [answer(reference, *self.engines[policy]) for reference in sent]
        self._published[policy] = update
        return self._of_all(lambda actor: actor.publish.remote(policy, update))

    def sleep(self) -> None:
        self._of_all(lambda actor: actor.sleep.remote())

    def _of_all(self, call: Callable[[Any], Any]) -> list[Any]:
        sent = [(actor, call(actor)) for actor in self.actors]
        return [self._ask(index, call, own) for index, own in enumerate(sent)]

    def close(self) -> None:
        for actor in [*self.actors, *self._engines()]:
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
        played_again=sum(result.played_again for result in results.values()),
        spans=[
            (f"rollout {i}: {kind}", began, ended)
            for i, result in results.items()
            for kind, began, ended in result.spans
        ],
    )
