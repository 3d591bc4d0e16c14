"""Handles workers that run out of memory."""

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from learners.parallel import WorkerGroup
from sparring.core.endings import memory_message
from sparring.core.errors import OutOfMemory, WorkerOutOfMemory

Result = TypeVar("Result")


class DeviceMemory:
    """Runs work within the memory of one worker's device. All workers must call its methods in the same order."""

    def __init__(self, world: WorkerGroup, device: torch.device, *, sharded: bool) -> None:
        """Creates the guard.

        Args:
            sharded: Whether the workers share a model. Then the others wait, within their work, for what a worker that
                ran out of memory has not sent, so all of them must begin anew.
        """
        self._world, self._device, self._sharded = world, device, sharded

    def tried(self, work: Callable[[], Result]) -> tuple[Result | None, list[str]]:
        """Returns work()'s result (None if this worker ran out of memory) and the error messages of all workers that
        ran out of memory. Raises WorkerOutOfMemory if this worker did and shares its model with others."""
        result, reason = None, ""
        try:
            result = work()
        except (RuntimeError, MemoryError) as error:
            reason = _out_of_memory(error)
        if reason:
            self._empty_cache()
            if self._sharded:
                raise WorkerOutOfMemory(reason)
        return result, [r for r in self._world.gather(reason) if r]

    def together(self, work: Callable[[], Result], what: str) -> Result:
        """Returns work()'s result. If a worker runs out of memory, all workers begin the work again, once.

        Args:
            what: Description of the work, for the error message.

        Raises:
            OutOfMemory: Memory ran out in both tries. All workers raise it.
            WorkerOutOfMemory: See `tried`.
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

    def _empty_cache(self) -> None:
        gc.collect()  # frees what the error's frames hold
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def _out_of_memory(error: Exception) -> str:
    """Returns the message of an error that reports a lack of memory, and raises any other error again."""
    if (message := memory_message(error)) is None:
        raise error
    return message
