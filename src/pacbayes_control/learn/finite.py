"""Learning over a finite policy space, exactly (paper: Section 5.1 and Algorithm 1).

Bounds are minimised over all distributions on the policies: see `gibbs` for the PAC-Bayes bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import LinearConstraint

from pacbayes_control.bounds.betting import minimise_betting
from pacbayes_control.bounds.shift import check_tilt
from pacbayes_control.certify import issuing
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import (
    BETTING,
    METHODS,
    PAC_BAYES,
    TILTED,
    Basis,
    Provenance,
)
from pacbayes_control.certify.occam import occam_bounds
from pacbayes_control.certify.parts import SHARE as PARTS
from pacbayes_control.certify.parts import Part, parsed_parts
from pacbayes_control.certify.priors import prior_for, with_costs_used
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import SHARE, under_shift
from pacbayes_control.certify.simulation import PART
from pacbayes_control.certify.simulation import SHARE as SIMULATION
from pacbayes_control.certify.statistics import FUNCTION, MEAN, Statistic
from pacbayes_control.learn.gibbs import minimise
from pacbayes_control.learn.objectives import OBJECTIVES
from pacbayes_control.learn.relative_entropy import learn_constrained

Floats = NDArray[np.float64]

TILTS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
FUNCTION_SHARE = 0.1  # of δ, for the distribution function beside a quantile or CVaR
ONE_POLICY = "quantile, cvar and distribution function are certified for one policy: use occam"
BEST = "best"  # the smallest of several certificates, each at its share of δ


def learn_finite(
    costs: Costs | ArrayLike,
    delta: float = 0.01,
    *,
    method: str | None = None,
    objective: str | None = None,
    prior: Categorical | ArrayLike | None = None,
    origin: str | None = None,
    of: Statistic | str = MEAN,
) -> Run[Categorical]:
    """Choose the posterior that minimises `objective`, and certify it by `method`.

    The prior and the policies must have been chosen before the costs were seen. The paper minimises
    "pinsker" and certifies by "kl-maurer".

    Args:
        costs: (environments, policies)
        delta: probability that the certificate may be wrong
        method: "occam" (the best single policy, the default), "kl" (Maurer with ξ), "kl-maurer"
            (with 2√N), "pinsker" (C_PAC) or "betting" (by bets, for graded costs)
        objective: the names of methods, "quadratic", "lambda" and "robust-pinsker" (the paper's
            C_PAC' for shifted distributions); by default the method
        prior: over the policies; by default uniform over those that differ
        origin: where the prior came from, for the record
        of: the statistic of the cost, other than the mean for occam: "quantile:0.9", "cvar:0.1"

    >>> costs = Costs(np.arange(300).reshape(100, 3) % 7 == 0, origin={"graded": False})
    >>> print(learn_finite(costs, delta=0.05, method="kl").certificate)  # doctest: +ELLIPSIS
    With confidence 95 %, a policy drawn afresh from the posterior over 3 policies fails in ...
    """
    costs = costs if isinstance(costs, Costs) else Costs(costs)
    of = Statistic.parse(of) if isinstance(of, str) else of
    method = checked_method(method, objective, of)
    budget = issuing.budget_for(costs, delta)
    for_function = of.function_delta
    if for_function is None and of.kind != "mean":
        for_function = FUNCTION_SHARE * budget.left
    if for_function:
        budget.spend(FUNCTION, for_function)
    if costs.simulation is not None:
        budget.spend(SIMULATION, PART * budget.left)
    budget.spend(method)
    prior, words = prior_for(costs, prior)
    provenance = Provenance(objective or method, origin or words)
    return _learn(costs, prior, budget, method, provenance, of)


def _learn(
    costs: Costs,
    prior: Categorical,
    budget: Budget,
    method: str,
    provenance: Provenance,
    of: Statistic = MEAN,
) -> Run[Categorical]:
    """The run of a method, at the budget's share for it; the others as for `learn_finite`."""
    share, objective, stake = budget.spent[method], provenance.objective, None
    if method == "occam":
        limits_share = budget.spent.get(SIMULATION, 0.0)
        bounds, _ = occam_bounds(costs, prior, share, of, limits_delta=limits_share)
        # Among equal bounds, as of quantiles, the policy that costs less: all of them hold.
        policy = int(np.lexsort((costs.means, np.where(prior.probabilities > 0, bounds, 2)))[0])
        posterior = Categorical.one(policy, costs.policies)
    elif method == BETTING:
        weights, stake = minimise_betting(costs.values, prior.probabilities, share)
        posterior = Categorical(weights)
    else:
        means = costs.exponential_means if OBJECTIVES[objective].exponential else costs.means
        posterior = minimise(means, costs.environments, prior, delta=share, objective=objective)
    posterior = with_costs_used(posterior, prior, costs)
    basis = Basis(costs, prior, posterior, budget, provenance)
    return Run(issuing.issue(basis, method, of, stake), costs, prior, posterior)


def learn_in_parts(
    costs: Costs,
    parts: Sequence[Part | str],
    delta: float = 0.01,
    *,
    share: float | None = None,
    method: str | None = None,
    objective: str | None = None,
    prior: Categorical | ArrayLike | None = None,
) -> Run[Categorical]:
    """As `learn_finite`, with a bound for each part of the world that was declared beforehand.

    All bounds hold at once. The costs must tell what was drawn for each environment.

    Args:
        costs: (environments, policies), with `described`
        parts: such as "wind<8", chosen before the costs were seen
        delta: probability that any of the bounds may be wrong
        share: of delta, for all parts together; default a half
        method: occam (the default), kl, kl-maurer or pinsker
        objective: as for `learn_finite`
        prior: over the policies; by default uniform over those that differ

    >>> wind, rng = np.arange(400) % 10, np.random.default_rng(0)
    >>> fails = rng.random((400, 2)) < np.where(wind < 8, 0.02, 0.5)[:, None]
    >>> costs = Costs(fails, origin={"graded": False}, described={"wind": wind})
    >>> for part in learn_in_parts(costs, ["wind<8", "wind>=8"]).certificate.parts:
    ...     print(part.words, part.environments, round(part.bound, 2))
    wind < 8 320 0.05
    wind >= 8 80 0.57
    """
    chosen = parsed_parts([str(part) for part in parts])
    if not chosen:
        raise ValueError("no part of the world is declared: use learn_finite")
    for part in chosen:
        part.check(costs.described)
    method = checked_method(method, objective)
    budget = issuing.budget_for(costs, delta)
    budget.spend(PARTS, budget.left / 2 if share is None else share)
    budget.spend(method)
    known, words = prior_for(costs, prior)
    run = _learn(costs, known, budget, method, Provenance(objective or method, words))
    basis = Basis(costs, run.prior, run.posterior, budget, Provenance(objective or method, words))
    return replace(run, certificate=issuing.issue_with_parts(basis, method, chosen))


def learn_best(
    costs: Costs,
    delta: float = 0.01,
    *,
    prior: Categorical | ArrayLike | None = None,
    methods: tuple[str, ...] = ("kl", "occam"),
) -> Run[Categorical]:
    """The smallest of several certificates, each computed at its share of δ: a union bound.

    Computing each method at full δ and keeping the best would be a choice by the data, which voids
    the confidence.
    """
    budget, (known, words) = issuing.budget_for(costs, delta), prior_for(costs, prior)
    share = budget.left / len(methods)
    for name in methods:
        budget.spend(checked_method(name), share)
    runs = [_learn(costs, known, budget, name, Provenance(name, words)) for name in methods]
    return min(runs, key=lambda run: run.certificate.bound)


def checked_method(method: str | None, objective: str | None = None, of: Statistic = MEAN) -> str:
    """The method, occam unless an objective is named; an error if they do not fit."""
    method = method or ("kl" if objective in OBJECTIVES else "occam")
    if method not in METHODS:
        raise ValueError(f"method {method!r} is unknown: choose from {', '.join(METHODS)}")
    if method in ("occam", BETTING) and objective not in (None, method):
        raise ValueError(f"{method} minimises its own bound: it has no other objective")
    if method not in ("occam", BETTING) and objective not in (None, *OBJECTIVES):
        raise ValueError(f"objective {objective!r} is unknown: choose from {', '.join(OBJECTIVES)}")
    if of != MEAN and method != "occam":
        raise ValueError(f"{ONE_POLICY}, not {method}")
    return method


def learn_tilted(
    costs: Costs | ArrayLike,
    ball: Ball,
    delta: float = 0.01,
    *,
    prior: Categorical | ArrayLike | None = None,
    tilts: Sequence[float] = TILTS,
) -> Run[Categorical]:
    """Minimise the tilted bound over posteriors and tilts, and certify on every D' in a KL ball.

    For graded costs it is smaller than the bound of `certify.shift.under_shift`, which uses only
    the mean cost, as if every cost were 0 or 1: the mean of e^{λC} tells how little costs vary. The
    best tilt λ depends on the costs, so a few are fixed in advance. Each has an equal share of δ,
    after the share of an estimated ball, so any may be chosen.

    Args:
        costs: (environments, policies)
        ball: a kl ball
        delta: probability that the certificate may be wrong, including the ball's share
        prior: over the policies; by default uniform over those that differ
        tilts: values of λ, chosen before the costs were seen

    >>> costs = Costs(np.random.default_rng(0).uniform(0.1, 0.3, (2000, 4)))
    >>> run = learn_tilted(costs, Ball("kl", 0.08))
    >>> round(run.certificate.bound, 2)  # the mean cost alone gives 0.42
    0.3
    """
    costs = costs if isinstance(costs, Costs) else Costs(costs)
    if ball.divergence != "kl":
        raise ValueError(f"tilted certificates are for kl balls, not for {ball.divergence}")
    if not tilts:
        raise ValueError("a tilted certificate needs at least one tilt")
    for tilt in tilts:
        check_tilt(tilt)
    budget = issuing.budget_for(costs, delta, ball.delta)
    if ball.delta:
        budget.spend(SHARE, ball.delta)
    share = budget.spend(TILTED, parts=len(tilts))
    if len(tilts) > 1:
        budget.spend(f"{TILTED} by the other {len(tilts) - 1} tilts")
    prior, words = prior_for(costs, prior)
    runs = []
    for tilt in tilts:
        means = costs.tilted_means(tilt)
        posterior = minimise(means, costs.environments, prior, delta=share, objective="kl")
        posterior = with_costs_used(posterior, prior, costs)
        basis = Basis(costs, prior, posterior, budget, Provenance(TILTED, words))
        runs.append(Run(issuing.issue_tilted(basis, tilt, ball), costs, prior, posterior))
    return min(runs, key=lambda run: run.certificate.bound)


# ---- side by side -------------------------------------------------------------------------------


@dataclass(frozen=True)
class MethodComparison:
    """Runs that are each valid on their own, and the one chosen before the costs were seen."""

    runs: tuple[Run[Categorical], ...]
    chosen: Run[Categorical]


def compare_methods(
    costs: Costs,
    delta: float = 0.01,
    *,
    prior: Categorical | None = None,
    method: str | None = None,
    constraints: Sequence[LinearConstraint] = (),
    solver: str | None = None,
    ball: Ball | None = None,
) -> MethodComparison:
    """Certify the same costs by every method that applies.

    Args:
        costs: (environments, policies)
        delta: probability that the certificate may be wrong
        prior: over the policies; by default uniform over those that differ
        method: of the certificate that counts, chosen before the costs were seen: a name, or "best"
            for the smaller of kl and occam, with δ shared between them; by default occam, and kl
            under constraints
        constraints: on the posterior; only methods for distributions apply then
        solver: of the paper's relative entropy programmes, which are used if a solver or
            constraints are given
        ball: certify for every distribution in it; for graded costs and kl balls one more method
            applies, "tilted"
    """
    method = method or ("kl" if constraints or solver else "occam")
    if costs.simulation is not None and method in (BEST, TILTED):
        raise ValueError(issuing.ONE_AT_A_TIME)
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
        run = learn_constrained(
            costs,
            delta,
            method="kl",
            prior=prior,
            constraints=constraints,
            solver=solver or "clarabel",
        )
        runs = {name: _certified_by(name, run) for name in PAC_BAYES}
    for name in METHODS if costs.simulation is None else (method,):
        if name not in runs and not constraints:
            runs[name] = learn_finite(costs, delta, method=name, prior=prior)
    runs = {name: runs[name] for name in METHODS if name in runs}
    if method == BEST:
        runs[BEST] = learn_best(costs, delta, prior=prior)
    if ball:
        runs = {name: under_shift(run, ball) for name, run in runs.items()}
        apart = costs.success_or_failure or constraints or solver or costs.simulation
        if method == TILTED or (ball.divergence == "kl" and not apart):
            runs[TILTED] = learn_tilted(costs, ball, delta + ball.delta, prior=prior)
    chosen = runs[method]
    return MethodComparison(tuple(run for name, run in runs.items() if name != BEST), chosen)


def _certified_by(method: str, run: Run[Categorical]) -> Run[Categorical]:
    """The same posterior with the certificate of another method, which takes over all of δ."""
    c = run.certificate
    provenance = Provenance(c.objective, c.prior, cast(Any, c.constraints))
    spent = {method if name == c.method else name: part for name, part in c.budget.items()}
    budget = Budget(c.delta, spent, tuple(c.looks), tuple(c.declared_looks))
    basis = Basis(run.costs, run.prior, run.posterior, budget, provenance)
    return replace(run, certificate=issuing.issue(basis, method))
