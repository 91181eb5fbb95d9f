"""The paper's method: relative entropy programmes with a search over λ (Section 5.1).

For a fixed λ, minimising C̄p subject to KL(p‖p₀) ≤ 2Nλ² - ln(2√N/δ) over the simplex is a convex
relative entropy programme; τ = C̄p + λ is then minimised over λ. For distributions that shift
(Section 6.2), C̄ₑ, the means of e^C, take the place of C̄, and λ/(e-1) that of λ. Without constraints
`learn_finite` solves the same problem exactly and hundreds of times faster; with linear constraints
on p ("at least 20 % on the conservative controllers") this is the way. Needs the extra `cvx`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import LinearConstraint

from pacbayes_control.bounds.theorems import complexity, log_two_root
from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import PAC_BAYES, Basis, Provenance, issue
from pacbayes_control.certify.priors import describe_prior, prior_for, with_costs_used
from pacbayes_control.certify.run import Run
from pacbayes_control.learn.constraints import check_feasible, describe, rows_of


def learn_constrained(
    costs: Costs,
    delta: float = 0.01,
    method: str = "kl",
    prior: Categorical | ArrayLike | None = None,
    constraints: Sequence[LinearConstraint] = (),
    solver: str = "clarabel",
    objective: str = "pinsker",
) -> Run[Categorical]:
    """Minimise C_PAC under linear constraints on p, and certify the minimiser by `method`.

    The certificate is computed from p after projection onto the simplex, and from no other value
    that the solver reports.

    Args:
        costs: (environments, policies)
        delta: probability that the certificate may be wrong
        method: "kl", "kl-maurer" or "pinsker"
        prior: over the policies; by default uniform over those that differ
        constraints: on p
        solver: its name in CVXPY
        objective: "pinsker", or "robust-pinsker" for C_PAC' (paper: eq. 36)

    >>> costs = Costs([[0, 1, 1], [0, 0, 1]] * 50)
    >>> cautious = LinearConstraint([0, 0, 1], 0.2)  # at least 20 % on the last policy
    >>> run = learn_constrained(costs, constraints=[cautious])
    >>> run.posterior.probabilities.round(3).tolist()
    [0.8, 0.0, 0.2]
    """
    prior = prior_for(costs, prior)
    posterior = constrained_posterior(costs, delta, prior, constraints, solver, objective)
    return certify_constrained(costs, delta, method, prior, posterior, constraints, objective)


def certify_constrained(
    costs: Costs,
    delta: float,
    method: str,
    prior: Categorical,
    posterior: Categorical,
    constraints: Sequence[LinearConstraint],
    objective: str = "pinsker",
) -> Run[Categorical]:
    """The run of a posterior that was found under constraints."""
    if method not in PAC_BAYES:
        raise ValueError(
            f"method {method!r} takes no constraints: choose from {', '.join(PAC_BAYES)}"
        )
    budget = Budget(delta)
    budget.spend(method)
    records = [record for constraint in constraints for record in describe(constraint, costs)]
    provenance = Provenance(objective, describe_prior(prior, costs), records)
    posterior = with_costs_used(posterior, prior, costs)
    certificate = issue(Basis(costs, prior, posterior, budget, provenance), method)
    return Run(certificate, costs, prior, posterior)


def constrained_posterior(
    costs: Costs,
    delta: float,
    prior: Categorical,
    constraints: Sequence[LinearConstraint],
    solver: str = "clarabel",
    objective: str = "pinsker",
) -> Categorical:
    """The minimiser of C_PAC, or of C_PAC', under the constraints, projected and checked."""
    Budget(delta)  # raises ValueError if delta is not in (0, 1)
    if objective not in ("pinsker", "robust-pinsker"):
        raise ValueError(f"the programmes minimise pinsker or robust-pinsker, not {objective!r}")
    means, width = costs.means, 1.0
    if objective == "robust-pinsker":
        width = math.e - 1
        means = 1 + width * costs.exponential_means
    asked = Programmes(means, costs.environments, prior, delta, width)
    raw = solve_programmes(asked, constraints, solver)
    posterior = Categorical.project(np.where(prior.probabilities > 0, raw, 0))
    check_feasible(posterior.probabilities, constraints)
    return posterior


@dataclass(frozen=True)
class Programmes:
    """The data of the paper's relative entropy programmes."""

    means: NDArray[np.float64]  # mean cost of each policy
    n: int  # environments
    prior: Categorical
    delta: float
    width: float = 1.0  # of the range of the costs; e - 1 where they are e^C (paper: eq. 34 to 36)


def solve_programmes(
    asked: Programmes,
    constraints: Sequence[LinearConstraint] = (),
    solver: str = "clarabel",
    lambdas: int = 100,
) -> NDArray[np.float64]:
    """p of the best λ, as the solver returned it; shape (policies,).

    λ runs over the range in which the constraint on KL can be met and matters: the programme is
    infeasible below it, and the same above it.
    """
    means, n, width = asked.means, asked.n, asked.width
    cp = _cvxpy()
    name = _solver(cp, solver)
    weights = asked.prior.probabilities
    supported = weights > 0
    p, radius = cp.Variable(len(weights), nonneg=True), cp.Parameter(nonneg=True)
    divergence = cp.sum(cp.rel_entr(p[supported], weights[supported]))
    limits = [cp.sum(p) == 1, divergence <= radius]
    limits += [p[~supported] == 0] if not supported.all() else []
    limits += [limit for constraint in constraints for limit in _expressions(constraint, p)]
    problem = cp.Problem(cp.Minimize(means @ p), limits)

    best, best_value, failure = None, np.inf, ""
    log_term = log_two_root(n) - np.log(asked.delta)
    largest_kl = -np.log(weights[supported].min())
    for lam in width * np.sqrt((np.linspace(0, largest_kl, lambdas) + log_term) / (2 * n)):
        radius.value = max(2 * n * (lam / width) ** 2 - log_term, 0.0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an inaccurate p still gets a valid certificate
                problem.solve(solver=name)
        except cp.error.SolverError as error:
            failure = f" ({str(error).splitlines()[0]})"
            continue
        if problem.status in ("optimal", "optimal_inaccurate") and p.value is not None:
            value = float(means @ p.value + lam)
            if value < best_value:
                best, best_value = np.array(p.value), value
    if best is None and not failure and not supported.all():
        failure = f" (the prior is zero at policy {int(np.argmin(supported))})"
    if best is None:
        raise ValueError(f"{solver} found no distribution that satisfies the constraints{failure}")
    return best


def solve_robust_bound(
    empirical_cost: float,
    kl: float,
    n: int,
    delta: float,
    shift: float,
    solver: str = "clarabel",
) -> float:
    """The paper's final robust bound as a programme of its own (eq. 37), as the solver returned it.

    A cross-check of `bounds.shift.robust_maurer`: the value of a solver is not a valid bound.

    >>> round(solve_robust_bound(0.08, 1.0, 1000, 0.01, 0.08), 4)
    0.2721
    """
    cp = _cvxpy()
    there, here = cp.Variable(nonneg=True), cp.Variable(nonneg=True)
    radius = float(complexity(kl, log_two_root(n), n, delta))

    def divergence(q: Any, p: Any) -> Any:
        return cp.rel_entr(q, p) + cp.rel_entr(1 - q, 1 - p)

    limits = [divergence(empirical_cost, here) <= radius, divergence(there, here) <= shift]
    problem = cp.Problem(cp.Maximize(there), [*limits, there <= 1, here <= 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about inaccuracy, which is fine for a cross-check
        problem.solve(solver=_solver(cp, solver))
    return float(problem.value)


def _cvxpy() -> Any:
    if find_spec("cvxpy") is None:
        raise ModuleNotFoundError(
            "relative entropy programmes need CVXPY: pip install 'pacbayes-control[cvx]'"
        )
    import cvxpy

    return cvxpy


def _solver(cp: Any, solver: str) -> str:
    """The solver's name in CVXPY, if it is installed and knows exponential cones."""
    from cvxpy.constraints.exponential import ExpCone
    from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC

    able = [
        name
        for name in cp.installed_solvers()
        if name in SOLVER_MAP_CONIC and ExpCone in SOLVER_MAP_CONIC[name].SUPPORTED_CONSTRAINTS
    ]
    if solver.upper() not in able:
        raise ValueError(
            f"solver {solver!r} is unknown, not installed or unable to solve relative entropy "
            f"programmes: choose from {', '.join(name.lower() for name in able)}"
        )
    return solver.upper()


def _expressions(constraint: LinearConstraint, p: Any) -> list[Any]:
    expressions = []
    for row, lower, upper in rows_of(constraint, p.size):
        if np.isfinite(lower):
            expressions.append(row @ p >= lower)
        if np.isfinite(upper):
            expressions.append(row @ p <= upper)
    return expressions
