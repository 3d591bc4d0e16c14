"""A policy's new weights, as they travel from its learner to the engines."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from core.errors import RunFailed

if TYPE_CHECKING:  # who reads a configuration need not wait for it
    import numpy as np


PART_BYTES = 64 << 20
"""Of weights that are sent together at most, but for one tensor of more, where they are sent in parts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightUpdate:
    version: int
    """Counted per policy; 0 are the weights that the run started with."""
    tensors: Mapping[str, np.ndarray]
    """Parameters and persistent buffers by Hugging Face name; bfloat16 as its int16 bits, which nothing else has. Of an
    adapter: by PEFT's."""
    parts: Sequence[Any] = ()
    """Where the tensors travel by themselves: what stands for each part of them, in place of `tensors`."""
    digest: int
    """digest_of(tensors)."""
    probe: tuple[int, ...]
    """Token ids of the probe sequence."""
    probe_logprobs: tuple[float, ...]
    """Natural-log probabilities of probe[1:] under these weights, as the learner computes them."""
    adapter: tuple[int, int] | None = None
    """Rank and alpha, where these are a LoRA adapter's tensors alone, for an engine that has its backbone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishReceipt:
    """What an engine answers once it runs on new weights."""

    version: int
    digest: int
    probe_difference: float
    """max |engine - learner| over the probe's log-probabilities."""


class PublishError(RunFailed):
    """The engine does not compute what the learner computes: rollouts would come from unknown weights."""


def digest_of(tensors: Mapping[str, np.ndarray]) -> int:
    """Sum of the tensors' crc32, each over its name and bytes: against what is lost or damaged, at the speed of memory. Of
    several parts it is the sum of theirs."""
    import numpy as np

    def crc(name: str) -> int:
        return zlib.crc32(np.ascontiguousarray(tensors[name]).data, zlib.crc32(name.encode()))

    with ThreadPoolExecutor() as threads:
        return sum(threads.map(crc, tensors))


def joined(update: WeightUpdate, parts: Sequence[Mapping[str, np.ndarray]]) -> WeightUpdate:
    """The update with its tensors. parts: what `update.parts` stand for."""
    return replace(
        update, tensors={n: t for part in (update.tensors, *parts) for n, t in part.items()}, parts=()
    )


def check_receipt(update: WeightUpdate, receipt: PublishReceipt, tolerance: float) -> None:
    """Raises PublishError where version, digest or probe disagree."""
    if receipt.version != update.version or receipt.digest != update.digest:
        raise PublishError(
            f"published version {update.version} ({update.digest:x}), but the engine has "
            f"version {receipt.version} ({receipt.digest:x})"
        )
    if not receipt.probe_difference <= tolerance:  # also catches nan
        raise PublishError(
            f"version {update.version}: engine and learner differ by {receipt.probe_difference:.2g} on the probe's "
            f"log-probabilities (allowed: {tolerance:.2g}): the engine does not run on the published weights"
        )
