"""Scores are those of transformers' own forward pass, whatever an architecture does to its logits; else it is refused."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from learners import models
from learners.attention import PACKED
from learners.models import check_packing, limit_logits, score_tokens
from learners.packing import LEAST_SHARED, row_of
from tests.learning import VOCABULARY

SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
KNOWN: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "granite": {"logits_scaling": 8.0, "attention_multiplier": 0.3, "residual_multiplier": 0.5},
    "cohere": {"logit_scale": 0.0625},
    "cohere2": {"logit_scale": 0.25, "sliding_window": 4},
    "gemma2": {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 0.5, "sliding_window": 4},
    "gemma3_text": {"final_logit_softcapping": 3.0, "sliding_window": 4},
    "nanochat": {"final_logit_softcapping": 3.0},
}
UNKNOWN = {
    "hyperclovax": (
        {"logits_scaling": 8.0},
        "it makes logits otherwise",
    ),  # it multiplies by what Granite divides by
    "gpt_oss": ({"num_local_experts": 2, "num_experts_per_tok": 1}, "its attention does more"),  # sinks
}
ROWS = [[5, 9, 4, 7, 11, 3, 8], [6, 2], [7, 7, 1, 9]]
BEGINNING = [3 + n % 9 for n in range(LEAST_SHARED + 4)]
SHARING = [
    [*BEGINNING, 5, 2],
    [*BEGINNING, 9],
    [*BEGINNING[:-3], 4, 4, 4, 4],
    BEGINNING,
    [7, 1],
    [*BEGINNING, 5, 2],
]
"""All but the fifth and the sixth, which follows it, share a beginning with the first."""


def tiny(kind: str, **changes: Any) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = AutoConfig.for_model(kind, **SHAPE | changes)
        return AutoModelForCausalLM.from_config(config, attn_implementation=PACKED)


@pytest.mark.parametrize("rows", [ROWS, SHARING], ids=["apart", "sharing"])
@pytest.mark.parametrize("kind", KNOWN)
def test_scores_are_those_of_the_models_own_forward_pass(kind: str, rows: list[list[int]]) -> None:
    model = tiny(kind, **KNOWN[kind])
    check_packing(model)
    row = row_of(rows)
    assert any(row.prefixes) == (rows is SHARING)
    ours = score_tokens(model, row, row.positions_N > 0, temperature=0.7).logprobs_P
    (gradient,) = torch.autograd.grad(ours.sum(), model.get_input_embeddings().weight)
    model.set_attn_implementation("eager")
    theirs = []
    for tokens in rows:
        logprobs = (model(torch.tensor([tokens])).logits[0, :-1] / 0.7).log_softmax(-1)
        theirs.append(logprobs.gather(1, torch.tensor(tokens)[1:, None])[:, 0])
    expected = torch.cat(theirs)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), model.get_input_embeddings().weight)
    assert torch.allclose(ours, expected, atol=1e-4)
    assert torch.allclose(gradient, expected_gradient, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", KNOWN)
def test_a_model_in_16_bits_is_known(kind: str) -> None:
    check_packing(tiny(kind, **KNOWN[kind]).bfloat16())


def test_eager_attention_that_rounds_large_scores_is_no_reason_to_refuse() -> None:
    """The biases of Qwen2.5-0.5B's keys are so large that in 16 bits its eager attention returns something else than SDPA
    does."""
    model = tiny("qwen2", num_hidden_layers=6).bfloat16()
    for name, parameter in model.named_parameters():
        if name.endswith("k_proj.bias"):
            parameter.data[SHAPE["head_dim"] // 2 - 1 :: SHAPE["head_dim"] // 2] = 800  # hardly rotated
    check_packing(model)
    found = {}
    for own in ("eager", "sdpa"):
        model.set_attn_implementation(own)
        found[own] = model.base_model(
            torch.arange(VOCABULARY // 2, VOCABULARY // 2 + 3)[None]
        ).last_hidden_state
    assert (found["eager"] - found["sdpa"]).norm() > 0.3 * found["sdpa"].norm()


def test_a_models_own_limit_of_logits_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2**18 numbers a MiB: here three tokens' worth."""
    model, row = tiny("qwen2"), row_of(ROWS)
    expected = score_tokens(model, row, row.positions_N > 0, 1.0).logprobs_P
    limit_logits(model, 1)
    assert vars(model)["logits_at_once"] == 1 << 18
    monkeypatch.setattr(model, "logits_at_once", 3 * VOCABULARY)
    parts: list[int] = []
    made = models.logits_of
    monkeypatch.setattr(models, "logits_of", lambda m, hidden: parts.append(len(hidden)) or made(m, hidden))
    found = score_tokens(model, row, row.positions_N > 0, 1.0).logprobs_P
    assert parts == [3, 3, 3, 1] and torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_model_that_does_anything_else_is_refused_by_name(kind: str, dtype: torch.dtype) -> None:
    changes, message = UNKNOWN[kind]
    with pytest.raises(
        ValueError, match=rf"ForCausalLM: {message} than learners/\w+.py knows: use another model"
    ):
        check_packing(tiny(kind, **changes).to(dtype))
