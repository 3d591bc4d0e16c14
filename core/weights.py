"""A policy's new weights, as they travel from its learner to the engines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import RunFailed

if TYPE_CHECKING:  # who reads a configuration need not wait for it
    import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightUpdate:
    version: int
    """Counted per policy; 0 are the weights that the run started with."""
    tensors: Mapping[str, np.ndarray]
    """Parameters and persistent buffers by Hugging Face name; bfloat16 as its int16 bits, which nothing else has. Of an
    adapter: by PEFT's."""
    digest: str
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
    digest: str
    probe_difference: float
    """max |engine - learner| over the probe's log-probabilities."""


class PublishError(RunFailed):
    """The engine does not compute what the learner computes: rollouts would come from unknown weights."""


def digest_of(tensors: Mapping[str, np.ndarray]) -> str:
    """sha256 over names and bytes, in order of name."""
    import numpy as np

    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(tensors[name]).tobytes())
    return sha.hexdigest()


def check_receipt(update: WeightUpdate, receipt: PublishReceipt, tolerance: float) -> None:
    """Raises PublishError where version, digest or probe disagree."""
    if receipt.version != update.version or receipt.digest != update.digest:
        raise PublishError(
            f"published version {update.version} ({update.digest[:12]}), but the engine has "
            f"version {receipt.version} ({receipt.digest[:12]})"
        )
    if not receipt.probe_difference <= tolerance:  # also catches nan
        raise PublishError(
            f"version {update.version}: engine and learner differ by {receipt.probe_difference:.2g} on the probe's "
            f"log-probabilities (allowed: {tolerance:.2g}): the engine does not run on the published weights"
        )
