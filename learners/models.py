"""The networks: a causal language model, its frozen reference, a value head."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

transformers_logging.disable_progress_bar()  # a bar per save would drown the run's own display


def load_model(path: str | Path, device: str | torch.device = "cpu") -> PreTrainedModel:
    """A causal LM from a directory or a hub id, without dropout and in fp32: steps of an RL learning rate vanish in
    bfloat16's 8 bits. Raises OSError with transformers' own message if there is none."""
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    assert isinstance(model, PreTrainedModel)
    _remove_dropout(model)
    model.to(device)  # pyright: ignore[reportArgumentType]
    return model


def _remove_dropout(model: PreTrainedModel) -> None:
    """Ratios compare two forward passes of the same tokens: noise in them would be taken for learning."""
    for name, value in model.config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            setattr(model.config, name, 0.0)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def output_head(model: PreTrainedModel) -> nn.Module:
    head = model.get_output_embeddings()
    assert head is not None, f"{type(model).__name__} is no causal language model"
    return head


class ValueHead(nn.Module):
    """An MLP on hidden states. The caller detaches them: on a small trunk a value gradient hurts the policy."""

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        last = nn.Linear(width, 1)
        nn.init.zeros_(last.weight)  # starts at 0: the first advantages are plain returns
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(nn.Linear(hidden_size, width), nn.SiLU(), last)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.layers(hidden.float())[..., 0]


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Scores of N tokens picked from a padded batch."""

    logprobs_N: torch.Tensor
    """log-softmax of logits / temperature at the token, fp32."""
    entropy_N: torch.Tensor
    hidden_NH: torch.Tensor
    """Last hidden state of the position before the token: what the value head reads."""


def score_tokens(
    model: PreTrainedModel, tokens_BT: torch.Tensor, pick_BT: torch.Tensor, temperature: float
) -> TokenScores:
    """Score the tokens at pick_BT (never position 0: the first token has no prediction).

    The vocabulary-sized logits are made for the picked positions only.
    """
    hidden = model.base_model(input_ids=tokens_BT[:, :-1], use_cache=False).last_hidden_state
    picked = pick_BT[:, 1:]
    hidden_NH = hidden[picked]
    logits = output_head(model)(hidden_NH).float() / temperature
    all_logprobs = logits.log_softmax(-1)
    logprobs = all_logprobs.gather(1, tokens_BT[:, 1:][picked][:, None])[:, 0]
    entropy = -(all_logprobs.exp() * all_logprobs).sum(-1)
    return TokenScores(logprobs, entropy, hidden_NH)
