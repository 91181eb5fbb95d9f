"""Quantiles and distribution functions, recomputed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from pacbayes_control.verify import intervals
from pacbayes_control.verify.intervals import Interval, iv

SLACK = 1e-6  # relative, far above the error of the logarithms of n! for n below 10⁹


def proves_quantile(costs: NDArray, bound: Interval, share: float, level: Interval) -> bool:
    """Whether P(C > bound) ≤ 1 - share: if k costs are at most as large, P(Bin(n, share) ≥ k)."""
    n = len(costs)
    above = n - int(np.sum(costs <= float(bound.a)))
    if bound.a >= 1:
        return True
    return above < n and bool(intervals.binomial_tail(above, n, 1 - iv.mpf(share)).b <= level.a)


def smirnov_tail(n: int, margin: float) -> float:
    """P(sup(F̂ - F) ≥ ε) by Birnbaum and Tingey's sum, increased by its possible error.

    It is Σⱼ C(n,j) ε (ε + j/n)ʲ⁻¹ (1 - ε - j/n)ⁿ⁻ʲ over j ≤ n(1-ε).
    """
    j = np.arange(math.floor(n * (1 - margin)) + 1)
    j = j[1 - margin - j / n > 0]
    choices = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1)
    terms = choices + (j - 1) * np.log(margin + j / n) + (n - j) * np.log(1 - margin - j / n)
    return float(margin * math.fsum(np.exp(terms)) * (1 + SLACK))
