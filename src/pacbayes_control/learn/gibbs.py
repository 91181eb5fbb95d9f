"""The posterior over finitely many policies that minimises a bound, on the Gibbs path.

Any bound that grows with r̂ and with KL(P‖P₀) is minimised, over all distributions on L policies,
by one on the Gibbs path p_β ∝ p₀ exp(-β c̄), where c̄ are the mean costs: among all P with the same
r̂, the one on the path has the smallest KL. So an L-dimensional problem becomes a search over one
number. The theorems hold for all P at once, so that the search needs no share of δ.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.learn.objectives import OBJECTIVES

Floats = NDArray[np.float64]

CELLS = 4_000_000  # of the table β × distinct costs held at a time


def minimise(
    means: Floats, n: int, prior: Categorical, *, delta: float, objective: str
) -> Categorical:
    """The posterior that minimises a bound over the whole simplex, for mean costs over n rollouts.

    Along the path dKL = -β dr̂: at a minimum, β is (∂bound/∂r̂) / (∂bound/∂KL). The bound as a
    function of log β can have several minima: a grid finds the lowest, and the root of the
    condition for a stationary point between its neighbours gives β to full precision.
    """
    chosen = OBJECTIVES[objective]
    path = GibbsPath(means, prior)
    betas = path.grid
    values = chosen.bound(*path.at(betas), n, delta)
    best = int(np.argmin(values))
    beta = betas[best]

    def slope(log_beta: float) -> float:
        cost, kl = path.at(np.exp([log_beta]))
        target, _ = chosen.rates(float(cost[0]), float(kl[0]), n, delta)
        return log_beta - np.log(min(max(target, 1e-300), 1e300))

    if 1 < best < len(betas) - 1:
        low, high = np.log(betas[best - 1]), np.log(betas[best + 1])
        if slope(low) < 0 < slope(high):
            root = np.exp(cast(float, brentq(slope, low, high, xtol=1e-12)))
            if chosen.bound(*path.at(np.array([root])), n, delta)[0] <= values[best]:
                beta = root
    weights = path.prior * np.exp(-beta * np.maximum(path.excess, 0))
    return Categorical(weights / weights.sum())


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
        # β from that of the prior itself, 0, to all mass on the cheapest policies.
        self.grid = np.zeros(1)
        if len(self.levels) > 1:
            points = 96 if len(self.levels) <= 100_000 else 48
            # Costs closer than 1e-14 count as equal: no bound depends on them more than that.
            first = 1e-3 / max(self.levels[-1], 1e-14)
            last = (60 - self.log_mass[0]) / max(self.levels[1], 1e-14)
            self.grid = np.append(0.0, np.geomspace(first, last, points))

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
