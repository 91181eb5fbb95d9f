"""A bound as it would be with other numbers of environments: an outlook, not a certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pacbayes_control.bounds import chernoff_kl_holdout, clopper_pearson, single_draw
from pacbayes_control.bounds.shift import shift_inverse, tilted_maurer
from pacbayes_control.certify.issuing import PAC_BAYES
from pacbayes_control.certify.run import Run

POINTS = 61  # of the curve
FEWEST, MOST = 0.1, 100  # times N, where the curve begins and ends
ENDLESS = 10**12  # environments, at which a bound is its limit to every shown digit


@dataclass(frozen=True)
class Projection:
    """The bound against the number of environments, all else being as in a run."""

    environments: tuple[int, ...]
    bounds: tuple[float, ...]
    limit: float  # of the bound, which always stays above it
    half_way: tuple[int, float] | None  # environments that would halve the way there, and the bound


def project(run: Run[Any]) -> Projection:
    """The bound for a tenth to a hundred times as many environments.

    >>> from pacbayes_control.learn import learn_finite
    >>> projection = project(learn_finite([[0, 1], [0, 0], [0, 1], [1, 1]] * 250))
    >>> projection.environments[0], projection.environments[-1]
    (100, 100000)
    """
    n = run.certificate.environments
    counts = np.unique(np.rint(n * np.geomspace(FEWEST, MOST, POINTS)).astype(int))
    counts = np.union1d(counts[counts >= 2], [n])
    bounds = [projected_bound(run, int(count)) for count in counts]
    limit = projected_bound(run, ENDLESS)
    return Projection(tuple(counts.tolist()), tuple(bounds), limit, _half_way(run, limit))


def projected_bound(run: Run[Any], environments: int) -> float:
    """The run's own bound if so many environments had given the same mean cost and the same KL."""
    c = run.certificate
    share = float(c.budget[c.method])
    cost = c.empirical_cost if c.training_cost_bound is None else c.training_cost_bound
    if c.tilt is not None and c.ball is not None:
        tilted = float(run.posterior.probabilities @ run.costs.tilted_means(c.tilt))
        return float(tilted_maurer(tilted, c.kl, environments, share, c.ball.radius, c.tilt))
    if c.method == "occam":
        level = share * float(run.prior.probabilities[c.policy])
        if c.binary:  # failures at the same rate, rounded up to a whole number
            failures = min(environments, math.ceil(cost * environments - 1e-6))
            bound = clopper_pearson(failures, environments, level)
        else:
            bound = chernoff_kl_holdout(cost, environments, level)
    elif c.method == "single-draw":
        bound = single_draw(cost, c.kl, environments, share)
    else:
        bound = PAC_BAYES[c.method](cost, c.kl, environments, share)
    if c.ball is not None:
        bound = shift_inverse(bound, c.ball.radius, c.ball.divergence)
    return float(bound)


def _half_way(run: Run[Any], limit: float) -> tuple[int, float] | None:
    """How many environments would bring the bound half of the way to its limit, by bisection."""
    n, bound = run.certificate.environments, run.certificate.bound
    target = (bound + limit) / 2
    low, high = n, MOST * n
    if bound - limit < 1e-4 or projected_bound(run, high) > target:
        return None
    while high - low > max(1, n // 1000):
        middle = (low + high) // 2
        low, high = (middle, high) if projected_bound(run, middle) > target else (low, middle)
    return high, projected_bound(run, high)
