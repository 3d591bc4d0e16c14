"""Credit for one stage of a chain by branching at that stage (VinePPO: Kazemnejad et al. 2024, arXiv:2410.01679,
section 4; SPO: Guo et al. 2025, arXiv:2505.23564)."""

from collections.abc import Sequence
from statistics import fmean


def branch_values(rewards_KM: Sequence[Sequence[float]]) -> list[float]:
    """Returns V(after the stage) of each of K branches, estimated by M continuations to the end. Their mean averages
    out what the later stages add."""
    return [fmean(rewards) for rewards in rewards_KM]
