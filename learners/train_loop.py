"""Runs learners in Ray Train: one long-running run per backbone, whose workers request their work from a mailbox actor.

If workers die, Ray Train starts new ones from the last saved versions. They request the batches since then from the
mailbox again and compute the same weights. torch and the learner modules are imported in the workers, not when this
module is imported.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
import ray.train
from ray.exceptions import GetTimeoutError, RayError
from ray.train import (
    CheckpointConfig,
    CheckpointUploadMode,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    UserCallback,
)
from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.train.v2._internal.execution.controller.state import RestartingState
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from learners.mailbox import LearnerFailed, MailboxActor, Versions
from learners.settings import GPU_ALLOCATOR
from learners.train_spec import LearnerSpec, build_learners
from sparring.core.arrays import opened
from sparring.core.batch import BatchSpec, Transcript
from sparring.core.endings import causes, in_words, killed_for_memory, memory_message
from sparring.core.errors import OutOfMemory, RunFailed, SparringError, WorkerOutOfMemory
from sparring.core.weights import Weights

if TYPE_CHECKING:
    import numpy as np

    from learners.learner import Learner
    from learners.parallel import WorkerGroup

log = logging.getLogger(__name__)
NODE_LABEL = "ray.io/node-id"
_MAX_WORKER_FAILURES = 3
_PATIENCE_S = 6 * 3600
"""Timeout in seconds of the workers that wait until rank 0 has work, which takes as long as a step's rollouts. Ray
notices dead workers at once."""
_SILENCE_S = 60.0
"""Timeout in seconds of a call to the mailbox, which answers sooner as long as it runs."""
_COLLECTIVE_S = 3600
"""Timeout in seconds of a collective operation within an update or a save. During a save the workers wait for rank 0,
which writes the model."""


class _Registered(UserCallback):
    """Reports each registered checkpoint to the mailbox. Runs in Ray Train's controller."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if checkpoint is not None:
            self._mailbox.saved.remote(metrics[0]["versions"], checkpoint.path)


class _BeginOn(ControllerCallback):
    """Places the first workers on the given nodes. Workers that replace them may run on any node that has free
    resources."""

    def __init__(self, nodes: Collection[str]) -> None:
        self._nodes = sorted(nodes)

    def on_controller_start_worker_group(
        self, *, scaling_config: Any, num_workers: int
    ) -> dict[str, str] | None:
        nodes, self._nodes = self._nodes, []
        return {NODE_LABEL: f"in({','.join(nodes)})"} if nodes else None


class _TellOfLosses(ControllerCallback):
    """Reports to the mailbox why workers ended that Ray Train replaces, and ends the run if the workers that replace
    them would end in the same way."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox

    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:
        if isinstance(current_state, RestartingState):
            error = current_state.training_failed_error
            for cause in causes(error):
                if _would_repeat(cause):
                    raise cause  # Ray Train does not restart the workers after an error of a callback
            limits = {
                cause.policy: cause.most_tokens
                for cause in causes(error)
                if isinstance(cause, WorkerOutOfMemory) and cause.most_tokens is not None
            }
            for_memory = not limits and _lacked_memory(error)
            self._mailbox.lost.remote(in_words(error), for_memory=for_memory, limits=limits)


def _train_loop(config: dict[str, Any]) -> None:
    """Runs in each worker. Only rank 0 communicates with the mailbox; all ranks take part in the updates."""
    from datetime import timedelta

    import torch
    from torch import distributed

    from learners.parallel import WorkerGroup
    from learners.recovery import learn

    specs: dict[str, LearnerSpec] = config["specs"]
    mailbox, first = config["mailbox"], next(iter(specs.values()))
    if first.device == "cpu":
        torch.set_num_threads(first.settings.threads)
    world, idle = WorkerGroup(), None
    if world.size > 1:  # NCCL would busy-wait on the GPU
        idle = distributed.new_group(backend="gloo", timeout=timedelta(seconds=_PATIENCE_S))
    learners = build_learners(_continued(specs))
    saved = _versions(learners) if ray.train.get_checkpoint() else None
    limits: Any = None
    if world.rank == 0:
        own = max(each.health.halvings for each in learners.values())
        limits = ray.get([mailbox.halvings.remote(own), mailbox.limits.remote()])
    halvings, by_policy = world.broadcast(limits, idle)
    for policy, learner in learners.items():
        learner.limit_micro_batches(halvings, by_policy.get(policy))
    for policy in specs:
        if specs[policy].from_checkpoint:
            hand_in(learners[policy], specs[policy], mailbox, policy, {})
    while True:
        work: Any = None
        if world.rank == 0:
            work = ray.get(mailbox.get_work.remote(_versions(learners), saved))
            if isinstance(work, tuple):
                policy, (reference,) = work
                spec: BatchSpec = ray.get(reference)
                work = policy, spec.batch(_fetch)
        work = world.broadcast(work, idle)
        if work is None:
            return
        if work == "save":
            _save(learners, world)
            saved = _versions(learners)
            continue
        policy, batch = work
        metrics = learn(learners[policy], batch, specs[policy].recovery_point)
        hand_in(learners[policy], specs[policy], mailbox, policy, metrics)


def hand_in(
    learner: Learner, spec: LearnerSpec, mailbox: Any, policy: str, metrics: Mapping[str, float]
) -> None:
    """Exports the policy's weights and sends them, with the metrics, to the mailbox. All workers must call it."""

    def put(part: Mapping[str, np.ndarray]) -> Any:
        (reference,) = ray.get(mailbox.put_part.remote(part))
        return reference

    update = learner.export(spec.adapter, spec.engine_dtype, put, spec.probe)
    if learner.world.rank == 0:
        ray.get(mailbox.put_result.remote(policy, metrics, update))


def _fetch(references: list[Any]) -> list[list[Transcript]]:
    return [opened(transcripts) for transcripts in ray.get(references)]


def _versions(learners: Mapping[str, Learner]) -> Versions:
    return {policy: learner.version for policy, learner in learners.items()}


def _continued(specs: Mapping[str, LearnerSpec]) -> dict[str, LearnerSpec]:
    """Returns the specs; if this worker replaces one that died, the model and the state come from this run's own
    checkpoint."""
    own = ray.train.get_checkpoint()
    if own is None:
        return dict(specs)
    return {
        policy: replace(spec, model_path=f"{own.path}/{policy}", state_path=f"{own.path}/{policy}")
        for policy, spec in specs.items()
    }


def _save(learners: Mapping[str, Learner], world: WorkerGroup) -> None:
    """Begins a checkpoint in the run's own storage. Ray Train's thread registers it when all workers have written their
    parts."""
    from learners.state import begin_save

    versions = _versions(learners)
    name = "version_" + "_".join(f"{version:06d}" for version in versions.values())
    storage: Any = ray.train.get_context().get_storage()
    directory = Path(storage.experiment_fs_path) / name
    waits = [begin_save(learner, directory / policy) for policy, learner in learners.items()]

    def written(checkpoint: ray.train.Checkpoint, _: str) -> ray.train.Checkpoint:
        for wait in waits:
            wait()
        return checkpoint

    checkpoint = ray.train.Checkpoint(str(directory), storage.storage_filesystem)
    ray.train.report(
        {"versions": versions},
        checkpoint=checkpoint if world.rank == 0 else None,
        checkpoint_dir_name=name,
        checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
        checkpoint_upload_fn=written,
        delete_local_checkpoint_after_upload=False,
    )


def _would_repeat(cause: BaseException) -> bool:
    """Returns whether new workers, which compute the same, would end in the same way: by an error that the user has to act
    on, or on a full disk."""
    # torch and safetensors wrap OSErrors: only the message is reliable
    return isinstance(cause, SparringError) or os.strerror(errno.ENOSPC) in str(cause)


def _lacked_memory(error: BaseException) -> bool:
    """Returns whether new workers that use less memory may succeed."""
    return killed_for_memory(error) or any(
        isinstance(cause, WorkerOutOfMemory) or memory_message(cause) for cause in causes(error)
    )


def _failure(name: str, error: BaseException) -> RunFailed:
    """Returns the error that is shown to the user when a learner has ended."""
    said = f"learner {name}: {in_words(error)}"
    if _lacked_memory(error):
        return OutOfMemory(
            f"{said}; lower learner.microbatch_tokens, take learner.gradient_checkpointing, learner.lora or a smaller model, or, "
            "if an engine has most, lower engine.kv_cache_mb or engine.max_num_seqs"
        )
    out_of_memory = any(isinstance(cause, OutOfMemory) for cause in causes(error))
    return OutOfMemory(said) if out_of_memory else LearnerFailed(said)


class TrainRun:
    """A Ray Train run with the learners of one policy, or of several policies that share a backbone."""

    def __init__(
        self,
        specs: Mapping[str, LearnerSpec],
        versions: Versions,
        storage: Path,
        *,
        nodes: Collection[str] = (),
    ) -> None:
        """Creates the mailbox and starts the run in a thread.

        Args:
            nodes: Ray ids of the nodes on which the first workers are placed; (): any node. Not used if
                learner.min_workers is set.
        """
        from ray.train.torch import TorchTrainer

        from learners.train_backend import TorchGroup

        self.name = "_".join(specs)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        # the mailbox runs on the driver's node, since other nodes may be lost during the run
        mailbox = MailboxActor.options(num_cpus=0, max_concurrency=64, scheduling_strategy=here)
        self.mailbox = mailbox.remote(self.name)
        self.learners = {
            policy: RayLearner(policy, versions[policy], self.mailbox, self.versions) for policy in specs
        }
        first = next(iter(specs.values()))
        settings, on_gpu = first.settings, first.device == "cuda"
        gpus = {"GPU": settings.worker_gpus} if settings.worker_gpus else {}
        least, workers = settings.min_workers, settings.fewest_workers
        callbacks: list[Any] = [_Registered(self.mailbox), _TellOfLosses(self.mailbox)]
        if nodes and least is None:
            callbacks.append(_BeginOn(nodes))
        self._trainer = TorchTrainer(
            _train_loop,
            train_loop_config={"specs": dict(specs), "mailbox": self.mailbox},
            torch_config=TorchGroup(backend="nccl" if on_gpu else "gloo", timeout_s=_COLLECTIVE_S),
            scaling_config=ScalingConfig(
                num_workers=workers if least is None else (least, workers),
                use_gpu=on_gpu,
                resources_per_worker={"CPU": settings.cpus} | gpus,
            ),
            run_config=RunConfig(
                name=f"{self.name}_{uuid.uuid4().hex[:8]}",
                storage_path=str(storage.resolve()),
                failure_config=FailureConfig(max_failures=_MAX_WORKER_FAILURES),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
                callbacks=callbacks,
                worker_runtime_env={"env_vars": GPU_ALLOCATOR if on_gpu else {}},
            ),
        )
        self._thread = threading.Thread(target=self._fit, name=f"ray-train-{self.name}", daemon=True)
        self._thread.start()

    def versions(self) -> Versions:
        return {policy: learner.version for policy, learner in self.learners.items()}

    def stop(self) -> None:
        with contextlib.suppress(RayError):  # a mailbox that hangs ends when Ray does; a lost one has ended
            ray.get(self.mailbox.stop.remote(), timeout=_SILENCE_S)
        self._thread.join(timeout=30)

    def _fit(self) -> None:
        failure = None
        try:
            self._trainer.fit()
        except BaseException as error:  # after any error the driver must not wait for this learner
            failure = _failure(self.name, error)
        if ray.is_initialized():
            self.mailbox.stop.remote(failure)


class RayLearner:
    """The driver's handle for one policy of a run."""

    def __init__(self, policy: str, version: int, mailbox: Any, versions: Callable[[], Versions]) -> None:
        self._policy, self._version, self._mailbox, self._versions = policy, version, mailbox, versions

    def begin(self, batch: BatchSpec) -> Callable[[], tuple[Mapping[str, float], Weights]]:
        """Sends the batch to the learner. The returned function waits for the update and returns (metrics, the new
        weights as a reference), so the weights never pass through the driver."""
        self._tell("put_batch", self._policy, batch.step, [ray.put(batch)])

        def result() -> tuple[Mapping[str, float], Weights]:
            metrics, (reference,) = self._answer("get_result", self._policy, batch.step)
            self._version = batch.step
            return metrics, Weights(version=batch.step, update=reference)

        return result

    @property
    def version(self) -> int:
        return self._version

    def current_weights(self) -> Weights:
        """Returns the weights of the current version, which the workers started with from a checkpoint or an update made.
        Raises RunFailed."""
        _, (reference,) = self._answer("get_result", self._policy, self._version)
        return Weights(version=self._version, update=reference)

    def save(self) -> AbstractContextManager[Path]:
        """Requests a checkpoint of the current version at once. Entering the context waits until the checkpoint is
        registered and returns the policy's directory in it. Raises RunFailed."""
        versions = self._versions()
        self._tell("want_save", versions)
        return self._saved(versions)

    @contextmanager
    def _saved(self, versions: Versions) -> Iterator[Path]:
        yield Path(self._answer("get_saved", versions)) / self._policy

    def _answer(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the mailbox until it returns an answer, however long the learner takes. Logs a warning for
        each group of workers that was lost. Raises RunFailed."""
        found = None
        while found is None:
            try:
                found = self._tell(method, *arguments)
            finally:
                for loss in self._tell("take_losses"):
                    log.warning(
                        "a worker of the %s's learner was lost (%s): another goes on", self._policy, loss
                    )
        return found

    def _tell(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the mailbox. Raises RunFailed if the learner has failed, or if the mailbox does not answer
        within _SILENCE_S."""
        try:
            return ray.get(getattr(self._mailbox, method).remote(*arguments), timeout=_SILENCE_S)
        except GetTimeoutError:
            raise LearnerFailed(
                f"the mailbox of the {self._policy}'s learner has not answered for {_SILENCE_S:g} s"
            ) from None
