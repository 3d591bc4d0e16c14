"""Weights on their way from a learner to an engine, with the proof that they arrived.

Proof has two halves: a digest of the bytes, checked where they were loaded from, and the log-probabilities of a
fixed probe under the new weights, checked against the engine's own forward pass. The second catches what a
digest can't: a layer that the engine did not rebuild, a stale cache.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from core.weights import PART_BYTES, WeightUpdate, digest_of
from learners.models import buffers_of
from learners.packing import row_of
from learners.settings import LoraSettings
from learners.tuning import LoraTuning, Tuning

_PROBE_LENGTH = 24


def probe_tokens(vocabulary_size: int) -> tuple[int, ...]:
    """A fixed pseudo-random token sequence; what it says does not matter, that it is the same does."""
    return tuple(
        int.from_bytes(hashlib.blake2b(str(i).encode(), digest_size=4).digest(), "big") % vocabulary_size
        for i in range(_PROBE_LENGTH)
    )


@torch.no_grad()
def export_weights(
    policy: Tuning,
    version: int,
    keep: bool = True,
    adapter: LoraSettings | None = None,
    dtype: torch.dtype | None = None,
    put: Callable[[Mapping[str, np.ndarray]], Any] | None = None,
) -> WeightUpdate:
    """A copy of all parameters and persistent buffers on the host under their Hugging Face names (tied ones once).

    dtype: the engine's; parameters travel in it, as the engine would round them, and buffers as they are. None: all do.
    keep: False for workers whose copy nobody wants, but whose part of sharded tensors is needed.
    adapter: the policy's, where it is wanted alone, under PEFT's names.
    put: takes the tensors, a part at a time so that never all are here at once, and returns what stands for it.
    """
    model = policy.model
    alone = adapter is not None and isinstance(policy, LoraTuning)
    named = policy.kept().items() if alone else policy.merged()
    buffers = buffers_of(model)
    dtypes = ((name, t, t.dtype if alone or not dtype or name in buffers else dtype) for name, t in named)
    tensors: dict[str, np.ndarray] = {}
    parts, digest = [], 0
    for part in _parts(dtypes, keep):
        digest += digest_of(part)
        if put:
            parts.append(put(part))
        else:
            tensors |= part
        del part  # it would be held beside the next
    probe = probe_tokens(model.config.get_text_config().vocab_size)
    row = row_of([probe], model.device)
    logprobs = policy.score(row, row.positions_N > 0, 1.0).logprobs_P
    return WeightUpdate(
        version=version,
        tensors=tensors,
        parts=parts,
        digest=digest,
        probe=probe,
        probe_logprobs=tuple(logprobs.tolist()),
        adapter=(adapter.rank, adapter.alpha) if adapter else None,
    )


def _parts(
    named: Iterable[tuple[str, torch.Tensor, torch.dtype]], keep: bool
) -> Iterator[dict[str, np.ndarray]]:
    """Copies on the host, in these dtypes, so many at a time as are PART_BYTES together."""
    part, size = {}, 0
    for name, tensor, dtype in named:
        if not keep:
            continue
        more = tensor.numel() * dtype.itemsize
        if part and size + more > PART_BYTES:
            yield part
            part, size = {}, 0
        host = tensor.to(
            dtype, copy=tensor.is_cpu
        ).cpu()  # one copy; from a GPU in as few bytes as it has there
        # numpy knows no bfloat16: its bits travel as int16
        part[name] = (host.view(torch.int16) if host.dtype == torch.bfloat16 else host).numpy()
        del host
        size += more
    if part:
        yield part
