"""Bounds by bets, for graded costs: tighter than Chernoff's where costs vary less than 0 and 1 do.

Costs C₁, …, C_N in [0, 1] are i.i.d. with mean μ. A bet that μ is less than m pays 1 + λ(m - Cₜ)
for each unit, 0 ≤ λ ≤ 1/(1-m). While μ ≥ m it cannot gain on average, so that the wealth, initially
1, is a non-negative supermartingale as long as each stake λₜ depends only on costs before Cₜ: by
Ville's inequality it ever reaches 1/δ with probability at most δ.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, logsumexp

from pacbayes_control.bounds.kl import Floats, in_unit_interval
from pacbayes_control.bounds.theorems import ROUNDING, check_delta, checked_weights

GRID = 8192  # candidates m = (j/GRID)², each exact as a float; finer towards 0
THRESHOLDS = 16  # of the bound on CVaR
MARGIN = 1e-6  # of ln of the wealth, beyond 1/δ: far above the rounding of its computation
LARGEST = 640.0  # ln of 1/δ: beyond, nothing is promised, as its wealth would overflow
AIM = 0.01  # by how much ln of the wealth that stakes aim at exceeds the one that is needed
CELLS = 2_000_000  # of the table of costs held at a time

# ---- one policy ---------------------------------------------------------------------------------


def betting_holdout(costs: ArrayLike, delta: float) -> float:
    """Hold-out bound by bets, for costs in [0, 1] of a policy fixed in advance.

    The candidates m₁ > m₂ > … are those of a fixed grid. For each, the wealth of bets against
    "μ ≥ m" is computed on all N costs. Go down while it reaches 1/δ; stop at the first candidate
    where it does not. The last one before is the bound: with probability at least 1 - δ, μ ≤ m.
    For an error, the first candidate on the way that is not above μ would have to be rejected, and
    that is one fixed test at level δ. (A search for a root, or any candidate that is rejected,
    would prove nothing: the wealth does not grow steadily with m.)

    The stakes are those of STaR (Voráček and Orabona) with another term for small t:
    λₜ = min(√(2 (ln(1/δ) - ln W)/((N-t) Sₜ)), 1/(1-m)), Sₜ = min(m(1-m), the mean of (Cᵢ - m)² over
    i ≤ t, plus (1-m) ln(1/δ)/(4t)). Any other predictable stakes would be as valid.

    The order of the costs must not depend on their values, and N must be fixed in advance.

    >>> costs = np.arange(1000) % 10 / 20  # of mean 0.225
    >>> round(betting_holdout(costs, 0.01), 3)  # Chernoff's bound on the same costs is 0.266
    0.237
    """
    return float(occam_betting(np.asarray(costs, float)[:, None], [1.0], delta)[0])


def occam_betting(costs: ArrayLike, weights: ArrayLike, delta: float) -> Floats:
    """Occam's bound by bets, for costs in [0, 1] and every policy h at once; shape (policies,).

    C_D(h) ≤ `betting_holdout` at level π(h)δ, weights π fixed in advance with Σπ ≤ 1. The policy
    may be chosen by its costs on the same environments.

    Args:
        costs: (environments, policies), in an order that cannot know the costs
        weights: π, (policies,)
        delta: probability of error of all of them together
    """
    from pacbayes_control.bounds.kernels import last_rejected

    table = in_unit_interval(costs, "a cost")
    weights = checked_weights(weights, table)
    with np.errstate(divide="ignore"):
        goals = -(np.log(weights) + np.log(float(delta))) + MARGIN

    def bound(policy: int) -> float:
        goal = goals[policy]
        if not goal < LARGEST:
            return 1.0
        column = np.ascontiguousarray(table[:, policy])
        return (last_rejected(column, goal, goal + AIM, GRID, 0) / GRID) ** 2

    first = bound(0)  # compiles it
    with ThreadPoolExecutor() as pool:
        return np.array([first, *pool.map(bound, range(1, table.shape[1]))])


def cvar_betting(
    costs: ArrayLike, weights: ArrayLike, delta: float, worst: float
) -> tuple[Floats, Floats]:
    """Occam's bound by bets on CVaR, the mean cost over the worst share α of new environments.

    CVaR_α(h) = min_c (c + E(C - c)₊/α). So for each of the thresholds c = 0, 1/16, …, 15/16, fixed
    in advance, c + (1-c) U_c/α is a bound, where U_c is that of `betting_holdout` on the mean of
    (C - c)₊/(1-c) at level π(h)δ/16, and all of them hold at once.

    Args:
        costs: (environments, policies), in an order that cannot know the costs
        weights: π, (policies,)
        delta: probability of error of all of them together
        worst: α

    Returns:
        the smallest bound for each policy, and its threshold c; shapes (policies,)

    >>> costs = np.arange(1000)[:, None] * 7 % 1000 / 1000
    >>> bound, threshold = cvar_betting(costs, [1.0], 0.01, worst=0.1)
    >>> bound.round(3), threshold
    (array([0.963]), array([0.9375]))
    """
    table = in_unit_interval(costs, "a cost")
    shares = checked_weights(weights, table) / THRESHOLDS
    best, where = np.ones(table.shape[1]), np.zeros(table.shape[1])
    for c in np.arange(THRESHOLDS) / THRESHOLDS:
        above = np.minimum(np.maximum(table - c, 0) / (1 - c), 1.0)
        bounds = (c + (1 - c) * occam_betting(above, shares, delta) / worst) * (1 + ROUNDING)
        where = np.where(bounds < best, c, where)
        best = np.minimum(best, bounds)
    return best, where


# ---- the training cost of a continuous posterior -----------------------------------------------


def betting_draws(costs: ArrayLike, delta: float) -> float:
    """Bound by bets on the training cost C_S(P), from fresh draws; see `theorems.fresh_draws`.

    A new policy for every environment i and draw j: given the environments, the costs Cᵢⱼ are
    independent with means μᵢ that differ, and whose average is C_S(P). So bets from environment to
    environment prove nothing: stakes would learn which of them are easy. Here a stake λⱼ depends
    only on the draws before j, and is the same in all N environments. While C_S(P) ≥ m, what it
    pays in draw j cannot gain on average, since a geometric mean is at most the arithmetic one:

    E Πᵢ (1 + λⱼ(m - Cᵢⱼ)) = Πᵢ (1 + λⱼ(m - μᵢ)) ≤ (1 + λⱼ(m - C_S(P)))ᴺ ≤ 1.

    The wealth after each draw is thus a supermartingale, and the rest is as in `betting_holdout`.
    The first stake knows no costs: a few draws for each environment are better than one.

    Args:
        costs: (environments, draws), the draws in an order that cannot know the costs
        delta: δ', the probability of error

    >>> costs = np.arange(3000).reshape(100, 30) % 7 / 20  # of mean 0.15
    >>> round(betting_draws(costs, 0.001), 3)  # Chernoff's bound on the same costs is 0.175
    0.157
    """
    from pacbayes_control.bounds.kernels import last_rejected

    table = in_unit_interval(costs, "a cost")
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"costs of draws have the shape (environments, draws), not {table.shape}")
    check_delta(delta)
    goal = MARGIN - np.log(float(delta))
    rounds = np.ascontiguousarray(table.T).ravel()
    return (last_rejected(rounds, goal, goal + AIM, GRID, len(table)) / GRID) ** 2


# ---- a posterior over finitely many policies ----------------------------------------------------


def log_regret(n: int) -> float:
    """ln(√π Γ(N+1)/Γ(N+½)), by which a mixture of stakes may fall behind the best one.

    >>> round(float(np.exp(log_regret(1000))), 1)
    56.1
    """
    return (0.5 * np.log(np.pi) + float(gammaln(n + 1) - gammaln(n + 0.5))) + 1e-13 * n


def betting_pac_bayes(
    costs: ArrayLike, probabilities: ArrayLike, kl: float, delta: float, *, stake: float
) -> float:
    """PAC-Bayes by bets (Jang et al.), for every posterior P, every N and every stake s at once.

    With probability at least 1 - δ, for all P and N, Σ P(h) g_h(μ_h) ≤ R, where
    g_h(m) = max_λ Σᵢ ln(1 + λ(Cᵢₕ - m)), λ in [-1/(1-m), 1/m], is ln of the wealth that the best
    constant stake would have had, and R = KL(P‖P₀) + ln(√π Γ(N+1)/Γ(N+½)) + ln(1/δ). So

    C_D(P) ≤ R/(sN) + Σ P(h) Aₕ,    Aₕ = max_m (m - g_h(m)/(sN)), for every s > 0.

    It may be computed after every environment, and their number may depend on its value.

    Args:
        costs: (environments, policies), in any order
        probabilities: P, (policies,)
        kl: KL(P‖P₀)
        delta: probability of error
        stake: s; the bound is smallest near √(2R/N)/σ for costs of standard deviation σ
    """
    table, p = np.asarray(costs), np.asarray(probabilities, float)
    n, used = len(table), p > 0
    penalty = (kl + log_regret(n) - np.log(float(delta))) / (stake * n)
    excess = float(p[used] @ highest_means(table[:, used], stake))
    return min((penalty + excess) * (1 + ROUNDING), 1.0)


def minimise_betting(costs: ArrayLike, prior: Floats, delta: float) -> tuple[Floats, float]:
    """The posterior and the stake that minimise `betting_pac_bayes`.

    For a stake s, the bound is smallest for P ∝ P₀ exp(-sN Aₕ), where it is
    (ln(√π Γ(N+1)/Γ(N+½)) + ln(1/δ) - ln Σ P₀(h) exp(-sN Aₕ))/(sN): one number is searched for.
    """
    table, n = np.asarray(costs), len(np.asarray(costs))
    used = prior > 0
    log_prior, constant = np.log(prior[used]), log_regret(n) - np.log(float(delta))

    def exponents(stake: float) -> Floats:
        return log_prior - stake * n * highest_means(table[:, used], stake)

    def bound(log_stake: float) -> float:
        stake = np.exp(log_stake)
        return float(constant - logsumexp(exponents(stake))) / (stake * n)

    logs = np.log(np.sqrt(constant / n)) + np.log(2) * np.arange(-1, 13)
    values = [bound(log) for log in logs]
    best = int(np.argmin(values))
    around = logs[max(best - 1, 0)], logs[min(best + 1, len(logs) - 1)]
    found = minimize_scalar(bound, bounds=around, method="bounded", options={"xatol": 1e-4})
    log_stake = found.x if found.fun < values[best] else logs[best]
    stake = float(np.exp(log_stake))
    weights = exponents(stake)
    posterior = np.zeros(len(prior))
    posterior[used] = np.exp(weights - weights.max())
    return posterior / posterior.sum(), stake


def highest_means(costs: NDArray, stake: float) -> Floats:
    """Upper bounds on Aₕ = max_m (m - g_h(m)/(sN)), exact up to rounding; shape (policies,).

    At the maximum λ = -s, the same for every policy, and m solves Σ 1/(1 + s(m - Cᵢ)) = N; or
    λ = -1/(1-m), and m = 1 - 1/s, where that root is smaller. With the shares u = 1 - s(1-m) on
    C/m and v = 1 + sm on (1-C)/(1-m) kept fixed, ln of the wealth is a convex function of m that
    is nowhere above g_h: so Aₕ is at most the highest value of a tangent to a concave function.
    """
    n, policies = costs.shape
    found = np.empty(policies)
    columns = max(1, CELLS // n)
    for start in range(0, policies, columns):
        part = np.asarray(costs[:, start : start + columns], float)
        found[start : start + columns] = _highest_means(part, stake)
    return found


def _highest_means(costs: Floats, stake: float) -> Floats:
    n, mean = len(costs), costs.mean(axis=0)
    least = costs.max(axis=0) - 1 / stake  # where 1 + s(m - C) is zero for the largest cost
    m = np.maximum(mean, least + 1e-9 / stake)
    for _ in range(40):  # Newton's steps on a convex falling function, from the left
        shares = 1 / (1 + stake * (m - costs))
        step = (shares.mean(axis=0) - 1) / (stake * (shares**2).mean(axis=0))
        m = m + step
        if not np.any(np.abs(step) > 1e-12):
            break
    m = np.clip(np.maximum(m, 1 - 1 / stake), mean, 1.0)
    low, high = np.maximum(1 - stake * (1 - m), 0.0), 1 + stake * m  # u and v
    wealth = low * costs + high * (1 - costs)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(wealth).sum(axis=0)
        rising = np.where(m < 1, high / (1 - m) * ((1 - costs) / wealth).sum(axis=0), 0.0)
        falling = np.where(m > 0, low / m * (costs / wealth).sum(axis=0), 0.0)
        slope = 1 - (rising - falling) / (stake * n)
        highest = m - logs / (stake * n) + np.maximum(slope * (1 - m), -slope * m)
    # A wealth of zero, as of a cost of 1 where u = 0, proves nothing.
    return np.where(np.isfinite(highest), np.minimum(highest + 1e-12, 1.0), 1.0)
