"""More than the mean: bounds on quantiles of the cost, and on its whole distribution function.

Costs C₁, …, C_N in [0, 1] are i.i.d., of a policy fixed in advance, with distribution function F;
F̂ is the share of them that is at most c. For a policy chosen among several by the same costs, δ is
to be that policy's share: π(h)δ, with weights π fixed in advance, Σπ ≤ 1.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pacbayes_control.bounds.kl import Floats, in_unit_interval
from pacbayes_control.bounds.theorems import check_delta

EXACT_UP_TO = 10_000  # costs, of the exact distribution, whose computation takes as many steps


def quantile_bound(costs: ArrayLike, share: float, delta: float) -> float:
    """An upper bound on the cost that is exceeded in at most 1 - share of new environments.

    The k-th smallest cost C₍ₖ₎ is below the quantile only if at least k costs are, each with a
    probability of at most `share`: so P(C > C₍ₖ₎) ≤ 1 - share, except with probability
    P(Bin(N, share) ≥ k) ≤ δ for the smallest such k; it is 1 if there is none.

    >>> round(quantile_bound(np.arange(200) / 200, 0.9, 0.01), 3)
    0.945
    """
    ordered = np.sort(in_unit_interval(costs, "a cost").ravel())
    check_share(share)
    check_delta(delta)
    n = len(ordered)
    k = np.arange(1, n + 1)
    allowed = np.flatnonzero(scipy.special.betainc(k, n - k + 1.0, share) <= delta * (1 - 1e-9))
    return float(ordered[allowed[0]]) if len(allowed) else 1.0


@lru_cache(maxsize=64)
def distribution_margin(n: int, delta: float) -> float:
    """ε such that F(c) ≥ F̂(c) - ε for all c at once, with probability at least 1 - δ.

    It inverts the exact distribution of sup(F̂ - F), which is largest for continuous F; beyond
    10,000 costs, Massart's bound on it, e^{-2Nε²}, which is then within a thousandth.

    >>> round(distribution_margin(1000, 0.01), 4)
    0.0478
    """
    check_delta(delta)
    if n > EXACT_UP_TO and delta <= 0.5:
        return min(math.sqrt(-math.log(delta) / (2 * n)) * (1 + 1e-5), 1.0)
    margin, step = float(scipy.special.smirnovi(n, delta)), 1e-9
    while scipy.special.smirnov(n, margin) > delta * (1 - 1e-5) and margin < 1:
        margin, step = min(margin + step, 1.0), 2 * step
    return margin


def certified_distribution(costs: ArrayLike, margin: float) -> tuple[Floats, Floats]:
    """The distinct costs, and the certified share of new environments that cost at most as much."""
    values, counts = np.unique(in_unit_interval(costs, "a cost"), return_counts=True)
    return values, np.maximum(np.cumsum(counts) / counts.sum() - margin, 0.0)


def check_share(share: float) -> None:
    """An error unless a share of environments lies strictly between 0 and 1."""
    if not 0 < share < 1:
        raise ValueError(
            f"a share of {share:g} of the environments must lie strictly between 0 and 1"
        )
