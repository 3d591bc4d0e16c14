"""The interface of the parts that the driver uses. Both runtimes provide exactly this."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sparring.core.batch import BatchSpec
from sparring.core.episode import Episode, Mistakes
from sparring.core.interfaces import Sandbox
from sparring.core.play import PlayProgress, PlayRequest, PlayResult
from sparring.core.weights import Weights
from sparring.curriculum.curriculum import Assignment
from sparring.runtime.placement import Node

T = TypeVar("T")


class Stateful(Protocol):
    """A part that keeps a state from step to step, as plain JSON."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Scheduler(Stateful, Protocol):
    @property
    def total_steps(self) -> int: ...

    def is_last_of_stage(self, step: int) -> bool: ...

    def leave_out(self, problem_ids: Collection[str]) -> None: ...

    def next(self, ahead: int = 0) -> Assignment | None: ...

    def observe(
        self,
        step: int,
        best_programs: Mapping[str, tuple[float, str]],
        mistakes: Mapping[str, Mistakes],
    ) -> None: ...


class Rollouts(Protocol):
    on_progress: Callable[[PlayProgress], None]
    """Receives how far a request has come, while the driver waits for its result."""

    def begin(self, request: PlayRequest) -> Callable[[], PlayResult]:
        """Starts to play a request beside those that are being played. Returns a function that waits for the result."""
        ...

    def sleep(self) -> None:
        """Makes engines that can sleep (engine.sleep) leave the GPU to a learner; begin wakes them."""
        ...


Learning = Callable[[], tuple[Mapping[str, float], Weights]]
"""Function that waits for an update and returns (metrics, the new weights)."""


class LearnerHandle(Protocol):
    @property
    def version(self) -> int: ...

    def begin(self, batch: BatchSpec) -> Learning:
        """Starts an update on a batch. Returns a function that waits for its end."""
        ...

    def current_weights(self) -> Weights:
        """Returns the weights of the current version, which is a checkpoint's or one that an update made."""
        ...

    def save(self) -> AbstractContextManager[Path]:
        """Starts to save the current version and returns at once. Entering the context waits for the directory, which
        exists as long as the context is open."""
        ...


class Wait(Protocol):
    def __call__(self, coroutine: Coroutine[Any, Any, T], /) -> T: ...


@dataclass(frozen=True, kw_only=True)
class Parts:
    scheduler: Scheduler
    rollouts: Rollouts
    learners: Mapping[str, LearnerHandle]
    sandbox: Sandbox
    """The driver's own client, for evaluation."""
    describe: str
    """One line that says where the run is and which sandbox judges."""
    wait: Wait
    """wait(coroutine) returns its result, from the event loop that the sandbox client belongs to."""
    keep_weights: Callable[[Weights, Path], None]
    """keep_weights(weights, file) stores them for later (sparring/runtime/opponents.py)."""
    kept_weights: Callable[[int, Path], Weights]
    """kept_weights(version, file) returns stored weights."""
    watch: Callable[[Mapping[str, Any], Sequence[Episode]], None] = lambda row, episodes: None
    """watch(row, episodes of a step) exports the step's figures for monitoring of the cluster."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Starting point of a run: models, and a checkpoint to continue from."""

    run_directory: Path
    models: Mapping[str, str]
    """Initial model of each policy: directory or hub id."""
    checkpoint: Path | None
    versions: Mapping[str, int]
    """Version of each policy's weights at the start: 0, or that of the checkpoint."""
    state: Mapping[str, Any] | None
    """State of the checkpoint; None if there is no checkpoint, or only its weights are taken (--fresh)."""
    gpu_bytes: int = 0
    """Bytes that a run may take on the smallest GPU; 0 if there is no GPU."""
    nodes: tuple[Node, ...] = ()
    """Nodes that the parts of a run on GPUs are placed on."""
    host_bytes: int | None = None
    """Bytes of memory that a run without a GPU may take; None if that is not known."""
    ways_out: Callable[[], Iterable[str]] = tuple
    """Returns options with which the run that was asked for would fit into memory."""

    @property
    def continues(self) -> bool:
        """Whether the checkpoint is one of this run, and not of another (--resume-from)."""
        return self.checkpoint is not None and self.checkpoint.parent.parent == self.run_directory
