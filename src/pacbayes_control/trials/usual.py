"""The interval that people usually print beside a success rate."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

NORMAL = 1.959963984540054  # quantile of the normal distribution for 95 %


def usual_interval(costs: ArrayLike, *, graded: bool = False) -> tuple[float, float]:
    """A 95 % interval for a mean cost: Wilson's for 0/1 costs, or the mean ± 1.96 s/√n.

    It holds about as often as it says for one policy that was fixed in advance. For the best of
    several it does not: it is shown for comparison, and proves nothing.

    >>> tuple(round(limit, 3) for limit in usual_interval([0] * 41 + [1] * 9))
    (0.098, 0.308)
    """
    values = np.asarray(costs, float)
    n, mean = len(values), float(np.mean(values))
    if graded:
        half = NORMAL * float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else 1.0
        return max(mean - half, 0.0), min(mean + half, 1.0)
    z = NORMAL**2 / n
    half = NORMAL * math.sqrt(mean * (1 - mean) / n + z / (4 * n))
    low, high = (mean + z / 2 - half) / (1 + z), (mean + z / 2 + half) / (1 + z)
    return max(low, 0.0), min(high, 1.0)
