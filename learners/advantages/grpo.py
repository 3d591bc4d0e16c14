"""Group-relative advantages (Shao et al. 2024, arXiv:2402.03300, section 4.1.2)."""

from collections.abc import Sequence
from statistics import fmean, stdev

_EPSILON = 1e-4


def has_signal(rewards_G: Sequence[float]) -> bool:
    """Returns whether the rewards differ at all; otherwise there is nothing to prefer."""
    return len(rewards_G) >= 2 and max(rewards_G) - min(rewards_G) >= 1e-9


def grpo(rewards_G: Sequence[float]) -> list[float] | None:
    """Returns (R - mean) / (std + eps) over one group, std with Bessel's correction.

    Returns None for a zero-variance group (fewer than two samples, or all rewards equal), which is left out of the
    batch and counted.
    """
    if not has_signal(rewards_G):
        return None
    mean, std = fmean(rewards_G), stdev(rewards_G)
    return [(r - mean) / (std + _EPSILON) for r in rewards_G]
