"""Which endings of workers Ray Train makes good; Ray is not started."""

import errno
import os
from types import SimpleNamespace

import pytest
import torch
from ray.exceptions import ActorDiedError
from ray.train import ControllerError, WorkerGroupError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback
from ray.train.v2._internal.execution.controller.state import RestartingState, RunningState

from learners.checkpoints import CheckpointError
from learners.learner import NotFinite
from learners.mailbox import LearnerFailed
from learners.train_loop import _failure, _TellOfLosses
from sparring.core.errors import OutOfMemory, WorkerOutOfMemory

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.safetensors")


def ended(*errors: Exception) -> WorkerGroupError:
    """As Ray Train tells of workers that have raised these errors."""
    raised = (UserExceptionWithTraceback(error, f"Traceback …\n  File …\n{error}") for error in errors)
    return WorkerGroupError("…", dict(enumerate(raised)))


def restarted(error: WorkerGroupError) -> list[tuple[str, bool]]:
    """Returns the losses, and whether they were for memory, that the mailbox is told of when Ray Train is about to replace the
    workers."""
    losses: list[tuple[str, bool]] = []
    lost = SimpleNamespace(
        remote=lambda words, for_memory, limits: losses.append((words, for_memory or bool(limits)))
    )
    tell = _TellOfLosses(SimpleNamespace(lost=lost))
    tell.after_controller_state_update(RunningState(), RestartingState(training_failed_error=error))
    return losses


@pytest.mark.parametrize(
    "error",
    [NotFinite("the loss is nan"), OutOfMemory("out of memory, twice"), CheckpointError("gone"), FULL],
)
def test_an_error_that_would_repeat_ends_the_run(error: Exception) -> None:
    for others in (
        (),
        (RuntimeError("Connection closed by peer"),),
    ):  # the other workers lose the one that raises
        with pytest.raises(type(error)) as raised:
            restarted(ended(*others, error))
        assert raised.value is error


def test_workers_that_are_lost_are_replaced() -> None:
    for error, expected in (
        (WorkerGroupError("…", {0: ActorDiedError()}), ("ActorDiedError", False)),
        (ended(RuntimeError("Connection closed by peer")), ("Connection closed by peer", False)),
        (
            ended(RuntimeError("closed"), WorkerOutOfMemory("2 GiB", "p", 64)),
            ("WorkerOutOfMemory: 2 GiB", True),
        ),
        (ended(MemoryError()), ("MemoryError", True)),
    ):
        ((told, for_memory),) = restarted(error)
        assert expected[0] in told and for_memory == expected[1]


def test_a_learner_that_ran_out_of_memory_is_told_apart() -> None:
    short = OutOfMemory("out of memory, twice")
    unguarded = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    for error in (ended(short), ControllerError(short), ended(WorkerOutOfMemory("2 GiB")), ended(unguarded)):
        assert type(_failure("generator", error)) is OutOfMemory
    assert type(_failure("generator", ended(NotFinite("the loss is nan")))) is LearnerFailed
