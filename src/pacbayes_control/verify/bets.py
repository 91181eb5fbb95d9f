"""Bets, recomputed: a wealth that is enclosed from below, whatever the rounding of its stakes.

Any stake in [0, 1/(1-m)] that depends only on earlier costs is a proof, so that stakes are plain
floats. Only the product of the factors 1 + λ(m - C) must not be too large: each is computed in
floats, less a bound on its rounding error.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.verify import intervals
from pacbayes_control.verify.intervals import Interval, iv, require

GRID = 8192  # candidates: a constant of the method, since one chosen by the costs proves nothing
THRESHOLDS = 16  # of a bound on CVaR, likewise
AIM = 0.01  # of the stakes, in ln of the wealth, beyond the goal; not part of the proof
BEYOND = 64  # candidates below the stated one that are tried, to tell how tight it is
UNIT = 2.0**-50  # eight times the rounding error of one operation

Floats = NDArray[np.float64]


def proven_by_bets(costs: Floats, level: Interval, stated: float, together: int = 0) -> float:
    """The smallest candidate down to which all are rejected, as far as BEYOND the stated bound.

    Args:
        costs: of one policy, in the order of the bets
        level: the probability of error
        stated: the bound to be proven
        together: how many costs in a row have the same stake, before the wealth is looked at: all
            those of a draw, in environments of different means; 0 where costs are i.i.d.
    """
    last = max(1, math.floor(math.sqrt(min(stated, 1.0)) * GRID) - BEYOND)
    candidates = np.arange(GRID - 1, last - 1, -1)
    rejected = _rejected((candidates / GRID) ** 2, costs, 1 / level, together)
    failures = np.flatnonzero(~rejected)
    count = failures[0] if len(failures) else len(candidates)
    return float((candidates[count - 1] / GRID) ** 2) if count else 1.0


def _rejected(m: Floats, costs: Floats, needed: Interval, together: int) -> NDArray[np.bool_]:
    """Whether the wealth of the bets against each candidate m provably reaches `needed`."""
    n, target = len(costs), float(needed.b)
    require(target < 1e280, "the level of the bound is too small for its bets to be recomputed")
    target *= 1 + UNIT
    aim = math.log(target) + AIM
    rejected, left = np.zeros(len(m), bool), np.arange(len(m))
    q, wealth = 1 - m, np.ones(len(m))
    sums = np.concatenate([[0.0], np.cumsum(1 - costs)])
    squares = np.concatenate([[0.0], np.cumsum((1 - costs) ** 2)])
    t = 0
    while t < n and len(left):
        variance = q * (1 - q)
        if t:
            around = (squares[t] - 2 * q * sums[t] + t * q**2 + q * aim / 4) / t
            variance = np.minimum(variance, np.maximum(around, 1e-18))
        with np.errstate(divide="ignore"):
            ahead = np.maximum(aim - np.log(wealth), 0.0)
        stake = np.minimum(np.sqrt(2 * ahead / ((n - t) * variance)), (1 - 4 * UNIT) / q)
        after = t + (together or 1 + min(min(t, n - t - 1) // 16, 15))
        exponent = np.zeros(len(m), np.intc)  # of 2: the wealth must not overflow on the way
        for first in range(t, after, 16):
            gains = stake * (m - costs[first : min(first + 16, after), None])
            factors = np.maximum(1 + gains - (2 + np.abs(gains)) * UNIT, 0.0)
            wealth = wealth * np.prod(factors, axis=0) * (1 - 32 * UNIT)
            wealth, more = np.frexp(wealth)
            exponent += more
        wealth[exponent < -1000] = 0.0
        wealth, t = np.ldexp(wealth, np.minimum(exponent, 1000)), after
        done = wealth >= target
        if done.any() or not wealth.all():
            rejected[left[done]] = True
            keep = ~done & (wealth > 0)
            m, q, wealth, left = m[keep], q[keep], wealth[keep], left[keep]
    return rejected


def highest_mean(costs: Floats, stake: float) -> Interval:
    """Aₕ = max_m (m - g_h(m)/(sN)), enclosed from above, for the costs of one policy.

    Let u, v ≥ 0 with um₀ + v(1-m₀) = 1 for one point m₀: uC m₀/m + v(1-C)(1-m₀)/(1-m) is the wealth
    of an allowed stake against m. Its logarithm is convex in m and nowhere above g_h, so m less it
    is concave, and below its tangent at m₀. (Here u and v are divided by their sum as computed.)
    """
    n, m = len(costs), _highest_point(costs, stake)
    u = max(1 - stake * (1 - m), 0.0)
    v = 1 + stake * m if u > 0 else 1 / (1 - m) if m < 1 else 1.0
    wealth = (u * costs + v * (1 - costs)) * (1 - 4 * UNIT)
    if not wealth.min() > 0:
        return iv.mpf(1)
    # NumPy's logarithm is within 4 ulp; sums by `fsum` are correctly rounded.
    logs, sizes = np.log(wealth), math.fsum(np.abs(np.log(wealth)))
    x, shares = iv.mpf(m), iv.mpf(u) * iv.mpf(m) + iv.mpf(v) * (1 - iv.mpf(m))
    total = iv.mpf(math.fsum(logs)) - iv.mpf(UNIT) * (iv.mpf(sizes) + n) - n * iv.log(shares)
    error = iv.mpf([1 - 16 * UNIT, 1 + 16 * UNIT])
    rising = iv.mpf(math.fsum((1 - costs) / wealth)) * error
    falling = iv.mpf(math.fsum(costs / wealth)) * error
    s, slope = iv.mpf(stake) * n, iv.mpf(1)
    if m < 1:
        slope -= iv.mpf(v) * rising / (1 - x) / s
    if m > 0:
        slope += iv.mpf(u) * falling / x / s
    highest = x - total / s + iv.mpf(max((slope * (1 - x)).b, (-slope * x).b))
    return iv.mpf([0, min(highest.b, 1)]) if highest.b >= 0 else iv.mpf(0)


def _highest_point(costs: Floats, stake: float) -> float:
    """About where the maximum is, by bisection; a poor guess makes the bound larger, not wrong."""
    low, high = float(costs.mean()), 1.0
    for _ in range(60):
        middle = (low + high) / 2
        factors = 1 + stake * (middle - costs)
        too_small = factors.min() <= 0 or float(np.mean(1 / factors)) > 1
        low, high = (middle, high) if too_small else (low, middle)
    return min(max(high, 1 - 1 / stake), 1.0)


def log_regret(n: int) -> Interval:
    """ln(√π Γ(n+1)/Γ(n+½)): √π Γ(n+1)/Γ(n+½) is 4ⁿ (n!)²/(2n)!."""
    factorial = intervals.log_factorial
    return n * iv.log(iv.mpf(4)) + 2 * factorial(n) - factorial(2 * n)
