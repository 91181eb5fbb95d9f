"""The bound with other numbers of environments: an outlook, not a certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from pacbayes_control.bounds import chernoff_kl_holdout, clopper_pearson, single_draw
from pacbayes_control.bounds.anytime import MARGIN, SHARES, STAKES
from pacbayes_control.bounds.betting import log_regret
from pacbayes_control.bounds.shift import shift_inverse, tilted_maurer
from pacbayes_control.bounds.theorems import exact_tail_of_tasks
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.issuing import ANYTIME, BETTING, PAC_BAYES
from pacbayes_control.certify.occam import policy_weights
from pacbayes_control.certify.run import Run

POINTS = 61  # of the curve of bounds against environments
FEWEST, MOST = 0.1, 100  # times N, where that curve begins and ends
ENDLESS = 10**12  # environments, at which a bound is its limit to every shown digit


@dataclass(frozen=True)
class Projection:
    """The bound against the number of environments, all else being as in a run."""

    environments: tuple[int, ...]
    bounds: tuple[float, ...]
    limit: float  # of the bound, which always stays above it
    half_way: tuple[int, float] | None  # environments that would halve the way there, and the bound


def why_no_projection(c: Certificate) -> str:
    """The reason why a bound has no projection, in one sentence; empty where it has one."""
    what = "" if c.of == "mean" else f"a bound on {c.of}"
    depends = "the costs of those that are still to come"
    if c.simulation is not None:
        what = "a bound with simulation"
        depends = "how often simulation agrees with the robot in those that are still to come"
    if not what:
        return ""
    return (
        f"How {what} changes with the number of environments depends on {depends}: there is no "
        "projection of it."
    )


def project(run: Run[Any]) -> Projection:
    """The bound for a tenth to a hundred times as many environments, where it has a projection.

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
        return float(
            tilted_maurer(tilted, c.kl, environments, share, radius=c.ball.radius, tilt=c.tilt)
        )
    if c.method == BETTING:
        bound = _projected_by_bets(run, environments)
    elif c.method in ("occam", ANYTIME):
        bound = _projected_of_one(run, environments)
    else:
        theorem = single_draw if c.method == "single-draw" else PAC_BAYES[c.method]
        bound = theorem(cost, c.kl, environments, share)
    if c.ball is not None:
        bound = shift_inverse(bound, c.ball.radius, c.ball.divergence)
    return float(bound)


def _projected_of_one(run: Run[Any], environments: int) -> float:
    """The bound for one policy, with costs like the recorded ones.

    Occam's bound by bets depends on every cost, so that its excess over the mean is taken to shrink
    like 1/√N.
    """
    c = run.certificate
    cost = c.empirical_cost
    level = float(c.budget[c.method]) * float(policy_weights(run.costs, run.prior)[c.policy])
    if c.method == ANYTIME:
        return _projected_at_any_time(run, environments, level)
    if c.success_or_failure:  # failures at the same rate, rounded up to a whole number
        failures = min(environments, math.ceil(cost * environments - 1e-6))
        theorem = clopper_pearson if c.tasks is None else exact_tail_of_tasks
        return float(theorem(failures, environments, level))
    if c.grid is None:
        return float(chernoff_kl_holdout(cost, environments, level))
    excess = (c.bound_on_training - cost) * math.sqrt(c.environments / environments)
    return min(cost + excess, 1.0)


def _projected_at_any_time(run: Run[Any], environments: int, level: float) -> float:
    """The bound by e-values if each of the recorded costs occurred as often in so many."""
    costs = np.asarray(run.costs.values[:, run.certificate.policy], float)
    values, counts = np.unique(1 - costs, return_counts=True)
    often, goal = counts / len(costs) * environments, MARGIN - math.log(level)
    low, high = 0.0, 1.0  # of the mean of 1 - C
    if values[-1] == 0:
        return 1.0
    for _ in range(60):
        q = (low + high) / 2
        with np.errstate(divide="ignore"):
            logs = often @ np.log((1 - STAKES) + STAKES * (values[:, None] / q))
        enough = float(np.asarray(logsumexp(logs + np.log(SHARES)))) >= goal
        low, high = (q, high) if enough else (low, q)
    return min(1 - low, 1.0)


def _projected_by_bets(run: Run[Any], environments: int) -> float:
    """The bound by bets with other numbers of environments, about: it has the form of Bernstein's.

    r̂ + √(2Vx) + kx, where x is (KL + ln(√π Γ(N+1)/Γ(N+½)) + ln(1/δ))/N, V the variance of the
    costs, and k such that it is the run's own bound for its N.
    """
    c, p = run.certificate, run.posterior.probabilities
    counted = p > 1e-4
    values = np.asarray(run.costs.values[:, counted], float)
    variance = float(p[counted] @ values.var(axis=0))
    here, there = (
        (c.kl + log_regret(n) - math.log(c.budget[BETTING])) / n
        for n in (c.environments, environments)
    )
    above = c.bound_on_training - c.empirical_cost
    rest = above - math.sqrt(2 * variance * here)
    if rest < 0:
        return min(1.0, c.empirical_cost + above * math.sqrt(there / here))
    return min(1.0, c.empirical_cost + math.sqrt(2 * variance * there) + rest * there / here)


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
