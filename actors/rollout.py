"""The driver's handle on all rollout actors: it divides requests among them, and replaces those that are lost."""

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    ObjectLostError,
)

from actors.engines import AGAIN_S
from actors.episodes import EpisodeRunner
from actors.rollout_actor import RolloutActor, runtime_env
from actors.watching import (
    CLOSE_S,
    DIED,
    GONE,
    LOOK_S,
    REPLACEMENTS,
    START_S,
    ActorHung,
    ActorProcess,
    answer,
    end,
    process_of,
    require_alive,
    restarts_of,
)
from sparring.core.endings import end_in_words, in_words, killed_for_memory
from sparring.core.errors import OutOfMemory, RunFailed
from sparring.core.interfaces import EngineFailure
from sparring.core.play import PlayProgress, PlayRequest, PlayResult, Usage
from sparring.core.problem import Problem

log = logging.getLogger(__name__)
PROGRESS_S = 1.0
"""Maximum time to wait for the actors to report their progress."""
_ENDED = (*DIED, ActorHung, EngineFailure)
_LOST = (*_ENDED, ObjectLostError)
"""Errors after which a share is played again. ObjectLostError: the result was lost with its node before the driver fetched
it."""


@dataclass(eq=False)
class _Share:
    """The part of a request that one actor plays. Any actor can play it, in any order, and repeatedly."""

    index: int
    """Index of the actor in RayRollouts.actors."""
    request: PlayRequest
    actor: Any
    playing: Any
    """Reference to the result."""
    transcripts: Any
    """Reference to the sealed transcripts."""
    again: int = 0
    """Number of problems that were begun again."""
    progress: PlayProgress = field(default_factory=PlayProgress)
    """The progress that the actor reported last."""


class RayRollouts:
    """The driver's handle on all rollout actors. All attempts at a problem are played by one actor, so that they share its
    prefix cache.

    If an actor dies, no longer answers, or its engine ends, it is replaced by a new actor, which plays the unfinished shares of
    the old one again. Requests name their weights and their seeds, so the result has the same episodes if the engine is exact
    and no later request is played beside it.
    If an engine in a separate actor ends or no longer answers, Ray restarts it, and the rollout actors repeat their calls.
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
        """Starts the rollout actors.

        Args:
            options: Ray's options of each actor.
            engines: by policy, the separate engine actors (actors/engines.py), which `close` closes, too.
            sleeps: whether any engine has `sleep` set.
        """
        self.engines = dict(engines or {})
        self._build, self._options, self._device, self._sleeps = build, options, device, sleeps
        self.on_progress: Callable[[PlayProgress], None] = lambda progress: None
        self.actors, self._said = [], set[str]()
        self._replaced = [0] * len(options)
        self._open: list[_Share] = []
        """Shares whose result has not been fetched yet."""
        self._orders = count()
        self._processes: dict[Any, ActorProcess] = {}
        """The process of each separate engine, as the terminal was told last."""
        self._counts: dict[Any, Mapping[str, float]] = {}
        """Counters of each actor's sandbox client since the actor's start; lost actors are included."""
        for index in range(len(options)):
            self.actors.append(self._start(index))
            if self._starts_alone(index):
                ray.get(self.actors[-1].ready.remote())

    def _start(self, index: int) -> Any:
        environment = runtime_env(self._device)
        actor = RolloutActor.options(max_concurrency=64, runtime_env=environment, **self._options[index])
        return actor.remote(self._build, index)

    def _starts_alone(self, index: int) -> bool:
        """Whether the actor must start while no other does, since it shares a GPU: while an engine starts, it counts
        whatever another engine allocates as its own memory."""
        return self._device == "cuda" and self._options[index]["num_gpus"] < 1

    def wait_ready(self) -> None:
        engines = self._engines()
        for warnings in ray.get([a.ready.remote() for a in [*self.actors, *engines]]):
            for warning in set(warnings) - self._said:
                log.warning("%s", warning)
            self._said.update(warnings)
        self._processes = {e: process for e in engines if (process := process_of(e)) is not None}

    def _engines(self) -> list[Any]:
        """Returns the separate engines; an engine that serves several policies is listed once."""
        return list(dict.fromkeys(engine for engines in self.engines.values() for engine in engines))

    def begin(self, request: PlayRequest) -> Callable[[], PlayResult]:
        """Sends the problems to the actors, and returns a function that waits for the result.

        Each problem goes to the actor that has the fewest unfinished problems, those of earlier training requests included.
        Requests that are not for training are distributed evenly and do not count as load, so that a training step is
        distributed as it would be after a resume. The result has its episodes in the order of the request's problems.
        """
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
        request, shares = replace(request, order=next(self._orders)), []
        for index, problems in enumerate(dealt):
            if problems:
                own, actor = replace(request, problems=tuple(problems)), self.actors[index]
                shares.append(_Share(index, own, actor, *actor.play.remote(own)))
        self._open += shares
        return lambda: self._merged(request, {share.index: self._result(share, shares) for share in shares})

    def _result(self, share: _Share, shares: Sequence[_Share]) -> PlayResult:
        """Waits for the result of a share, and has the share played again if it is lost. shares: all shares of the same
        request. Raises RunFailed."""
        while True:
            actor = share.actor
            try:
                ray.wait([share.playing], timeout=LOOK_S)
                _fetch(shares)
                result: PlayResult = answer(
                    share.playing, actor, *self._engines(), meanwhile=lambda: self._tell(shares)
                )
                # a copy that the driver owns survives the loss of the actor's node
                transcripts = ray.put(answer(share.transcripts, actor))
            except _LOST as error:
                if self._mend_engines() or (self.engines and _works(share)):
                    continue  # the rollout actor repeats its calls to the engines
                self._lost(share.index, actor, error)
                if share.actor is actor:  # it had been replaced when this result still existed
                    self._begin_anew(share)
                continue
            self._tell_of_restarts()
            self._open.remove(share)
            self._counts[actor] = result.sandbox
            for episode in result.episodes:
                episode.transcripts = transcripts
            return replace(result, played_again=share.again)

    def _tell(self, shares: Sequence[_Share]) -> None:
        """Passes the request's progress to `on_progress`. An actor that does not answer within PROGRESS_S counts with its last
        report."""
        asked = {share.actor.progress.remote(share.request.key): share for share in shares}
        for reference in ray.wait(list(asked), num_returns=len(asked), timeout=PROGRESS_S)[0]:
            with contextlib.suppress(*DIED):  # _result raises it when it waits for this actor
                asked[reference].progress = ray.get(reference) or asked[reference].progress
        self.on_progress(sum((share.progress for share in shares), PlayProgress()))

    def _merged(self, request: PlayRequest, results: Mapping[int, PlayResult]) -> PlayResult:
        """Merges the actors' results (keys: actor indices) into one, with the episodes in the order of the request."""
        order = {problem.id: i for i, problem in enumerate(request.problems)}
        episodes = (episode for result in results.values() for episode in result.episodes)
        counted: Counter[str] = Counter()
        for counts in self._counts.values():
            counted.update(counts)
        return PlayResult(
            episodes=sorted(episodes, key=lambda e: order[e.problem_id]),
            sandbox=dict(counted),
            played_again=sum(result.played_again for result in results.values()),
            receipts={
                policy: [
                    receipt for result in results.values() for receipt in result.receipts.get(policy, ())
                ]
                for policy in request.weights
            },
            usage=sum((result.usage for result in results.values()), Usage()),
            spans=[
                (f"rollout {i}: {kind}", began, ended)
                for i, result in results.items()
                for kind, began, ended in result.spans
            ],
        )

    # ------------------------------------------------------------------ lost actors and engines
    def _lost(self, index: int, actor: Any, error: Exception) -> None:
        """Replaces a lost actor, unless it has been replaced already, and all actors that were lost with it (for example on
        the same node). Begins their unfinished shares again. Raises RunFailed."""
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
        """Returns the indices of all other actors that have died, each with its error."""
        asked = {place: a.alive.remote() for place, a in enumerate(self.actors) if place != index}
        if asked:
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=LOOK_S)
        found: dict[int, Exception] = {}
        for place, reference in asked.items():
            try:
                ray.get(reference, timeout=0)
            except GetTimeoutError:
                continue  # _result finds out when it waits for this actor
            except _ENDED as error:
                found[place] = error
        return found

    def _begin_anew(self, share: _Share) -> None:
        share.actor = self.actors[share.index]
        share.playing, share.transcripts = share.actor.play.remote(share.request)
        share.again += len(share.request.problems)

    def _begin_another(self, index: int, why: Exception) -> None:
        """Starts a new actor in place of a lost one. Raises RunFailed if it was replaced too often."""
        self._replaced[index] += 1
        if self._replaced[index] > REPLACEMENTS:
            raise _given_up(f"rollout actor {index}", self._replaced[index], why)
        log.warning("rollout actor %d was lost (%s): another plays again what it had", index, in_words(why))
        end(self.actors[index])
        self.actors[index] = self._start(index)

    def _lost_again(self, index: int, why: Exception) -> Exception | None:
        """Waits until a new actor is ready. Returns None, or the error if the new actor is lost, too. Raises RunFailed if it is
        not ready within START_S."""
        try:
            ray.get(self.actors[index].ready.remote(), timeout=START_S)
        except GetTimeoutError:
            raise RunFailed(
                f"rollout actor {index} was lost ({in_words(why)}), and none could take its place within {START_S:g} s"
            ) from None
        except _LOST as error:
            return error
        return None

    def _mend_engines(self) -> bool:
        """Has Ray restart all separate engines that were lost, and waits for them. Returns whether any was lost. Raises
        RunFailed."""
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
        """Has Ray restart a lost engine, and waits until it answers. Raises RunFailed."""
        name, restarts = self._name(engine), restarts_of(engine)
        if isinstance(error, GONE):
            raise _given_up(name, restarts + 1, error)
        killed = not isinstance(error, ActorUnavailableError)  # which Ray restarts by itself
        try:
            if killed:
                log.warning("%s was lost (%s): it is begun anew", name, in_words(error))
                end(engine, again=True)
            else:
                log.warning("%s does not answer: waiting until Ray has restarted it", name)
            _wait_for_return(engine, restarts + killed)
        except GetTimeoutError:
            raise RunFailed(
                f"{name} was lost ({in_words(error)}), and has not come back within {START_S:g} s"
            ) from None
        except GONE as died:
            raise _given_up(name, restarts_of(engine) + 1, error if killed else died) from None
        if killed:
            self._processes[engine] = process_of(engine) or self._processes[engine]

    def _name(self, engine: Any) -> str:
        policies = [policy for policy, engines in self.engines.items() if engine in engines]
        return f"the engine of the {' and the '.join(policies)}"

    def _tell_of_restarts(self) -> None:
        """Logs why Ray restarted separate engines: rollout actors wait for such an engine, and the run goes on."""
        for engine, before in self._processes.items():
            if (now := process_of(engine)) is not None and now.restarts > before.restarts:
                self._processes[engine] = now
                why = end_in_words(before.exit_detail())
                log.warning("%s was lost (%s): Ray has restarted it", self._name(engine), why)

    def sleep(self) -> None:
        """Has all engines sleep. If an actor is lost, its replacement's engines sleep. Raises RunFailed."""
        if not self._sleeps:
            return
        asked = [(actor, actor.sleep.remote()) for actor in self.actors]
        for index, (actor, reference) in enumerate(asked):
            while True:
                try:
                    answer(reference, actor)
                    break
                except _LOST as error:
                    self._lost(index, actor, error)
                actor = self.actors[index]
                reference = actor.sleep.remote()

    def close(self) -> None:
        """Closes all actors and engines. Those that do not close within CLOSE_S may hang, and are killed."""
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
    """Begins to fetch all finished results at once: one after the other, the results of a hundred remote actors would take a
    hundred times as long as one."""
    there = [reference for share in shares for reference in (share.playing, share.transcripts)]
    ray.wait(there, num_returns=len(there), timeout=0)


def _works(share: _Share) -> bool:
    """Whether the share's actor is alive and still plays it."""
    if ray.wait([share.playing], timeout=0)[0]:
        return False
    try:
        require_alive([share.actor])
    except _ENDED:
        return False
    return True


def _wait_for_return(engine: Any, expected: int) -> None:
    """Waits until an engine that Ray restarts answers again, or has ended again, which the next check finds.

    Args:
        expected: number of its restarts, before which its old process may still answer.

    Raises:
        GetTimeoutError: if it does not answer within START_S.
        ActorDiedError: if it will not come back; OutOfMemoryError likewise.
    """
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        with contextlib.suppress(ActorUnavailableError):
            with contextlib.suppress(EngineFailure):
                ray.get(engine.alive.remote(), timeout=START_S)
            if restarts_of(engine) >= expected:
                return
        time.sleep(AGAIN_S)
    raise GetTimeoutError


def _played(reference: Any) -> bool:
    """Whether the call has finished, also with an error that is not a loss of the actor."""
    try:
        ray.get(reference, timeout=0)
    except (*_LOST, GetTimeoutError):
        return False
    except Exception:
        return True
    return True
