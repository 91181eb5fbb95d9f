"""The evidence and the limits of a comparison by the number of pairs, and how they are shown."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.bounds.anytime import lowest_mean
from pacbayes_control.trials.comparing import Comparison
from pacbayes_control.trials.usual import usual_interval

Floats = NDArray[np.float64]

LOOKS = 80  # numbers of pairs at which limits are drawn
STEPS = 1000  # points of a curve of e-values
GRID = 100  # steps of a difference in a unit, where there are more different ones
EXACT = 64  # different differences that are not rounded


@dataclass(frozen=True, eq=False)
class Running:
    """Limits on the mean difference after some numbers of pairs."""

    pairs: NDArray[np.intp]  # (looks,)
    mean: Floats  # (looks,)
    low: Floats  # (looks,)
    high: Floats  # (looks,)


def evidence(comparison: Comparison) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Numbers of pairs, and log₁₀ of the e-values for "A is better" and "A is worse" after them.

    At the ends of rounds, at most STEPS of them, with the one that decided.
    """
    together, size = comparison.pairs.together, len(comparison.log_e_better)
    kept = {*_spread(size // together, STEPS).tolist()}
    if comparison.decided_after is not None:
        kept.add(comparison.decided_after // together)
    pairs = np.array(sorted(kept), dtype=np.intp) * together
    paths = comparison.log_e_better, comparison.log_e_worse
    better, worse = (path[pairs - 1] / math.log(10) for path in paths)
    return pairs, better, worse


def running_limits(comparison: Comparison) -> Running:
    """The limits that held after some numbers of pairs, the last of them those of the comparison.

    Where the order counts, each is the narrowest so far. Many different graded costs are rounded to
    the side on which the limits hold, so that this takes a second or two for any number of pairs.
    """
    d, alpha = comparison.pairs.differences, comparison.alpha
    together = comparison.pairs.together
    pairs = _spread(len(d) // together, LOOKS) * together
    below = above = d
    if len(np.unique(d)) > EXACT:
        below, above = np.floor(d * GRID) / GRID, np.ceil(d * GRID) / GRID
    low = np.array([2 * lowest_mean((1 + below[:n]) / 2, alpha / 2) - 1 for n in pairs])
    high = np.array([1 - 2 * lowest_mean((1 - above[:n]) / 2, alpha / 2) for n in pairs])
    if comparison.in_order:
        low, high = np.maximum.accumulate(low), np.minimum.accumulate(high)
    if len(pairs) and pairs[-1] == len(d):
        low[-1], high[-1] = comparison.difference
    means = np.cumsum(d)[pairs - 1] / pairs if len(pairs) else np.empty(0)
    return Running(pairs, means, low, high)


def _spread(last: int, most: int) -> NDArray[np.intp]:
    """Whole numbers from 1 to the last, at most so many."""
    if last < 1:
        return np.empty(0, dtype=np.intp)
    return np.unique(np.rint(np.linspace(1, last, min(last, most))).astype(np.intp))


def usual_difference(differences: Floats) -> tuple[float, float] | None:
    """The interval that people usually print for a difference: mean ± 1.96 s/√n.

    For one look, at a number of pairs fixed beforehand. None for fewer than two pairs.
    """
    if len(differences) < 2:
        return None
    low, high = usual_interval((1 + differences) / 2, graded=True)
    return 2 * low - 1, 2 * high - 1


# ---- as they are shown ---------------------------------------------------------------------------


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"{value:+.4f}".replace("-", "−")


def interval(limits: tuple[float, float]) -> str:
    """Limits on a difference with four decimals, rounded outwards."""
    low, high = (math.floor(limits[0] * 1e4) / 1e4, math.ceil(limits[1] * 1e4) / 1e4)
    return f"{signed(low)} to {signed(high)}"


def power_of_ten(log_value: float) -> str:
    """A number from its natural logarithm, with three digits, rounded downwards.

    >>> power_of_ten(math.log(40.07)), power_of_ten(2000.0)
    ('40.0', '3.88e+868')
    """
    if abs(log_value) < 13:
        value = math.exp(log_value)
        digits = max(0, 2 - math.floor(math.log10(value)))
        return f"{math.floor(value * 10**digits) / 10**digits:,.{digits}f}"
    exponent, part = divmod(log_value / math.log(10), 1)
    return f"{math.floor(10**part * 100) / 100:.2f}e{int(exponent):+d}"
