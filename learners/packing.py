"""From samples to padded tensors, in micro-batches of bounded size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from core.batch import Sample


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """B sequences, right-padded to T tokens. With causal attention padding on the right needs no mask."""

    indices: list[int]
    """Positions of the samples in the batch."""
    tokens_BT: torch.Tensor
    sampled_BT: torch.Tensor
    trained_BT: torch.Tensor
    logprobs_BT: torch.Tensor
    """Behaviour log-probabilities, 0 where not sampled."""


def micro_batches(
    samples: Sequence[Sample], indices: Sequence[int], token_budget: int, device: torch.device
) -> Iterator[MicroBatch]:
    """Samples of similar length together, at most token_budget padded tokens each (one sample at least)."""
    chunk: list[int] = []
    for index in sorted(indices, key=lambda i: (len(samples[i].tokens), i)):
        if chunk and (len(chunk) + 1) * len(samples[index].tokens) > token_budget:
            yield _pad(samples, chunk, device)
            chunk = []
        chunk.append(index)
    if chunk:
        yield _pad(samples, chunk, device)


def _pad(samples: Sequence[Sample], indices: list[int], device: torch.device) -> MicroBatch:
    length = max(len(samples[i].tokens) for i in indices)

    def rows(name: str, dtype: torch.dtype) -> torch.Tensor:
        out = torch.zeros(len(indices), length, dtype=dtype)
        for row, i in enumerate(indices):
            values = getattr(samples[i], name)
            out[row, : len(values)] = torch.tensor(values, dtype=dtype)
        return out.to(device)

    return MicroBatch(
        indices=indices,
        tokens_BT=rows("tokens", torch.long),
        sampled_BT=rows("sampled", torch.bool),
        trained_BT=rows("trained", torch.bool),
        logprobs_BT=rows("logprobs", torch.float32),
    )
