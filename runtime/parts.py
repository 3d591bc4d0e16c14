"""What the driver drives. Both runtimes give exactly this."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from core.batch import BatchSpec
from core.episode import Episode, Mistakes
from core.interfaces import Sandbox
from core.play import PlayProgress, PlayRequest, PlayResult
from core.weights import PublishReceipt
from curriculum.curriculum import Assignment
from runtime.placement import Node

T = TypeVar("T")


class Stateful(Protocol):
    """A part that remembers something from step to step; plain JSON."""

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
    heard: Callable[[PlayProgress], None]
    """Is told how far a request has come, while the driver waits for its result."""

    def begin(self, request: PlayRequest) -> Callable[[], PlayResult]:
        """Play it beside what is begun already; the result waits for the end."""
        ...

    def publish(self, policy: str, update: Any) -> list[PublishReceipt]: ...

    def sleep(self) -> None:
        """Engines that can (engine.sleep) leave the GPU to a learner; begin and publish wake them."""
        ...


Learning = Callable[[], tuple[Mapping[str, float], Any]]
"""Waits, for (metrics, the new weights or a reference to them)."""


class LearnerHandle(Protocol):
    @property
    def version(self) -> int: ...

    def begin(self, batch: BatchSpec) -> Learning:
        """Learn from it; the result waits for the end."""
        ...

    def current_weights(self) -> Any:
        """Of the current version; what Learning gives."""
        ...

    def save(self) -> AbstractContextManager[Path]:
        """Begin to save the current version, and go on; who enters the context waits for the directory, which is there
        for as long as the context is open."""
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
    """One line: where this runs and what judges."""
    wait: Wait
    """wait(coroutine) -> its result, on the loop that the sandbox client belongs to."""
    keep_weights: Callable[[Any, Path], None]
    """keep_weights(weights as a learner gave them, file): for later (runtime/opponents.py)."""
    kept_weights: Callable[[Path], Any]
    """What `publish` takes, from such a file."""
    watch: Callable[[Mapping[str, Any], Sequence[Episode]], None] = lambda row, episodes: None
    """watch(row, episodes of a step): for whoever watches the cluster."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where a run starts: models, and a checkpoint to continue from."""

    run_directory: Path
    models: Mapping[str, str]
    """Warm start of each policy: directory or hub id."""
    checkpoint: Path | None
    versions: Mapping[str, int]
    """Version of each policy's weights at the start: 0, or the checkpoint's."""
    state: Mapping[str, Any] | None
    """The checkpoint's."""
    gpu_bytes: int = 0
    """That a run may take of the smallest GPU; 0 where none is seen."""
    nodes: tuple[Node, ...] = ()
    """That the parts of a run on GPUs are placed on."""
    host_bytes: int | None = None
    """That a run without a GPU may take of the memory; None: not known."""
    ways_out: Callable[[], Iterable[str]] = tuple
    """Options with which what was asked for would fit the memory."""

    @property
    def continues(self) -> bool:
        """The checkpoint is one of this very run, not of another (--resume-from)."""
        return self.checkpoint is not None and self.checkpoint.parent.parent == self.run_directory
