"""Packs samples into rows of tokens without padding, in micro-batches of bounded size.

Attempts at one problem begin with the same prompt, which is most of their tokens. The hidden states of a common beginning are
the same in each, so a model computes them once for all sequences that follow one another in a row (Prefix Grouper,
arXiv:2506.05433, does this for groups of one prompt).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
import torch

from sparring.core.batch import Sample

LEAST_SHARED = 16
"""A common beginning of fewer tokens is computed again: copying its keys and values would take longer."""
COPIED = 1 / 8
"""Memory of a token whose keys and values are copied, as a share of that of a token which is computed: at most about this much
of a layer's activations."""


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Concatenated sequences, N tokens in all."""

    tokens_N: torch.Tensor
    positions_N: torch.Tensor
    """Position of each token in its own sequence."""
    lengths: list[int]
    prefixes: list[int]
    """For each sequence, the number of its first tokens that are also those of its head, the last sequence before it that has 0
    here."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The samples of one forward pass."""

    indices: list[int]
    """Positions of the samples in the batch."""
    row: PackedRow
    sampled_N: torch.Tensor
    trained_N: torch.Tensor
    logprobs_N: torch.Tensor
    """Behaviour log-probabilities; 0 if the token was not sampled."""
    sequences_N: torch.Tensor
    """For each token, the position in `indices` of its sample, 0 to B - 1."""


def row_of(sequences: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> PackedRow:
    lengths = [len(tokens) for tokens in sequences]
    return PackedRow(
        tokens_N=_joined(sequences, torch.long, device),
        positions_N=torch.cat([torch.arange(length, device=device) for length in lengths]),
        lengths=lengths,
        prefixes=_prefixes(sequences),
    )


def _prefixes(sequences: Sequence[Sequence[int]]) -> list[int]:
    prefixes, head = [], np.empty(0)
    for tokens in map(np.asarray, sequences):
        prefixes.append(_shared(head, tokens))
        if not prefixes[-1]:
            head = tokens
    return prefixes


def _shared(head: np.ndarray, tokens: np.ndarray) -> int:
    """Returns the number of first tokens that a sequence does not compute, because its head has the same."""
    most = min(len(head), len(tokens) - 1)  # each sequence computes at least one token
    apart = np.flatnonzero(head[:most] != tokens[:most])
    shared = int(apart[0]) if len(apart) else most
    return shared if shared >= LEAST_SHARED else 0


@lru_cache(maxsize=4)
def places(
    lengths: tuple[int, ...], prefixes: tuple[int, ...], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (own_U, place_N): the row's indices of the U tokens that are computed, and for each of its N tokens the place of
    its hidden state among those. Cached, because all layers need them."""
    own, place, start, head = [], np.empty(sum(lengths), dtype=np.int64), 0, 0
    for length, prefix in zip(lengths, prefixes, strict=True):
        computed = sum(map(len, own))
        if not prefix:
            head = computed
        place[start : start + prefix] = np.arange(head, head + prefix)
        place[start + prefix : start + length] = np.arange(computed, computed + length - prefix)
        own.append(np.arange(start + prefix, start + length))
        start += length
    return torch.from_numpy(np.concatenate(own)).to(device), torch.from_numpy(place).to(device)


def spread(tensor: torch.Tensor, place_N: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns the entries at these places of a dimension, by an operation whose gradient is the same to the bit each time:
    indexing adds gradients in any order on a CPU, index_select does so on a GPU."""
    if not tensor.is_cuda:
        return tensor.index_select(dim, place_N)
    return tensor[(slice(None),) * dim + (place_N,)]


def _joined(
    sequences: Sequence[Sequence[float]], dtype: torch.dtype, device: torch.device | str
) -> torch.Tensor:
    """Concatenates sequences. numpy does it without a loop over the numbers if they are arrays."""
    return torch.from_numpy(np.concatenate([np.asarray(s) for s in sequences])).to(device, dtype)


def plan(
    samples: Sequence[Sample],
    indices: Sequence[int],
    token_budget: int,
    ranks: int = 1,
    copied: float = COPIED,
) -> list[list[int]]:
    """Splits the indices, in order, into chunks that cost at most `token_budget` tokens each, or of one sample. If samples
    are sorted by their tokens, those with a common beginning are in one chunk or in neighbouring ones.

    There are as few chunks as the budget allows, rounded up to a multiple of `ranks`, and the most expensive one costs as little
    as it can, so that ranks which take chunks in turns have nearly equal work.

    A token costs 1. One of a beginning that the chunk computes already costs `copied`.
    """
    tokens = [np.asarray(samples[i].tokens) for i in indices]
    longest = min(max(map(len, tokens), default=0), token_budget)
    count = -(-len(_filled(tokens, token_budget, copied)) // ranks) * ranks
    more = bisect_left(
        range(token_budget - longest),
        True,
        key=lambda more: len(_filled(tokens, longest + more, copied)) <= count,
    )
    sizes = _filled(tokens, longest + more, copied)
    while len(sizes) < min(count, len(tokens)):  # each rank gets a share
        at = max(range(len(sizes)), key=lambda n: sizes[n])
        sizes[at : at + 1] = [sizes[at] // 2, sizes[at] - sizes[at] // 2]
    ends = list(accumulate(sizes, initial=0))
    return [list(indices[start:end]) for start, end in pairwise(ends)]


def cost_of(samples: Sequence[Sample], chunk: Sequence[int], copied: float = COPIED) -> float:
    """Returns what a chunk costs, in tokens; see `plan`."""
    cost, head = 0.0, np.empty(0)
    for tokens in (np.asarray(samples[i].tokens) for i in chunk):
        shared = _shared(head, tokens)
        cost += len(tokens) - (1 - copied) * shared
        if not shared:
            head = tokens
    return cost


def _filled(sequences: Sequence[np.ndarray], budget: int, copied: float) -> list[int]:
    """Returns the numbers of sequences of the chunks, each of which ends before the first sequence that would exceed the
    budget (see `plan`). A chunk has at least one sequence."""
    sizes: list[int] = []
    head, room = np.empty(0), 0.0
    for tokens in sequences:
        shared = _shared(head, tokens)
        cost = len(tokens) - (1 - copied) * shared
        if not sizes or cost > room:
            sizes.append(0)
            room, cost, shared = budget, len(tokens), 0
        if not shared:
            head = tokens
        sizes[-1] += 1
        room -= cost
    return sizes


def pack(samples: Sequence[Sample], indices: list[int], device: torch.device) -> MicroBatch:
    chosen = [samples[i] for i in indices]
    row = row_of([sample.tokens for sample in chosen], device)

    return MicroBatch(
        indices=indices,
        row=row,
        sampled_N=_joined([sample.sampled for sample in chosen], torch.bool, device),
        trained_N=_joined([sample.trained for sample in chosen], torch.bool, device),
        logprobs_N=_joined([sample.logprobs for sample in chosen], torch.float32, device),
        sequences_N=torch.repeat_interleave(
            torch.arange(len(chosen), device=device), torch.tensor(row.lengths, device=device)
        ),
    )
