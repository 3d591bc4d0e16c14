"""The tiny model that the project builds for itself: a code-aware byte-level BPE and a Qwen2 of 0.4M parameters.

It is small so that two of them learn on two CPU cores in minutes. Larger ones learn less in the same time.
"""

from collections.abc import Iterable, Sequence

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

VOCABULARY_SIZE = 640
_CONTEXT = 512
# newline with its indent, single digits, words, runs of punctuation: the units of short Python programs
_SPLIT = r"\n *| ?\d| ?[A-Za-z_]+| ?[^\sA-Za-z0-9_]+| +"


def build_tokenizer(texts: Iterable[str], markers: Sequence[str], pad: str, end: str) -> PreTrainedTokenizerFast:
    """Byte-level BPE trained on `texts`; every marker is one special token, ids in the order given."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_SPLIT), "isolated"), byte_level]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(markers),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        eos_token=end,
        additional_special_tokens=[m for m in markers if m not in (pad, end)],
        model_max_length=_CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen2ForCausalLM:
    """A freshly initialised model for this tokenizer, fp32."""
    config = Qwen2Config(
        vocab_size=(len(tokenizer) + 15) // 16 * 16,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        intermediate_size=288,
        max_position_embeddings=_CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.05,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)
