"""Costs by environment and sentences about a run, for the terminal and the page.

Names in the sentences are quoted, never markup.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.text import quoted, round_down

if TYPE_CHECKING:  # records to describe: a verdict should not wait for a simulator to load
    from pacbayes_control.certify.certificate import Certificate
    from pacbayes_control.certify.costs import Costs
    from pacbayes_control.certify.run import Run
    from pacbayes_control.certify.shift import Curve
    from pacbayes_control.rollouts.again import Again

WORST = 10  # environments that are called the hardest, at most
PRIOR_KEPT = "The search found no lower bound than the prior's own: the posterior is the prior."


def environment_costs(run: Run[Any]) -> NDArray[np.float64]:
    """Mean cost under the posterior in each environment, or of the one policy that is certified."""
    if isinstance(run.posterior, Categorical):
        return run.costs.values @ run.posterior.probabilities
    return run.costs.values.mean(axis=1)


def hardest(run: Run[Any], most: int = WORST) -> list[tuple[int, float]]:
    """The environments with the highest cost and that cost; without those that cost nothing."""
    means = environment_costs(run)
    first = np.argsort(-means, kind="stable")[:most]
    return [(int(i), float(means[i])) for i in first if means[i] >= 0.001]


def hardest_records(run: Run[Any]) -> list[dict[str, Any]]:
    """The same with their names, as plain values for JSON."""
    return [{"environment": i, "name": run.costs.site(i), "cost": cost} for i, cost in hardest(run)]


def likeliest(run: Run[Categorical]) -> NDArray[np.int64]:
    """All policies by their share of the posterior; among equals, the cheapest first."""
    return np.lexsort((run.costs.means, -run.posterior.probabilities))


def policy_words(c: Certificate, costs: Costs) -> str:
    """Which policy a certificate among finitely many is about."""
    if c.policy is None:
        return "a policy drawn afresh each time"
    return f"one policy, always: {quoted(costs.name(c.policy))}"


def shift_words(curve: Curve) -> str:
    """Up to which size of a shift the promise stays below the curve's limit."""
    if curve.tolerable == 0:
        return f"The bound is {curve.limit:g} or more without any shift."
    size = f"up to a shift of B = {round_down(curve.tolerable)}"
    if math.isinf(curve.tolerable):
        size = "for a shift of any size"
    return f"The promise stays at {curve.limit:g} or below {size}."


def not_reproduced(again: Again) -> str:
    """A warning where rollouts that were run again cost something else; empty elsewhere."""
    if not again.different:
        return ""
    return (
        f"{again.different:,} of {again.tried:,} rollouts that were run again do not cost what is "
        f"recorded: {again.first}. The task has changed since, or the costs are not of its "
        "rollouts."
    )
