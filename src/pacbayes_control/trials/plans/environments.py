"""How many environments a promise needs, before any trial: exact, without a normal approximation.

A policy with k failures in N environments is certified at most b by Occam's exact tail if
P(Bin(N, b) ≤ k) ≤ δ/candidates. So at N there is a largest allowed number of failures k(N), and a
policy that fails at a rate p is certified with the power P(Bin(N, p) ≤ k(N)).

k(N) grows in steps of 1, and between two steps the power falls as N grows: it is a sawtooth. One
environment more can therefore make a promise less likely, and the smallest N with enough power
says little about N + 1. `environments_needed` returns the N from which on the power is enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds.kl import Floats, kl_bernoulli
from pacbayes_control.bounds.theorems import check_delta, clopper_pearson

MOST = 10_000_000  # environments that are planned for
ROUNDING = 1e-9  # relative, of a tail: the bound that is computed later is rounded upwards
SLACK = 1 + 1e-6  # far above the rounding of a kl divergence that is not tiny


@dataclass(frozen=True)
class EnvironmentsNeeded:
    """The number of environments from which on a policy is certified with enough power."""

    environments: int  # N
    failures: int  # the most that may be seen in N environments
    power: float  # the probability of no more than these, at N


def environments_needed(
    bound: float,
    failure_rate: float,
    *,
    delta: float = 0.05,
    candidates: int = 1,
    power: float = 0.9,
) -> EnvironmentsNeeded:
    """The smallest N such that N environments, and any larger number, certify with enough power.

    No N is passed over: beyond a number given by Chernoff's bound the power is enough for certain,
    and below it intervals of N are bisected until each of them is known to be good.

    Args:
        bound: b, the failure rate to be promised
        failure_rate: p < b, the true one, as assumed; 0 is allowed
        delta: probability of error of the promise
        candidates: policies among which one is chosen by the same trials, each at delta/candidates
        power: the least probability that the promise is reached

    >>> environments_needed(0.3, 0.1)  # doctest: +ELLIPSIS
    EnvironmentsNeeded(environments=37, failures=6, power=0.928...)
    """
    level = checked_level(bound, delta, candidates)
    check_delta(power, "power")
    check_rate(bound, failure_rate)
    last = _last_short(bound, failure_rate, level, power)
    allowed = failures_allowed(last + 1, bound, level)
    return EnvironmentsNeeded(
        last + 1, int(allowed), float(at_most(allowed, last + 1, failure_rate))
    )


def power_curve(
    bound: float,
    failure_rate: float,
    *,
    environments: Sequence[int] | NDArray,
    delta: float = 0.05,
    candidates: int = 1,
) -> Floats:
    """The probability that a policy is certified at most b, for each number of environments; (n,).

    The failure rate may also be above the bound: then this is the probability of an error, which
    is at most delta/candidates.

    >>> power_curve(0.3, 0.1, environments=[20, 30, 40]).round(3).tolist()
    [0.677, 0.825, 0.9]
    """
    level, n = checked_level(bound, delta, candidates), _counts(environments)
    _check_probability(failure_rate)
    return at_most(failures_allowed(n, bound, level), n, failure_rate)


def bound_curve(
    failure_rate: float,
    *,
    environments: Sequence[int] | NDArray,
    delta: float = 0.05,
    candidates: int = 1,
    power: float = 0.5,
) -> Floats:
    """The bound that is reached with a probability of at least `power`, by environments; (n,).

    It is that of the number of failures which is not exceeded with this probability.

    Args:
        failure_rate: the true one, as assumed
        environments: numbers of them, (n,)
        delta: probability of error of the promise
        candidates: policies among which one is chosen by the same trials
        power: 0.5 for the bound to expect, 0.9 for one to rely on

    >>> bound_curve(0.1, environments=[20, 200, 2000]).round(3).tolist()
    [0.283, 0.142, 0.112]
    """
    level, numbers = checked_level(0.5, delta, candidates), _counts(environments)
    check_delta(power, "power")
    _check_probability(failure_rate)
    failures = [_quantile(failure_rate, int(n), power) for n in numbers]
    bounds = [clopper_pearson(k, int(n), level) for k, n in zip(failures, numbers, strict=True)]
    return np.array(bounds, float)


def failures_allowed(environments: ArrayLike, bound: float, level: float) -> NDArray[np.int64]:
    """The most failures with which a policy is certified at most b, by number of environments.

    The largest k with P(Bin(N, b) ≤ k) ≤ level, which is delta/candidates; -1 if there is none.

    >>> failures_allowed([9, 35, 100], 0.3, 0.05).tolist()
    [0, 5, 22]
    """
    n = np.asarray(environments, float)
    return _most_failures(n, np.full(n.shape, -1.0), n, bound, level).astype(np.int64)


def _most_failures(n: Floats, low: Floats, high: Floats, bound: float, level: float) -> Floats:
    """As `failures_allowed`, where `low` failures are known to be, and `high` not to be."""
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        certified = at_most(middle, n, bound) <= level * (1 - ROUNDING)
        low, high = np.where(certified, middle, low), np.where(certified, high, middle)
    return low


def _last_short(bound: float, rate: float, level: float, power: float) -> int:
    """The largest number of environments with too little power; 0 if there is none.

    Intervals of N are bisected until each is known to have enough: throughout an interval the power
    is at least that of the failures allowed at its first N, at its last N.
    """
    last = 0
    first, end = np.array([1.0]), np.array([float(_surely_enough(bound, rate, level, power))])
    fewest, most = (failures_allowed(n, bound, level).astype(float) for n in (first, end))
    while first.size:
        short = np.flatnonzero(at_most(most, end, rate) < power)
        last = int(end[short[-1]]) if short.size else last  # those before it do not matter
        left = (at_most(fewest, end, rate) < power) & (end > last) & (first < end)
        first, end, fewest, most = first[left], end[left], fewest[left], most[left]
        middle = np.floor((first + end) / 2)
        at_middle = _most_failures(middle, fewest, most + 1, bound, level)
        after = _most_failures(middle + 1, at_middle, at_middle + 2, bound, level)
        first, end = _in_turn(first, middle + 1), _in_turn(middle, end)
        fewest, most = _in_turn(fewest, after), _in_turn(at_middle, most)
    return last


def at_most(failures: ArrayLike, n: ArrayLike, rate: float) -> Floats:
    """P(Bin(n, rate) ≤ failures), for numbers of failures from -1 to n.

    >>> round(float(at_most(2, 20, 0.3)), 4)
    0.0355
    """
    failures, n = np.broadcast_arrays(np.asarray(failures, float), np.asarray(n, float))
    inside = np.clip(failures, 0, n - 1)
    tail = np.asarray(scipy.special.betaincc(inside + 1, n - inside, rate))
    return np.where(failures < 0, 0.0, np.where(failures >= n, 1.0, tail))


def _quantile(rate: float, n: int, probability: float) -> int:
    """The smallest k with P(Bin(n, rate) ≤ k) ≥ probability."""
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        enough = at_most(middle, n, rate) >= probability
        low, high = (low, middle) if enough else (middle, high)
    return high


def _surely_enough(bound: float, rate: float, level: float, power: float) -> int:
    """A number of environments from which on the power is enough, by Chernoff's bound.

    For any q between p and b, qN failures are allowed if N kl(q‖b) ≥ ln(1/level), and no more than
    qN occur with enough probability if N kl(q‖p) ≥ ln(1/(1-power)).
    """

    def least(q: float) -> float:
        kls = kl_bernoulli(q, [bound, rate])
        return float(np.max(SLACK * logs / np.maximum(kls, 1e-99)))

    logs = -np.array([math.log(level), math.log1p(-power)])
    low, high = rate, bound
    for _ in range(60):
        q = (low + high) / 2
        to_rule_out, to_see = logs / np.maximum(kl_bernoulli(q, [bound, rate]), 1e-99)
        low, high = (low, q) if to_rule_out > to_see else (q, high)
    if (n := min(least(low), least(high))) > MOST:
        raise ValueError(
            f"a bound of {bound:g} at a failure rate of {rate:g} may need more than {MOST:,} "
            "environments: raise the bound"
        )
    return math.ceil(n)


def _in_turn(first: NDArray, second: NDArray) -> NDArray:
    """The elements of two arrays in turn."""
    return np.stack([first, second], axis=1).reshape(-1)


def checked_level(bound: float, delta: float, candidates: int) -> float:
    """delta/candidates, after a check of all three.

    >>> checked_level(0.3, 0.05, 20)
    0.0025
    """
    check_delta(bound, "bound")
    check_delta(delta)
    if not (candidates >= 1 and candidates == int(candidates)):
        raise ValueError(f"candidates = {candidates}: a whole number of at least 1 is needed")
    return float(delta) / int(candidates)


def check_rate(bound: float, failure_rate: float) -> None:
    """An error unless the failure rate is at least 0 and below the bound.

    >>> check_rate(0.3, 0.1)
    """
    _check_probability(failure_rate)
    if failure_rate >= bound:
        raise ValueError(
            f"no number of trials suffices: the failure rate {failure_rate:g} is not below the "
            f"bound {bound:g}"
        )


def _check_probability(failure_rate: float) -> None:
    if not 0 <= failure_rate <= 1:
        raise ValueError(f"the failure rate {failure_rate} must lie in [0, 1]")


def _counts(environments: ArrayLike) -> NDArray[np.int64]:
    """Numbers of environments as whole numbers; shape (n,)."""
    numbers = np.asarray(environments, float)
    if numbers.ndim != 1 or not np.all((numbers >= 1) & (numbers <= MOST) & (numbers % 1 == 0)):
        raise ValueError(f"numbers of environments must be whole, from 1 to {MOST:,}, in a list")
    return numbers.astype(np.int64)
