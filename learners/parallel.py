"""The workers of one learner, which compute one update together. A learner alone is a world of one.

Gradients are summed, not averaged: each worker's loss is its part of the minibatch's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import distributed, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

Value = TypeVar("Value")


class World:
    def __init__(self) -> None:
        alone = not distributed.is_initialized()
        self.rank = 0 if alone else distributed.get_rank()
        self.size = 1 if alone else distributed.get_world_size()

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


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A sharded tensor put together; all ranks must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
