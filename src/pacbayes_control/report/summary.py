"""Costs by environment and sentences about a run, for the terminal and the page.

Names in the sentences are quoted, never markup.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.bounds.distribution import certified_distribution
from pacbayes_control.bounds.shift import shift_inverse
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.statistics import percent
from pacbayes_control.certify.text import quoted, round_down, round_up, shown
from pacbayes_control.study.failures import environment_costs

if TYPE_CHECKING:  # records to describe: a verdict should not wait for a simulator to load
    from pacbayes_control.certify.certificate import Certificate
    from pacbayes_control.certify.costs import Costs
    from pacbayes_control.certify.run import Run
    from pacbayes_control.certify.shift import Curve
    from pacbayes_control.rollouts.again import Again

WORST = 10  # environments that are called the hardest, at most
SHARES = (0.5, 0.2, 0.1, 0.05, 0.01)  # of environments, for sentences on a distribution function
PRIOR_KEPT = "The search found no lower bound than the prior's own: the posterior is the prior."


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
    bound, promise = "bound", "promise"
    if curve.above is not None:
        bound = promise = f"share of environments that cost more than {shown(curve.above)}"
    if curve.tolerable == 0:
        return f"The {bound} is {curve.limit:g} or more without any shift."
    size = f"up to a shift of B = {round_down(curve.tolerable)}"
    if math.isinf(curve.tolerable):
        size = "for a shift of any size"
    return f"The {promise} stays at {curve.limit:g} or below {size}."


# ---- more than the mean -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DistributionFunction:
    """The distribution of the cost of one policy: as recorded, and as certified, all at once."""

    costs: NDArray[np.float64]  # the distinct recorded ones
    observed: NDArray[np.float64]  # share of environments that cost at most as much
    above: NDArray[np.float64]  # share of new environments that cost more, at most

    def exceeded(self) -> list[tuple[float, float, float]]:
        """For each of SHARES that is certified: it, the cost, and the observed share above it.

        The cost is the smallest recorded one that at most this share of new environments exceeds.
        """
        found = []
        for share in SHARES:
            enough = np.flatnonzero(self.above <= share)
            if len(enough) and self.costs[enough[0]] < 1:
                first = enough[0]
                found.append((share, float(self.costs[first]), 1 - float(self.observed[first])))
        return found


def distribution_function(run: Run[Any]) -> DistributionFunction | None:
    """The certified distribution function of a run's policy; None if no share of δ pays for it.

    It is for every D' in the certificate's ball, where there is one.
    """
    c = run.certificate
    if c.margin is None or c.policy is None:
        return None
    values = run.costs.values[:, c.policy]
    costs, certified = certified_distribution(values, c.margin)
    _, observed = certified_distribution(values, 0.0)
    above = np.minimum(1 - certified + 1e-12, 1.0)  # rounded upwards
    if c.ball is not None:
        above = shift_inverse(above, c.ball.radius, c.ball.divergence)
    return DistributionFunction(costs, observed, above)


def exceeded_words(run: Run[Any]) -> str:
    """The costs that few new environments exceed, from the certified distribution function."""
    function = distribution_function(run)
    found = function.exceeded() if function else []
    if not found:
        return "no cost that half of new environments stay below"
    most = [f"{percent(share)} cost more than {shown(cost)}" for share, cost, _ in found]
    return f"at most {', '.join(most)}"


def bound_words(c: Certificate) -> str:
    """What the number that a certificate states bounds, for a statistic other than the mean."""
    if c.most_above is not None:
        return f"exceeded in at most {c.most_above_percent} of new environments"
    if c.statistic.kind == "cvar":
        return f"the mean cost in the worst {percent(c.statistic.share)} of new environments"
    return ""


def simulation_rows(c: Certificate) -> list[tuple[str, str]]:
    """How good the simulation was, and how much it helped: names and values."""
    use = c.simulation
    if use is None:
        return []
    fails = c.binary and not c.graded

    def rate(value: float) -> str:
        return f"{100 * value:.1f} %" if fails else f"{value:.4f}"

    what = "failure rate" if fails else "mean cost"
    limits = f"at most {rate(use.high)}"
    if use.low is not None:
        limits = f"{rate(use.low)} to {rate(use.high)}"
    agree = ", 1 less the mean size of the difference in cost"
    if fails:
        agree = " of environments, fails there as on the robot"
    correlation = "none: one of them does not vary"
    if use.correlation is not None:
        correlation = f"{use.correlation:.3f}, of costs across environments"
    helped = "simulation did not make the bound smaller"
    if c.bound_on_training < use.bound_without:
        helped = "no more trials than these, though the bound is smaller"
    if use.equivalent_trials is not None:
        helped = f"about {int(use.equivalent_trials):,} trials on the robot alone"
    return [
        ("agreement", f"{100 * use.agreement:.1f} %{agree}"),
        ("correlation", correlation),
        (f"simulated {what}", f"{rate(use.cost_of_pairs)} where there were trials"),
        ("", f"{rate(use.cost)} in {use.environments:,} further environments ({limits})"),
        ("bound without simulation", round_up(use.bound_without)),
        ("as good as", helped),
    ]


def observed_words(run: Run[Any]) -> tuple[str, str] | None:
    """The counterpart of a bound on a quantile or on CVaR in the recorded costs: name and value."""
    c = run.certificate
    if c.of == "mean" or c.policy is None:
        return None
    values = np.sort(run.costs.values[:, c.policy].astype(float))[::-1]
    if c.most_above is not None:
        above = int(np.sum(values > c.bound))
        return "observed above it", f"{above:,} of {len(values):,} environments"
    worst = len(values) * c.statistic.share
    weights = np.clip(worst - np.arange(len(values)), 0, 1)  # the last one may count in part
    return "observed in the worst", f"{float(weights @ values) / worst:.4f}"


def not_reproduced(again: Again) -> str:
    """A warning where rollouts that were run again cost something else; empty elsewhere."""
    if again.explained:
        return ""
    return (
        f"{again.different:,} of {again.tried:,} rollouts that were run again do not cost what is "
        f"recorded: {again.first}. The task has changed since, or the costs are not of its "
        "rollouts."
    )
