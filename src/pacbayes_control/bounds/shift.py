"""From a bound on D to a bound on every D' in a divergence ball (paper: Section 6.2).

D is the distribution that the training environments come from, and D' any other with
D_f(D'‖D) ≤ B. The costs lie in [0, 1]. The posterior P may depend on the training environments, but
not on D'. `bound` is any certificate U with C_D(P) ≤ U: the statements here do not increase its
probability of error, and hold for all B, and for all divergences, at once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from pacbayes_control.bounds.divergences import divergence_bernoulli, named_divergence
from pacbayes_control.bounds.kl import Floats, in_unit_interval
from pacbayes_control.bounds.theorems import ROUNDING, complexity, log_two_root, maurer, maurer_xi

WIDENING = 1e-12  # relative; more than the rounding error of the divergences
SMALLEST_TILT = 0.01  # below, the bound is little more than B/λ
LARGEST_TILT = 30.0  # beyond, millions of environments would not suffice to estimate E e^{λC}

# ---- exactly ------------------------------------------------------------------------------------


def shift_inverse(bound: ArrayLike, radius: ArrayLike, divergence: str) -> Floats:
    """The largest expected cost on any D' in the ball, rounded upwards.

    C_D'(P) ≤ max{q ≥ U : D(Bern(q)‖Bern(U)) ≤ B}.

    Let a coin show heads with probability C(w, E), w ∼ P: its law is Bern(C_D(P)) if E ∼ D and
    Bern(C_D'(P)) if E ∼ D', and no processing of E increases a divergence. The right-hand side does
    not decrease with U, since D(Bern(q)‖Bern(·)) is convex and zero at q. It is attained by costs
    of 0 and 1: no better bound follows from U and B alone. The result is never below it, and within
    1e-9 for bounds of 0 and of 1e-300 and more (1e-150 for chi-squared).

    >>> [round(float(shift_inverse(0.1, 0.05, name)), 4) for name in ("kl", "total-variation")]
    [0.2067, 0.15]
    """
    chosen = named_divergence(divergence)
    u, radius = np.broadcast_arrays(in_unit_interval(bound, "a bound"), checked_radius(radius))
    p = np.minimum(np.where(u > 0, np.maximum(u, chosen.smallest), 0.0), np.nextafter(1, 0))
    rest = 1 - p
    target = radius * (1 + WIDENING)
    low, last = np.zeros(u.shape), rest * (1 - 1e-13)  # beyond the last, q is returned as 1
    high = last.copy()
    with np.errstate(all="ignore"):
        inside = chosen.between_bernoullis(p, rest, last) >= target
        for _ in range(120):  # to relative precision also for the smallest bounds
            middle = (low + high) / 2
            reached = chosen.between_bernoullis(p, rest, middle) >= target
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
            if not np.any(high - low > 1e-14 * high):
                break
    q = np.where(inside, np.nextafter(p + (high + 4e-16), 2), 1.0)
    if math.isinf(chosen.growth):  # D' has no mass where D has none, so a cost of zero stays zero
        q = np.where(u == 0, 0.0, q)
    return np.where((radius == 0) | (u == 1), u, np.minimum(q, 1.0))


def tolerable_shift(bound: ArrayLike, limit: ArrayLike, divergence: str) -> Floats:
    """The largest radius B at which the bound on every D' in the ball stays below `limit`.

    >>> radius = tolerable_shift(0.1, 0.5, "kl")
    >>> round(float(radius), 4), round(float(shift_inverse(0.1, radius, "kl")), 4)
    (0.5108, 0.5)
    """
    bound, limit = np.broadcast_arrays(in_unit_interval(bound, "a bound"), np.asarray(limit, float))
    if not np.all((limit >= bound) & (limit <= 1)):
        raise ValueError("a limit must lie between the bound and 1")
    radius = divergence_bernoulli(limit, bound, divergence)
    return np.maximum(radius * (1 - 1e-9) - 1e-18, 0.0)


# ---- as in the paper ----------------------------------------------------------------------------


def f_divergence_inequality(
    costs: ArrayLike,
    radius: float,
    divergence: str = "kl",
    *,
    offset: float = 0.0,
    weights: ArrayLike | None = None,
) -> float:
    """The variational inequality for any f (paper: Corollary 2, eq. 29).

    C_D'(P) ≤ B + ν + E_D E_P[f*(C - ν)], for any number ν fixed in advance, 0 in the paper. The
    expectation is over the distribution D, not over a sample of it.

    Args:
        costs: the values that C takes under D and P.
        radius: B.
        divergence: its name, of an f-divergence.
        offset: ν; for `reverse-kl`, larger than every cost, as f* is infinite at 0 and above.
        weights: the probability of each cost; equal by default.

    Equation 30 of the paper:

    >>> round(f_divergence_inequality([0, 1], 0.01, "kl", offset=-1, weights=[0.9, 0.1]), 4)
    0.1818
    """
    chosen = named_divergence(divergence)
    if chosen.conjugate is None:
        raise ValueError(f"{chosen.name} has no conjugate f*: choose an f-divergence")
    costs = in_unit_interval(costs, "a cost")
    shares = np.full(costs.shape, 1 / costs.size) if weights is None else np.asarray(weights, float)
    if shares.shape != costs.shape or not np.all(shares >= 0) or abs(shares.sum() - 1) > 1e-9:
        raise ValueError("the weights must be probabilities, one for each cost")
    if not math.isfinite(offset):
        raise ValueError(f"the offset is {offset}: it must be a finite number")
    shares = shares / shares.sum()
    positive = shares > 0
    with np.errstate(divide="ignore"):
        mean = float(shares[positive] @ chosen.conjugate(costs[positive] - offset))
    return _at_most_one(float(checked_radius(radius)) + offset + mean)


def kl_inequality(mean_exponential: float, radius: float) -> float:
    """The inequality for KL(D'‖D) ≤ B (paper: Corollary 3, eq. 30).

    C_D'(P) ≤ B + E_D E_P[e^C] - 1; `mean_exponential` is the expectation, in [1, e].

    >>> round(kl_inequality(1 + 0.1 * (math.e - 1), 0.01), 4)
    0.1818
    """
    return _at_most_one(float(checked_radius(radius)) + _exponential(mean_exponential) - 1)


def donsker_varadhan(mean_exponential: float, radius: float) -> float:
    """Donsker and Varadhan's inequality for KL(D'‖D) ≤ B (paper: Theorem 4, eq. 31).

    C_D'(P) ≤ B + ln E_D E_P[e^C]; never above `kl_inequality`.

    >>> round(donsker_varadhan(1 + 0.1 * (math.e - 1), 0.01), 4)
    0.1686
    """
    return _at_most_one(float(checked_radius(radius)) + math.log(_exponential(mean_exponential)))


def robust_c_pac(
    empirical_exponential: float, kl: float, n: int, delta: float, *, radius: float
) -> float:
    """C_PAC', the robust PAC-Bayes bound (paper: Corollary 4, eq. 32 and 33).

    C_D'(P) ≤ B + ln(r̂ₑ + (e-1) √((KL(P‖P₀) + ln(2√N/δ)) / (2N))) for all P and all D' with
    KL(D'‖D) ≤ B, where r̂ₑ is the mean of e^C over P and the environments.

    >>> round(robust_c_pac(1 + 0.08 * (math.e - 1), 1.0, 1000, 0.01, radius=0.08), 4)
    0.3091
    """
    penalty = math.sqrt(float(complexity(kl, log_two_root(n), n, delta)) / 2)
    mean = _exponential(empirical_exponential) + (math.e - 1) * penalty
    return donsker_varadhan(min(mean, math.e), radius)


def robust_maurer(
    empirical_cost: float, kl: float, n: int, delta: float, *, radius: float
) -> float:
    """The paper's final bound on the robust policy (eq. 37), by two inversions.

    max c' subject to kl(r̂‖c) ≤ (KL(P‖P₀) + ln(2√N/δ)) / N and kl(c'‖c) ≤ B: the largest c' grows
    with c, so the largest c is computed first.

    >>> round(robust_maurer(0.08, 1.0, 1000, 0.01, radius=0.08), 4)
    0.2721
    """
    return float(shift_inverse(maurer(empirical_cost, kl, n, delta), radius, "kl"))


# ---- for graded costs ---------------------------------------------------------------------------


def tilted_maurer(
    empirical_tilted: ArrayLike, kl: ArrayLike, n: int, delta: float, *, radius: float, tilt: float
) -> Floats:
    """Donsker and Varadhan's inequality for λC, with Maurer's bound on the mean of e^{λC}.

    C_D'(P) ≤ (B + ln(1 + (e^λ - 1) kl⁻¹(r̂_λ, (KL(P‖P₀) + ln(ξ(N)/δ)) / N))) / λ for all P, all B
    and all D' with KL(D'‖D) ≤ B, where r̂_λ is the mean of (e^{λC} - 1)/(e^λ - 1) over P and the
    environments, and the tilt λ > 0 was fixed in advance: for the best of k tilts, use δ/k.

    At λ = 1 it is the paper's eq. 33 without Pinsker's relaxation. For 0/1 costs r̂_λ is r̂, and the
    smallest over λ is `shift_inverse` of Maurer's bound. For graded costs of small variance it can
    be far smaller, because E e^{λC} depends on the spread of C.

    >>> half = math.expm1(2 * 0.5) / math.expm1(2)  # every cost is one half, and λ = 2
    >>> round(float(tilted_maurer(half, 1.0, 1000, 0.01, radius=0.02, tilt=2.0)), 3)
    0.579
    >>> round(float(shift_inverse(maurer(0.5, 1.0, 1000, 0.01), 0.02, "kl")), 3)
    0.667
    """
    check_tilt(tilt)
    mean = maurer_xi(empirical_tilted, kl, n, delta)
    exponent = float(checked_radius(radius)) + np.log1p(math.expm1(tilt) * mean)
    return np.minimum(exponent / tilt * (1 + ROUNDING), 1.0)


def checked_radius(radius: ArrayLike) -> Floats:
    """B as floats; an error unless every radius is finite and at least 0."""
    radius = np.asarray(radius, float)
    if not np.all((radius >= 0) & np.isfinite(radius)):
        shown = f"{radius:g}" if radius.ndim == 0 else "given"
        raise ValueError(f"the shift B = {shown} must be a finite number of at least 0")
    return radius


def check_tilt(tilt: float) -> None:
    """An error unless λ is in the range in which e^{λC} is computed accurately."""
    if not SMALLEST_TILT <= tilt <= LARGEST_TILT:
        raise ValueError(
            f"a tilt of {tilt:g} must lie between {SMALLEST_TILT:g} and {LARGEST_TILT:g}"
        )


def _exponential(mean: float) -> float:
    """The mean of e^C, clipped to [1, e]; an error if it is outside by more than rounding."""
    if not 1 - 1e-9 <= mean <= math.e + 1e-9:
        raise ValueError(f"the mean of e^C = {mean:g} must lie in [1, e]")
    return min(max(float(mean), 1.0), math.e)


def _at_most_one(value: float) -> float:
    return min(value * (1 + ROUNDING), 1.0) if value > 0 else max(value, 0.0)
