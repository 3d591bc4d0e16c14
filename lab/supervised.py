"""Supervised training on demonstrations."""

from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy
from transformers import Qwen2ForCausalLM

from lab.lessons import Demonstration


def train_supervised(
    model: Qwen2ForCausalLM,
    draw: Callable[[], Demonstration],
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    warmup_steps: int = 20,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> float:
    """AdamW with linear warm-up and linear decay to a tenth; returns the mean loss of the last 50 steps, nats
    per learned token. `draw` gives the next demonstration; it decides the order and so the result."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    losses: list[float] = []
    for step in range(steps):
        rate = learning_rate * min(1.0, (step + 1) / warmup_steps) * (1 - 0.9 * step / steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens, learned = _pad([draw() for _ in range(batch_size)], model.device)
        hidden = model.base_model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
        targets = learned[:, 1:]
        logits = model.lm_head(hidden[targets]).float()
        loss = cross_entropy(logits, tokens[:, 1:][targets])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        on_step(step + 1, losses[-1])
    return sum(losses[-50:]) / len(losses[-50:])


def _pad(batch: list[Demonstration], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    length = max(len(d.tokens) for d in batch)
    tokens = torch.zeros(len(batch), length, dtype=torch.long)
    learned = torch.zeros(len(batch), length, dtype=torch.bool)
    for row, demonstration in enumerate(batch):
        tokens[row, : len(demonstration.tokens)] = torch.tensor(demonstration.tokens)
        learned[row, : len(demonstration.learned)] = torch.tensor(demonstration.learned)
    return tokens.to(device), learned.to(device)
