"""Layers that are spread over ranks, in a world of one."""

import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from learners.attention import PACKED
from learners.packing import row_of
from learners.parallel import shard
from learners.tuning import Scorer, decoder_layers
from tests.learning import Live

LAYERS = 8


def model() -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=128, intermediate_size=512, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=64, tie_word_embeddings=True, attn_implementation=PACKED,
    )  # fmt: skip
    made = Qwen2ForCausalLM(config).train()
    made.gradient_checkpointing_enable()
    return made


def scored(scorer: Scorer) -> tuple[torch.Tensor, int]:
    """(log-probabilities, bytes of bfloat16 that are alive when the pass has ended)."""
    row = row_of([[1, 2, 3, 4, 5], [6, 7, 8]])
    with torch.autocast("cpu", dtype=torch.bfloat16), Live(dtype=torch.bfloat16) as half:
        logprobs, *_ = scorer(row, row.positions_N > 0, 1.0, False)
        return logprobs.detach(), half.alive()


def test_half_precision_keeps_no_copy_of_the_layers(alone: None) -> None:
    whole = 2 * sum(p.numel() for p in decoder_layers(model()).parameters())
    one = Scorer(model())
    expected, by_autocast = scored(one)
    assert by_autocast > 0.9 * whole, "what it is for"
    spread = Scorer(model())
    shard(spread, list(decoder_layers(spread.model)), half=True)
    found, kept = scored(spread)
    assert kept < 0.1 * whole
    assert torch.allclose(found, expected, atol=0.02)
