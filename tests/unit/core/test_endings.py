"""Ray's errors, as it raised them (2.60), and what is told of them."""

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayError, RayTaskError
from ray.train import ControllerError, WorkerGroupError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback, WorkerHealthCheckFailedError

from sparring.core.endings import causes, in_words, killed_for_memory

KILLED = """\
1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 192.0.2.2, ID: bfe0b59e) was \
22.55GB used / 23.54GB limit (0.958227)
OOM kill reason: Memory usage 2730196992B exceeded threshold of 2669428736B (95.0% of 25276514304B limit)
Object store memory usage: [- objects spillable: 0
(global lru) bytes evicted: 0]
Ray killed 1 worker(s) based on the killing policy
Considered workers: [
Selected to kill: (Actor(46e6f4289ab0): job ID=01000000, lease ID=00000000ec4f, task name=RayTrainWorker.__init__, \
required resources={}, pid=9366, actual memory used=12.13GB, worker ID=1ec38e21)
]
Total non-selected idle workers: 1
To see more information about memory usage on this node, use `ray logs raylet.out -ip 192.0.2.2`
Top 10 memory users: PID\tMEM(GB)\tCOMMAND
9366\t12.13\tray::RayTrainWorker.poll_status
9365\t7.41\tray::rollout 0.play
9493\t0.28\t/usr/bin/python -m something else
Refer to the documentation on how to address the out of memory issue: https://docs.ray.io"""
ENDED = """\
The actor died unexpectedly before finishing this task.
\tclass_name: RolloutShell
\tactor_id: e928d79916a6f4038ad6681f01000000
\tpid: 9365
\tnamespace: 68bd86a4
\tip: 192.0.2.2
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker \
unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was killed by \
the OOM killer due to high memory usage, (2) ray stop --force was called."""
RAISED = """\
The actor died because of an error raised in its creation task, \x1b[36mray::Init.__init__()\x1b[39m (pid=9763)
  File "oom.py", line 36, in __init__
    raise ValueError("no model")
          ^^^^^^^^^^^^^^^^^^^^^^
ValueError: no model
there"""


def died(text: str) -> ActorDiedError:
    error = ActorDiedError()
    error.error_msg = text
    return error


def of_a_worker(error: Exception) -> WorkerGroupError:
    """As Ray Train tells of a worker that does not answer any more."""
    failed = WorkerHealthCheckFailedError("A worker health check failed.\nWorker info: …", failure=error)
    return WorkerGroupError("[Rank 0 Error Snippet]:\n…", {0: failed})


def of_a_train_loop(error: Exception) -> WorkerGroupError:
    """As Ray Train tells of an error that a worker has raised."""
    return WorkerGroupError("…", {0: UserExceptionWithTraceback(error, f"Traceback …\n  File …\n{error}")})


def of_a_task(error: Exception) -> RayError:
    text = f"Traceback (most recent call last):\n  File …\n{error}"
    return RayTaskError("play", text, error, "ray::play", 1, "192.0.2.2").as_instanceof_cause()


@pytest.mark.parametrize(
    "around", [Exception.with_traceback, of_a_worker, of_a_train_loop, of_a_task, ControllerError]
)
@pytest.mark.parametrize(
    ("error", "told", "for_memory"),
    [
        (OutOfMemoryError(KILLED), ("RayTrainWorker", "12.13GB", "22.55GB", "23.54GB", "rollout 0"), True),
        (died(ENDED), ("ActorDiedError", "9365", "192.0.2.2"), False),
        (died(RAISED), ("ValueError: no model",), False),
        (RuntimeError("the loss is nan\nand more"), ("RuntimeError", "the loss is nan"), False),
    ],
)
def test_the_cause_is_told_whatever_is_around_it(
    around, error: Exception, told: tuple[str, ...], for_memory: bool
) -> None:
    whole = error if around is Exception.with_traceback else around(error)
    assert causes(whole) == [error]
    assert killed_for_memory(whole) is for_memory
    words = in_words(whole)
    assert all(part in words for part in told), words
    assert len(words.splitlines()) == 1 and "docs.ray.io" not in words and "\x1b" not in words


def test_each_cause_is_told_once() -> None:
    """The other workers of a group mostly end by the same."""
    lost = WorkerGroupError("…", {0: RuntimeError("a"), 1: RuntimeError("a"), 2: OutOfMemoryError(KILLED)})
    assert killed_for_memory(lost)
    assert in_words(lost).count("RuntimeError: a") == 1 and "RayTrainWorker" in in_words(lost)


def test_an_error_without_a_word_has_a_name() -> None:
    assert in_words(TimeoutError()).startswith("TimeoutError")
