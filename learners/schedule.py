"""Learning rates over a run."""

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def learning_rate_factor(
    update: int, *, warmup: int, schedule: Schedule, decay_updates: int | None, floor: float
) -> float:
    """What the learning rate is multiplied by at an update, counted from 0.

    Rises linearly over `warmup` updates to 1, then falls to `floor` at update `decay_updates` (linear or a half
    cosine: Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5, without restarts) and stays there.
    """
    if update < warmup:
        return (update + 1) / warmup
    if schedule == "constant" or decay_updates is None:
        return 1.0
    done = min(1.0, (update - warmup) / max(1, decay_updates - warmup))
    left = 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return floor + (1 - floor) * left
