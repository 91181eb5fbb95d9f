"""One function per theorem, named after it: numbers in, a certified number out.

Throughout, N environments are drawn i.i.d., costs lie in [0, 1], and the prior P₀ was fixed before
the environments were seen. `empirical_cost` is r̂ = (1/N) Σᵢ E_{w∼P} C(w, Eᵢ), `kl` is KL(P‖P₀), and
each statement holds with probability at least 1 - δ over the draw of the environments. Functions
broadcast over arrays, never return more than 1, and round upwards.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pacbayes_control.bounds.kl import Floats, in_unit_interval, kl_inverse

ROUNDING = 1e-12  # relative; far above the rounding error of the few operations of a formula
EXACT_XI_UP_TO = 10_000_000_000

# ---- PAC-Bayes: for every posterior P at once ---------------------------------------------------


def maurer(empirical_cost: ArrayLike, kl: ArrayLike, n: int, delta: float) -> Floats:
    """Maurer's bound with 2√N (paper: Theorem 1, eq. 10 and 11).

    C_D(P) ≤ kl⁻¹(r̂, (KL(P‖P₀) + ln(2√N/δ)) / N) for all P.

    Maurer proves ξ(N) ≤ 2√N for N ≥ 8, as the paper says; it also holds for N = 1 … 7, which can
    be checked by hand, so there is no restriction.

    >>> round(float(maurer(0.08, 1.0, 1000, 0.01)), 4)
    0.1233
    """
    return kl_inverse(empirical_cost, complexity(kl, log_two_root(n), n, delta))


def maurer_xi(empirical_cost: ArrayLike, kl: ArrayLike, n: int, delta: float) -> Floats:
    """Maurer's bound with his own constant ξ(N) ≤ 2√N: tighter, under the same assumptions.

    C_D(P) ≤ kl⁻¹(r̂, (KL(P‖P₀) + ln(ξ(N)/δ)) / N) for all P.

    >>> round(float(maurer_xi(0.08, 1.0, 1000, 0.01)), 4)
    0.1222
    """
    return kl_inverse(empirical_cost, complexity(kl, log_xi(n), n, delta))


def mcallester_pinsker(empirical_cost: ArrayLike, kl: ArrayLike, n: int, delta: float) -> Floats:
    """C_PAC (paper: Corollary 1, Theorem 2, eq. 12 and 14): Maurer relaxed by Pinsker's inequality.

    C_D(P) ≤ r̂ + √((KL(P‖P₀) + ln(2√N/δ)) / (2N)) for all P.

    >>> round(float(mcallester_pinsker(0.08, 1.0, 1000, 0.01)), 4)
    0.1498
    """
    penalty = np.sqrt(complexity(kl, log_two_root(n), n, delta) / 2)
    return _at_most_one(in_unit_interval(empirical_cost, "the empirical cost") + penalty)


def quadratic(empirical_cost: ArrayLike, kl: ArrayLike, n: int, delta: float) -> Floats:
    """The quadratic bound of Pérez-Ortiz et al.: a smooth training objective, looser than kl⁻¹.

    C_D(P) ≤ (√(r̂ + b) + √b)², b = (KL(P‖P₀) + ln(2√N/δ)) / (2N), for all P.

    >>> round(float(quadratic(0.08, 1.0, 1000, 0.01)), 4)
    0.1304
    """
    cost = in_unit_interval(empirical_cost, "the empirical cost")
    b = complexity(kl, log_two_root(n), n, delta) / 2
    return _at_most_one((np.sqrt(cost + b) + np.sqrt(b)) ** 2)


def thiemann(
    empirical_cost: ArrayLike, kl: ArrayLike, n: int, delta: float, *, lam: ArrayLike | None = None
) -> Floats:
    """The λ-bound of Thiemann et al., uniform over λ in (0, 2); by default, the best λ.

    C_D(P) ≤ r̂/(1-λ/2) + (KL(P‖P₀) + ln(2√N/δ)) / (λ(1-λ/2)N) for all P and λ.

    >>> round(float(thiemann(0.08, 1.0, 1000, 0.01)), 4)  # the quadratic bound
    0.1304
    """
    cost = in_unit_interval(empirical_cost, "the empirical cost")
    c = complexity(kl, log_two_root(n), n, delta)
    lam = thiemann_lambda(cost, c) if lam is None else np.asarray(lam, float)
    if not np.all((lam > 0) & (lam < 2)):
        raise ValueError("λ must lie in (0, 2)")
    return _at_most_one(cost / (1 - lam / 2) + c / (lam * (1 - lam / 2)))


def thiemann_lambda(empirical_cost: ArrayLike, complexity: ArrayLike) -> Floats:
    """The λ that minimises Thiemann's bound: 2 / (√(2r̂/c + 1) + 1) for the complexity c."""
    ratio = np.asarray(empirical_cost, float) / np.asarray(complexity, float)
    return 2 / (np.sqrt(2 * ratio + 1) + 1)


def complexity(kl: ArrayLike, log_constant: float, n: int, delta: float) -> Floats:
    """(KL + ln(constant/δ)) / N, the right-hand side of the kl theorems."""
    kl = np.asarray(kl, float)
    if not np.all(kl >= 0):
        raise ValueError("KL(P‖P₀) must be a number of at least 0, and not NaN")
    n = _check(n, delta)
    return (kl + log_constant - np.log(float(delta))) / n * (1 + ROUNDING)


@lru_cache(maxsize=256)
def log_xi(n: int) -> float:
    """ln ξ(N), ξ(N) = Σₖ C(N,k) (k/N)ᵏ (1-k/N)ᴺ⁻ᵏ, the constant in Maurer's proof.

    It is computed as Σⱼ N(N-1)…(N-j+1)/Nʲ, which is equal by an identity of Cauchy's, and of which
    only about √N terms matter. Beyond 10¹⁰ environments, Maurer's own upper bound
    e^{1/(12N)} √(πN/2) + 2 is used, which is less than 0.002 % above ξ there.

    >>> round(float(np.exp(log_xi(100))), 2), round(float(np.exp(log_xi(1000))), 2)
    (13.21, 40.3)
    """
    n = _check(n)
    if n > EXACT_XI_UP_TO:
        return float(np.log(np.exp(1 / (12 * n)) * np.sqrt(np.pi * n / 2) + 2))
    count = min(n, int(12 * np.sqrt(n)) + 1)
    # The j-th term is at most exp(-j(j-1)/(2N)): the omitted ones add less than 1e-28 to ξ.
    terms = np.cumprod(1 - np.arange(count) / n)
    return float(np.log1p(terms.sum())) + 1e-15 * count


def log_two_root(n: int) -> float:
    """ln(2√N), the paper's constant in place of ln ξ(N)."""
    return math.log(2 * math.sqrt(_check(n)))


# ---- one deterministic policy -------------------------------------------------------------------


def clopper_pearson(failures: ArrayLike, n: int, delta: ArrayLike) -> Floats:
    """Exact upper confidence limit on a failure probability, for a policy fixed in advance.

    p ≤ sup{p : P(Bin(N, p) ≤ k) ≥ δ} = BetaInv(1 - δ; k+1, N-k) for 0/1 costs with k failures.
    The policy must not depend on the environments counted: choose it on others (hold-out).

    >>> round(float(clopper_pearson(2, 20, 0.05)), 4)
    0.2826
    """
    n = _check(n, delta)
    failures, delta = np.broadcast_arrays(np.asarray(failures, float), np.asarray(delta, float))
    if np.any(failures != np.floor(failures)) or np.any(failures < 0) or np.any(failures > n):
        raise ValueError(f"failures must be whole numbers from 0 to {n}")
    below = np.minimum(failures, n - 1)  # a placeholder where every rollout failed; overwritten
    shape = below + 1, n - below
    p = np.asarray(scipy.special.betainccinv(*shape, delta))
    # Where the inverse fails, at levels below about 1e-100, Chernoff's bound is as tight.
    p = np.where(np.isnan(p), chernoff_kl_holdout(below / n, n, delta), p)
    # Increase p until the tail computed at p is below δ by more than its own error.
    step = 1e-15
    while np.any(short := (scipy.special.betaincc(*shape, p) > delta * (1 - 1e-11)) & (p < 1)):
        p = np.where(short, np.minimum(p + step * (1 - p), 1.0), p)
        step *= 4
    return np.where(failures == n, 1.0, p)


def exact_tail_of_tasks(failures: ArrayLike, n: int, delta: ArrayLike) -> Floats:
    """Exact upper limit on a failure probability that is averaged over a fixed list of tasks.

    p̄ ≤ max(BetaInv(1 - δ; k+1, N-k), (k+1)/N) for k failures in N independent trials, equally many
    of each task, whose failure probabilities differ and have the average p̄. By Hoeffding's theorem
    on the number of successes in independent trials (1956), P(S ≤ k) ≤ P(Bin(N, p̄) ≤ k) for every
    k ≤ Np̄ - 1: the binomial tail is the largest one. The second term keeps to such k; for δ below
    1/4 it is hardly ever the larger one.

    >>> round(float(exact_tail_of_tasks(2, 20, 0.05)), 4)
    0.2826
    """
    least = np.minimum((np.asarray(failures, float) + 1) / _check(n) * (1 + ROUNDING), 1.0)
    return np.maximum(clopper_pearson(failures, n, delta), least)


def chernoff_kl_holdout(empirical_cost: ArrayLike, n: int, delta: ArrayLike) -> Floats:
    """Hold-out bound for costs in [0, 1], for a policy fixed in advance.

    C_D(h) ≤ kl⁻¹(r̂(h), ln(1/δ)/N), by the Chernoff-Hoeffding bound in its kl form.

    >>> round(float(chernoff_kl_holdout(0.1, 20, 0.05)), 4)
    0.3334
    """
    n = _check(n, delta)
    return kl_inverse(empirical_cost, -np.log(np.asarray(delta, float)) / n * (1 + ROUNDING))


def occam_exact_tail(failures: ArrayLike, n: int, weights: ArrayLike, delta: float) -> Floats:
    """Occam's bound with the exact binomial tail, for 0/1 costs and every policy h at once.

    C_D(h) ≤ BetaInv(1 - π(h)δ; k_h+1, N-k_h), weights π fixed in advance with Σπ ≤ 1. The policy
    may be chosen by its costs on the same environments. There is no term ln √N.

    >>> round(float(occam_exact_tail([80, 400], 1000, [0.5, 0.5], 0.01)[0]), 4)
    0.1047
    """
    weights = checked_weights(weights, failures)
    n = _check(n, delta)
    levels = weights * float(delta)
    exact = levels > 1e-290  # below, where π(h)δ underflows, Chernoff's bound is used
    tail = clopper_pearson(failures, n, np.where(exact, levels, delta))
    return np.where(exact, tail, occam_kl(np.asarray(failures) / n, n, weights, delta))


def occam_kl(empirical_cost: ArrayLike, n: int, weights: ArrayLike, delta: float) -> Floats:
    """Occam's bound for costs in [0, 1] and every policy h at once.

    C_D(h) ≤ kl⁻¹(r̂(h), ln(1/(π(h)δ))/N), weights π fixed in advance with Σπ ≤ 1.

    >>> round(float(occam_kl([0.08, 0.4], 1000, [0.5, 0.5], 0.01)[0]), 4)
    0.1109
    """
    weights = checked_weights(weights, empirical_cost)
    n = _check(n, delta)
    with np.errstate(divide="ignore"):
        penalty = -(np.log(weights) + np.log(float(delta))) / n * (1 + ROUNDING)
    return kl_inverse(empirical_cost, penalty)


def single_draw(empirical_cost: ArrayLike, log_ratio: ArrayLike, n: int, delta: float) -> Floats:
    """The disintegrated bound of Rivasplata et al.: for one policy h drawn from P and then fixed.

    C_D(h) ≤ kl⁻¹(r̂(h), (ln(P(h)/P₀(h)) + ln(ξ(N)/δ)) / N), with probability at least 1 - δ over the
    draw of the environments and of h together. P may depend on the environments; h must be the
    first and only draw. A negative right-hand side is replaced by 0, which is weaker.

    >>> round(float(single_draw(0.08, 1.0, 1000, 0.01)), 4)
    0.1222
    """
    ratio = np.asarray(log_ratio, float)
    if np.any(np.isnan(ratio)):
        raise ValueError("the logarithm of the ratio of the densities is NaN")
    n = _check(n, delta)
    constant = log_xi(n) - np.log(float(delta))
    # The terms may cancel: a bound on the rounding error of their sum is added.
    loss = 1e-14 * (np.where(np.isfinite(ratio), np.abs(ratio), 0.0) + constant)
    excess = np.maximum(ratio + constant + loss, 0.0)
    return kl_inverse(empirical_cost, excess / n * (1 + ROUNDING))


# ---- the training cost of a continuous posterior -----------------------------------------------
# The expected cost C_S(P) of a continuous posterior on the training environments has no closed
# form. It is estimated by rollouts of sampled policies, whose mean cost is `estimate` (Ĉ_S), and
# bounded with probability at least 1 - δ' over the samples. The posterior must be fixed before the
# policies are drawn. If rollouts are noisy, the noise is drawn independently for each rollout.


def fresh_draws(estimate: ArrayLike, rollouts: int, delta: float) -> Floats:
    """A new policy for every rollout, with equally many rollouts in each environment.

    C_S(P) ≤ kl⁻¹(Ĉ_S, ln(1/δ')/M) for M rollouts in all. Given the environments, the M costs are
    independent, with different means whose average is C_S(P). This is all that the kl form of the
    Chernoff-Hoeffding bound needs: Σ ln E e^{tX} is at most M ln(1 + C_S(P)(eᵗ - 1)).

    >>> round(float(fresh_draws(0.08, 30_000, 0.001)), 4)
    0.086
    """
    return chernoff_kl_holdout(estimate, rollouts, delta)


def shared_draws(estimate: ArrayLike, policies: int, delta: float) -> Floats:
    """The same L sampled policies in every environment.

    C_S(P) ≤ kl⁻¹(Ĉ_S, ln(1/δ')/L): only the L mean costs over the environments are independent, so
    more environments do not tighten it.

    >>> round(float(shared_draws(0.08, 30_000, 0.001)), 4)
    0.086
    """
    return chernoff_kl_holdout(estimate, policies, delta)


def langford_caruana(estimate: ArrayLike, policies: int, delta: float) -> Floats:
    """The sample convergence bound as the paper states it (eq. 23), for shared draws.

    C_S(P) ≤ kl⁻¹(Ĉ_S, ln(2/δ')/L): `shared_draws` at δ'/2, the two-sided version.

    >>> round(float(langford_caruana(0.08, 30_000, 0.001)), 4)
    0.0862
    """
    check_delta(delta)
    return shared_draws(estimate, policies, float(delta) / 2)


# ---- checks -------------------------------------------------------------------------------------


def checked_weights(weights: ArrayLike, outcomes: ArrayLike) -> Floats:
    """Weights of policies that sum to at most 1; an error unless there is one for each."""
    weights = np.asarray(weights, float)
    if weights.ndim != 1 or np.shape(outcomes)[-1:] != weights.shape:
        raise ValueError("Occam's bound needs one weight for each policy")
    total = np.sum(weights)
    if not np.all(weights >= 0) or total > 1 + 1e-9:
        raise ValueError("the weights of the policies must be at least 0 and sum to at most 1")
    return weights / max(1.0, total)  # a sum above 1 by rounding must not overspend δ


def check_delta(delta: ArrayLike, name: str = "delta") -> None:
    """An error unless a probability of error lies strictly between 0 and 1."""
    if not np.all((np.asarray(delta) > 0) & (np.asarray(delta) < 1)):
        raise ValueError(f"{name} = {delta} must lie strictly between 0 and 1")


def _check(n: int, delta: ArrayLike = 0.5) -> int:
    """N as a Python integer: arithmetic with small NumPy integers would be in half precision."""
    if not (n >= 1 and n == int(n)):
        raise ValueError(f"N = {n}: a whole number of environments, at least one, is needed")
    check_delta(delta)
    return int(n)


def _at_most_one(value: Floats) -> Floats:
    return np.minimum(value * (1 + ROUNDING), 1.0)
