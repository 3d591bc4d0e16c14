"""Handles workers that run out of memory: if one worker does, all workers begin the work again together."""

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from learners.parallel import CollectiveLog, WorkerGroup
from sparring.core.errors import OutOfMemory

Result = TypeVar("Result")


class DeviceMemory:
    """Runs work within the memory of one worker's device. All workers must call its methods in the same order."""

    def __init__(
        self, passes: CollectiveLog, world: WorkerGroup, device: torch.device, *, sharded: bool
    ) -> None:
        """Creates the guard.

        Args:
            passes: Counts the messages that the work sends to other workers, if they share a model.
            sharded: Whether they share a model.
        """
        self._passes, self._world, self._device, self._sharded = passes, world, device, sharded
        self.aside = False
        """Whether the work uses as little data as possible, because only the other workers still need its messages."""

    def tried(self, work: Callable[[], Result]) -> tuple[Result | None, list[str]]:
        """Returns work()'s result (None if this worker ran out of memory) and the error messages of all workers that
        ran out of memory. Raises OutOfMemory."""
        result, reason = None, ""
        self._passes.begin()
        try:
            result = work()
        except (RuntimeError, MemoryError) as error:
            reason = _out_of_memory(error)
        if reason:
            sent = self._passes.broke_off()
            self._empty_cache()
            if self._sharded:
                self._go_through(work, sent, reason)
        return result, [r for r in self._world.gather(reason) if r]

    def together(self, work: Callable[[], Result], what: str) -> Result:
        """Returns work()'s result. If a worker runs out of memory, all workers begin the work again, once.

        Args:
            what: Description of the work, for the error message.

        Raises:
            OutOfMemory: Memory ran out in both tries. All workers raise it.
        """
        reasons = [""]
        for _ in range(2):
            result, reasons = self.tried(work)
            if not reasons:
                return result  # pyright: ignore[reportReturnType]
            del result  # else it is held during the next try
        raise OutOfMemory(
            f"out of memory, twice, {what}: {reasons[0]}; give the learner more memory or workers"
        )

    def step(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        take: Callable[[torch.optim.Optimizer], object],
    ) -> None:
        """Calls take with each optimizer. Raises OutOfMemory in all workers if one worker runs out of memory."""
        reason = ""
        for optimizer in optimizers:
            reason = reason or self._stepped(optimizer, take)
        if reasons := [r for r in self._world.gather(reason) if r]:
            raise OutOfMemory(
                f"out of memory in the optimizer's step ({reasons[0]}): take learner.lora, learner.trainable_layers, "
                "more workers with learner.sharding fsdp, or a smaller model"
            )

    def _stepped(
        self, optimizer: torch.optim.Optimizer, take: Callable[[torch.optim.Optimizer], object]
    ) -> str:
        """Returns why the optimizer's step failed; empty if it succeeded. A step that runs out of memory before it has
        changed anything is tried once more."""
        reason = ""
        for _ in range(2):
            touched = [p for group in optimizer.param_groups for p in group["params"]]
            touched += [state["step"] for state in optimizer.state.values()]
            before = [tensor._version for tensor in touched]
            try:
                take(optimizer)
                return ""
            except (RuntimeError, MemoryError) as error:
                reason = _out_of_memory(error)
            if before != [tensor._version for tensor in touched]:
                return reason
            for parameter in [p for p, state in optimizer.state.items() if "exp_avg_sq" not in state]:
                del optimizer.state[parameter]  # its moments are incomplete
            self._empty_cache()
        return reason

    def _go_through(self, work: Callable[[], object], sent: int, reason: str) -> None:
        """Repeats the work with next to no data. The other workers wait, within their work, for the messages that this
        worker has not sent yet."""
        self._passes.begin(left_out=sent)
        self.aside = True
        try:
            work()
        except (RuntimeError, MemoryError) as error:
            _out_of_memory(error)
            raise OutOfMemory(
                f"out of memory, and once more with next to no data ({reason}): take more workers, or a smaller model"
            ) from error
        finally:
            self.aside = False
        self._empty_cache()

    def _empty_cache(self) -> None:
        gc.collect()  # frees what the error's frames hold
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def _out_of_memory(error: Exception) -> str:
    """Returns the message of an error that reports a lack of memory, and raises any other error again. On a CPU torch
    raises a plain RuntimeError, and so do CUDA's libraries if the GPU is shared."""
    said = ("can't allocate memory", "ALLOC_FAILED", "out of memory")
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in str(error) for words in said):
        return (str(error).splitlines() or [type(error).__name__])[0]
    raise error
