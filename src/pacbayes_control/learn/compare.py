"""All certificates that apply to the same costs, side by side, and the one chosen in advance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.optimize import LinearConstraint

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import METHODS, PAC_BAYES, TILTED
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.learn.finite import learn_best, learn_finite, learn_tilted
from pacbayes_control.learn.relative_entropy import constrained_runs

BEST = "best"  # the smallest of several certificates, each at its share of δ


@dataclass(frozen=True)
class Comparison:
    """Runs that are each valid on their own, and the one chosen before the costs were seen."""

    runs: tuple[Run[Categorical], ...]
    chosen: Run[Categorical]


def compare(
    costs: Costs,
    delta: float = 0.01,
    prior: Categorical | None = None,
    method: str | None = None,
    constraints: Sequence[LinearConstraint] = (),
    solver: str | None = None,
    ball: Ball | None = None,
) -> Comparison:
    """Certify the same costs by every method that applies.

    Args:
        costs: (environments, policies)
        delta: probability that the certificate may be wrong
        prior: over the policies; by default uniform over those that differ
        method: of the certificate that counts, chosen before the costs were seen: a name, or "best"
            for the smaller of kl and occam, with δ shared between them; by default as for
            `learn_finite`
        constraints: on the posterior; only methods for distributions apply then
        solver: of the paper's relative entropy programmes, which are used if a solver or
            constraints are given
        ball: certify for every distribution in it; for graded costs and kl balls one more method
            applies, "tilted"
    """
    method = method or ("kl" if constraints or solver or costs.policies > 1 else "occam")
    if method == TILTED and (ball is None or constraints or solver):
        raise ValueError("tilted certifies in a ball, such as kl:0.08, without constraints")
    if method not in (*METHODS, BEST, TILTED):
        raise ValueError(
            f"method {method!r} is unknown: choose from {', '.join((*METHODS, BEST, TILTED))}"
        )
    if constraints and method not in PAC_BAYES:
        raise ValueError(f"method {method!r} takes no constraints: use {', '.join(PAC_BAYES)}")
    if solver and method == BEST:
        raise ValueError("best takes no solver: it minimises the kl bound itself")
    runs = {}
    if constraints or solver:
        solver = solver or "clarabel"
        runs = constrained_runs(costs, delta, PAC_BAYES, prior, constraints, solver)
    for name in METHODS:
        if name not in runs and not constraints:
            runs[name] = learn_finite(costs, delta, name, prior=prior)
    if method == BEST:
        runs[BEST] = learn_best(costs, delta, prior)
    if ball:
        runs = {name: under_shift(run, ball) for name, run in runs.items()}
        graded = ball.divergence == "kl" and not (costs.binary or constraints or solver)
        if method == TILTED or graded:
            runs[TILTED] = learn_tilted(costs, ball, delta + ball.delta, prior)
    chosen = runs[method]
    return Comparison(tuple(run for name, run in runs.items() if name != BEST), chosen)
