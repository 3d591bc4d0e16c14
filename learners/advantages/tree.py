"""Credit for one stage of a chain by branching there (VinePPO: Kazemnejad et al. 2024, arXiv:2410.01679, section 4; SPO:
Guo et al. 2025, arXiv:2505.23564)."""

from collections.abc import Sequence
from statistics import fmean

from learners.advantages.dr_grpo import dr_grpo


def branch_values(rewards_KM: Sequence[Sequence[float]]) -> list[float]:
    """V(after the stage) of each of K branches, by M continuations to the end: what the later stages add averages
    out."""
    return [fmean(rewards) for rewards in rewards_KM]


def tree(rewards_KM: Sequence[Sequence[float]]) -> list[float] | None:
    """A_k = V(after the stage, branch k) - V(before it), by Monte Carlo.

    K branches take the stage from one shared prefix, whose worth cancels. None where the branches do not differ.
    """
    return dr_grpo(branch_values(rewards_KM))
