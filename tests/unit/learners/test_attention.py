"""What flash attention is given, where there is a GPU: here something slow takes its place."""

from itertools import pairwise

import pytest
import torch

from learners import attention
from learners.models import score_tokens
from learners.packing import row_of, spread
from tests.learning import tiny_model

ROWS = [[5, 9, 4, 7, 11, 3, 8], [6, 2], [1], [7, 7, 1, 9]]


class Reference:
    """varlen_attn by its documentation, in fp32."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[int], tuple[int, int]]] = []

    def __call__(
        self, query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size, enable_gqa
    ) -> torch.Tensor:
        assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
        assert (len(query), len(key), len(value)) == (cu_seq_q[-1], cu_seq_k[-1], cu_seq_k[-1])
        assert (max_q, max_k) == (cu_seq_q.diff().max(), cu_seq_k.diff().max()) and window_size[1] == 0
        assert enable_gqa == (query.shape[1] != key.shape[1])
        self.calls.append((cu_seq_q.tolist(), window_size))
        out = torch.empty_like(query)
        for queries, keys in zip(pairwise(cu_seq_q.tolist()), pairwise(cu_seq_k.tolist()), strict=True):
            q, k, v = (t[slice(*at)].float() for t, at in ((query, queries), (key, keys), (value, keys)))
            k, v = (t.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for t in (k, v))
            scores = torch.einsum("ihd,jhd->hij", q, k) * (scale or query.shape[2] ** -0.5)
            back = torch.arange(len(k) - len(q), len(k))[:, None] - torch.arange(len(k))[None, :]
            seen = (back >= 0) & ((window_size[0] < 0) | (back <= window_size[0]))
            out[slice(*queries)] = torch.einsum(
                "hij,jhd->ihd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v
            )
        return out


@pytest.fixture
def flash(monkeypatch: pytest.MonkeyPatch) -> Reference:
    reference = Reference()
    monkeypatch.setattr(attention, "varlen_attn", reference)
    monkeypatch.setattr(attention, "flash_dtype", lambda query: query.dtype)
    return reference


@pytest.mark.parametrize(("window", "left"), [(None, -1), (3, 2), (7, -1), (50, -1)])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_one_call_gives_what_each_sequence_by_itself_gives(
    flash: Reference, window: int | None, left: int, scaling: float | None
) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = [len(row) for row in ROWS]

    def heads(count: int) -> torch.Tensor:
        return torch.randn(1, count, sum(lengths), 8, generator=generator)

    inputs = heads(4), heads(2), heads(2)

    def attended() -> torch.Tensor:
        out, _ = attention.packed_attention(
            torch.nn.Identity(), *inputs, None, scaling, window, lengths=lengths
        )
        return out

    at_once = attended()
    assert flash.calls == [([0, 7, 9, 10, 14], (left, 0))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "flash_dtype", lambda query: None)
        apart = attended()
    assert at_once.shape == apart.shape == (1, 14, 4, 8)
    assert torch.allclose(at_once, apart, atol=1e-5)


@pytest.mark.parametrize("rows", [ROWS, [[*range(1, 21), 3], [*range(1, 21), 5, 6], [*range(1, 20), 9]]])
def test_a_layer_is_one_call_however_many_sequences_there_are(
    flash: Reference, rows: list[list[int]]
) -> None:
    model = tiny_model()
    model.set_attn_implementation(attention.PACKED)
    row = row_of(rows)
    ours = score_tokens(model, row, row.positions_N > 0, 1.0).logprobs_P
    assert len(flash.calls) == model.config.num_hidden_layers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "flash_dtype", lambda query: None)
        theirs = score_tokens(model, row, row.positions_N > 0, 1.0).logprobs_P
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_on_a_cpu_there_is_no_flash_attention() -> None:
    assert attention.flash_dtype(torch.zeros(1, 2, 4, 8, dtype=torch.bfloat16)) is None


def test_where_scores_are_capped_flash_attention_is_not_asked(flash: Reference) -> None:
    heads = torch.ones(1, 2, 4, 8)
    attention.packed_attention(torch.nn.Identity(), heads, heads, heads, None, softcap=3.0)
    assert not flash.calls


@pytest.mark.parametrize("dim", [0, 2])
def test_gradients_of_shared_tokens_are_the_same_to_the_bit_each_time(dim: int) -> None:
    """A run that was killed and goes on is the run that was not. Indexing adds them in any order, by several threads."""
    generator = torch.Generator().manual_seed(0)
    shape = (400, 64) if dim == 0 else (1, 2, 400, 64)
    tensor = torch.randn(shape, generator=generator, requires_grad=True)
    place_N = torch.randint(0, 400, (6000,), generator=generator)
    given = torch.randn(spread(tensor, place_N, dim).shape, generator=generator)
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        found = [torch.autograd.grad(spread(tensor, place_N, dim), tensor, given)[0] for _ in range(20)]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, found[0]) for one in found)
