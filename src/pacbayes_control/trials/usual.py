"""The intervals that people usually print beside a success rate: shown, and never relied on."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pacbayes_control.bounds.kl import Floats, in_unit_interval
from pacbayes_control.bounds.theorems import check_delta

CONFIDENCE = 0.95  # two-sided


def usual_interval(
    costs: ArrayLike, confidence: float = CONFIDENCE, *, graded: bool | None = None
) -> tuple[float, float]:
    """The interval for a mean cost that is usually reported, for comparison with a certified bound.

    Wilson's for 0/1 costs, else the normal one, mean ± 1.96 s/√n at 95 %, cut at 0 and 1. Neither
    is exact, and both are for one policy that was not chosen by these trials.

    >>> [round(limit, 3) for limit in usual_interval([0] * 41 + [1] * 9)]
    [0.098, 0.308]
    """
    costs = in_unit_interval(costs, "a cost")
    check_delta(confidence, "confidence")
    if costs.ndim != 1 or costs.size == 0:
        raise ValueError("an interval needs the cost of at least one trial")
    if graded is False or (graded is None and np.all((costs == 0) | (costs == 1))):
        low, high = wilson(costs.sum(), len(costs), confidence)
        return float(low), float(high)
    if len(costs) == 1:
        return 0.0, 1.0
    reach = _z(confidence) * float(costs.std(ddof=1)) / math.sqrt(len(costs))
    mean = float(costs.mean())
    return max(mean - reach, 0.0), min(mean + reach, 1.0)


def wilson(failures: ArrayLike, n: int, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Wilson's interval for a failure rate, without a correction for continuity.

    >>> [round(float(limit), 3) for limit in wilson(9, 50)]
    [0.098, 0.308]
    """
    check_delta(confidence, "confidence")
    failures, z2 = np.asarray(failures, float), _z(confidence) ** 2
    if n < 1 or not np.all((failures >= 0) & (failures <= n)):
        raise ValueError(f"failures must be numbers from 0 to {n}, of at least one trial")
    centre = failures + z2 / 2
    reach = np.sqrt(z2 * (failures * (n - failures) / n + z2 / 4))
    low, high = (centre - reach) / (n + z2), (centre + reach) / (n + z2)
    return np.where(failures == 0, 0.0, low), np.where(failures == n, 1.0, high)


def _z(confidence: float) -> float:
    """The quantile of the normal distribution for a two-sided interval: 1.96 for 95 %."""
    return float(scipy.special.ndtri((1 + confidence) / 2))
