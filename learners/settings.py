"""What a learner can be told. Imports no torch: the config schema nests it."""

from typing import Literal

from pydantic import Field

from core.settings import Settings


class LearnerSettings(Settings):
    estimator: Literal["gae", "grpo"] = "gae"
    """gae: PPO with a value head; grpo: critic-free, rewards standardised within each group."""
    learning_rate_scale: float = Field(default=1.0, gt=0)
    """Step size of this policy, relative to the run's learning_rate."""
    warmup_updates: int = Field(default=5, ge=0)
    """Optimizer updates over which the learning rate rises linearly."""
    epochs: int = Field(default=1, ge=1)
    """Passes over each batch."""
    minibatch_samples: int = Field(default=64, ge=1)
    """Trajectories per optimizer update."""
    microbatch_tokens: int = Field(default=16384, ge=64)
    """Padded tokens per forward pass; bounds memory."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    """The probability ratio is clipped to [1 - clip_low, 1 + clip_high]."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    lam: float = Field(default=1.0, ge=0, le=1)
    """GAE's lambda."""
    center_rewards: bool = True
    """gae: rewards are taken relative to the mean of their group before the value head sees them. A small value
    head learns across problems too slowly to be a baseline by itself."""
    value_learning_rate: float = Field(default=1e-3, gt=0)
    value_hidden: int = Field(default=128, ge=1)
    """Width of the value head, an MLP on the detached last hidden states."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Weight of KL(policy || warm start), estimated by k3, in the loss. It is logged at any value."""
    gradient_clip: float = Field(default=1.0, gt=0)
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, a third more time."""
    cpus: float = Field(default=0.5, ge=0)
    """Ray CPUs of the learner's worker (a share of the machine's bookkeeping, not a limit)."""
    gpus: float = Field(default=0.0, ge=0)
    threads: int = Field(default=2, ge=1)
    """Torch threads of the learner's worker on CPU."""
