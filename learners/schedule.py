"""Learning rate schedules: a linear rise, then a constant rate or a decay. Imports no torch, because the config schema
contains them."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sparring.core.settings import Settings, default_kind


class _WarmupSchedule(Settings):
    warmup_updates: int = Field(default=5, ge=0)
    """Number of optimizer steps over which the learning rate rises linearly."""

    def factor(self, update: int) -> float:
        """Returns the factor on the learning rate at an update, counted from 0."""
        return min(1.0, (update + 1) / max(1, self.warmup_updates))


class DecaySchedule(_WarmupSchedule):
    kind: Literal["linear", "cosine"]
    decay_updates: int = Field(ge=1)
    """Optimizer step at which the decay of linear and cosine ends."""
    floor: float = Field(default=0.1, ge=0, le=1)
    """Learning rate at the end of the decay, as a share of the learning rate."""

    @model_validator(mode="after")
    def _it_falls_after_it_rose(self) -> Self:
        if self.decay_updates <= self.warmup_updates:
            raise ValueError("decay_updates must lie beyond warmup_updates")
        return self

    def factor(self, update: int) -> float:
        """Returns the factor on the learning rate. After the rise it decays to `floor` (as half a cosine: Loshchilov &
        Hutter 2017, arXiv:1608.03983, eq. 5, without restarts; or linearly) and stays there."""
        if update < self.warmup_updates:
            return super().factor(update)
        done = min(1.0, (update - self.warmup_updates) / (self.decay_updates - self.warmup_updates))
        left = 1 - done if self.kind == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.floor + (1 - self.floor) * left


class Constant(_WarmupSchedule):
    kind: Literal["constant"] = "constant"
    """Shape of the learning rate after the warm-up."""


RateSchedule = Annotated[DecaySchedule | Constant, Field(discriminator="kind"), default_kind("constant")]
