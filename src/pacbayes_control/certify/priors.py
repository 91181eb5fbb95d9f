"""Priors over finitely many policies: their default, their words, and the data they depend on."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.text import quoted

UNIFORM, UNIFORM_OVER_ALL = "uniform over the policies that differ", "uniform over all policies"
GIVEN = "given in advance"


def prior_for(
    costs: Costs, prior: Categorical | ArrayLike | None = None
) -> tuple[Categorical, str]:
    """A prior with one probability for each policy of `costs`, and the same in words.

    By default it is uniform over the policies that differ, or over all of them if their parameters
    are not known. An error if the prior depends on the environments of the costs.
    """
    if costs.draws:
        raise ValueError(
            "these are costs of draws from a posterior, not of policies to choose from"
        )
    distinct = None
    if costs.parameters is not None:
        distinct = Categorical.uniform_over_distinct(costs.parameters)
    if prior is None and distinct is not None:
        return distinct, UNIFORM
    uniform = Categorical.uniform(costs.policies)
    if prior is None:
        return uniform, UNIFORM_OVER_ALL
    given = prior_over(costs.policies, prior)
    overlap = describe_overlap(given, costs)
    if overlap:
        raise ValueError(f"{overlap}: the bound may count only other environments")
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


def describe_overlap(prior: Categorical, costs: Costs) -> str:
    """Which environments of the costs a prior depends on, in words; empty if on none of them.

    Environments of a stream are compared by their ranges. Rows of tables are compared by the names
    of the environments if both tables have names, and otherwise by their costs: equal rows cannot
    be distinguished, and count as the same environment. Tables with different names are still
    compared by their fractions: most rows with fractions are not equal by chance.
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
    named = bool(costs.sites) and any(row.startswith("n") for row in prior.rows)
    kinds = "n" if named else "v" if mine else "vs"  # "s": of a stream, compared by its range
    rows = {row[1:] for row in costs.rows if row.startswith("n") == named}
    shared = {row for row in prior.rows if row[0] in kinds and row[1:] in rows}
    if not shared and named and _shares_most_fractions(prior, costs):
        return "the prior was learnt from environments of other names with the same costs"
    if not shared:
        return ""
    if named:
        site = costs.sites[min(costs.rows[row] for row in shared)]
        return f"the prior was learnt from environments of the same names, such as {quoted(site)}"
    return (
        "the prior was learnt from environments with the same costs as some of these "
        f"({len(shared)} different rows); if they are others, name the environments in both tables "
        "to tell"
    )


def _shares_most_fractions(prior: Categorical, costs: Costs) -> bool:
    """Whether a prior depends on most rows with fractions, if these are fine enough to compare."""
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
        seen = (*posterior.seen, *prior.seen, *mine, *costs.policies_seen)
    return Categorical(posterior.probabilities, seen=seen, rows=rows)
