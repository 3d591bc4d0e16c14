"""Causal attention over sequences that are concatenated in one row, without padding. No token attends to another
sequence, but sequences with the same beginning share its keys and values (learners/packing.py).

A block-diagonal mask would cost the square of the row's length. If flash attention supports the input, a layer makes
one call, however many sequences there are. Otherwise each sequence attends by itself, on any device that has scaled
dot-product attention.
"""

import inspect
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from learners.packing import places, spread

PACKED = "sparring_packed"
"""Name of the attention implementation, for `from_pretrained`."""
SHARED_KEYS = "enable_gqa" in inspect.signature(varlen_attn).parameters
"""Whether varlen_attn of the installed torch supports fewer key heads than query heads, as it does from 2.12."""


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
    prefixes: Sequence[int] | None = None,
    **ignored: Any,
) -> tuple[torch.Tensor, None]:
    """Computes the attention of one layer; transformers calls it. Returns (output [1, N, Q, H], None), since there are
    no attention weights. Q query heads, K key heads.

    Args:
        softcap: Bound within which tanh holds the scores (Gemma 2). SDPA does not support it, so [Q, N, N] scores are
            computed.
        lengths: Lengths of the row's sequences; None: the row is one sequence.
        prefixes: For each sequence, the number of its first tokens that another one has computed (PackedRow.prefixes); None:
            none. N is the number of all other tokens.
    """
    lengths = lengths or [query_1QNH.shape[2]]
    prefixes = prefixes or [0] * len(lengths)
    own = [length - prefix for length, prefix in zip(lengths, prefixes, strict=True)]
    if any(prefixes):
        _, place_N = places(tuple(lengths), tuple(prefixes), query_1QNH.device)
        key_1KNH, value_1KNH = (spread(tensor, place_N, dim=2) for tensor in (key_1KNH, value_1KNH))
    if softcap is None and (dtype := flash_dtype(query_1QNH)) is not None:
        query, key, value = (t[0].transpose(0, 1).to(dtype) for t in (query_1QNH, key_1KNH, value_1KNH))
        return _in_one_call(query, key, value, own, lengths, scaling, sliding_window)[None], None
    if softcap is not None or query_1QNH.is_cuda:
        # on a GPU, SDPA with fewer key heads has no kernel but the one that keeps all scores in memory
        key_1KNH, value_1KNH = _for_each_query_head(query_1QNH, key_1KNH, value_1KNH)
    parts = zip(
        query_1QNH.split(own, dim=2),
        key_1KNH.split(lengths, dim=2),
        value_1KNH.split(lengths, dim=2),
        strict=True,
    )
    outputs = [
        _capped(
            query, key, value, _seen(count, length, sliding_window or length, query.device), scaling, softcap
        )
        if softcap is not None
        else scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=_mask(count, length, sliding_window, query.device),
            is_causal=count == length and (sliding_window is None or length <= sliding_window),
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        for count, length, (query, key, value) in zip(own, lengths, parts, strict=True)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def flash_dtype(query_1QNH: torch.Tensor) -> torch.dtype | None:
    """Returns the dtype that flash attention would compute in, or None if it does not support the input. It requires 16
    bits, a GPU of compute capability 8 or higher, and a head size that is a multiple of 8 and at most 256."""
    if not (
        SHARED_KEYS and query_1QNH.is_cuda and torch.cuda.get_device_capability(query_1QNH.device) >= (8, 0)
    ):
        return None
    autocast = torch.is_autocast_enabled("cuda")  # autocast casts SDPA's inputs, but not these
    dtype = torch.get_autocast_dtype("cuda") if autocast else query_1QNH.dtype
    fits = dtype in (torch.bfloat16, torch.float16) and query_1QNH.shape[3] % 8 == 0
    return dtype if fits and query_1QNH.shape[3] <= 256 else None


def _in_one_call(
    query_NQH: torch.Tensor,
    key_NKH: torch.Tensor,
    value_NKH: torch.Tensor,
    own: Sequence[int],
    lengths: Sequence[int],
    scaling: float | None,
    window: int | None,
) -> torch.Tensor:
    """Returns the output [N, Q, H]. A token attends to itself and to the `window - 1` tokens before it. The queries of a
    sequence are those of its last tokens."""
    longest = max(lengths)
    return varlen_attn(
        query_NQH,
        key_NKH,
        value_NKH,
        _starts(tuple(own), query_NQH.device),
        _starts(tuple(lengths), query_NQH.device),
        max(own),
        longest,
        scale=scaling,
        window_size=(-1 if window is None or longest <= window else window - 1, 0),
        enable_gqa=query_NQH.shape[1] != key_NKH.shape[1],
    )  # pyright: ignore[reportReturnType]


@lru_cache(maxsize=4)
def _starts(lengths: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Returns the offset at which each sequence begins, and the end of the last one. Cached, because all layers need
    the same offsets and each would wait for a copy."""
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


def _for_each_query_head(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns keys and values [1, Q, N, H], repeated so that each query head has its own."""
    group = query.shape[1] // key.shape[1]
    return key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)


def _capped(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    seen_NN: torch.Tensor,
    scaling: float | None,
    softcap: float,
) -> torch.Tensor:
    scores = (query @ key.transpose(2, 3)).float() * (scaling or query.shape[-1] ** -0.5)
    scores = (softcap * (scores / softcap).tanh()).masked_fill(~seen_NN, -torch.inf)
    return scores.softmax(-1).to(value.dtype) @ value


def _mask(count: int, length: int, window: int | None, device: torch.device) -> torch.Tensor | None:
    """Returns the mask of a sequence's last `count` tokens; None if it is the plain causal one."""
    if count == length and (window is None or length <= window):
        return None
    return _seen(count, length, window or length, device)


def _seen(count: int, length: int, window: int, device: torch.device) -> torch.Tensor:
    """Returns which of `length` tokens each of the last `count` ones attends to."""
    places = torch.arange(length, device=device)
    distance = places[length - count :, None] - places[None, :]
    return (distance >= 0) & (distance < window)


AttentionInterface.register(PACKED, packed_attention)
