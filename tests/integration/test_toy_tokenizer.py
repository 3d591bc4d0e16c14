"""The tokenizer of the toy models."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lab.model import build_model, build_tokenizer
from lab.problems import toy_problems, toy_specs
from lab.traces import clean_trace
from sparring.core.stages import REASONING_STAGES
from sparring.games.multistage import messages
from sparring.games.prompts import END, MARKER_TOKENS, PAD, TaggedFormat


def test_a_toy_models_tokenizer_comes_back_as_it_was_trained(tmp_path: Path) -> None:
    """transformers reloads every Qwen2 model's tokenizer as one class; ours must survive that."""
    specs = toy_specs("train")[:200]
    texts = [text for spec in specs for text in clean_trace(spec)]
    tokenizer = build_tokenizer(texts, MARKER_TOKENS, PAD, END)
    tokenizer.save_pretrained(tmp_path)
    build_model(tokenizer, seed=0).save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert [again.encode(t) for t in texts] == [tokenizer.encode(t) for t in texts]
    assert all(again.decode(again.encode(t)) == t for t in texts)
    style = TaggedFormat(again)
    prompt = style.say((), messages.solve(toy_problems("train")[0], REASONING_STAGES[0]))
    assert again.decode(prompt).startswith("<p>") and again.decode(prompt).endswith("<s1>")
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model(torch.tensor([prompt])).logits.shape[-1] >= len(again)
