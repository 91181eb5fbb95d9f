"""The exact bound on failures with simulation, recomputed by strata of what simulation says.

The ranking of outcomes is computed anew, and their probabilities from tables of binomials. Any
ranking that depends on nothing else than the strata, limits and δ is valid: only the probability
has to be safe.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from pacbayes_control.verify import intervals
from pacbayes_control.verify.bets import UNIT
from pacbayes_control.verify.intervals import Interval, mp, require

Floats = NDArray[np.float64]

CLOSE = 1e-10  # outcomes whose ranks differ by less count as equal
AT_ONCE = 1 << 21  # entries of a table of probabilities
STEPS = 1 << 20  # a bound is rounded downwards to a multiple of 1/STEPS
SMALLEST = 1e-15  # of limits on a rate, beside 0
MOST_CELLS, SPLITS = 1 << 14, 20  # of the failure rates that cannot be told apart


class Strata:
    """Outcomes that rank no higher than the observed one, and how likely they are.

    Args:
        counts: of pairs that fail in both, in simulation alone, on the robot alone and in none
        limits: on the failure rate in simulation
        level: δ of the trials
    """

    def __init__(
        self, counts: tuple[int, ...], limits: tuple[float, float], level: Interval
    ) -> None:
        both, spared, alone, _ = counts
        limits = 0.0 if limits[0] < SMALLEST else limits[0], limits[1]  # a lower one is as true
        self.sizes, self.limits, self.level = (both + spared, sum(counts[2:])), limits, level
        self.known: dict[int, bool] = {}  # whether a bound is proven, by its steps
        self.allowed = float(scipy.special.ndtri(float(level.mid))) ** 2 / 2
        highest = self._rank(np.array([float(both)]), np.array([float(alone)]))[0] + CLOSE
        first = np.arange(self.sizes[0] + 1.0)
        most = np.full(len(first), -1)
        step = 1 << self.sizes[1].bit_length()
        while step:
            tried = np.minimum(most + step, self.sizes[1])
            fits = (most + step <= self.sizes[1]) & (self._rank(first, tried + 0.0) <= highest)
            most, step = np.where(fits, tried, most), step // 2
        # Together with an outcome all those with fewer failures: the probability then falls with
        # both rates, however ranks are rounded.
        self.most = np.maximum.accumulate(most[::-1])[::-1]
        # The tail of an outcome holds the outcome itself: without it, nothing would be proven.
        own = bool(np.isfinite(highest)) and self.most[both] >= alone
        require(own, "the outcomes cannot be ranked")
        logs = [_log_binomials(n) for n in self.sizes]
        self.logs, largest = logs, max(float(each.max()) for each in logs)
        self.rounding = 1 + 64 * UNIT * (1 + largest + sum(self.sizes))

    def _rank(self, both: Floats, alone: Floats) -> Floats:
        """The largest mean that is likely, at either limit."""
        return np.maximum(*(self._likely(both, alone, q) for q in self.limits))

    def _likely(self, both: Floats, alone: Floats, q: float) -> Floats:
        """The largest mean with as much likelihood as `allowed`: on the edge, by a multiplier."""
        failed, weights, sizes = (both, alone), (q, 1 - q), self.sizes
        low, high = np.full(both.shape, -150.0), np.full(both.shape, 150.0)
        for _ in range(80):
            middle = (low + high) / 2
            cost = np.zeros(both.shape)
            for k, n, w in zip(failed, sizes, weights, strict=True):
                if n:
                    x = _edge(k / n, w, n * np.exp2(middle))
                    cost += n * scipy.special.rel_entr(k / n, x)
                    cost += n * scipy.special.rel_entr(1 - k / n, 1 - x)
            low, high = (
                np.where(cost > self.allowed, middle, low),
                np.where(cost > self.allowed, high, middle),
            )
        total = np.zeros(both.shape)
        for k, n, w in zip(failed, sizes, weights, strict=True):
            total += w * (_edge(k / n, w, n * np.exp2(high)) if n else 1.0)
        return total

    def proves(self, bound: Interval) -> bool:
        """Whether the outcomes are rarer than δ at all rates whose mean is the bound or more."""
        step = math.floor(float(bound.a) * STEPS)
        if step not in self.known:
            self.known[step] = step >= STEPS or self._rarer(step / STEPS)
        return self.known[step]

    def _rarer(self, m: float) -> bool:
        delta = float(self.level.a) / self.rounding
        cells = np.linspace(0, 1, 49)
        left, right = cells[:-1], cells[1:]
        for _ in range(SPLITS):
            other = self._least(right, m)
            possible = other <= 1
            left, right, other = left[possible], right[possible], other[possible]
            open_cells = self._probability(left, other) > delta
            left, right, other = left[open_cells], right[open_cells], other[open_cells]
            if not len(left):
                return True
            if len(left) > MOST_CELLS or np.any(self._probability(right, other) > delta):
                return False
            middle = left / 2 + right / 2
            left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        return False

    def _least(self, a: Floats, m: float) -> Floats:
        """At most the rate of the others at which the mean can be m; rounded downwards."""
        ends = []
        for q in self.limits:
            if q >= 1:
                ends.append(np.where(a >= m, 0.0, 2.0))
                continue
            c = (m - q * a) / (1 - q)
            ends.append(c - 4 * UNIT * (1 + 1 / (1 - q)))
        return np.maximum(np.minimum(*ends), 0.0)

    def _probability(self, a: Floats, c: Floats) -> Floats:
        """P(k₀ ≤ most(k₁)) at rates a and c; (cells,)."""
        found = np.zeros(len(a))
        inside = self.most >= 0
        chunk = max(1, AT_ONCE // (sum(self.sizes) + 2))
        for start in range(0, len(a), chunk):
            part = slice(start, start + chunk)
            one = _binomial(self.logs[0], a[part])
            below = np.cumsum(_binomial(self.logs[1], c[part]), axis=1)
            found[part] = np.sum(one[:, inside] * below[:, self.most[inside]], axis=1)
        return found


def _edge(share: Floats, weight: float, strength: Floats) -> Floats:
    """x ≥ share with weight x (1-x) = strength (x - share)."""
    half = (strength - weight) / 2
    root = np.sqrt(half * half + weight * strength * share)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.where(half > 0, strength * share / (root + half), (root - half) / weight)
    return np.clip(x if weight > 0 else share, share, 1.0)


def _log_binomials(n: int) -> Floats:
    """ln of n over k, for k = 0, …, n."""
    f = [mp.mpf(intervals.log_factorial(k).b) for k in range(n + 1)]
    return np.array([float(f[n] - f[k] - f[n - k]) for k in range(n + 1)])


def _binomial(logs: Floats, rates: Floats) -> Floats:
    """The probabilities of 0, …, n failures at each rate; (rates, n + 1)."""
    k, rates = np.arange(len(logs)), rates[:, None]
    return np.exp(logs + scipy.special.xlogy(k, rates) + scipy.special.xlog1py(k[::-1], -rates))
