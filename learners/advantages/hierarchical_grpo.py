"""GRPO on two levels, for trees and for proposer/solver games: siblings are compared with each other, and so are their
parents.

A global mean over all solutions would credit a solver for having been given an easy proposal.
"""

from collections.abc import Sequence
from statistics import fmean

from learners.advantages.grpo import grpo


def hierarchical_grpo(rewards_PK: Sequence[Sequence[float]]) -> list[list[float] | None]:
    """Returns each child's advantage among its K siblings plus that of their parent (by its mean reward) among P
    parents.

    Each level is standardised by itself (grpo); a level with zero variance adds nothing. The children of a parent get
    None if both levels have zero variance.
    """
    between_P = grpo([fmean(rewards) for rewards in rewards_PK])
    advantages: list[list[float] | None] = []
    for parent, rewards in enumerate(rewards_PK):
        within = grpo(rewards)
        if within is None and between_P is None:
            advantages.append(None)
            continue
        of_parent = between_P[parent] if between_P else 0.0
        advantages.append([child + of_parent for child in within or [0.0] * len(rewards)])
    return advantages
