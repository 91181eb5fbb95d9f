"""Interval arithmetic with 50 digits for the parts of the theorems (mpmath's `iv`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian

DIGITS = 50

Interval = Any  # mpmath's intervals have no public type
Test = Callable[[Interval], bool]  # whether a theorem gives this bound or a smaller one
iv: Any = mpmath.iv
mp: Any = mpmath.mp


class InvalidCertificate(ValueError):  # noqa: N818 - a verdict, not a fault of the program
    """A certificate that does not hold."""


def require(condition: bool, message: str) -> None:
    """Raise InvalidCertificate with this message unless the condition holds."""
    if not condition:
        raise InvalidCertificate(message)


def set_precision() -> None:
    """Compute with 50 digits from here on."""
    iv.dps = mp.dps = DIGITS


def exceeds_kl_inverse(cost: Interval, bound: Interval, complexity: Interval) -> bool:
    """Whether bound ≥ kl⁻¹(cost, complexity): bound ≥ cost and kl(cost‖bound) ≥ complexity."""
    q = iv.mpf(cost.b)
    if complexity.b <= 0:
        return bool(bound.a >= q.b)
    return bool(bound.a > q.b and kl_bernoulli(q, bound).a >= complexity.b)


def kl_bernoulli(q: Interval, p: Interval) -> Interval:
    """kl(q‖p), by its definition."""
    left = q * iv.log(q / p) if q.a > 0 else iv.mpf(0)
    return left + (1 - q) * iv.log((1 - q) / (1 - p))


def binomial_tail(failures: int, n: int, p: Interval) -> Interval:
    """P(Bin(n, p) ≤ failures): from the largest term down."""
    if failures == n:
        return iv.mpf(1)
    log_choices = log_factorial(n) - log_factorial(failures) - log_factorial(n - failures)
    term = iv.exp(log_choices + failures * iv.log(p) + (n - failures) * iv.log(1 - p))
    odds = (1 - p) / p
    return _summed(term, (iv.mpf(k) / (n - k + 1) * odds for k in range(failures, 0, -1)))


def _summed(term: Interval, ratios: Iterable[Interval]) -> Interval:
    """The sum of a term and of those after it, each by its falling ratio to the one before.

    The last ones are enclosed by a geometric bound.
    """
    total = term
    for ratio in ratios:
        term = term * ratio
        total = total + term
        if ratio.b < 1:
            rest = (term * ratio / (1 - ratio)).b  # of a geometric series, which is larger
            if rest <= total.a * iv.mpf(10) ** -30:
                return total + iv.mpf([0, rest])
    return total


def log_factorial(n: int) -> Interval:
    """ln n!, by Stirling's series between two consecutive partial sums, which enclose it."""
    if n < 100:
        return iv.log(iv.mpf(math.factorial(n)))
    x = iv.mpf(n)
    lower = (x + iv.mpf(1) / 2) * iv.log(x) - x + iv.log(2 * iv.pi) / 2
    series = [1 / (12 * x), -1 / (360 * x**3), 1 / (1260 * x**5), -1 / (1680 * x**7)]
    series += [1 / (1188 * x**9), iv.mpf(-691) / (360360 * x**11), 1 / (156 * x**13)]
    below: Interval = sum(series[:6], lower)
    above: Interval = sum(series, lower)
    return iv.mpf([below.a, above.b])


def xi(n: int) -> Interval:
    """Maurer's ξ(n) = Σⱼ n(n-1)…(n-j+1)/nʲ."""
    return _summed(iv.mpf(1), (1 - iv.mpf(j) / n for j in range(n)))


def kl_categorical(posterior: list[Interval], prior: list[Interval]) -> Interval:
    """KL between distributions over finitely many policies."""
    total = iv.mpf(0)
    for p, q in zip(posterior, prior, strict=True):
        if p.b > 0:
            require(q.a > 0, "the prior is zero where the posterior is not")
            total += p * iv.log(p / q)
    return iv.mpf([max(total.a, 0), total.b])


def kl_gaussian(posterior: DiagonalGaussian, prior: DiagonalGaussian) -> Interval:
    """KL between Gaussians with diagonal covariances."""
    total = iv.mpf(0)
    for mean, variance, prior_mean, prior_variance in _pairs(posterior, prior):
        ratio = variance / prior_variance
        total += ratio - 1 - iv.log(ratio) + (mean - prior_mean) ** 2 / prior_variance
    return iv.mpf([max(total.a, 0), total.b]) / 2


def log_ratio(
    posterior: DiagonalGaussian, prior: DiagonalGaussian, policy: NDArray[np.float64]
) -> Interval:
    """ln of the posterior's density over the prior's, at one policy."""
    total = iv.mpf(0)
    for weight, row in zip(policy, _pairs(posterior, prior), strict=True):
        mean, variance, prior_mean, prior_variance = row
        w = iv.mpf(float(weight))
        total += (w - prior_mean) ** 2 / prior_variance - (w - mean) ** 2 / variance
        total += iv.log(prior_variance / variance)
    return total / 2


def _pairs(posterior: DiagonalGaussian, prior: DiagonalGaussian) -> list[list[Interval]]:
    columns = (posterior.mean, posterior.variance, prior.mean, prior.variance)
    return [[iv.mpf(float(x)) for x in row] for row in zip(*columns, strict=True)]


def exact_probabilities(probabilities: NDArray[np.float64]) -> list[Interval]:
    """The probabilities divided by their exact sum, which may differ from 1 by rounding."""
    entries = [iv.mpf(float(p)) for p in probabilities]
    mass = sum(entries, iv.mpf(0))
    return [p / mass for p in entries]


def exact_means(values: NDArray) -> list[Interval]:
    """Column means: integer counts for 0/1 costs; else correctly rounded sums ± one ulp."""
    n = len(values)
    if values.dtype == np.uint8:
        return [iv.mpf(int(k)) / n for k in values.sum(axis=0, dtype=np.int64)]
    sums = (math.fsum(column) for column in values.T)
    return [iv.mpf([math.nextafter(s, -1), math.nextafter(s, math.inf)]) / n for s in sums]


def tilted_means(values: NDArray, tilt: float) -> list[Interval]:
    """Column means of (e^{λC} - 1)/(e^λ - 1): each e^{λC} - 1 is within 1e-14 of NumPy's own."""
    if values.dtype == np.uint8:
        return exact_means(values)
    n, scale = len(values), iv.exp(iv.mpf(tilt)) - 1
    error = iv.mpf([1 - mp.mpf(10) ** -14, 1 + mp.mpf(10) ** -14])
    sums = (math.fsum(np.expm1(tilt * column)) for column in values.T)
    return [iv.mpf(s) * error / scale / n for s in sums]


def smallest_that(holds: Test, cost: Interval) -> float:
    """The smallest bound that passes, by bisection; it is shown, and not used for the verdict."""
    low, high = mp.mpf(cost.a), mp.mpf(1)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(iv.mpf(middle)) else (middle, high)
    return float(high)
