"""The Ray Train shell around Learner: one long-running run per policy, which pulls its work from a mailbox.

A worker that dies is restarted by Ray Train from its last saved version; it asks the mailbox for the batches since
then and arrives at the same weights. The mailbox keeps a batch until a checkpoint beyond it is registered
(`ray.train.report` returning does not mean that yet: only the controller's callback does).
"""

import asyncio
import os
import tempfile
import threading
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchConfig, TorchTrainer

from core.batch import Batch
from core.weights import WeightUpdate
from learners.learner import Learner
from learners.train_spec import LearnerSpec

_MAX_WORKER_FAILURES = 3


class LearnerFailed(RuntimeError):
    """The Ray Train run ended; it will not learn any more."""


class Mailbox:
    """Batches in, metrics and weights out. Every get waits on this side."""

    def __init__(self, version: int) -> None:
        self._changed = asyncio.Condition()
        self._batches: dict[int, Batch] = {}
        self._results: dict[int, tuple[dict[str, float], Any]] = {}
        self._saved: dict[int, str] = {}
        self._version = version
        self._save_wanted = False
        self._stopped = False
        self._failure: str | None = None
        self._worker_pid = 0

    async def put_batch(self, batch: Batch) -> None:
        async with self._changed:
            self._batches[batch.step] = batch
            self._changed.notify_all()

    async def get_work(self, version: int, saved: int) -> Batch | str | None:
        """For the worker at `version`: the next batch, "save", or None to stop."""

        def work() -> Batch | str | None:
            if version + 1 in self._batches:
                return self._batches[version + 1]
            return "save" if self._save_wanted and saved < version else None

        async with self._changed:
            await self._changed.wait_for(lambda: self._stopped or work() is not None)
            return work()

    async def put_result(self, metrics: dict[str, float], update: WeightUpdate) -> None:
        # put again here: objects of a worker die with it
        reference = ray.put(update)
        async with self._changed:
            self._results = {update.version: (metrics, reference)}
            self._version = update.version
            self._changed.notify_all()

    async def get_result(self, version: int) -> tuple[dict[str, float], list[Any]]:
        async with self._changed:
            await self._changed.wait_for(lambda: self._failure is not None or version in self._results)
            self._raise_failure()
            metrics, reference = self._results[version]
            return metrics, [reference]

    async def saved(self, version: int, path: str) -> None:
        """A checkpoint is registered: batches up to it will never be asked for again."""
        async with self._changed:
            self._saved = {version: path}
            for step in [s for s in self._batches if s <= version]:
                del self._batches[step]
            self._changed.notify_all()

    async def save(self, version: int) -> str:
        async with self._changed:
            self._save_wanted = True
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._failure is not None or version in self._saved)
            self._save_wanted = False
            self._raise_failure()
            return self._saved[version]

    async def stop(self, failure: str | None = None) -> None:
        async with self._changed:
            self._stopped, self._failure = True, failure
            self._changed.notify_all()

    async def set_worker_pid(self, pid: int) -> None:
        self._worker_pid = pid

    async def get_worker_pid(self) -> int:
        """Process id of the learner's worker, for operators and fault tests."""
        return self._worker_pid

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise LearnerFailed(self._failure)


MailboxActor: Any = ray.remote(Mailbox)


class _Registered(UserCallback):
    """Runs in Ray Train's controller after a checkpoint is registered."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if checkpoint is not None:
            self._mailbox.saved.remote(metrics[0]["version"], checkpoint.path)


def _train_loop(config: dict[str, Any]) -> None:
    import torch

    spec: LearnerSpec = config["spec"]
    mailbox = config["mailbox"]
    if spec.device == "cpu":
        torch.set_num_threads(spec.settings.threads)
    learner = _build_learner(spec)
    saved = learner.version if ray.train.get_checkpoint() else -1
    if config["republish"]:
        ray.get(mailbox.put_result.remote({}, learner.export()))
    ray.get(mailbox.set_worker_pid.remote(os.getpid()))
    while (work := ray.get(mailbox.get_work.remote(learner.version, saved))) is not None:
        if isinstance(work, Batch):
            metrics = learner.step(work)
            ray.get(mailbox.put_result.remote(metrics, learner.export()))
            continue
        with tempfile.TemporaryDirectory() as directory:
            learner.save(Path(directory))
            ray.train.report(
                {"version": learner.version},
                checkpoint=ray.train.Checkpoint.from_directory(directory),
                checkpoint_dir_name=f"version_{learner.version:06d}",
            )
        saved = learner.version


def _build_learner(spec: LearnerSpec) -> Learner:
    own = ray.train.get_checkpoint()  # set when this worker replaces one that died
    if own is None:
        return spec.build()
    with own.as_directory() as directory:
        return replace(spec, model_path=directory, state_path=directory).build()


def _answer(reference: Any) -> Any:
    """What the mailbox answers. Raises LearnerFailed as it was raised there, without Ray's remote traceback."""
    try:
        return ray.get(reference)
    except LearnerFailed as error:
        raise LearnerFailed(*getattr(error, "cause", error).args) from None


def _in_one_line(error: BaseException) -> str:
    """What happened: the first line of a report, the last one of a traceback."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1 if 'Traceback' in str(error) else 0]}"


class RayLearner:
    """The driver's handle on one policy's Ray Train run."""

    def __init__(
        self, name: str, spec: LearnerSpec, version: int, storage: Path, *, republish: bool = False
    ) -> None:
        """republish: the worker publishes the weights it starts with (a resumed run's engines need them)."""
        self.name, self._version = name, version
        self.mailbox = MailboxActor.options(num_cpus=0, max_concurrency=64).remote(version)
        gpus = {"GPU": spec.settings.gpus} if spec.settings.gpus else {}
        self._trainer = TorchTrainer(
            _train_loop,
            train_loop_config={"spec": spec, "mailbox": self.mailbox, "republish": republish},
            torch_config=TorchConfig(backend="nccl" if spec.device == "cuda" else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=1,
                use_gpu=spec.device == "cuda",
                resources_per_worker={"CPU": spec.settings.cpus} | gpus,
            ),
            run_config=RunConfig(
                name=f"{name}_{version:06d}_{uuid.uuid4().hex[:8]}",
                storage_path=str(storage.resolve()),
                failure_config=FailureConfig(max_failures=_MAX_WORKER_FAILURES),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
                callbacks=[_Registered(self.mailbox)],
            ),
        )
        self._thread = threading.Thread(target=self._fit, name=f"ray-train-{name}", daemon=True)
        self._thread.start()

    def step(self, batch: Batch) -> tuple[Mapping[str, float], Any]:
        """(metrics, reference to the WeightUpdate); the weights never pass through the driver."""
        ray.get(self.mailbox.put_batch.remote(batch))
        metrics, (reference,) = _answer(self.mailbox.get_result.remote(batch.step))
        self._version = batch.step
        return metrics, reference

    @property
    def version(self) -> int:
        return self._version

    def current_weights(self) -> Any:
        """Reference to the WeightUpdate of the current version. Raises LearnerFailed."""
        _, (reference,) = _answer(self.mailbox.get_result.remote(self._version))
        return reference

    def save(self) -> Path:
        """Directory of a registered checkpoint of the current version. Raises LearnerFailed."""
        return Path(_answer(self.mailbox.save.remote(self._version)))

    def stop(self) -> None:
        ray.get(self.mailbox.stop.remote())
        self._thread.join(timeout=30)

    def _fit(self) -> None:
        failure = None
        try:
            self._trainer.fit()
        except BaseException as error:  # whatever it is, nobody must wait for this learner any more
            causes = getattr(error, "worker_failures", None) or {0: error}
            failure = f"learner {self.name}: " + "; ".join(_in_one_line(e) for e in causes.values())
        if ray.is_initialized():
            self.mailbox.stop.remote(failure)
