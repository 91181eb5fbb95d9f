"""Every certificate that applies to the same costs, side by side, and one chosen in advance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.optimize import LinearConstraint

from pacbayes_control.balls import Ball
from pacbayes_control.costs import Costs, prior_for
from pacbayes_control.distributions import Categorical
from pacbayes_control.issuing import METHODS, PAC_BAYES
from pacbayes_control.learn.finite import learn_best, learn_finite
from pacbayes_control.learn.relative_entropy import certify_constrained, constrained_posterior
from pacbayes_control.run import Run
from pacbayes_control.shifting import under_shift

BEST = "best"  # the smallest of several certificates, each at its share of δ


@dataclass(frozen=True)
class Comparison:
    """Runs that are each valid on their own, and the one that was chosen before the costs."""

    runs: tuple[Run[Categorical], ...]
    chosen: Run[Categorical]


def compare(
    costs: Costs,
    delta: float = 0.01,
    prior: Categorical | None = None,
    method: str = "kl",
    constraints: Sequence[LinearConstraint] = (),
    solver: str | None = None,
) -> Comparison:
    """Certify the same costs by every method that applies.

    `method` is the one that counts, chosen without a look at the costs: a name, or "best" for the
    smaller of kl and occam with δ shared between them. A solver, or constraints on the posterior,
    lead through the paper's relative entropy programmes; constraints leave the methods for
    distributions only.
    """
    if method != BEST and method not in METHODS:
        raise ValueError(f"method {method!r} is unknown: choose from {', '.join((*METHODS, BEST))}")
    if constraints and method not in PAC_BAYES:
        raise ValueError(f"method {method!r} takes no constraints: use {', '.join(PAC_BAYES)}")
    if solver and method == BEST:
        raise ValueError("best takes no solver: it minimises the kl bound itself")
    runs = {}
    if constraints or solver:
        prior = prior_for(costs, prior)
        posterior = constrained_posterior(costs, delta, prior, constraints, solver or "clarabel")
        for name in PAC_BAYES:
            runs[name] = certify_constrained(costs, delta, name, prior, posterior, constraints)
    for name in METHODS:
        if name not in runs and not constraints:
            runs[name] = learn_finite(costs, delta, name, prior=prior)
    chosen = learn_best(costs, delta, prior) if method == BEST else runs[method]
    return Comparison(tuple(runs.values()), chosen)


def in_ball(comparison: Comparison, ball: Ball) -> Comparison:
    """The same runs, certified for every distribution in a ball around that of training."""
    runs = {id(run): under_shift(run, ball) for run in (*comparison.runs, comparison.chosen)}
    chosen = runs[id(comparison.chosen)]
    return Comparison(tuple(runs[id(run)] for run in comparison.runs), chosen)
