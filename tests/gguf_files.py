"""Writes GGUF files of tiny models, which the tests convert."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFWriter, TokenType
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.modeling_gguf_pytorch_utils import TensorProcessor, get_gguf_hf_weights_map

from lab.model import build_tokenizer

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny(tied: bool = True) -> tuple[Qwen2ForCausalLM, Any]:
    """Returns (random chat model with 64 hidden units and 2 layers, its tokenizer)."""
    tokenizer = build_tokenizer(["def add(a, b):\n    return a + b"], [PAD, START, END], PAD, END)
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=128,
        max_position_embeddings=4096,
        tie_word_embeddings=tied,
    )
    return Qwen2ForCausalLM(config).bfloat16(), tokenizer


def write_gguf(
    file: Path,
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    architecture: str = "qwen2",
    head: torch.Tensor | None = None,
    without: str = "",
) -> Path:
    """Writes the model as a GGUF file.

    Args:
        head: output weights, written in addition to the embedding.
        without: GGUF name of a tensor that is left out.
    """
    config, writer = model.config, GGUFWriter(str(file), architecture)
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _add_tokenizer(writer, tokenizer)
    names: Mapping[str, str] = get_gguf_hf_weights_map(model, TensorProcessor())
    tensors = {name: model.state_dict()[ours] for name, ours in names.items() if name != "output.weight"}
    if head is not None:
        tensors["output.weight"] = head
    for name, tensor in tensors.items():
        if name != without:
            writer.add_tensor(name, tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add_tokenizer(writer: GGUFWriter, tokenizer: PreTrainedTokenizerFast) -> None:
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    special = set(tokenizer.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([TokenType.CONTROL if t in special else TokenType.NORMAL for t in vocabulary])
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_eos_token_id(vocabulary.index(END))
    writer.add_pad_token_id(vocabulary.index(PAD))
    writer.add_chat_template(str(tokenizer.chat_template))
