"""The workers of one learner, which compute one update together. A learner alone is a world of one.

Gradients are summed, not averaged: each worker's loss is its part of the minibatch's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import distributed, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

Value = TypeVar("Value")


class World:
    def __init__(self) -> None:
        alone = not distributed.is_initialized()
        self.rank = 0 if alone else distributed.get_rank()
        self.size = 1 if alone else distributed.get_world_size()
        self._host_group: Any = None

    def broadcast(self, value: Value, group: Any = None) -> Value:
        """Every rank gets the value of rank 0. group: of processes; None: the default one."""
        if self.size == 1:
            return value
        box: list[Any] = [value]
        distributed.broadcast_object_list(box, group=group)
        return box[0]

    def gather(self, value: Value) -> list[Value]:
        """The values of all ranks, in order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def host_group(self) -> Any:
        """All processes, over gloo, for what a thread does beside the updates; None without a process group. The first
        time all ranks must ask for it."""
        if self._host_group is None and distributed.is_initialized():
            self._host_group = distributed.new_group(backend="gloo")
        return self._host_group

    def sums(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums over the ranks by name."""
        totals: dict[str, float] = {}
        for of_rank in self.gather(dict(values)):
            for name, value in of_rank.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def sum_gradients(self, parameters: Iterable[nn.Parameter], scale: float = 1.0) -> None:
        """Add up the ranks' gradients in one message, times `scale`. Sharded parameters are left out: FSDP has reduced
        theirs in the backward pass."""
        whole = [p for p in parameters if p.requires_grad and not isinstance(p, DTensor)]
        if self.size == 1 or not whole:
            return
        flat = torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in whole])
        distributed.all_reduce(flat)
        flat *= scale
        for parameter, gradient in zip(whole, flat.split([p.numel() for p in whole]), strict=True):
            parameter.grad = gradient.view_as(parameter)


def shard(module: nn.Module, layers: Sequence[nn.Module], *, half: bool = False) -> None:
    """FSDP2: each layer's parameters are spread over the ranks and gathered for its forward and backward pass.

    half: gather layers in bfloat16, add gradients up in fp32. Autocast would gather fp32 and keep a bfloat16 copy of all
    layers until the pass ends. The stream between the layers stays fp32, as with one worker.

    Raises:
        RuntimeError: no process group.
    """
    dtypes = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if half else {}
    for layer in layers:
        fully_shard(layer, mp_policy=MixedPrecisionPolicy(**dtypes, cast_forward_inputs=False))
    fully_shard(module, reshard_after_forward=True)  # else a pass without gradients leaves it in one piece


class Passes:
    """FSDP's messages while workers compute something together, counted.

    A worker that runs out of memory would leave the others waiting for those that it still owes. Instead it goes through
    the same work again on little data, leaves out the messages that it has sent, and sends the rest: what comes of it
    is wrong everywhere, but all are at its end and can agree what to do."""

    def __init__(self) -> None:
        self._roots: list[Any] = []
        self._sent = self._left_out = 0

    def watch(self, root: nn.Module) -> None:
        """root: of what `shard` has spread."""
        counted: Any = _Counted(self, root)
        for module in root.modules():
            if isinstance(module, FSDPModule):
                module.set_custom_all_gather(counted)
                module.set_custom_reduce_scatter(counted)

    def begin(self, left_out: int = 0) -> None:
        self._sent, self._left_out = 0, left_out

    def broke_off(self) -> int:
        """After an error: FSDP can begin anew. How many messages had been sent."""
        for root in self._roots:
            root.reset_iter_state()
        return self._sent

    def at_work(self, root: nn.Module) -> None:
        """It has its state, as those have not that were never run."""
        if root not in self._roots:
            self._roots.append(root)

    def send(self, message: Callable[[], Value]) -> Value | None:
        sent = None if self._sent < self._left_out else message()
        self._sent += 1
        return sent

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """A sharded tensor put together; all ranks must ask for it."""
        if not isinstance(tensor, DTensor):
            return tensor
        found = self.send(tensor.full_tensor)
        return tensor.to_local().new_zeros(()).expand(tensor.shape) if found is None else found


class _Counted:
    """FSDP's own gathering and reducing, by way of Passes."""

    def __init__(self, passes: Passes, root: nn.Module) -> None:
        self._passes, self._root = passes, root

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        self._passes.at_work(self._root)
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any = None,
        async_op: bool = False,
    ) -> Any:
        """op: to reduce by; None gathers."""
        options: dict[str, Any] = {"group": group, "async_op": async_op}
        if op is None:
            message = partial(distributed.all_gather_single, output_tensor, input_tensor, **options)
        else:
            message = partial(distributed.reduce_scatter_single, output_tensor, input_tensor, op, **options)
        return self._passes.send(message)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A sharded tensor put together; all ranks must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
