"""pass@k (Chen et al. 2021, arXiv:2107.03374, equation 1)."""

from collections.abc import Sequence
from math import prod
from statistics import fmean


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k programs, drawn from n of which c are correct, is correct: unbiased."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(
            f"pass@{k} of {n} programs, {c} correct: needs 0 <= correct <= programs and 1 <= k <= programs"
        )
    return 1.0 if n - c < k else 1.0 - prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """counts: (programs, correct ones) of each problem."""
    return fmean(pass_at_k(n, c, k) for n, c in counts)
