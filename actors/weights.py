"""A WeightUpdate on the engine's side: its arrays as tensors, and the receipt once they are in place."""

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence

import torch

from core.weights import PublishReceipt, WeightUpdate, digest_of


def tensors_of(update: WeightUpdate) -> Mapping[str, torch.Tensor]:
    """The update's parameters and buffers as torch tensors, to be read only: they are the arrays' own memory, which on Ray
    is the object store's."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that they must not be written
        tensors = {name: torch.from_numpy(array) for name, array in update.tensors.items()}
    return {n: t.view(torch.bfloat16) if t.dtype == torch.int16 else t for n, t in tensors.items()}


async def make_receipt(
    update: WeightUpdate, score: Callable[[Sequence[int]], Awaitable[list[float]]]
) -> PublishReceipt:
    """Digest of what was received, and how far the engine's scores of the probe are from the learner's."""
    scored = torch.tensor(await score(update.probe))
    difference = (scored - torch.tensor(update.probe_logprobs)).abs().max().item()
    return PublishReceipt(
        version=update.version, digest=digest_of(update.tensors), probe_difference=difference
    )
