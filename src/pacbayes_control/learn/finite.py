"""Learning over a finite policy space, exactly (paper: Section 5.1 and Algorithm 1).

Any bound that grows with r̂ and with KL(P‖P₀) is minimised, over all distributions on L policies,
by one on the Gibbs path p_β ∝ p₀ exp(-β c̄), where c̄ are the mean costs: among all P with the same
r̂, the one on the path has the smallest KL. So an L-dimensional problem becomes a search over one
number. The theorems hold for all P at once, so that the search needs no share of δ.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import METHODS, Basis, Provenance, issue, occam_bounds
from pacbayes_control.certify.priors import describe_prior, prior_for, with_costs_used
from pacbayes_control.certify.run import Run
from pacbayes_control.learn.objectives import OBJECTIVES

Floats = NDArray[np.float64]

CELLS = 4_000_000  # of the table β × distinct costs held at a time


def learn_finite(
    costs: Costs | ArrayLike,
    delta: float = 0.01,
    method: str | None = None,
    objective: str | None = None,
    prior: Categorical | ArrayLike | None = None,
    origin: str | None = None,
) -> Run[Categorical]:
    """Choose the posterior that minimises `objective`, and certify it by `method`.

    The prior and the policies must have been chosen before the costs were seen. The paper minimises
    "pinsker" and certifies by "kl-maurer".

    Args:
        costs: (environments, policies)
        delta: probability that the certificate may be wrong
        method: "kl" (Maurer with ξ), "kl-maurer" (with 2√N), "pinsker" (C_PAC), or "occam" (the
            best single policy); by default "kl", and "occam" for a single policy
        objective: the names of methods, "quadratic", "lambda" and "robust-pinsker" (the paper's
            C_PAC' for shifted distributions); by default the method
        prior: over the policies; by default uniform over those that differ
        origin: where the prior came from, for the record

    >>> costs = Costs(np.arange(300).reshape(100, 3) % 7 == 0)
    >>> print(learn_finite(costs, delta=0.05).certificate)  # doctest: +ELLIPSIS
    With confidence 95 %, a policy drawn afresh from the posterior over 3 policies fails in ...
    """
    costs = costs if isinstance(costs, Costs) else Costs(costs)
    method = method or usual_method(costs.policies)
    check_method(method, objective)
    budget = Budget(delta)
    budget.spend(method)
    prior = prior_for(costs, prior)
    provenance = Provenance(objective or method, origin or describe_prior(prior, costs))
    return _learn(costs, budget, method, prior, provenance)


def usual_method(policies: int) -> str:
    """The default method: for one policy there is no distribution to learn."""
    return "kl" if policies > 1 else "occam"


def learn_best(
    costs: Costs,
    delta: float = 0.01,
    prior: Categorical | ArrayLike | None = None,
    methods: tuple[str, ...] = ("kl", "occam"),
) -> Run[Categorical]:
    """The smallest of several certificates, each computed at its share of δ: a union bound.

    Computing each method at full δ and keeping the best would be a choice by the data, which voids
    the confidence.
    """
    for method in methods:
        check_method(method)
    budget = Budget(delta)
    for method in methods:
        budget.spend(method, delta / len(methods))
    prior = prior_for(costs, prior)
    words = describe_prior(prior, costs)
    runs = [_learn(costs, budget, method, prior, Provenance(method, words)) for method in methods]
    return min(runs, key=lambda run: run.certificate.bound)


def _learn(
    costs: Costs, budget: Budget, method: str, prior: Categorical, provenance: Provenance
) -> Run[Categorical]:
    delta = budget.spent[method]
    if method == "occam":
        bounds = occam_bounds(costs, prior, delta)
        policy = int(np.argmin(np.where(prior.probabilities > 0, bounds, np.inf)))
        posterior = Categorical.one(policy, costs.policies)
    else:
        exponential = OBJECTIVES[provenance.objective].exponential
        means = costs.exponential_means if exponential else costs.means
        posterior = minimise(means, costs.environments, prior, delta, provenance.objective)
    posterior = with_costs_used(posterior, prior, costs)
    certificate = issue(Basis(costs, prior, posterior, budget, provenance), method)
    return Run(certificate, costs, prior, posterior)


def check_method(method: str, objective: str | None = None) -> None:
    """Raise ValueError if a name is unknown or the objective does not fit the method."""
    if method not in METHODS:
        raise ValueError(f"method {method!r} is unknown: choose from {', '.join(METHODS)}")
    if method == "occam" and objective not in (None, "occam"):
        raise ValueError("occam certifies the best single policy: it has no other objective")
    if method != "occam" and objective not in (None, *OBJECTIVES):
        raise ValueError(f"objective {objective!r} is unknown: choose from {', '.join(OBJECTIVES)}")


# ---- the Gibbs path -----------------------------------------------------------------------------


def minimise(
    means: Floats, n: int, prior: Categorical, delta: float, objective: str
) -> Categorical:
    """The posterior that minimises a bound over the whole simplex, for mean costs over n rollouts.

    Along the path dKL = -β dr̂: at a minimum, β is (∂bound/∂r̂) / (∂bound/∂KL). The bound as a
    function of log β can have several minima: a grid finds the lowest, and the root of the
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
        target = chosen.exchange(float(cost[0]), float(kl[0]), n, delta)
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
