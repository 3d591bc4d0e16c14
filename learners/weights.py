"""Weights on their way from a learner to an engine, with the proof that they arrived.

Proof has two halves: a digest of the bytes, checked where they are received, and the log-probabilities of a
fixed probe under the new weights, checked against the engine's own forward pass. The second catches what a
digest can't: a layer that the engine did not rebuild, a stale cache.
"""

import hashlib

import numpy as np
import torch

from core.weights import WeightUpdate, digest_of
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
) -> WeightUpdate:
    """A copy of all parameters and persistent buffers on the host under their Hugging Face names (tied ones once).

    dtype: the engine's; parameters travel in it, as the engine would round them, and buffers as they are. None: all do.
    keep: False for workers whose copy nobody wants, but whose part of sharded tensors is needed.
    adapter: the policy's, where it is wanted alone, under PEFT's names.
    """
    model = policy.model
    tensors = {}
    if adapter and isinstance(policy, LoraTuning):
        tensors = {name: _to_numpy(tensor) for name, tensor in policy.kept().items() if keep}
    else:
        as_they_are = buffers_of(model) if dtype else {}
        for name, tensor in policy.merged():
            if keep:
                tensors[name] = _to_numpy(
                    tensor if dtype is None or name in as_they_are else tensor.to(dtype)
                )
    probe = probe_tokens(model.config.get_text_config().vocab_size)
    row = row_of([probe], model.device)
    logprobs = policy.score(row, row.positions_N > 0, 1.0).logprobs_P
    return WeightUpdate(
        version=version,
        tensors=tensors,
        digest=digest_of(tensors),
        probe=probe,
        probe_logprobs=tuple(logprobs.tolist()),
        adapter=(adapter.rank, adapter.alpha) if adapter else None,
    )


def _to_numpy(parameter: torch.Tensor) -> np.ndarray:
    host = parameter.detach().cpu().clone()
    # numpy knows no bfloat16: its bits travel as int16
    return (host.view(torch.int16) if host.dtype == torch.bfloat16 else host).numpy()
