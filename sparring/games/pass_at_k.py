"""pass@k: the chance that at least one of k attempts solves a problem, estimated from n >= k attempts of which c did."""

import math
import statistics
from collections.abc import Sequence


def pass_at_k(n: int, c: int, k: int) -> float:
    """Returns the unbiased estimate 1 - C(n - c, k) / C(n, k), computed as a product that neither overflows nor cancels
    (Chen et al. 2021, arXiv:2107.03374, eq. 1 and figure 3).

    Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"pass@k: {c} of {n} attempts cannot have passed")
    if not 1 <= k <= n:
        raise ValueError(f"pass@k: k is {k}, but must be from 1 to the number of attempts, {n}")
    if n - c < k:  # fewer than k attempts failed: any k of them contain a success
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """Returns the mean of `pass_at_k` over problems, each given as (n, c); n may differ between problems.

    Raises ValueError as `pass_at_k` does, and if there are no problems.
    """
    return statistics.fmean(pass_at_k(n, c, k) for n, c in counts)
