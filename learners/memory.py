"""Where memory runs out, in one worker or in all: work is begun again in all of them together."""

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from core.errors import OutOfMemory
from learners.parallel import Passes, World

Result = TypeVar("Result")


class Memory:
    """Of one worker's device. All workers must call its methods, in the same order."""

    def __init__(self, passes: Passes, world: World, device: torch.device, *, sharded: bool) -> None:
        """passes: the work's messages to other workers, where they share a model."""
        self._passes, self._world, self._device, self._sharded = passes, world, device, sharded
        self.aside = False
        """Work is done on as little data as can be, for the other workers' sake."""

    def tried(self, work: Callable[[], Result]) -> tuple[Result | None, list[str]]:
        """work()'s result, or why there is none: what the workers say who ran out of memory. Raises OutOfMemory."""
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
        """work()'s result; where memory runs out for a worker, all begin it again, once. what: it is, for the error. Raises
        OutOfMemory, in all of them."""
        reasons = [""]
        for _ in range(2):
            result, reasons = self.tried(work)
            if not reasons:
                return result  # pyright: ignore[reportReturnType]
            del result  # another's beside the next
        raise OutOfMemory(
            f"out of memory, twice, {what}: {reasons[0]}; give the learner more memory or workers"
        )

    def step(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        take: Callable[[torch.optim.Optimizer], object],
    ) -> None:
        """take(each optimizer). Raises OutOfMemory, in all workers where one cannot."""
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
        """Why it could not, if so. What runs out of memory before it has changed anything is tried again."""
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
                del optimizer.state[parameter]  # its moments were half made
            self._empty_cache()
        return reason

    def _go_through(self, work: Callable[[], object], sent: int, reason: str) -> None:
        """The others wait within their work for what this worker has not sent yet."""
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
        gc.collect()  # what an error's frames held
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def _out_of_memory(error: Exception) -> str:
    """What it says. On CPU torch raises a plain RuntimeError, and so do CUDA's libraries where a GPU is shared. Raises it
    where it says something else."""
    said = ("can't allocate memory", "ALLOC_FAILED", "out of memory")
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in str(error) for words in said):
        return (str(error).splitlines() or [type(error).__name__])[0]
    raise error
