"""The rollout actor: the Ray shell around EpisodeRunner."""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    ObjectLostError,
)
from ray.util.metrics import Gauge

from actors.engines import AGAIN_S, BegunAnew, publish_seconds, warnings_heard
from actors.episodes import EpisodeRunner
from actors.watching import (
    CLOSE_S,
    DIED,
    GONE,
    HEALTH,
    LOOK_S,
    REPLACEMENTS,
    START_S,
    Silent,
    answer,
    end,
    require_alive,
)
from core.arrays import sealed
from core.endings import in_words, killed_for_memory
from core.errors import OutOfMemory, RunFailed
from core.interfaces import EngineFailure
from core.play import PlayProgress, PlayRequest, PlayResult, Usage
from core.problem import Problem
from core.weights import PublishReceipt, WeightUpdate, joined

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
        self._progress: dict[Any, PlayProgress] = {}
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

    @ray.method(concurrency_group="health")
    async def progress(self, key: Any) -> PlayProgress | None:
        """Returns how far the request with this key has come, also once it is done. None if it has not begun."""
        return self._progress.get(key)

    async def sleep(self) -> None:
        await self._runner.sleep()

    @ray.method(num_returns=2)
    async def play(self, request: PlayRequest) -> tuple[PlayResult, Any]:
        """Two references: to the result, and to the sealed transcripts."""
        key = request.key
        if len(self._progress) >= REMEMBERED:
            self._progress.pop(next(iter(self._progress)))
        self._count(len(request.problems))
        try:
            result, transcripts = await self._runner.play(request, partial(self._progress.__setitem__, key))
            return result, sealed(transcripts)
        finally:
            self._count(-len(request.problems))

    def _count(self, change: int) -> None:
        self._playing += change
        self._in_flight.set(self._playing, {"actor": repr(self)})

    async def publish(self, policy: str, update: WeightUpdate) -> PublishReceipt:
        began = time.perf_counter()
        receipt = await self._runner.publish(policy, joined(update, await asyncio.gather(*update.parts)))
        self._publish_seconds.observe(time.perf_counter() - began, {"actor": repr(self), "policy": policy})
        return receipt

    async def close(self) -> None:
        await self._runner.close()


RolloutActor: Any = ray.remote(**HEALTH)(RolloutShell)
REMEMBERED = 64
"""Requests whose progress an actor can tell: more than it plays at the same time."""
PROGRESS_S = 1.0
"""An actor that has not said within this how far it has come is not waited for."""
_ENDED = (*DIED, Silent, EngineFailure)
_LOST = (*_ENDED, ObjectLostError)
"""ObjectLostError: what it had played was lost with its node before anybody had it."""


@dataclass(eq=False)
class _Share:
    """Of a step: what one actor plays. Any can, in any order, again."""

    index: int
    """Of the actor's place."""
    request: PlayRequest
    actor: Any
    playing: Any
    """The reference."""
    transcripts: Any
    again: int = 0
    """Problems that were begun anew."""
    progress: PlayProgress = field(default_factory=PlayProgress)
    """As it was last heard of."""


class RayRollouts:
    """The driver's handle on all rollout actors. Whole problems go to one actor, so that attempts share its prefix cache.

    An actor that dies, falls silent, or whose engine ends is replaced by one with the weights that were published last, which
    plays again what it had: to the same episodes, where the engine is exact. An engine apart that ends or falls silent is begun
    anew by Ray, and given its weights here; who plays asks it again.
    """

    def __init__(
        self,
        build: Callable[[int], EpisodeRunner],
        options: Sequence[Mapping[str, Any]],
        device: str,
        engines: Mapping[str, Sequence[Any]] | None = None,
        *,
        sleeps: bool = False,
    ) -> None:
        """options: Ray's, of each actor; engines: actors of actors/engines.py by policy, which are closed with these; sleeps:
        whether an engine of an actor does."""
        self.engines = dict(engines or {})
        self._build, self._options, self._device, self._sleeps = build, options, device, sleeps
        self.heard: Callable[[PlayProgress], None] = lambda progress: None
        self.actors, self._said = [], set[str]()
        self._replaced = [0] * len(options)
        self._mended: Counter[Any] = Counter()
        """How often, by engine that is apart."""
        self._open: list[_Share] = []
        """Those whose result nobody has had."""
        self._published: dict[str, Any] = {}
        """The last update of each policy."""
        self._counts: dict[Any, Mapping[str, float]] = {}
        """The sandbox clients', of each actor since its start; of lost ones, too."""
        for index in range(len(options)):
            self.actors.append(self._start(index))
            if self._starts_alone(index):
                ray.get(self.actors[-1].ready.remote())

    def _start(self, index: int) -> Any:
        environment = runtime_env(self._device)
        actor = RolloutActor.options(max_concurrency=64, runtime_env=environment, **self._options[index])
        return actor.remote(self._build, index)

    def _starts_alone(self, index: int) -> bool:
        """On a part of a GPU: an engine takes for its own whatever another allocates while it starts."""
        return self._device == "cuda" and self._options[index]["num_gpus"] < 1

    def wait_ready(self) -> None:
        for warnings in ray.get([a.ready.remote() for a in [*self.actors, *self._engines()]]):
            for warning in set(warnings) - self._said:
                log.warning("%s", warning)
            self._said.update(warnings)

    def _engines(self) -> list[Any]:
        """Those apart; one of several policies is there once."""
        return list(dict.fromkeys(engine for engines in self.engines.values() for engine in engines))

    def begin(self, request: PlayRequest) -> Callable[[], PlayResult]:
        """Problem by problem goes to the actor with the fewest of earlier steps that are still played; results are in their
        order. What is not for training is dealt evenly, and counts for nothing: a step is dealt as it is after a resume."""
        load = [0] * len(self.actors)
        for share in self._open:
            steps = None not in (request.recorded, share.request.recorded)
            if steps and not ray.wait([share.playing], timeout=0)[0]:
                load[share.index] += len(share.request.problems)
        dealt: list[list[Problem]] = [[] for _ in self.actors]
        for problem in request.problems:
            least = min(range(len(load)), key=load.__getitem__)
            dealt[least].append(problem)
            load[least] += 1
        shares = []
        for index, problems in enumerate(dealt):
            if problems:
                own, actor = replace(request, problems=tuple(problems)), self.actors[index]
                shares.append(_Share(index, own, actor, *actor.play.remote(own)))
        self._open += shares
        return lambda: self._merged(request, {share.index: self._result(share, shares) for share in shares})

    def _result(self, share: _Share, shares: Sequence[_Share]) -> PlayResult:
        """shares: of the same request."""
        while True:
            actor = share.actor
            try:
                ray.wait([share.playing], timeout=LOOK_S)
                _fetch(shares)
                result: PlayResult = answer(
                    share.playing, actor, *self._engines(), meanwhile=lambda: self._tell(shares)
                )
                # the driver's own from here on, whatever becomes of the actor's node
                transcripts = ray.put(answer(share.transcripts, actor))
            except _LOST as error:
                if self._mend_engines() or (self.engines and _works(share)):
                    continue  # what it had asked of them is asked again
                self._lost(share.index, actor, error)
                if share.actor is actor:  # it was replaced before, when this share was played and still there
                    self._begin_anew(share)
                continue
            self._open.remove(share)
            self._counts[actor] = result.sandbox
            for episode in result.episodes:
                episode.transcripts = transcripts
            return replace(result, played_again=share.again)

    def _tell(self, shares: Sequence[_Share]) -> None:
        """Tells how far the request has come, according to those of its actors that answer at once."""
        asked = {share.actor.progress.remote(share.request.key): share for share in shares}
        for reference in ray.wait(list(asked), num_returns=len(asked), timeout=PROGRESS_S)[0]:
            with contextlib.suppress(*DIED):  # whoever waits for it will tell
                asked[reference].progress = ray.get(reference) or asked[reference].progress
        self.heard(sum((share.progress for share in shares), PlayProgress()))

    def _merged(self, request: PlayRequest, results: Mapping[int, PlayResult]) -> PlayResult:
        """One result of several actors', by number: episodes in the request's order."""
        order = {problem.id: i for i, problem in enumerate(request.problems)}
        episodes = (episode for result in results.values() for episode in result.episodes)
        counted: Counter[str] = Counter()
        for counts in self._counts.values():
            counted.update(counts)
        return PlayResult(
            episodes=sorted(episodes, key=lambda e: order[e.problem_id]),
            sandbox=dict(counted),
            played_again=sum(result.played_again for result in results.values()),
            usage=sum((result.usage for result in results.values()), Usage()),
            spans=[
                (f"rollout {i}: {kind}", began, ended)
                for i, result in results.items()
                for kind, began, ended in result.spans
            ],
        )

    # ------------------------------------------------------------------ what is lost
    def _lost(self, index: int, actor: Any, error: Exception) -> None:
        """Another takes its place, unless one has already, and others those of who is lost with it, as on a node; what all of
        them had is begun anew. Raises RunFailed."""
        if self.actors[index] is not actor:
            return
        lost = {index: error}
        if not self._starts_alone(index):
            lost |= self._also_lost(index)
        places = set(lost)
        while lost:
            for place, why in lost.items():
                self._begin_another(place, why)
            again = {place: self._lost_again(place, why) for place, why in lost.items()}
            lost = {place: why for place, why in again.items() if why is not None}
        for share in self._open:
            if share.index in places and not _played(share.playing):
                self._begin_anew(share)

    def _also_lost(self, index: int) -> dict[int, Exception]:
        """Places of others that have died, with the reason."""
        asked = {place: a.alive.remote() for place, a in enumerate(self.actors) if place != index}
        if asked:
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=LOOK_S)
        found: dict[int, Exception] = {}
        for place, reference in asked.items():
            try:
                ray.get(reference, timeout=0)
            except GetTimeoutError:
                continue  # whoever waits for it will tell
            except _ENDED as error:
                found[place] = error
        return found

    def _begin_anew(self, share: _Share) -> None:
        share.actor = self.actors[share.index]
        share.playing, share.transcripts = share.actor.play.remote(share.request)
        share.again += len(share.request.problems)

    def _begin_another(self, index: int, why: Exception) -> None:
        """Raises RunFailed."""
        self._replaced[index] += 1
        if self._replaced[index] > REPLACEMENTS:
            raise _given_up(f"rollout actor {index}", self._replaced[index], why)
        log.warning("rollout actor %d was lost (%s): another plays again what it had", index, in_words(why))
        end(self.actors[index])
        self.actors[index] = self._start(index)

    def _lost_again(self, index: int, why: Exception) -> Exception | None:
        """None once it is ready, and has what was published last; else why it is lost, too. Raises RunFailed."""
        actor = self.actors[index]
        try:
            ray.get(actor.ready.remote(), timeout=START_S)
            for policy in self._published.keys() - self.engines.keys():
                answer(actor.publish.remote(policy, self._published[policy]), actor)
        except GetTimeoutError:
            raise RunFailed(
                f"rollout actor {index} was lost ({in_words(why)}), and none could take its place within {START_S:g} s"
            ) from None
        except _LOST as error:
            return error
        return None

    def _mend_engines(self) -> bool:
        """Whether one that is apart was lost: it is there again. Raises RunFailed."""
        lost = {}
        for engine in self._engines():
            try:
                require_alive([engine])
            except _ENDED as error:
                lost[engine] = error
        for engine, error in lost.items():
            self._mend(engine, error)
        return bool(lost)

    def _mend(self, engine: Any, error: Exception) -> None:
        """Begun anew, with the weights that were published last. Raises RunFailed."""
        self._mended[engine] += 1
        policies = [policy for policy, engines in self.engines.items() if engine in engines]
        name, times = f"the engine of the {' and the '.join(policies)}", self._mended[engine]
        if times > REPLACEMENTS or isinstance(error, GONE):
            raise _given_up(name, times, error)
        log.warning("%s was lost (%s): it is begun anew", name, in_words(error))
        killed = not isinstance(error, (ActorUnavailableError, BegunAnew))
        if killed:
            end(engine, again=True)
        try:
            _wait_for_return(engine, killed)
            for policy in policies:
                if policy in self._published:
                    ray.get(engine.publish.remote(policy, self._published[policy]), timeout=START_S)
            ray.get(engine.go_on.remote(), timeout=START_S)
        except GetTimeoutError:
            raise RunFailed(
                f"{name} was lost ({in_words(error)}), and has not come back within {START_S:g} s"
            ) from None
        except GONE as died:
            raise _given_up(name, times, died) from None
        except _ENDED as again:
            self._mend(engine, again)

    def publish(self, policy: str, update: Any) -> list[PublishReceipt]:
        """update: a reference; each actor fetches the weights itself. Raises RunFailed, PublishError."""
        self._published[policy] = update
        if policy not in self.engines:
            return self._of_all(lambda actor: actor.publish.remote(policy, update))
        sent = [(engine, engine.publish.remote(policy, update)) for engine in self.engines[policy]]
        found = []
        for engine, reference in sent:
            for times in range(REPLACEMENTS + 1):
                try:
                    found.append(answer(reference, engine))
                    break
                except _ENDED as error:
                    if not self._mend_engines() and times:  # it may have been mended since it was sent
                        raise RunFailed(
                            f"an engine of the {policy} takes no weights: {in_words(error)}"
                        ) from None
                reference = engine.publish.remote(policy, update)
        return found

    def sleep(self) -> None:
        if self._sleeps:
            self._of_all(lambda actor: actor.sleep.remote())

    def _of_all(self, call: Callable[[Any], Any]) -> list[Any]:
        """What call(actor) comes to with each, or with the one that takes its place. Raises RunFailed."""
        sent = [(actor, call(actor)) for actor in self.actors]
        found = []
        for index, (actor, reference) in enumerate(sent):
            while True:
                try:
                    found.append(answer(reference, actor))
                    break
                except _LOST as error:
                    self._lost(index, actor, error)
                actor = self.actors[index]
                reference = call(actor)
        return found

    def close(self) -> None:
        """Whoever does not close in time may be stopped, and is ended all the same."""
        closing = {actor.close.remote(): actor for actor in [*self.actors, *self._engines()]}
        closed, silent = ray.wait(list(closing), num_returns=len(closing), timeout=CLOSE_S)
        for reference in closed:
            ray.kill(closing[reference])
        for reference in silent:
            end(closing[reference])


def _given_up(name: str, times: int, error: Exception) -> RunFailed:
    said = f"{name} was lost {times} times, the last time by {in_words(error)}"
    if not killed_for_memory(error):
        return RunFailed(said)
    return OutOfMemory(
        f"{said}; lower engine.kv_cache_mb, engine.max_num_seqs or, if a learner has most, learner.microbatch_tokens"
    )


def _fetch(shares: Sequence[_Share]) -> None:
    """Begin to fetch what has been played: one after the other, as each is asked for, a hundred far actors take a hundred
    times as long as one."""
    there = [reference for share in shares for reference in (share.playing, share.transcripts)]
    ray.wait(there, num_returns=len(there), timeout=0)


def _works(share: _Share) -> bool:
    """Its actor has not played it, and is there."""
    if ray.wait([share.playing], timeout=0)[0]:
        return False
    try:
        require_alive([share.actor])
    except _ENDED:
        return False
    return True


def _wait_for_return(engine: Any, killed: bool) -> None:
    """Of an actor that Ray begins anew; killed: it is sure to, and who answers as ever is the old one. Raises GetTimeoutError,
    and RayActorError where it does not return."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            ray.get(engine.alive.remote(), timeout=START_S)
            if not killed:
                return
        except BegunAnew:
            return
        except ActorUnavailableError:
            pass
        except EngineFailure:
            if not killed:
                raise
        time.sleep(AGAIN_S)
    raise GetTimeoutError


def _played(reference: Any) -> bool:
    """Whether there is an answer, which may be an error of its own."""
    try:
        ray.get(reference, timeout=0)
    except (*_LOST, GetTimeoutError):
        return False
    except Exception:
        return True
    return True
