"""Tests of a certified bound against observed costs, once or after every outcome.

Outcomes c₁, c₂, … in [0, 1] arrive one after another. The null hypothesis is that the mean of each,
given those before, is at most b. It holds if every outcome comes from a new environment, drawn as
the certificate says.

`binomial_p_value` and `chernoff_p_value` are for one look, at an n fixed in advance.
`update_wealth` and `confidence_sequence` hold at every n at once: they may be computed after each
outcome, and the data collection may stop at any time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, rel_entr

from pacbayes_control.bounds.kl import in_unit_interval, kl_bernoulli, kl_inverse, kl_inverse_lower

Floats = NDArray[np.float64]

SMALLEST_BOUND = 1e-9  # lower bounds are raised to it, which makes the test more conservative
AT_ONCE, LATER = 0.8, 0.2  # shares of the wealth: bet from the first outcome on, and later
STEPS, ROWS = 32, 64  # outcomes multiplied before a check for overflow; such groups at a time


# ---- one look -----------------------------------------------------------------------------------


def binomial_p_value(failures: ArrayLike, n: ArrayLike, bound: float) -> Floats:
    """P(Bin(n, b) ≥ k): the probability of k or more failures if each has probability b.

    >>> round(float(binomial_p_value(2, 20, 0.114)), 4)  # 18 of 20 trials succeed
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


# ---- after every outcome ------------------------------------------------------------------------


def bets(bound: float) -> tuple[Floats, Floats]:
    """Bets λ in (0, 1/b), and the share of the wealth on each; shapes (bets,).

    The bet λ is best against a failure rate that exceeds b by λ√(b(1-b)) standard deviations of an
    outcome. 95 % of the wealth is on 18 bets, evenly spaced on a logarithmic scale from 0.08 to 2
    standard deviations; 5 % is on smaller bets, for increases that need thousands of outcomes.
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
class BettingState:
    """Wealth of the test martingale, initially 1."""

    wealth: Floats  # of each bet, divided by its share and by e^scale
    scale: float  # at least 0
    trials: int  # outcomes so far

    @classmethod
    def initial(cls, bound: float) -> BettingState:
        """The state before the first outcome."""
        return cls(np.full(len(bets(bound)[0]), AT_ONCE), 0.0, 0)

    def log_value(self, bound: float) -> float:
        """ln of the total wealth: the e-value of the outcomes so far."""
        reserve = LATER / max(self.trials, 1) * math.exp(-self.scale)
        return math.log(float(bets(bound)[1] @ self.wealth) + reserve) + self.scale


def update_wealth(state: BettingState, costs: Floats, bound: float) -> tuple[BettingState, Floats]:
    """The state after `costs`, and ln of the e-value after each of them; shape (costs,).

    The wealth is

    Wₙ = Σⱼ wⱼ Σₛ vₛ Πₜ₌ₛ₊₁…ₙ (1 + λⱼ(cₜ - b)) + reserve,    Σⱼ wⱼ = Σₛ vₛ = 1,

    with bets λⱼ ≥ 0 and all shares fixed in advance: v₀ = 0.8 is bet before the first outcome, and
    vₛ = 0.2/(s(s+1)) after s outcomes; the reserve is the part that is not bet yet. Under the null
    hypothesis Wₙ is a non-negative supermartingale that starts at 1, so it is an e-value at every
    n, and by Ville's inequality it ever reaches 1/α with probability at most α. The later shares
    detect a change after a long time without one, when the first bets have lost nearly everything.
    """
    lambdas, shares = bets(bound)
    b = max(float(bound), SMALLEST_BOUND)
    log_e = np.empty(len(costs))
    wealth, scale = state.wealth, state.scale
    for start in range(0, len(costs), ROWS * STEPS):
        chunk = costs[start : start + ROWS * STEPS]
        rows, first = -(-len(chunk) // STEPS), state.trials + start
        padded = np.full(rows * STEPS, b)  # an outcome of b changes nothing
        padded[: len(chunk)] = chunk
        before = np.arange(first, first + rows * STEPS).reshape(rows, STEPS, 1)  # trials
        late = np.where(before > 0, LATER / (np.maximum(before, 1) * (before + 1.0)), 0.0)
        growth = np.cumprod(1 + lambdas * (padded.reshape(rows, STEPS, 1) - b), axis=1)
        # Later shares, in units of the wealth at the start of their row: (rows, steps, bets).
        added = np.empty_like(growth)
        added[:, 0] = late[:, 0]
        np.divide(late[:, 1:], growth[:, :-1], out=added[:, 1:])
        np.cumsum(added, axis=1, out=added)
        at_start, scales = np.empty((rows, len(lambdas))), np.empty((rows, 1))
        for row in range(rows):
            at_start[row], scales[row] = wealth, scale
            complete = min(STEPS, len(chunk) - row * STEPS) - 1
            wealth = growth[row, complete] * (wealth + added[row, complete] * math.exp(-scale))
            wealth, scale = _rescaled(wealth, scale)
        reserve = LATER / (before[..., 0] + 1.0) * np.exp(-scales)
        if scales.any():
            added *= np.exp(-scales)[..., None]
        added += at_start[:, None]
        added *= growth
        path = np.log(added @ shares + reserve) + scales
        log_e[start : start + len(chunk)] = path.reshape(-1)[: len(chunk)]
    return BettingState(wealth, scale, state.trials + len(costs)), log_e


def update_wealth_by_counts(
    state: BettingState, failures: int, trials: int, bound: float
) -> BettingState:
    """The state after 0/1 outcomes of which only the numbers are known.

    The shares that would be bet during these outcomes are given up. So the wealth is at most that
    after the same outcomes one by one, in any order, and the time of a report changes nothing.
    """
    lambdas, _ = bets(bound)
    b, before = max(float(bound), SMALLEST_BOUND), state.trials
    due = LATER / (before * (before + 1)) if before else 0.0
    with np.errstate(divide="ignore"):
        logs = np.log(state.wealth + due * math.exp(-state.scale)) + state.scale
    logs += failures * np.log1p(lambdas * (1 - b)) + (trials - failures) * np.log1p(-lambdas * b)
    scale = max(float(logs.max()), 0.0)
    return BettingState(np.exp(logs - scale), scale, before + trials)


def _rescaled(wealth: Floats, scale: float) -> tuple[Floats, float]:
    """The same wealth in numbers that neither overflow nor underflow."""
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
    outcomes, H the entropy. For graded costs it is conservative.

    >>> [round(float(limit), 3) for limit in confidence_sequence(2, 20, 0.05)]
    [0.004, 0.409]
    """
    total, n = np.broadcast_arrays(np.asarray(total, float), np.asarray(n, float))
    mean = np.minimum(total / n, 1.0)
    entropy = -(rel_entr(mean, 1) + rel_entr(1 - mean, 1))
    mixture = betaln(0.5, 0.5) - betaln(total + 0.5, np.maximum(n - total, 0) + 0.5)
    radius = np.maximum((mixture - np.log(alpha)) / n - entropy, 0) + 1e-12
    return kl_inverse_lower(mean, radius), kl_inverse(mean, radius)
