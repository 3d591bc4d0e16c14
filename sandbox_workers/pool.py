"""The sandbox in Ray: worker actors on nodes with the resource `sandbox`, and the transport to them."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.metrics import Counter, Gauge, Histogram

from sandbox_workers.backends import SandboxChoice, choose_backend
from sandbox_workers.client import SandboxClient
from sandbox_workers.jobs import BackendDied, Job, SandboxUnavailable, WorkerLost
from sandbox_workers.worker import SandboxWorker
from sparring.core.errors import SparringError
from sparring.core.interfaces import CodeTests, SandboxKind
from sparring.core.verdict import Limits, Verdict

BATCHES_PER_WORKER = 4
START_TIMEOUT_S = 120.0
RESTARTS = 100
"""Largest number of restarts of one actor during a run."""
LOOK_S = 1.0
ANSWER_S = 10.0
SILENCE_S = START_TIMEOUT_S
"""Seconds without an answer after which a worker is ended. A worker that runs needs less to answer."""
_ACTOR: dict[str, Any] = {
    "num_cpus": 0,
    "resources": {"sandbox": 1},
    "max_restarts": RESTARTS,
    "max_concurrency": BATCHES_PER_WORKER + 1,
}
_HEALTH: dict[str, Any] = {"concurrency_groups": {"health": 1}}


class SandboxShell:
    """A SandboxWorker as a Ray actor. The actor chooses its backend itself, because nodes differ in what they can run."""

    def __init__(self, kind: SandboxKind, runtime: str | None, trusted: bool, **opened: Any) -> None:
        """`opened` holds the arguments of SandboxChoice.open."""
        self._choice = choose_backend(kind, runtime, trusted=trusted)
        self._worker = SandboxWorker(partial(self._choice.open, **opened))
        self._name = f"sandbox {opened['index']}"
        self._seconds = Histogram(
            "sparring_judge_seconds",
            "Seconds that a batch of programs was in the sandbox.",
            [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
            ("actor",),
        )
        self._jobs = Counter("sparring_sandbox_jobs", "Programs judged, each with its tests.", ("actor",))
        self._queue = Gauge(
            "sparring_sandbox_batches", "Batches that are being judged, or wait for it.", ("actor",)
        )
        self._restarts = Gauge(
            "sparring_sandbox_restarts", "Sandboxes that died and were replaced.", ("actor",)
        )
        for metric in (self._seconds, self._jobs, self._queue, self._restarts):
            metric.set_default_tags({"actor": self._name})

    def __repr__(self) -> str:
        """Returns the actor's name in Ray's dashboard."""
        return self._name

    def choice(self) -> SandboxChoice:
        return self._choice

    @ray.method(concurrency_group="health")
    def pid(self) -> int:
        """Returns the process id. This runs in a separate thread, so it answers while the other threads judge."""
        return os.getpid()

    def judge(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        began = time.perf_counter()
        self._queue.set(self._worker.in_work + 1)
        try:
            verdicts = self._worker.judge(jobs)
        finally:
            self._queue.set(self._worker.in_work)
            self._restarts.set(self._worker.replaced)
        self._seconds.observe(time.perf_counter() - began)
        self._jobs.inc(len(jobs))
        return verdicts

    def close(self) -> None:
        self._worker.close()


SandboxActor: Any = ray.remote(**_HEALTH)(SandboxShell)


class RayTransport:
    """A transport to Ray actors that all judge batches.

    Ray restarts the actors of a lost node once a node has the resources for them. If no other actor is left, the loss
    of their jobs is reported only when an actor answers again, or after `patience_s`.

    Args:
        actors: the workers.
        patience_s: seconds to wait for an actor if none answers.
        end: ends an actor that does not answer, so that Ray starts it again.
    """

    def __init__(self, actors: Sequence[Any], patience_s: float, end: Callable[[Any], None]) -> None:
        self._end = end
        self._actors = list(actors)
        self._patience_s = patience_s
        self._alone_since: float | None = None
        """Monotonic time of the first loss of an answer since a batch was last judged, or None."""
        self._unheard_since: dict[int, float] = {}
        self._ended: set[int] = set()

    @property
    def size(self) -> int:
        return len(self._actors)

    async def judge(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        try:
            answer = await self._judged(worker, jobs)
            self._alone_since = None
            self._heard(worker)
            return answer
        except RayTaskError as error:  # raised in the worker; passed on to the caller
            if isinstance(error.cause, BackendDied | WorkerLost | SparringError):
                raise error.cause from None
            raise  # with the worker's traceback
        except RayError as error:
            self._unheard(worker)
            await self._until_one_answers()
            raise WorkerLost(f"sandbox worker {worker} lost its answer: {type(error).__name__}") from None

    async def _until_one_answers(self) -> None:
        """Waits until an actor answers, all are dead for good, or `patience_s` has passed."""
        self._alone_since = self._alone_since or time.monotonic()
        while time.monotonic() < self._alone_since + self._patience_s:
            found = await asyncio.gather(*map(_is_there, self._actors))
            for worker, there in enumerate(found):
                if there:
                    self._heard(worker)
                else:
                    self._unheard(worker)
            if True in found or None not in found:
                return
            await asyncio.sleep(LOOK_S)

    async def _judged(self, worker: int, jobs: Sequence[Job]) -> list[list[Verdict]]:
        judging = asyncio.ensure_future(_awaited(self._actors[worker].judge.remote(jobs)))
        while not (await asyncio.wait([judging], timeout=ANSWER_S))[0]:
            there = await _is_there(self._actors[worker])
            if there:
                self._heard(worker)
            elif there is None and not judging.done():
                self._unheard(worker)
        return judging.result()

    def _heard(self, worker: int) -> None:
        self._unheard_since.pop(worker, None)
        self._ended.discard(worker)

    def _unheard(self, worker: int) -> None:
        """Ends a worker that has not answered for SILENCE_S, so that Ray starts it again. It is ended only once until
        it answers: it may wait for a node, and the number of restarts is limited."""
        since = self._unheard_since.setdefault(worker, time.monotonic())
        if time.monotonic() - since >= SILENCE_S and worker not in self._ended:
            self._ended.add(worker)
            self._end(self._actors[worker])


async def _awaited(reference: Any) -> Any:
    return await reference


async def _is_there(actor: Any) -> bool | None:
    """Returns True if the actor answers, False if it is dead for good, and None if it does not answer now but Ray will
    start it again."""
    try:
        await asyncio.wait_for(actor.pid.remote(), ANSWER_S)
    except ActorDiedError:
        return False
    except (RayError, TimeoutError):
        return None
    return True


class SandboxPool:
    """The running workers. The pool is sent to other actors, which call `client()` for the client that the games use."""

    def __init__(
        self,
        actors: Sequence[Any],
        choice: SandboxChoice,
        limits: Limits | None,
        patience_s: float,
        end: Callable[[Any], None],
        code_tests: CodeTests,
    ) -> None:
        self.actors = list(actors)
        self._code_tests: CodeTests = code_tests
        self._end = end
        self.description = f"{len(self.actors)} x {choice.description}"
        self._choice = choice
        self._limits = limits
        self._patience_s = patience_s

    def client(self) -> SandboxClient:
        """Returns a client of all workers, with its own cache."""
        transport = RayTransport(self.actors, self._patience_s, self._end)
        return SandboxClient(
            transport, version=self._choice.version, limits=self._limits, code_tests=self._code_tests
        )

    def shutdown(self) -> None:
        """Closes the sandboxes, then ends the actors. If a worker does not answer, its sandbox ends with it."""
        closing = [actor.close.remote() for actor in self.actors]
        ray.wait(closing, num_returns=len(closing), timeout=15)
        for actor in self.actors:
            ray.kill(actor, no_restart=True)


def start_pool(
    size: int,
    *,
    kind: SandboxKind = "auto",
    runtime: str | None = None,
    slots: int = 2,
    run_id: str,
    limits: Limits | None = None,
    trusted: bool = False,
    patience_s: float = 0.0,
    end: Callable[[Any], None],
    code_tests: CodeTests = "run",
) -> SandboxPool:
    """Starts `size` workers with `slots` slots each and waits until all are ready. For `trusted`, see choose_backend;
    for `patience_s` and `end`, see RayTransport.

    Raises:
        SandboxUnavailable: the cluster has too little of the resource `sandbox`, or no sandbox can run on its nodes.
    """
    available = ray.cluster_resources().get("sandbox", 0)
    if available < size:
        raise SandboxUnavailable(
            f"{size} sandbox workers need as many units of the Ray resource 'sandbox', "
            f"the cluster has {available:g}: "
            f"ray start --resources '{{\"sandbox\": {size}}}'"
        )
    memory_mb = max(512, (limits or Limits()).memory_mb)
    actors = [
        SandboxActor.options(**_ACTOR).remote(
            kind, runtime, trusted, slots=slots, index=index, run_id=run_id, memory_mb=memory_mb
        )
        for index in range(size)
    ]
    try:
        return SandboxPool(actors, _common_choice(actors), limits, patience_s, end, code_tests)
    except SandboxUnavailable:
        for actor in actors:
            ray.kill(actor, no_restart=True)
        raise


def _common_choice(actors: Sequence[Any]) -> SandboxChoice:
    """Waits until all actors are ready, and returns the choice that they have in common.

    Raises:
        SandboxUnavailable: an actor does not start, or two differ.
    """
    try:
        choices = ray.get([actor.choice.remote() for actor in actors], timeout=START_TIMEOUT_S)
    except (RayActorError, GetTimeoutError) as error:
        died = isinstance(error, RayActorError)
        cause = str(error).strip().splitlines()[-1] if died else "no answer in time"
        raise SandboxUnavailable(f"sandbox workers do not start: {cause}") from None
    if len({choice.version for choice in choices}) > 1:
        found = sorted({choice.description for choice in choices})
        raise SandboxUnavailable(
            f"the nodes differ in their sandboxes; set the kind explicitly: {'; '.join(found)}"
        )
    return choices[0]
