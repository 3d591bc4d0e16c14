"""The tiny model that the project builds for itself: a code-aware byte-level BPE and a Qwen2 of 0.4M parameters.

It is small so that two of them learn on two CPU cores in minutes. Larger ones learn less in the same time.
"""

import json
from collections.abc import Iterable, Sequence

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

VOCABULARY_SIZE = 640
_CONTEXT = 512


def build_tokenizer(texts: Iterable[str], markers: Sequence[str], pad: str, end: str) -> Qwen2Tokenizer:
    """Byte-level BPE trained on `texts`; every marker is one special token, ids in the order given.

    It splits text as Qwen2's own tokenizer does: transformers loads the tokenizer of any Qwen2 model as that
    class, whatever its files say, and another split would come back as other tokens than were trained on.
    """
    pipeline = Qwen2Tokenizer().backend_tokenizer
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.normalizer = pipeline.normalizer
    tokenizer.pre_tokenizer = pipeline.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(markers),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(merge) for merge in model["merges"]],  # pyright: ignore[reportArgumentType]
        unk_token=end,  # byte-level: nothing is unknown, but the class wants one
        pad_token=pad,
        eos_token=end,
        extra_special_tokens=[m for m in markers if m not in (pad, end)],
        model_max_length=_CONTEXT,
    )


def build_model(tokenizer: Qwen2Tokenizer, seed: int) -> Qwen2ForCausalLM:
    """A freshly initialised model for this tokenizer, fp32."""
    pad, end = (int(tokenizer.get_vocab()[t]) for t in (str(tokenizer.pad_token), str(tokenizer.eos_token)))
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
        pad_token_id=pad,
        eos_token_id=end,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)
