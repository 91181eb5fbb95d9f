"""Occam's bounds: each policy of a list at its own level of δ, so that all hold at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pacbayes_control import bounds
from pacbayes_control.bounds.betting import betting_draws, cvar_betting, occam_betting
from pacbayes_control.bounds.distribution import quantile_bound
from pacbayes_control.bounds.theorems import exact_tail_of_tasks
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.statistics import MEAN, Statistic

TINY = 1e-290  # levels below it may underflow


def occam_bounds(
    costs: Costs,
    prior: Categorical,
    delta: float,
    of: Statistic = MEAN,
    policies: Sequence[int] | slice = slice(None),
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Occam's bound for these policies, by default all, and thresholds of CVaR; (policies,).

    The bounds of all policies hold at once.
    """
    first = costs.first_equal[policies]
    own = np.unique(first)  # one of each group of equal policies
    weights = policy_weights(costs, prior)[own]
    values = costs.values if len(own) == costs.policies else costs.values[:, own]
    thresholds = np.zeros(len(own))
    if costs.trial_facts.tasks:
        found = _bounds_of_tasks(costs, values, weights * delta, of)
    elif of.kind == "quantile":
        pairs = zip(values.T, weights * delta, strict=True)
        found = np.array([quantile_bound(c, of.share, d) if d > TINY else 1.0 for c, d in pairs])
    elif of.kind == "mean" and costs.success_or_failure:
        failures = values.sum(axis=0)  # of which an exact tail wants whole numbers
        found = bounds.occam_exact_tail(failures, costs.environments, weights, delta)
    else:
        ordered = values if costs.range else values[costs.order]
        if of.kind == "mean":
            found = occam_betting(ordered, weights, delta)
        else:
            found, thresholds = cvar_betting(ordered, weights, delta, of.share)
    place = np.searchsorted(own, first)
    return found[place], thresholds[place]


def _bounds_of_tasks(
    costs: Costs, values: NDArray, levels: NDArray[np.float64], of: Statistic
) -> NDArray[np.float64]:
    """Bounds on mean costs over a fixed list of tasks, each at its level; (policies,)."""
    if of.kind != "mean":
        raise ValueError(f"{of} is of new environments, and not of a fixed list of tasks")
    if costs.success_or_failure:
        return exact_tail_of_tasks(values.sum(axis=0), costs.environments, levels)
    tasks, ordered = costs.trial_facts.task_count, np.asarray(values[costs.order], float)
    columns = zip(ordered.T, levels, strict=True)
    return np.array([betting_draws(c.reshape(-1, tasks).T, level) for c, level in columns])


def policy_weights(costs: Costs, prior: Categorical) -> NDArray[np.float64]:
    """The weight of each policy in Occam's bound, rounded downwards; shape (policies,).

    That of policies with equal parameters together, since they are one policy.
    """
    first = costs.first_equal
    total = np.bincount(first, prior.probabilities, costs.policies)
    return np.asarray(total[first] * (1 - rounding_error(costs)), float)


def rounding_error(costs: Costs) -> float:
    """A bound on the relative rounding error of a sum over environments and one over policies."""
    return (costs.environments + 8 * costs.policies + 8) * float(np.finfo(float).eps)
