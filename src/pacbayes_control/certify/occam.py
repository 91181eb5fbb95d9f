"""Occam's bounds: each policy of a list at its own level of δ, so that all hold at once.

With simulation beside the costs, each policy has a share of δ for limits on its cost there, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pacbayes_control import bounds
from pacbayes_control.bounds.betting import (
    betting_draws,
    betting_holdout,
    cvar_betting,
    occam_betting,
)
from pacbayes_control.bounds.distribution import quantile_bound
from pacbayes_control.bounds.paired import SimulatedMean, paired_anytime, paired_betting
from pacbayes_control.bounds.stratified import (
    PairCounts,
    failure_limits,
    stratified_exact_tail,
)
from pacbayes_control.bounds.theorems import exact_tail_of_tasks
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.statistics import MEAN, Statistic

TINY = 1e-290  # levels below it may underflow
MOST_PAIRS = 5000  # of which failures are bounded exactly; with more, bets are as tight, and fast


def occam_bounds(
    costs: Costs,
    prior: Categorical,
    delta: float,
    of: Statistic = MEAN,
    policies: Sequence[int] | slice = slice(None),
    limits_delta: float = 0.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Occam's bound for these policies, by default all, and thresholds of CVaR; (policies,).

    The bounds of all policies hold at once.

    Args:
        costs: (environments, policies)
        prior: over the policies
        delta: for all bounds together
        of: the statistic of the cost
        policies: their numbers
        limits_delta: for all limits on costs in simulation together, where there is simulation
    """
    if costs.simulation is not None:
        deltas, chosen = (delta, limits_delta), np.arange(costs.policies)[policies].tolist()
        levels = [simulated_levels(costs, prior, policy, deltas) for policy in chosen]
        pairs = zip(chosen, levels, strict=True)
        found = np.array([simulated_bound(costs, policy, own) for policy, own in pairs])
        return found, np.zeros(len(found))
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


def simulated_bound(
    costs: Costs, policy: int, levels: tuple[float, float], *, anytime: bool = False
) -> float:
    """A bound on the expected cost of one policy on the robot, with simulation beside its trials.

    It is exact on failures where trials only succeed or fail and their number was fixed
    (`bounds.stratified`), and by bets where not, or where there are very many (`bounds.paired`).
    Which of these depends on what was declared of the trials and on their number, and on no cost.

    Args:
        costs: on the robot, beside which there is simulation
        policy: its number
        levels: the δ of the trials, and that of the limits on the cost in simulation
        anytime: whether trials might be stopped at any time
    """
    assert costs.simulation is not None
    delta, order = levels[0], costs.order
    if min(levels) <= TINY:
        return 1.0
    limits = simulated_limits(costs, policy, levels[1], anytime=anytime)
    y = costs.values[:, policy].astype(float)
    f, more = costs.simulation.of(policy, costs.success_or_failure)
    if limits[0] is not None:
        counts = PairCounts.of(y, f)
        return stratified_exact_tail(counts, (limits[0], limits[1]), delta)
    known = SimulatedMean(float(more.mean()), float(more.var()), limits[1])
    bound = paired_anytime if anytime else paired_betting
    return bound(y[order], f[order], known, delta)


def simulated_levels(
    costs: Costs, prior: Categorical, policy: int, deltas: tuple[float, float]
) -> tuple[float, float]:
    """The δ of a policy's trials, by its weight, and that of its limits, as large for all.

    The prior may depend on the costs in simulation that the limits are found from.

    deltas: for the trials of all policies together, and for all limits
    """
    weight = float(prior.probabilities[policy]) * (1 - rounding_error(costs))
    return weight * deltas[0], deltas[1] / costs.policies


def simulated_limits(
    costs: Costs, policy: int, delta: float, *, anytime: bool = False
) -> tuple[float | None, float]:
    """Limits on the expected cost in simulation, from further environments; bets need the upper.

    They are exact where failures are counted, or where it was declared that simulation knows no
    other costs than 0 and 1; if that was not said, bets do not rely on it.
    """
    assert costs.simulation is not None
    further = costs.simulation.more
    _, more = costs.simulation.of(policy, costs.success_or_failure)
    if costs.success_or_failure and not anytime and costs.environments <= MOST_PAIRS:
        return failure_limits(int(more.sum()), len(more), delta)
    if costs.success_or_failure or further.graded is False:
        return None, float(bounds.clopper_pearson(int(more.sum()), len(more), delta))
    return None, max(betting_holdout(more[further.order], delta), float(more.mean()))


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
