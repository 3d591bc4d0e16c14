"""The data of a weight sync: a policy's new weights, sent from the learner to the inference engines, and their
verification."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparring.core.errors import RunFailed

if TYPE_CHECKING:  # commands that only read a configuration need not wait for numpy's import
    import numpy as np


PART_BYTES = 64 << 20
"""Maximum size of one part, if weights are sent in parts. A tensor that is larger is a part by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightUpdate:
    version: int
    """Policy version, counted per policy; 0 stands for the weights at the start of the run."""
    tensors: Mapping[str, np.ndarray]
    """Parameters and persistent buffers by Hugging Face name, or, for an adapter, by PEFT name. bfloat16 tensors are stored as
    their bits in int16; no other tensor has this dtype."""
    parts: Sequence[Any] = ()
    """References to the parts of the tensors, if the tensors are sent separately; `tensors` is then empty."""
    digest: int
    """digest_of(tensors)."""
    probe: tuple[int, ...]
    """Token ids of the probe sequence."""
    probe_logprobs: tuple[float, ...]
    """Natural-log probabilities of probe[1:] under these weights, computed by the learner."""
    adapter: tuple[int, int] | None = None
    """(rank, alpha) if the tensors are those of a LoRA adapter only, for an engine that already holds the base model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """A policy's weights as an argument of play."""

    version: int
    update: Any
    """The WeightUpdate or, on Ray, a reference to it: the weights do not pass through the driver."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishReceipt:
    """The sync report of an inference engine after it has loaded new weights."""

    version: int
    digest: int
    probe_difference: float
    """max |engine - learner| over the probe's log-probabilities."""


class PublishError(RunFailed):
    """The verification of a weight sync failed: the engine's weights are not the learner's weights."""


def digest_of(tensors: Mapping[str, np.ndarray]) -> int:
    """Returns the sum of the tensors' crc32, each over the name and the bytes. It detects lost and damaged tensors, and is
    about as fast as memory. The digest of several parts is the sum of their digests."""
    import numpy as np

    def crc(name: str) -> int:
        return zlib.crc32(np.ascontiguousarray(tensors[name]).data, zlib.crc32(name.encode()))

    with ThreadPoolExecutor() as threads:
        return sum(threads.map(crc, tensors))


def joined(update: WeightUpdate, parts: Sequence[Mapping[str, np.ndarray]]) -> WeightUpdate:
    """Returns the update with its tensors. parts: the tensors to which `update.parts` refer."""
    return replace(
        update, tensors={n: t for part in (update.tensors, *parts) for n, t in part.items()}, parts=()
    )


def check_receipt(update: WeightUpdate, receipt: PublishReceipt, tolerance: float) -> None:
    """Raises PublishError if the version, the digest or the probe's log-probabilities disagree."""
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
