"""Learning over a finite policy space, exactly (paper: Section 5.1 and Algorithm 1).

Any bound that grows with r̂ and with KL(P‖P₀) is minimised, over all distributions on L policies,
by one on the Gibbs path p_β ∝ p₀ exp(-β c̄), where c̄ are the mean costs: among all P with the same
r̂, the one on the path has the smallest KL. So an L-dimensional problem becomes a search over one
number. The theorems hold for all P at once, so that the search costs nothing in confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from pacbayes_control.bounds import maurer, maurer_xi, mcallester_pinsker, quadratic
from pacbayes_control.bounds.theorems import log_two_root
from pacbayes_control.certificate import METHODS, Budget, issue, occam_bounds
from pacbayes_control.costs import Costs, prior_for
from pacbayes_control.distributions import Categorical
from pacbayes_control.run import Run

Floats = NDArray[np.float64]

CELLS = 4_000_000  # of the table β × distinct costs held at a time


def learn_finite(
    costs: Costs | ArrayLike,
    delta: float = 0.01,
    method: str = "kl",
    objective: str | None = None,
    prior: Categorical | ArrayLike | None = None,
) -> Run:
    """Choose the posterior that minimises `objective`, and certify it by `method`.

    method: "kl" (Maurer with ξ), "kl-maurer" (with 2√N), "pinsker" (C_PAC), or "occam" (the best
    single policy). objective: the same names and "quadratic"; the method's own where none is given.
    The paper minimises "pinsker" and certifies by "kl-maurer". The prior must have been chosen
    before the costs were seen; unless one is given it is uniform over the policies that differ.

    >>> costs = Costs(np.arange(300).reshape(100, 3) % 7 == 0)
    >>> print(learn_finite(costs, delta=0.05).certificate)  # doctest: +ELLIPSIS
    With confidence 95 %, a policy drawn afresh from the posterior over 3 policies fails in ...
    """
    check_method(method, objective)
    budget = Budget(delta)
    budget.spend(method)
    costs = costs if isinstance(costs, Costs) else Costs(costs)
    return _learn(costs, budget, method, objective, prior_for(costs, prior))


def learn_best(
    costs: Costs,
    delta: float = 0.01,
    prior: Categorical | ArrayLike | None = None,
    methods: tuple[str, ...] = ("kl", "occam"),
) -> Run:
    """The smallest of several certificates, each computed at its share of δ: a union bound.

    To compare methods and keep the best at full δ would be choosing by the data at no charge.
    """
    for method in methods:
        check_method(method)
    budget = Budget(delta)
    for method in methods:
        budget.spend(method, delta / len(methods))
    prior = prior_for(costs, prior)
    runs = [_learn(costs, budget, method, None, prior) for method in methods]
    return min(runs, key=lambda run: run.certificate.bound)


def _learn(
    costs: Costs, budget: Budget, method: str, objective: str | None, prior: Categorical
) -> Run:
    delta, objective = budget.spent[method], objective or method
    if method == "occam":
        bounds = occam_bounds(costs, prior, delta)
        policy = int(np.argmin(np.where(prior.probabilities > 0, bounds, np.inf)))
        posterior = Categorical.one(policy, costs.policies)
    else:
        posterior = minimise(costs.means, costs.environments, prior, delta, objective)
    certificate = issue(costs, prior, posterior, method, budget, objective)
    return Run(certificate, costs, prior, posterior)


def check_method(method: str, objective: str | None = None) -> None:
    """An error that says what to choose from if a name is unknown or does not fit."""
    if method not in METHODS:
        raise ValueError(f"method {method!r} is unknown: choose from {', '.join(METHODS)}")
    if method == "occam" and objective not in (None, "occam"):
        raise ValueError("occam certifies the best single policy: it has no other objective")
    if method != "occam" and objective not in (None, *OBJECTIVES):
        raise ValueError(f"objective {objective!r} is unknown: choose from {', '.join(OBJECTIVES)}")


# ---- the Gibbs path -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """A bound to minimise, and the β at which it can be stationary for given r̂ and KL.

    Along the path dKL = -β dr̂, so that a minimum satisfies β = (∂/∂r̂) / (∂/∂KL).
    """

    bound: Callable[[Floats, Floats, int, float], Floats]
    stationary: Callable[[float, float, int, float], float]


def _logit(p: float) -> float:
    return float(np.log(p) - np.log1p(-p)) if 0 < p < 1 else (np.inf if p else -np.inf)


def _stationary_kl(bound: Callable) -> Callable[[float, float, int, float], float]:
    # ∂p/∂q over ∂p/∂c of p = kl⁻¹(q, c) is logit(p) - logit(q), and c = (KL + …)/N.
    return lambda cost, kl, n, delta: n * (_logit(float(bound(cost, kl, n, delta))) - _logit(cost))


def _stationary_pinsker(_: float, kl: float, n: int, delta: float) -> float:
    return 4 * n * math.sqrt(_half_complexity(kl, n, delta))


def _stationary_quadratic(cost: float, kl: float, n: int, delta: float) -> float:
    return 2 * n / (1 + math.sqrt(cost / _half_complexity(kl, n, delta) + 1))


def _half_complexity(kl: float, n: int, delta: float) -> float:
    """(KL + ln(2√N/δ)) / (2N), for one number in the innermost loop of the search."""
    return (kl + log_two_root(n) - math.log(delta)) / (2 * n)


OBJECTIVES = {
    "kl": Objective(maurer_xi, _stationary_kl(maurer_xi)),
    "kl-maurer": Objective(maurer, _stationary_kl(maurer)),
    "pinsker": Objective(mcallester_pinsker, _stationary_pinsker),
    "quadratic": Objective(quadratic, _stationary_quadratic),
}


def minimise(
    means: Floats, n: int, prior: Categorical, delta: float, objective: str
) -> Categorical:
    """The posterior that minimises a bound over the whole simplex, for mean costs over n rollouts.

    The bound along log β can have several minima: a grid finds the lowest, and the root of the
    condition for a stationary point between its neighbours gives β to full precision.
    """
    chosen = OBJECTIVES[objective]
    path = GibbsPath(means, prior)
    betas = path.grid()
    values = chosen.bound(*path.at(betas), n, delta)
    best = int(np.argmin(values))
    beta = betas[best]

    def slope(log_beta: float) -> float:
        cost, kl = path.at(np.exp([log_beta]))
        target = chosen.stationary(float(cost[0]), float(kl[0]), n, delta)
        return log_beta - np.log(min(max(target, 1e-300), 1e300))

    if 1 < best < len(betas) - 1:
        low, high = np.log(betas[best - 1]), np.log(betas[best + 1])
        if slope(low) < 0 < slope(high):
            root = np.exp(cast(float, brentq(slope, low, high, xtol=1e-12)))
            if chosen.bound(*path.at(np.array([root])), n, delta)[0] <= values[best]:
                beta = root
    return path.posterior(beta)


class GibbsPath:
    """p_β ∝ p₀ exp(-β c̄) as a function of β, for policies grouped by their mean cost.

    Policies with equal cost keep the proportions of the prior among themselves all along the path,
    so r̂ and KL depend only on the distinct costs: with 0/1 costs, at most N + 1 of them.
    """

    def __init__(self, means: Floats, prior: Categorical) -> None:
        self.prior = prior.probabilities
        self.lowest = float(means[self.prior > 0].min())
        self.excess = means - self.lowest  # of every policy
        supported = self.prior > 0
        self.levels, group = np.unique(self.excess[supported], return_inverse=True)
        self.log_mass = np.log(np.bincount(group, weights=self.prior[supported]))

    def grid(self) -> Floats:
        """From the prior itself, β = 0, to all mass on the cheapest policies."""
        if len(self.levels) == 1:
            return np.array([0.0])
        points = 96 if len(self.levels) <= 100_000 else 48
        # Costs closer than 1e-14 count as equal: no bound depends on them more than that.
        first = 1e-3 / max(self.levels[-1], 1e-14)
        last = (60 - self.log_mass[0]) / max(self.levels[1], 1e-14)
        return np.append(0.0, np.geomspace(first, last, points))

    def at(self, betas: Floats) -> tuple[Floats, Floats]:
        """r̂ and KL at each β; shapes (betas,)."""
        betas = np.asarray(betas, float)
        cost, kl = np.empty(len(betas)), np.empty(len(betas))
        rows = max(1, CELLS // len(self.levels))
        for start in range(0, len(betas), rows):
            part = slice(start, start + rows)
            weights = self.log_mass - betas[part, None] * self.levels
            top = weights.max(axis=1)
            weights -= top[:, None]
            np.exp(weights, out=weights)
            total = weights.sum(axis=1)
            excess = weights @ self.levels / total
            cost[part] = self.lowest + excess
            kl[part] = np.maximum(-betas[part] * excess - np.log(total) - top, 0)
        return np.minimum(cost, 1), kl

    def posterior(self, beta: float) -> Categorical:
        """The distribution over all policies at β."""
        return Categorical.project(self.prior * np.exp(-beta * np.maximum(self.excess, 0)))
