"""Runs all parts in this process: the same classes as on Ray, without the actors around them, so that one debugger sees
all."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch

from actors.episodes import EpisodeRunner
from configs.schema import Config
from learners.learner import Learner
from learners.recovery import learn
from learners.state import begin_save
from learners.train_spec import LearnerSpec, build_learners
from sandbox_workers.local import LocalSandbox
from sandbox_workers.nothing import NoSandbox
from sparring.core.batch import BatchSpec
from sparring.core.errors import SparringError
from sparring.core.play import PlayProgress, PlayRequest, PlayResult
from sparring.core.problem import Problem
from sparring.core.weights import Weights
from sparring.curriculum.curriculum import Curriculum
from sparring.runtime.build import build_runner, learner_specs, ordered_ids
from sparring.runtime.parts import Learning, Parts, Start
from sparring.runtime.placement import learner_groups
from sparring.runtime.weight_files import read_weights, write_weights

_SAVING = ".saving-"
"""Prefix of the directories of checkpoints that are being written."""


class LocalRollouts:
    def __init__(self, loop: asyncio.Runner, runner: EpisodeRunner) -> None:
        self._loop, self._runner = loop, runner
        self.on_progress: Callable[[PlayProgress], None] = lambda progress: None

    def begin(self, request: PlayRequest) -> Callable[[], PlayResult]:
        """Plays the request at once, since nothing runs in parallel to the driver here."""
        result, transcripts = self._loop.run(self._runner.play(request, self.on_progress))
        for episode in result.episodes:
            episode.transcripts = transcripts
        return lambda: result

    def sleep(self) -> None:
        self._loop.run(self._runner.sleep())

    def close(self) -> None:
        self._loop.run(self._runner.close())


class LocalLearner:
    def __init__(self, learner: Learner, spec: LearnerSpec, run_directory: Path) -> None:
        self._learner, self._spec, self._directory = learner, spec, run_directory

    @property
    def version(self) -> int:
        return self._learner.version

    def begin(self, batch: BatchSpec) -> Learning:
        done = learn(self._learner, batch.batch(), self._spec.recovery_point), self.current_weights()
        return lambda: done

    def current_weights(self) -> Weights:
        update = self._learner.export(self._spec.adapter, self._spec.engine_dtype, probe=self._spec.probe)
        return Weights(version=update.version, update=update)

    def save(self) -> AbstractContextManager[Path]:
        """Starts to save at once; entering the context waits until everything is written."""
        # beside the checkpoints, which link to these files; in many systems /tmp is small, or in memory
        directory = tempfile.TemporaryDirectory(prefix=_SAVING, dir=self._directory)
        return _written(directory, begin_save(self._learner, Path(directory.name)))


@contextmanager
def _written(directory: tempfile.TemporaryDirectory[str], wait: Callable[[], None]) -> Iterator[Path]:
    with directory as place:
        wait()
        yield Path(place)


@contextmanager
def local_parts(config: Config, problems: list[Problem], start: Start) -> Iterator[Parts]:
    """Yields the parts of a run in this process. Raises SandboxUnavailable, or OSError if a model does not exist."""
    if config.device == "cpu":
        threads = max(config.policy(role).learner.threads for role in config.policies)
        torch.set_num_threads(min(threads, torch.get_num_threads()))
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # vLLM would compile a helper at its first request
    with (
        asyncio.Runner() as loop,
        _sandbox(config, start) as sandbox,
    ):
        rollouts = LocalRollouts(loop, build_runner(config, start.models, lambda: sandbox))
        try:
            for left in start.run_directory.glob(f"{_SAVING}*"):  # by a process that was killed
                shutil.rmtree(left)
            if config.device == "cuda":
                rollouts.sleep()  # learners are built, and read a checkpoint, on the GPU
            specs = learner_specs(config, start)
            learners = {}
            for roles in learner_groups(config):
                for role, learner in _build({role: specs[role] for role in roles}).items():
                    learners[role] = LocalLearner(learner, specs[role], start.run_directory)
            yield Parts(
                scheduler=Curriculum(**config.curriculum_arguments(ordered_ids(config, problems))),
                rollouts=rollouts,
                learners=learners,
                sandbox=sandbox,
                describe=f"one process; {sandbox.description}",
                wait=loop.run,
                keep_weights=lambda weights, file: write_weights(weights.update, file),
                kept_weights=lambda version, file: Weights(version=version, update=read_weights(file)),
            )
        finally:
            rollouts.close()


def _sandbox(config: Config, start: Start) -> LocalSandbox | NoSandbox:
    if config.sandbox_limits is None:
        return NoSandbox()
    return LocalSandbox(
        config.sandbox.backend,
        runtime=config.sandbox.runtime,
        slots=config.sandbox.slots,
        run_id=str(start.run_directory.resolve()),
        limits=config.sandbox_limits,
        code_tests=config.sandbox.code_tests,
        trusted=config.trusts_programs,
    )


def _build(group: Mapping[str, LearnerSpec]) -> dict[str, Learner]:
    """Builds the learners of a group. Raises SparringError if a policy's model does not go with its learner's
    settings."""
    try:
        return build_learners(group)
    except ValueError as error:
        raise SparringError(f"{' and '.join(group)}: {error}") from error
