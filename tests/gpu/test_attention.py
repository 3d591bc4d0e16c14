"""Flash attention on a packed row, one call a layer, against each sequence by itself in fp32."""

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from learners import attention
from learners.models import load_model, score_tokens
from learners.packing import row_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available()
        or torch.cuda.get_device_capability() < (8, 0)
        or not attention.SHARED_KEYS,
        reason="it needs a GPU from compute capability 8, and torch from 2.12",
    ),
]
LENGTHS = [70, 1, 33, 128, 5]
APART, SHARING = [0, 0, 0, 0, 0], [0, 0, 0, 20, 3]
"""The fourth and the fifth sequence begin with the first tokens of the third."""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("window", [None, 16])
@pytest.mark.parametrize("scaling", [None, 0.3])
@pytest.mark.parametrize("prefixes", [APART, SHARING], ids=["apart", "sharing"])
def test_flash_attention_is_attention(
    dtype: torch.dtype,
    window: int | None,
    scaling: float | None,
    prefixes: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator("cuda").manual_seed(0)

    def heads(count: int) -> torch.Tensor:
        shape = 1, count, sum(LENGTHS) - sum(prefixes), 64
        return torch.randn(shape, generator=generator, device="cuda", requires_grad=True)

    inputs = (heads(6), heads(2), heads(2))

    def attended(of: torch.dtype) -> tuple[torch.Tensor, ...]:
        taken = [t.to(of) for t in inputs]
        out, _ = attention.packed_attention(
            torch.nn.Identity(), *taken, None, scaling, window, lengths=LENGTHS, prefixes=prefixes
        )
        weights = torch.linspace(-1, 1, out.numel(), device="cuda").view_as(out)
        return out.float(), *torch.autograd.grad((out * weights).sum(), inputs)

    with profile(activities=[ProfilerActivity.CPU]) as seen:
        flash = attended(dtype)
    calls = {event.key: event.count for event in seen.key_averages()}
    assert calls["torch_attn::_varlen_attn"] == 1
    monkeypatch.setattr(attention, "flash_dtype", lambda query: None)
    for one, other in zip(flash, attended(torch.float32), strict=True):
        assert (one - other).norm() < 0.02 * other.norm()


def test_a_layer_is_one_call_however_many_sequences_there_are(model_path: Path) -> None:
    model = load_model(model_path, "cuda")
    for count in (1, 40):
        row = row_of([[1, 2, 3, 4]] * count, "cuda")
        with torch.autocast("cuda", torch.bfloat16), profile(activities=[ProfilerActivity.CPU]) as seen:
            score_tokens(model, row, row.positions_N > 0, 1.0)
        calls = {event.key: event.count for event in seen.key_averages()}
        assert calls["torch_attn::_varlen_attn"] == model.config.num_hidden_layers
        assert "aten::scaled_dot_product_attention" not in calls
