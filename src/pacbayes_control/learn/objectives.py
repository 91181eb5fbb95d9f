"""Objectives to minimise: bounds as functions of r̂ and KL, and their slopes in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds import maurer, maurer_xi, mcallester_pinsker, quadratic, thiemann
from pacbayes_control.bounds.theorems import log_two_root, thiemann_lambda

Floats = NDArray[np.float64]
Rates = Callable[[float, float, int, float], tuple[float, float]]


@dataclass(frozen=True)
class Objective:
    """A bound to minimise, and its slopes at given r̂ and KL."""

    bound: Callable[[ArrayLike, ArrayLike, int, float], Floats]
    rates: Rates  # (∂bound/∂r̂) / (∂bound/∂KL), and ∂bound/∂KL
    exponential: bool = False  # r̂ is the mean of (e^C - 1)/(e - 1) in place of C's

    def slopes(self, cost: float, kl: float, n: int, delta: float) -> tuple[float, float]:
        """∂bound/∂r̂ and ∂bound/∂KL.

        >>> [round(s, 4) for s in OBJECTIVES["pinsker"].slopes(0.1, 2.0, 100, 0.01)]
        [1.0, 0.0114]
        """
        exchange, by_kl = self.rates(cost, kl, n, delta)
        return exchange * by_kl, by_kl


def _kl_objective(bound: Callable) -> Objective:
    # With p = kl⁻¹(q, c): ∂p/∂c = 1/D, D = (1-q)/(1-p) - q/p; ∂p/∂q over it is logit p - logit q.
    def rates(cost: float, kl: float, n: int, delta: float) -> tuple[float, float]:
        p = np.minimum(bound(cost, kl, n, delta), 1 - (1 - cost) * 1e-6)
        with np.errstate(divide="ignore", invalid="ignore"):  # for costs of 0 and 1
            exchange = n * (np.log(p) - np.log1p(-p) - (np.log(cost) - np.log1p(-cost)))
            by_kl = 1 / (n * ((1 - cost) / (1 - p) - cost / p))
        return float(exchange), float(by_kl)

    return Objective(bound, rates)


def _half_complexity(kl: float, n: int, delta: float) -> float:
    """b = (KL + ln(2√N/δ)) / (2N), for one number in the innermost loop of a search."""
    return (kl + log_two_root(n) - math.log(delta)) / (2 * n)


def _pinsker_rates(_: float, kl: float, n: int, delta: float) -> tuple[float, float]:
    exchange = 4 * n * math.sqrt(_half_complexity(kl, n, delta))
    return exchange, 1 / exchange


def _quadratic_rates(cost: float, kl: float, n: int, delta: float) -> tuple[float, float]:
    b = _half_complexity(kl, n, delta)
    inner, outer = math.sqrt(b), math.sqrt(cost + b)
    by_kl = (outer + inner) * (1 / outer + 1 / inner) / (2 * n)
    return 2 * n / (1 + math.sqrt(cost / b + 1)), by_kl


def _lambda_rates(cost: float, kl: float, n: int, delta: float) -> tuple[float, float]:
    # λ is chosen anew for each r̂ and KL, where its own slope is zero: only direct slopes remain.
    lam = float(thiemann_lambda(cost, 2 * _half_complexity(kl, n, delta)))
    return n * lam, 1 / (lam * (1 - lam / 2) * n)


# C_PAC' without B, which is the same for every posterior (paper: eq. 33): ln r̂ₑ + … in terms of
# q = r̂ + √…, r̂ₑ = 1 + (e-1) r̂.


def robust_pinsker(cost: ArrayLike, kl: ArrayLike, n: int, delta: float) -> Floats:
    """C_PAC' - B, for r̂ the mean of (e^C - 1)/(e - 1).

    >>> round(float(robust_pinsker(0.08, 1.0, 1000, 0.01)), 4)
    0.2291
    """
    return np.log1p((math.e - 1) * mcallester_pinsker(cost, kl, n, delta))


def _robust_rates(cost: float, kl: float, n: int, delta: float) -> tuple[float, float]:
    exchange, by_kl = _pinsker_rates(cost, kl, n, delta)
    relaxed = cost + math.sqrt(_half_complexity(kl, n, delta))
    return exchange, by_kl / (1 / (math.e - 1) + relaxed)


OBJECTIVES = {
    "kl": _kl_objective(maurer_xi),
    "kl-maurer": _kl_objective(maurer),
    "pinsker": Objective(mcallester_pinsker, _pinsker_rates),
    "quadratic": Objective(quadratic, _quadratic_rates),
    "lambda": Objective(thiemann, _lambda_rates),
    "robust-pinsker": Objective(robust_pinsker, _robust_rates, True),
}
