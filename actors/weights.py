"""Functions for an engine that receives a WeightUpdate: its arrays as tensors, and the receipt once they are loaded."""

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence

import torch

from sparring.core.weights import PublishReceipt, WeightUpdate, digest_of


def tensors_of(update: WeightUpdate) -> Mapping[str, torch.Tensor]:
    """Returns the update's parameters and buffers as torch tensors. They must not be written to: they share the arrays'
    memory, which under Ray belongs to the object store."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # torch warns of read-only arrays
        tensors = {name: torch.from_numpy(array) for name, array in update.tensors.items()}
    return {n: t.view(torch.bfloat16) if t.dtype == torch.int16 else t for n, t in tensors.items()}


async def make_receipt(
    update: WeightUpdate, score: Callable[[Sequence[int]], Awaitable[list[float]]]
) -> PublishReceipt:
    """Returns the receipt: the digest of the received tensors, and the largest difference between the engine's and the
    learner's log-probabilities of the probe."""
    scored = torch.tensor(await score(update.probe))
    difference = (scored - torch.tensor(update.probe_logprobs)).abs().max().item()
    return PublishReceipt(
        version=update.version, digest=digest_of(update.tensors), probe_difference=difference
    )
