"""Tests of a promised cost against what happened, once or at every step.

Outcomes c₁, c₂, … in [0, 1] arrive one after another. The promise is that the mean of each, given
those before, is at most b: so it is where every outcome is from a new environment.

`binomial_p_value` and `chernoff_p_value` may be looked at once, at an n fixed in advance. `wager`
and `confidence_sequence` hold at every n at once: they may be watched, and watching may stop at
will.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, rel_entr

from pacbayes_control.bounds.kl import in_unit_interval, kl_bernoulli, kl_inverse, kl_inverse_lower

Floats = NDArray[np.float64]

SMALLEST_BOUND = 1e-9  # lower ones are raised to it, which only makes the test more cautious
STEPS = 64  # bets multiplied up before a logarithm is taken; each factor is at least 0.01


# ---- once ---------------------------------------------------------------------------------------


def binomial_p_value(failures: ArrayLike, n: ArrayLike, bound: float) -> Floats:
    """P(Bin(n, b) ≥ k): how likely so many failures are, if each has probability b at most.

    >>> round(float(binomial_p_value(2, 20, 0.114)), 4)  # the paper's drone: 18 of 20 flights
    0.6825
    """
    k, n = np.broadcast_arrays(np.asarray(failures, float), np.asarray(n, float))
    if not np.all((k >= 0) & (k <= n) & (k == np.floor(k))):
        raise ValueError("failures must be whole numbers from 0 to the number of trials")
    tail = betainc(np.maximum(k, 1), n - np.maximum(k, 1) + 1, in_unit_interval(bound, "a bound"))
    return np.where(k == 0, 1.0, np.minimum(tail * (1 + 1e-9), 1.0))


def chernoff_p_value(mean: ArrayLike, n: ArrayLike, bound: float) -> Floats:
    """exp(-n kl(c̄‖b)) for a mean cost c̄ > b, by the kl form of Hoeffding's inequality; else 1.

    >>> round(float(chernoff_p_value(0.3, 20, 0.1)), 4)
    0.0463
    """
    mean, n = np.asarray(mean, float), np.asarray(n, float)
    with np.errstate(invalid="ignore"):
        exponent = np.where(mean > bound, n * kl_bernoulli(mean, bound), 0.0)
    return np.exp(-exponent * (1 - 1e-12))


# ---- at every step ------------------------------------------------------------------------------


def bets(bound: float) -> tuple[Floats, Floats]:
    """Stakes λ in (0, 1/b) and the share of the wealth that is on each; shapes (bets,).

    λ√(b(1-b)) is the rise of the failure rate, in standard deviations of an outcome, that a stake
    suits best. Nearly all of the wealth is spread evenly on a logarithmic scale from 0.08 to 2 of
    them; a twentieth is below, for rises that take thousands of outcomes to show.
    """
    b = max(float(in_unit_interval(bound, "a bound")), SMALLEST_BOUND)
    if b >= 1:  # nothing can exceed it
        return np.zeros(1), np.ones(1)
    deviation = np.sqrt(b * (1 - b))
    largest = max(min(2.0, 0.99 * (1 - b) / deviation), 0.08)
    rises = [np.geomspace(1e-4, 0.08, 12, endpoint=False), np.geomspace(0.08, largest, 36)]
    shares = np.repeat([0.05 / 12, 0.95 / 36], [12, 36])
    return np.minimum(np.concatenate(rises) / deviation, 0.99 / b), shares


def wager(log_wealth: Floats, costs: Floats, bound: float) -> tuple[Floats, Floats]:
    """The logarithm of the wealth on each bet after `costs`, and of the e-value after each.

    Wₙ = Σⱼ wⱼ Πₜ (1 + λⱼ(cₜ - b)) with stakes λⱼ ≥ 0 fixed in advance is a non-negative
    supermartingale from 1 while the promise holds, so by Ville's inequality it ever reaches 1/α
    with probability at most α. It is an e-value at every n. Shapes (bets,), (costs,) and (bets,).
    """
    stakes, shares = bets(bound)
    b = max(float(bound), SMALLEST_BOUND)
    log_e = np.empty(len(costs))
    for start in range(0, len(costs), STEPS * STEPS):
        chunk = costs[start : start + STEPS * STEPS]
        rows = -(-len(chunk) // STEPS)
        padded = np.full(rows * STEPS, b)  # an outcome of b changes nothing
        padded[: len(chunk)] = chunk
        factors = 1 + stakes * (padded.reshape(rows, STEPS, 1) - b)
        growth = np.cumprod(factors, axis=1)  # (rows, steps, bets)
        logs = np.vstack([log_wealth, np.log(growth[:, -1])]).cumsum(axis=0)
        top = logs[:-1].max(axis=1, keepdims=True)
        at_start = np.exp(logs[:-1] - top) * shares  # (rows, bets)
        path = top + np.log(np.einsum("rsj,rj->rs", growth, at_start))
        log_e[start : start + len(chunk)] = path.reshape(-1)[: len(chunk)]
        log_wealth = logs[-1]
    return log_wealth, log_e


def wager_on_counts(
    log_wealth: Floats, failures: int, trials: int, bound: float
) -> tuple[Floats, float]:
    """The same for 0/1 outcomes that are known by their number only, at the end of them."""
    stakes, shares = bets(bound)
    b = max(float(bound), SMALLEST_BOUND)
    log_wealth = log_wealth + failures * np.log1p(stakes * (1 - b))
    log_wealth = log_wealth + (trials - failures) * np.log1p(-stakes * b)
    return log_wealth, float(np.logaddexp.reduce(log_wealth + np.log(shares)))


def confidence_sequence(total: ArrayLike, n: ArrayLike, alpha: float) -> tuple[Floats, Floats]:
    """Limits on the mean cost that hold at every n at once, with probability at least 1 - α.

    For outcomes whose mean given the past is m, Πₜ (q/m)^{cₜ} ((1-q)/(1-m))^{1-cₜ} is a
    supermartingale for each q (the factor is convex in cₜ, and its mean is 1 at the ends), and so
    is its mixture over q ∼ Beta(½, ½). The m for which that stays below 1/α are those with
    kl(c̄‖m) ≤ [ln(1/α) + ln B(½,½) - ln B(S+½, n-S+½)]/n - H(c̄), S the sum and c̄ the mean of the
    outcomes, H the entropy. For graded costs it is cautious.

    >>> [round(float(limit), 3) for limit in confidence_sequence(2, 20, 0.05)]
    [0.004, 0.409]
    """
    total, n = np.broadcast_arrays(np.asarray(total, float), np.asarray(n, float))
    mean = np.minimum(total / n, 1.0)
    entropy = -(rel_entr(mean, 1) + rel_entr(1 - mean, 1))
    mixture = betaln(0.5, 0.5) - betaln(total + 0.5, np.maximum(n - total, 0) + 0.5)
    radius = np.maximum((mixture - np.log(alpha)) / n - entropy, 0) + 1e-12
    return kl_inverse_lower(mean, radius), kl_inverse(mean, radius)
