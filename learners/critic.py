"""The critic of PPO, which estimates state values: a head on the policy's trunk, or a second model."""

from pathlib import Path

import torch
from torch import nn

from learners.models import ValueHead, hidden_states, load_model
from learners.packing import PackedRow
from learners.settings import LearnerSettings


class Critic(nn.Module):
    """Computes the values of the picked tokens, in fp32.

    A head on the policy's trunk reads the policy's hidden states, and no value gradient flows back into them. A critic
    with a second model starts from a copy of the policy's model and trains the whole copy.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        hidden_size: int,
        model_path: str | Path,
        device: torch.device,
        seed: int,
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.head = ValueHead(hidden_size).to(device)
        self.trunk = load_model(model_path, device) if settings.gae.critic == "model" else None
        if self.trunk is not None:
            self.trunk.train()
            if settings.gradient_checkpointing:
                self.trunk.gradient_checkpointing_enable()

    def forward(self, row: PackedRow, pick_N: torch.Tensor, policys_hidden_SH: torch.Tensor) -> torch.Tensor:
        if self.trunk is None:
            return self.head(policys_hidden_SH.detach())
        return self.head(hidden_states(self.trunk, row)[pick_N.nonzero()[:, 0] - 1])

    def optimizer(self, settings: LearnerSettings, learning_rate: float) -> torch.optim.Optimizer:
        """Returns an optimizer in which the trunk has the policy's learning rate, and the head, which starts untrained,
        its own."""
        groups = [{"params": list(self.head.parameters()), "lr": settings.gae.value_learning_rate}]
        if self.trunk is not None:
            used = [p for n, p in self.trunk.named_parameters() if not n.startswith("lm_head")]
            groups.append({"params": used, "lr": learning_rate})
        return torch.optim.AdamW(groups, weight_decay=0.0, fused=next(self.parameters()).is_cuda or None)
