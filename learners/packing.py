"""Packs samples into rows of tokens without padding, in micro-batches of bounded size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sparring.core.batch import Sample


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Concatenated sequences, N tokens in all."""

    tokens_N: torch.Tensor
    positions_N: torch.Tensor
    """Position of each token in its own sequence."""
    lengths: list[int]


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
    )


def _joined(
    sequences: Sequence[Sequence[float]], dtype: torch.dtype, device: torch.device | str
) -> torch.Tensor:
    """Concatenates sequences. numpy does it without a loop over the numbers if they are arrays."""
    return torch.from_numpy(np.concatenate([np.asarray(s) for s in sequences])).to(device, dtype)


def plan(samples: Sequence[Sample], indices: Sequence[int], token_budget: int) -> list[list[int]]:
    """Splits the indices, in order, before each sample that would exceed the budget. A chunk has at least one sample."""
    chunks: list[list[int]] = []
    room = 0
    for index in indices:
        length = len(samples[index].tokens)
        if not chunks or length > room:
            chunks.append([])
            room = token_budget
        chunks[-1].append(index)
        room -= length
    return chunks


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
