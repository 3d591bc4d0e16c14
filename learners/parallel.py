"""The workers of one learner, which compute one update together. A single worker is a world of size 1.

Gradients are summed, not averaged: each worker's loss is its part of the minibatch's loss.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import distributed, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

Value = TypeVar("Value")


class WorkerGroup:
    def __init__(self) -> None:
        alone = not distributed.is_initialized()
        self.rank = 0 if alone else distributed.get_rank()
        self.size = 1 if alone else distributed.get_world_size()
        self._host_group: Any = None

    def broadcast(self, value: Value, group: Any = None) -> Value:
        """Returns rank 0's value on every rank. `group` is a process group; None: the default group."""
        if self.size == 1:
            return value
        box: list[Any] = [value]
        distributed.broadcast_object_list(box, group=group)
        return box[0]

    def gather(self, value: Value) -> list[Value]:
        """Returns the values of all ranks, in order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def host_group(self) -> Any:
        """Returns a gloo group of all processes, for work that a thread does beside the updates; None if there is no
        process group. All ranks must make the first call."""
        if self._host_group is None and distributed.is_initialized():
            self._host_group = distributed.new_group(backend="gloo")
        return self._host_group

    def sums(self, values: Mapping[str, float]) -> dict[str, float]:
        """Returns the sums over the ranks, by name."""
        totals: dict[str, float] = {}
        for of_rank in self.gather(dict(values)):
            for name, value in of_rank.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def sum_gradients(self, parameters: Iterable[nn.Parameter], scale: float = 1.0) -> None:
        """Sums the ranks' gradients in one message and multiplies the sum by `scale`. Sharded parameters are left out,
        because FSDP reduces their gradients in the backward pass."""
        whole = [p for p in parameters if p.requires_grad and not isinstance(p, DTensor)]
        if self.size == 1 or not whole:
            return
        flat = torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in whole])
        distributed.all_reduce(flat)
        flat *= scale
        for parameter, gradient in zip(whole, flat.split([p.numel() for p in whole]), strict=True):
            parameter.grad = gradient.view_as(parameter)


def shard(module: nn.Module, layers: Sequence[nn.Module], *, half: bool = False) -> None:
    """Shards a module with FSDP2: each layer's parameters are distributed over the ranks and gathered for its forward
    and backward pass.

    Args:
        half: Whether layers are gathered in bfloat16 and gradients summed in fp32. Autocast would gather fp32 and keep
            a bfloat16 copy of all layers until the pass ends. Activations between the layers stay fp32, as with one
            worker.

    Raises:
        RuntimeError: There is no process group.
    """
    dtypes = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if half else {}
    for layer in layers:
        fully_shard(layer, mp_policy=MixedPrecisionPolicy(**dtypes, cast_forward_inputs=False))
    fully_shard(module, reshard_after_forward=True)  # else a pass without gradients leaves it gathered


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a sharded tensor as a whole. All ranks must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
