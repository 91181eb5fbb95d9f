"""Tests of a promised cost against what happened, once or at every step.

Outcomes c₁, c₂, … in [0, 1] arrive one after another. The promise is that the mean of each, given
those before, is at most b: so it is where every outcome is from a new environment.

`binomial_p_value` and `chernoff_p_value` may be looked at once, at an n fixed in advance. `wager`
and `confidence_sequence` hold at every n at once: they may be watched, and watching may stop at
will.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, rel_entr

from pacbayes_control.bounds.kl import in_unit_interval, kl_bernoulli, kl_inverse, kl_inverse_lower

Floats = NDArray[np.float64]

SMALLEST_BOUND = 1e-9  # lower ones are raised to it, which only makes the test more cautious
AT_ONCE, LATER = 0.8, 0.2  # of the wealth: staked before the first outcome, and after it
STEPS, ROWS = 32, 64  # outcomes multiplied up before a check for overflow; at a time


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
    rises = [np.geomspace(1e-4, 0.08, 6, endpoint=False), np.geomspace(0.08, largest, 18)]
    shares = np.repeat([0.05 / 6, 0.95 / 18], [6, 18])
    return np.minimum(np.concatenate(rises) / deviation, 0.99 / b), shares


@dataclass(frozen=True)
class Purse:
    """What somebody holds who bets against a promise: she began with 1."""

    wealth: Floats  # on each bet, for each unit of its share; times e^scale
    scale: float  # at least 0
    trials: int  # outcomes so far

    @classmethod
    def full(cls, bound: float) -> Purse:
        """Before the first outcome."""
        return cls(np.full(len(bets(bound)[0]), AT_ONCE), 0.0, 0)

    def log_value(self, bound: float) -> float:
        """ln of all that she has: the e-value of the outcomes so far."""
        cash = LATER / max(self.trials, 1) * math.exp(-self.scale)
        return math.log(float(bets(bound)[1] @ self.wealth) + cash) + self.scale


def wager(purse: Purse, costs: Floats, bound: float) -> tuple[Purse, Floats]:
    """The purse after `costs`, and ln of the e-value after each; shape (costs,).

    Most of the wealth is on the bets from the beginning, and a fifth follows later, the share
    1/(s(s+1)) of it after s outcomes. So it is

    Wₙ = Σⱼ wⱼ Σₛ vₛ Πₜ₌ₛ₊₁…ₙ (1 + λⱼ(cₜ - b)) + what has not been staked,    Σⱼ wⱼ = Σₛ vₛ = 1,

    with stakes λⱼ ≥ 0 and all shares fixed in advance. While the promise holds that is a
    non-negative supermartingale from 1, so by Ville's inequality it ever reaches 1/α with
    probability at most α. It is an e-value at every n. What is staked late finds a change after a
    long time in which all was well, when the first bets have lost nearly everything.
    """
    stakes, shares = bets(bound)
    b = max(float(bound), SMALLEST_BOUND)
    log_e = np.empty(len(costs))
    wealth, scale = purse.wealth, purse.scale
    for start in range(0, len(costs), ROWS * STEPS):
        chunk = costs[start : start + ROWS * STEPS]
        rows, first = -(-len(chunk) // STEPS), purse.trials + start
        padded = np.full(rows * STEPS, b)  # an outcome of b changes nothing
        padded[: len(chunk)] = chunk
        before = np.arange(first, first + rows * STEPS).reshape(rows, STEPS, 1)  # trials
        late = np.where(before > 0, LATER / (np.maximum(before, 1) * (before + 1.0)), 0.0)
        growth = np.cumprod(1 + stakes * (padded.reshape(rows, STEPS, 1) - b), axis=1)
        # What follows later, in units of the wealth at the start of its row: (rows, steps, bets).
        added = np.empty_like(growth)
        added[:, 0] = late[:, 0]
        np.divide(late[:, 1:], growth[:, :-1], out=added[:, 1:])
        np.cumsum(added, axis=1, out=added)
        at_start, scales = np.empty((rows, len(stakes))), np.empty((rows, 1))
        for row in range(rows):
            at_start[row], scales[row] = wealth, scale
            complete = min(STEPS, len(chunk) - row * STEPS) - 1
            wealth = growth[row, complete] * (wealth + added[row, complete] * math.exp(-scale))
            wealth, scale = _rescaled(wealth, scale)
        cash = LATER / (before[..., 0] + 1.0) * np.exp(-scales)
        if scales.any():
            added *= np.exp(-scales)[..., None]
        added += at_start[:, None]
        added *= growth
        path = np.log(added @ shares + cash) + scales
        log_e[start : start + len(chunk)] = path.reshape(-1)[: len(chunk)]
    return Purse(wealth, scale, purse.trials + len(costs)), log_e


def wager_on_counts(purse: Purse, failures: int, trials: int, bound: float) -> Purse:
    """The same for 0/1 outcomes of which only the numbers are known.

    What would have been staked during them is given up. So she never has more than after the same
    outcomes one by one, in whatever order, and nothing is gained by when they are reported.
    """
    stakes, _ = bets(bound)
    b, before = max(float(bound), SMALLEST_BOUND), purse.trials
    due = LATER / (before * (before + 1)) if before else 0.0
    with np.errstate(divide="ignore"):
        logs = np.log(purse.wealth + due * math.exp(-purse.scale)) + purse.scale
    logs += failures * np.log1p(stakes * (1 - b)) + (trials - failures) * np.log1p(-stakes * b)
    scale = max(float(logs.max()), 0.0)
    return Purse(np.exp(logs - scale), scale, before + trials)


def _rescaled(wealth: Floats, scale: float) -> tuple[Floats, float]:
    """The same wealth with numbers that neither overflow nor vanish."""
    top = float(wealth.max())
    if top < 1e100 and (scale == 0 or top > 1e-100):
        return wealth, scale
    shift = max(math.log(top), -scale)
    return wealth * math.exp(-shift), scale + shift


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
