"""Priors over finitely many policies: their default, their words, and the data they depend on."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.text import quoted

UNIFORM, UNIFORM_OVER_ALL = "uniform over the policies that differ", "uniform over all policies"
GIVEN = "given in advance"
KEPT = 0.05  # share of a prior from a pilot that does not depend on it


def prior_for(
    costs: Costs, prior: Categorical | ArrayLike | None = None
) -> tuple[Categorical, str]:
    """A prior with one probability for each policy of `costs`, and the same in words.

    By default it is uniform over the policies that differ, or over all of them if their parameters
    are not known; with simulation beside the costs of several, it is `simulation_prior`. An error
    if the prior depends on the environments of the costs.
    """
    if costs.draws:
        raise ValueError(
            "these are costs of draws from a posterior, not of policies to choose from"
        )
    distinct = None
    if costs.parameters is not None:
        distinct = Categorical.uniform_over_distinct(costs.parameters)
    if prior is None and costs.simulation is not None and costs.policies > 1:
        return simulation_prior(costs), simulation_words(costs)
    if prior is None and distinct is not None:
        return distinct, UNIFORM
    uniform = Categorical.uniform(costs.policies)
    if prior is None:
        return uniform, UNIFORM_OVER_ALL
    given = prior_over(costs.policies, prior)
    overlap = describe_overlap(given, costs)
    if overlap:
        raise ValueError(f"{overlap}: the bound may count only other environments")
    if given.words:
        return given, given.words
    for usual, words in ((distinct, UNIFORM), (uniform, UNIFORM_OVER_ALL)):
        if usual is not None and np.array_equal(given.probabilities, usual.probabilities):
            return given, words
    return given, GIVEN


def prior_over(policies: int, prior: Categorical | ArrayLike) -> Categorical:
    """The prior as a `Categorical`; an error unless it has one entry for each policy."""
    distribution = prior if isinstance(prior, Categorical) else Categorical(prior, name="prior")
    if len(distribution) != policies:
        raise ValueError(f"the prior has {len(distribution)} entries for {policies} policies")
    return distribution


def pilot_prior(pilot: Costs) -> Categorical:
    """A prior from a pilot: the costs of the same policies in other environments.

    π(h) = 0.05 u(h) + 0.95 u(h) exp(-z(h)²)/Z, where u is uniform, over the policies that differ if
    their parameters are known, and z(h)² = (Σᵢ dᵢ)²/Σᵢ dᵢ². Here dᵢ is the cost of h in environment
    i of the pilot, less that of the policy that is cheapest there (the mean of those that are
    equally cheap): z is how far h is behind, in standard errors. For 0/1 costs z² is McNemar's
    statistic (a - b)²/(a + b), if h fails alone in a environments, and the other one in b.

    By any rule, a prior is valid if it is independent of the environments that the bound
    counts: a misleading pilot makes the bound larger, not wrong. A policy keeps at least a
    twentieth of its uniform weight, so that at worst ln 20 is added to its complexity. The prior
    records the environments of the pilot, and a learner refuses costs of the same ones.

    >>> pilot = Costs([[0, 1, 0], [0, 1, 1], [0, 1, 0], [1, 1, 1]])
    >>> pilot_prior(pilot).probabilities.round(3).tolist()
    [0.687, 0.05, 0.263]
    """
    uniform, _ = prior_for(pilot)
    prior = with_costs_used(_tilted(uniform, pilot), uniform, pilot)
    count = f"{pilot.environments:,} other environments"
    words = f"from a pilot of {count}: weights fall with the cost there"
    return Categorical(prior.probabilities, seen=prior.seen, rows=prior.rows, words=words)


def simulation_prior(costs: Costs) -> Categorical:
    """A prior from simulation of further environments, by the rule of `pilot_prior`.

    z² is that of as many of them as there are trials on the robot, on which differences that are
    smaller would not show. These environments are others than those of the trials.
    """
    simulation, alone = costs.simulation, costs.with_simulation(None)
    assert simulation is not None
    uniform, _ = prior_for(alone)
    more = simulation.more
    weights = _tilted(uniform, more, min(1.0, costs.environments / more.environments))
    return Categorical(
        weights.probabilities,
        seen=simulation.seen,
        rows=simulation.rows,
        words=simulation_words(costs),
    )


def simulation_words(costs: Costs) -> str:
    """Where a prior from the simulation beside these costs came from."""
    assert costs.simulation is not None
    count = f"{costs.simulation.more.environments:,} further environments"
    return f"from simulation of {count}: weights fall with the cost there"


def _tilted(uniform: Categorical, costs: Costs, strength: float = 1.0) -> Categorical:
    """Weights that fall with z², times a strength."""
    u, gap = uniform.probabilities, costs.means - costs.means.min()
    cheapest = costs.values[:, gap == 0].mean(axis=1, keepdims=True)
    squares = np.sum((costs.values - cheapest) ** 2, axis=0)
    behind, apart = np.zeros(costs.policies), (gap > 0) & (squares > 0)
    np.divide((costs.environments * gap) ** 2, squares, out=behind, where=apart)
    tilted = u * np.exp(-strength * behind)
    return Categorical(KEPT * u + (1 - KEPT) * tilted / tilted.sum())


def describe_overlap(prior: Categorical, costs: Costs) -> str:
    """Which environments of the costs a prior depends on, in words; empty if on none of them.

    Environments of a stream are compared by their ranges. Rows of tables are compared by the names
    of the environments if both tables have names, and otherwise by their costs: equal rows cannot
    be distinguished, and count as the same environment. A named environment is none of a stream's.
    Tables with different names are still compared by rows that are not equal by chance.
    """
    if prior.seen is None:
        return "the prior does not say which environments it was learnt from"
    mine = costs.range
    for other in prior.seen:
        if mine and mine.overlaps(other):
            return (
                f"the prior was learnt from some of these environments (stream {other.stream!r}, "
                f"{other.start} to {other.stop})"
            )
    identified = bool(costs.sites) or mine is not None
    named = identified and any(row.startswith("n") for row in prior.rows)
    kinds = "n" if named else "v" if mine else "vs"  # "s": of a stream, compared by its range
    rows = {row[1:] for row in costs.rows if row.startswith("n") == named}
    shared = {row for row in prior.rows if row[0] in kinds and row[1:] in rows}
    if not shared and named and _shares_telling_rows(prior, costs):
        return "the prior was learnt from environments of other names with the same costs"
    if not shared:
        return ""
    if named:
        site = costs.sites[min(costs.rows[row] for row in shared)]
        return f"the prior was learnt from environments of the same names, such as {quoted(site)}"
    tables = "its table" if mine else "both tables"
    return (
        "the prior was learnt from environments with the same costs as some of these "
        f"({len(shared)} different rows); if they are others, name the environments in {tables} "
        "to tell"
    )


def _shares_telling_rows(prior: Categorical, costs: Costs) -> bool:
    """Whether a prior depends on rows that are not equal by chance.

    These are most of the rows with fractions, if they are fine enough to compare, or all of the
    rows that occur once, if there are at least ten.
    """
    rows, counts = np.unique(costs.values, axis=0, return_counts=True)
    once = rows[(counts == 1) & (rows.min(axis=1) < rows.max(axis=1))]
    if len(once) >= 10 and {*Costs(once).rows} <= prior.rows:
        return True
    fractions = costs.values[np.any((costs.values != 0) & (costs.values != 1), axis=1)]
    if len(fractions) < 5 or len(np.unique(fractions)) < 20:  # coarse grades repeat by chance
        return False
    digests = set(Costs(fractions).rows)
    return len(digests) >= 5 and 2 * len(digests & prior.rows) > len(digests)


def with_costs_used(posterior: Categorical, prior: Categorical, costs: Costs) -> Categorical:
    """The posterior, with a record that it depends on the data of its prior and on these costs."""
    seen, rows = None, posterior.rows | prior.rows | costs.listed_rows
    if posterior.seen is not None and prior.seen is not None:
        mine = [costs.range] if costs.range else []
        mine += costs.simulation.seen if costs.simulation else ()
        seen = (*posterior.seen, *prior.seen, *mine, *costs.policies_seen)
    return Categorical(posterior.probabilities, seen=seen, rows=rows)
