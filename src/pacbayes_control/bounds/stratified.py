"""An exact bound on a failure rate on the robot, from trials there and many in simulation.

Y tells whether a policy failed on the robot in an environment, and F whether it failed in
simulation of the same one. There are n independent pairs (Y, F), and many more environments with F
alone: so the rate q = E F is known within narrow limits, and the pairs have to tell only how often
the robot fails where the simulation does, and where it does not. Nothing is assumed of the
simulator. A good one makes the bound smaller, and a bad one hardly makes it larger than the exact
tail of Y alone.

The bound is Buehler's (1957), by a ranking of the outcomes. For graded costs, see `paired`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds.kl import Floats, in_unit_interval
from pacbayes_control.bounds.theorems import check_delta, clopper_pearson

STEPS = 1 << 16  # bounds are multiples of 1/STEPS
CELLS = 64  # of the rates that cannot be told apart, before they are split
MOST_CELLS, SPLITS = 1 << 13, 24
TAIL = 1e-9  # relative, and a hundred thousandth of it for each pair: above a tail's rounding
AT_ONCE = 1 << 20  # terms of tails that are held
CLOSE = 1e-9  # outcomes whose ranks differ by less count as equal: far above their rounding


@dataclass(frozen=True)
class PairCounts:
    """How often a policy failed on the robot where it failed in simulation, and where it did not.

    >>> PairCounts.of([1, 0, 1, 0, 0], [1, 0.9, 0, 0, 0.2])
    PairCounts(both=1, simulated=2, alone=1, other=3)
    """

    both: int  # failures on the robot, k₁, among
    simulated: int  # n₁ pairs that fail in simulation
    alone: int  # failures on the robot, k₀, among
    other: int  # n₀ pairs that succeed in simulation

    def __post_init__(self) -> None:
        counts = (self.both, self.simulated, self.alone, self.other)
        whole = all(count == int(count) for count in counts if math.isfinite(count))
        possible = 0 <= self.both <= self.simulated < math.inf and self.simulated + self.other > 0
        if not whole or not possible or not 0 <= self.alone <= self.other < math.inf:
            raise ValueError(f"{self}: failures must be counts, among as many pairs or more")

    @classmethod
    def of(cls, costs: ArrayLike, simulated: ArrayLike) -> PairCounts:
        """Those of costs Y of 0 or 1, (pairs,); a cost F above ½ is a failure in simulation."""
        given, f = np.asarray(costs), np.asarray(simulated)
        if given.ndim != 1 or given.shape != f.shape or not np.all((given == 0) | (given == 1)):
            raise ValueError("costs of pairs must be 0 or 1, and as many as in simulation")
        y, f = given == 1, in_unit_interval(f, "a cost in simulation") > 0.5
        return cls(int(np.sum(y & f)), int(np.sum(f)), int(np.sum(y & ~f)), int(np.sum(~f)))

    def estimate(self, rate: float) -> float:
        """The failure rate on the robot, as it seems, if it is `rate` in simulation."""
        rates = [rate, 1 - rate]
        failed, counts = (self.both, self.alone), (self.simulated, self.other)
        known = [(r, k / n) for r, k, n in zip(rates, failed, counts, strict=True) if n]
        total = sum(r for r, _ in known)
        return sum(r * share for r, share in known) / total if total else known[0][1]


def failure_limits(failures: int, n: int, delta: float) -> tuple[float, float]:
    """Exact limits on a failure rate, each wrong with probability at most δ/2.

    >>> low, high = failure_limits(3000, 10_000, 0.001)
    >>> round(low, 4), round(high, 4)
    (0.285, 0.3153)
    """
    high = float(clopper_pearson(failures, n, delta / 2))
    low = 1 - float(clopper_pearson(n - failures, n, delta / 2))
    return max(float(np.nextafter(low, -1.0)), 0.0), high


def stratified_exact_tail(counts: PairCounts, limits: tuple[float, float], delta: float) -> float:
    """Buehler's bound on E Y for costs of 0 and 1, given limits on q = E F.

    Given F in all environments, the failures on the robot are independent and binomial: k₁ of the
    n₁ pairs with F = 1 at a rate a, k₀ of the n₀ others at a rate c, and E Y = qa + (1-q)c. Rank
    the possible outcomes (k₁, k₀) by any function T that depends on nothing else but n₁, n₀, the
    limits and δ₁. For a candidate m let

    p(m) = sup {P(T ≤ as observed) : a, c with qa + (1-q)c ≥ m for some q within the limits}.

    p does not grow with m, and p(E Y) < δ₁ has probability at most δ₁, as long as q is within the
    limits. So E Y ≤ m, for any m with p(m) < δ₁, with probability at least 1 - δ₁ - δ₂, where δ₂ is
    that of an error of the limits.

    T is here that of `outcome_ranks`, which falls with neither k₁ nor k₀. So P(T ≤ t) falls with a
    and with c, and within an interval of a it is at most that at its lower end and at the least c
    that its upper end allows: cells are split until that is below δ₁ in all of them.

    Args:
        counts: of failures in the pairs
        limits: on q, such as those of `failure_limits`
        delta: δ₁

    >>> bound = stratified_exact_tail(PairCounts(28, 30, 2, 70), (0.297, 0.303), 0.01)
    >>> round(bound, 3), round(float(clopper_pearson(30, 100, 0.01)), 3)
    (0.367, 0.418)
    """
    tail = _Tail.of(counts, limits, delta)
    low, high = 0, STEPS
    while high - low > 1:
        middle = (low + high) // 2
        proven = tail.below(middle / STEPS)
        low, high = (low, middle) if proven else (middle, high)
    return min((high + 1) / STEPS, 1.0)  # one more: a proof is then found with other cells, too


def proves_rate(
    counts: PairCounts, limits: tuple[float, float], bound: float, delta: float
) -> bool:
    """Whether `stratified_exact_tail` proves that E Y is at most the bound; faster than the bound.

    >>> proves_rate(PairCounts(28, 30, 2, 70), (0.297, 0.303), 0.38, 0.01)
    True
    """
    if not bound >= 0:
        raise ValueError(f"a bound of {bound} on a failure rate must be a number from 0 to 1")
    return bound >= 1 or _Tail.of(counts, limits, delta).below(bound)


@dataclass(frozen=True)
class _Tail:
    """The probability of the outcomes that rank no higher than the observed one."""

    most: NDArray[np.intp]  # by k₁, while there is any: the largest k₀ that ranks no higher
    simulated: int  # n₁
    other: int  # n₀
    limits: tuple[float, float]  # on q
    delta: float

    @classmethod
    def of(cls, counts: PairCounts, limits: tuple[float, float], delta: float) -> _Tail:
        """The tail of observed counts."""
        check_delta(delta)
        if not 0 <= limits[0] <= limits[1] <= 1:
            raise ValueError(f"limits {limits} on the rate in simulation: 0 ≤ low ≤ high ≤ 1")
        sizes = counts.simulated, counts.other

        def rank(both: ArrayLike, alone: ArrayLike) -> Floats:
            return outcome_ranks(both, alone, sizes, limits, delta)

        highest = rank(counts.both, counts.alone) + CLOSE
        both = np.arange(counts.simulated + 1)
        low, high = np.full(len(both), -1), np.full(len(both), counts.other + 1)
        while np.any(high - low > 1):
            middle = (low + high) // 2
            within = rank(both, np.maximum(middle, 0)) <= highest
            low, high = np.where(within, middle, low), np.where(within, high, middle)
        return cls(low[low >= 0], *sizes, limits, delta)

    def below(self, m: float) -> bool:
        """Whether the tail is proven to be below δ for all rates with a mean of at least m."""
        edges = np.linspace(0, 1, CELLS + 1)
        proven = self.delta * (1 - TAIL * (1 + (self.simulated + self.other) / 1e5))
        left, right = edges[:-1], edges[1:]
        for _ in range(SPLITS):
            least = self._least_other(right, m)
            left, right, least = (each[least <= 1] for each in (left, right, least))
            unproven = self.tail(left, least) >= proven
            left, right, least = (each[unproven] for each in (left, right, least))
            if len(left) == 0:
                return True
            reached = self.tail(right, least) >= self.delta  # at rates that are among those meant
            if len(left) > MOST_CELLS or np.any(reached):
                return False
            middle = (left + right) / 2
            left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        return False

    def _least_other(self, a: Floats, m: float) -> Floats:
        """The least c with qa + (1-q)c ≥ m for some q within the limits; above 1 if none is."""
        least = np.full(len(a), np.inf)
        for q in self.limits:
            with np.errstate(divide="ignore"):
                c = (m - q * a) / (1 - q) if q < 1 else np.where(a >= m, 0.0, np.inf)
            least = np.minimum(least, np.maximum(c * (1 - 1e-15) - 1e-15, 0.0))
        return least

    @cached_property
    def log_choices(self) -> Floats:
        """ln of n₁ over k₁, by k₁."""
        k, log_factorial = np.arange(len(self.most)), scipy.special.gammaln
        ways = log_factorial(self.simulated + 1) - log_factorial(k + 1)
        return ways - log_factorial(self.simulated - k + 1)

    def tail(self, a: Floats, c: Floats) -> Floats:
        """P(k₀ ≤ most(k₁)) for each pair of rates a and c; (rates,)."""
        k, found = np.arange(len(self.most)), np.zeros(len(a))
        step = max(1, AT_ONCE // (len(k) + 1))
        for start in range(0, len(a), step):
            part = slice(start, start + step)
            x, rest = a[part, None], np.minimum(c[part, None], 1.0)
            logs = scipy.special.xlogy(k, x) + scipy.special.xlog1py(self.simulated - k, -x)
            rest = scipy.special.bdtr(self.most.astype(float), self.other, rest)
            found[part] = np.sum(np.exp(self.log_choices + logs) * rest, axis=1)
        return found


def outcome_ranks(
    both: ArrayLike,
    alone: ArrayLike,
    sizes: tuple[int, int],
    limits: tuple[float, float],
    delta: float,
) -> Floats:
    """T of outcomes (k₁, k₀): the larger `likelihood_limit` at both limits on q.

    Where limits are wide, an outcome with a ≫ c, or c ≫ a, thus ranks higher: its mean might be far
    above the one that q between the limits gives.

    >>> outcome_ranks(28, [2, 3], (30, 70), (0.297, 0.303), 0.01).round(3).tolist()
    [0.358, 0.374]
    """
    both, alone = np.broadcast_arrays(np.asarray(both, float), np.asarray(alone, float))
    rates = np.reshape(limits, (2, *(1,) * both.ndim))
    return likelihood_limit(both, alone, sizes, rates, delta).max(axis=0)


def likelihood_limit(
    both: ArrayLike, alone: ArrayLike, sizes: tuple[int, int], rate: ArrayLike, delta: float
) -> Floats:
    """T: the upper limit on qa + (1-q)c of the profile likelihood, for k₁ of n₁ and k₀ of n₀.

    The largest value with n₁ kl(k₁/n₁‖a) + n₀ kl(k₀/n₀‖c) ≤ z²/2, where z is the quantile of the
    normal distribution at 1 - δ. With a multiplier ν of that constraint, a is the root of
    q a(1-a) = ν n₁ (a - k₁/n₁), and c likewise; ν is found by bisection.

    Args:
        both: k₁
        alone: k₀, of a shape that goes with it
        sizes: n₁ and n₀
        rate: q, likewise
        delta: δ

    >>> round(float(likelihood_limit(28, 2, (30, 70), 0.3, 0.01)), 3)
    0.355
    """
    failed = np.broadcast_arrays(*(np.asarray(each, float) for each in (both, alone, rate)))
    k, weights = np.stack(failed[:2]), np.stack([failed[2], 1 - failed[2]])
    n = np.reshape(np.array(sizes, float), (2, *(1,) * failed[0].ndim))
    shares = np.where(n > 0, k / np.maximum(n, 1), 1.0)
    allowed = float(scipy.special.ndtri(delta)) ** 2 / 2
    low, high = np.full(failed[0].shape, -60.0), np.full(failed[0].shape, 60.0)
    for _ in range(50):
        middle = (low + high) / 2
        x = _stationary(shares, n * np.exp(middle), weights)
        enough = (n * _kl(shares, x)).sum(axis=0) <= allowed
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return (weights * _stationary(shares, n * np.exp(high), weights)).sum(axis=0)


def _stationary(share: Floats, strength: Floats, weight: Floats) -> Floats:
    """The root of weight x(1-x) = strength (x - share) that is not below the share."""
    b, product = strength - weight, 2 * strength * share
    root = np.sqrt(b * b + 2 * weight * product)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.where(b > 0, product / (b + root), (root - b) / (2 * weight))
    return np.clip(np.where(weight + strength > 0, x, share), share, 1.0)


def _kl(q: Floats, p: Floats) -> Floats:
    """kl(q‖p), infinite where p = 1 > q."""
    return scipy.special.rel_entr(q, p) + scipy.special.rel_entr(1 - q, 1 - p)
