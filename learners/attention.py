"""Causal attention over sequences that lie end to end in one row: no padding, and no token sees another's sequence.

A block-diagonal mask would cost the square of the row's length; here each sequence attends by itself, on any device
that has scaled dot-product attention.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

PACKED = "sparring_packed"
"""Name of the attention implementation, for `from_pretrained`."""


def packed_attention(
    module: torch.nn.Module,
    query_1QNH: torch.Tensor,
    key_1KNH: torch.Tensor,
    value_1KNH: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    lengths: Sequence[int] | None = None,
    **ignored: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls in each layer: (output [1, N, Q, H], no weights). Q query heads, K key heads.

    Args:
        lengths: of the row's sequences, summing to N; None: the row is one sequence.

    Raises:
        NotImplementedError: the model caps its attention logits, which SDPA does not.
    """
    if softcap is not None:
        raise NotImplementedError(f"{type(module).__name__}: attention with softcap is not supported")
    lengths = lengths or [query_1QNH.shape[2]]
    parts = zip(*(tensor.split(lengths, dim=2) for tensor in (query_1QNH, key_1KNH, value_1KNH)), strict=True)
    outputs = [
        scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=_window(length, sliding_window, query.device),
            is_causal=sliding_window is None or length <= sliding_window,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        for length, (query, key, value) in zip(lengths, parts, strict=True)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def _window(length: int, window: int | None, device: torch.device) -> torch.Tensor | None:
    """Who may see whom under a sliding window that the sequence is longer than."""
    if window is None or length <= window:
        return None
    distance = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)[None, :]
    return (distance >= 0) & (distance < window)


AttentionInterface.register(PACKED, packed_attention)
