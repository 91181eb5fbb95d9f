"""E-values and confidence limits for a mean that may be looked at after every outcome.

Outcomes Y₁, Y₂, … in [0, 1] are independent, each with mean μ. For a candidate q and a fixed stake
u in [0, 1], the factor (1-u) + uYₜ/q is not negative, and its mean is at most 1 while μ ≤ q. So is
that of the mixture over fixed stakes

Eₜ(q) = Σⱼ wⱼ Πᵢ≤ₜ ((1-uⱼ) + uⱼ Yᵢ/q),    wⱼ ≥ 0, Σⱼ wⱼ = 1,

which is a supermartingale from 1: by Ville's inequality it ever reaches 1/α with probability at
most α. Three properties make it easy to use:

- Eₜ(q) does not grow with q. So the candidates that are rejected are those up to a limit, which a
  bisection finds, and to verify a limit is to evaluate Eₜ once.
- Its last value does not depend on the order of the outcomes.
- If the outcomes have different means, of which the average is at most q, then E[Eₜ(q)] ≤ 1 all
  the same: a product of means (1-u) + uμᵢ/q is at most the power of their average. So one look at
  the end is valid for a fixed list of tasks, with as many outcomes of each, in any order; and so is
  a look after each round of one outcome of each task.

Half of the stake is on u = 1, which is best where the other side never occurs, such as no failure
at all. The rest is on u = 2^(-1/3), 2^(-2/3), …, 2^(-7) in proportion to u^(3/2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pacbayes_control.bounds.kl import Floats, in_unit_interval
from pacbayes_control.bounds.theorems import check_delta

_SMALLER = 2.0 ** (-np.arange(1, 22) / 3)
STAKES: Floats = np.append(1.0, _SMALLER)  # u, (stakes,)
SHARES: Floats = np.append(0.5, 0.5 * _SMALLER**1.5 / np.sum(_SMALLER**1.5))  # w, (stakes,)
MARGIN = 1e-9  # of ln of an e-value, beyond 1/α: far above the rounding of 10⁶ outcomes
ROWS = 1 << 14  # outcomes × stakes held at a time
MOST = 10**12  # outcomes that are needed


def log_e_value(outcomes: ArrayLike, mean: float) -> float:
    """ln E(q) after all outcomes, for the null hypothesis that their mean is at most q.

    >>> round(float(np.exp(log_e_value([1, 1, 1, 1, 1, 1, 1], 0.5))), 1)  # u = 1 alone gives 64
    78.2
    """
    values, counts = np.unique(in_unit_interval(outcomes, "an outcome"), return_counts=True)
    return _log_e_of_counts(values, counts, mean)


def log_e_path(outcomes: ArrayLike, mean: float) -> Floats:
    """ln Eₜ(q) after each outcome, for the null hypothesis that their mean is at most q; (n,)."""
    outcomes = in_unit_interval(outcomes, "an outcome")
    path, before = np.empty(len(outcomes)), np.log(SHARES)
    for start in range(0, len(outcomes), ROWS):
        part = outcomes[start : start + ROWS]
        logs = before + np.cumsum(_log_factors(part, mean), axis=0)
        path[start : start + ROWS] = np.logaddexp.reduce(logs, axis=1)
        before = logs[-1]
    return path


def lowest_mean(outcomes: ArrayLike, delta: float, *, every: int = 0) -> float:
    """A lower limit on the mean of outcomes in [0, 1], at every number of them at once.

    With probability at least 1 - δ, the mean exceeds the largest q with E(q) ≥ 1/δ, whenever the
    outcomes were stopped.

    Args:
        outcomes: (n,), in any order if `every` is 0
        delta: probability of error
        every: also use the limits after this many outcomes, and twice as many, and so on: all of
            them hold at once, if the order does not depend on the outcomes; 0 for the last alone

    >>> round(lowest_mean([1] * 50, 0.05), 3)
    0.933
    """
    outcomes = in_unit_interval(outcomes, "an outcome")
    check_delta(delta)
    goal = MARGIN - np.log(float(delta))
    values, counts = np.unique(outcomes, return_counts=True)
    if outcomes.size == 0 or values[-1] == 0:
        return 0.0

    def rejected(q: float) -> bool:
        if every and len(outcomes) >= every:
            return float(log_e_path(outcomes, q)[every - 1 :: every].max()) >= goal
        return _log_e_of_counts(values, counts, q) >= goal

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def highest_cost(costs: ArrayLike, delta: float) -> float:
    """Upper bound on the expected cost of one policy, at every number of environments at once.

    1 - `lowest_mean` of 1 - C: with probability at least 1 - δ it holds whenever the trials were
    stopped, for costs in [0, 1], in any order.

    >>> round(highest_cost([0] * 50, 0.05), 3)  # the bound for 50 trials, fixed beforehand: 0.058
    0.067
    """
    return min(float(np.nextafter(1 - lowest_mean(1 - np.asarray(costs, float), delta), 2.0)), 1.0)


def difference_limits(
    differences: ArrayLike, alpha: float, *, every: int = 0
) -> tuple[float, float]:
    """Limits on the mean of differences in [-1, 1], at every number of them at once.

    Each is wrong with probability at most α/2, whenever the trials were stopped.

    Args:
        differences: (n,)
        alpha: probability of error
        every: as for `lowest_mean`

    >>> tuple(round(limit, 3) for limit in difference_limits([1, 0, 1, 1, 0, 1, 1, 1], 0.05))
    (0.002, 0.993)
    """
    d = np.asarray(differences, float)
    low = 2 * lowest_mean((1 + d) / 2, alpha / 2, every=every) - 1
    high = 1 - 2 * lowest_mean((1 - d) / 2, alpha / 2, every=every)
    return max(float(np.nextafter(low, -2.0)), -1.0), min(float(np.nextafter(high, 2.0)), 1.0)


def log_e_of_difference(differences: ArrayLike, margin: float = 0.0) -> Floats:
    """ln of the e-value after each difference, for "their mean is at most the margin"; (n,).

    At a margin of 0 the stakes are on 1 + u d: differences of 0 change nothing.
    """
    return log_e_path((1 + np.asarray(differences, float)) / 2, (1 + margin) / 2)


def outcomes_needed(outcomes: ArrayLike, mean: float, delta: float) -> int | None:
    """How many outcomes like these reject "the mean is at most q"; None if more than 10¹² do not.

    An estimate, and no promise: the same outcomes are repeated, whole or in part. ln E is a convex
    function of their number, and 0 at none: where it has reached the goal, it only grows.

    >>> outcomes_needed([1, 1, 0, 1], 0.5, 0.05)
    35
    """
    values, counts = np.unique(in_unit_interval(outcomes, "an outcome"), return_counts=True)
    goal = MARGIN - np.log(float(delta))
    rates = counts @ _log_factors(values, mean) / max(counts.sum(), 1)  # of growth, by stake
    low, high = 0, 1
    while _log_sum(np.log(SHARES) + high * rates) < goal:
        low, high = high, 2 * high
        if high > MOST or rates.max() <= 0:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = _log_sum(np.log(SHARES) + middle * rates) >= goal
        low, high = (low, middle) if enough else (middle, high)
    return high


def log_e_of_range(outcomes: Floats, mean: float) -> float:
    """As `log_e_value`, for outcomes that are not negative and may be above 1.

    A factor (1-u) + uY/q is not negative for these either, and needs no upper limit.
    """
    return _log_e_of_counts(outcomes, np.ones(len(outcomes)), mean)


def _log_factors(outcomes: Floats, mean: float) -> Floats:
    """ln((1-u) + uY/q) by outcome and stake; (n, stakes)."""
    with np.errstate(divide="ignore"):
        return np.log((1 - STAKES) + STAKES * (outcomes[:, None] / mean))


def _log_e_of_counts(values: Floats, counts: ArrayLike, mean: float) -> float:
    """ln E(q) where each value occurred so often."""
    logs = np.asarray(counts, float) @ _log_factors(values, mean)
    return _log_sum(logs + np.log(SHARES))


def _log_sum(logs: Floats) -> float:
    """ln Σ e^x."""
    return float(np.logaddexp.reduce(logs))
