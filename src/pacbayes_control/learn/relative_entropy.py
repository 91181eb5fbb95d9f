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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import LinearConstraint

from pacbayes_control.bounds.theorems import complexity, log_two_root
from pacbayes_control.certify.certificate import Constraint
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import PAC_BAYES, Basis, Provenance, budget_for, issue
from pacbayes_control.certify.priors import prior_for, with_costs_used
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import as_number

FEASIBLE = 1e-5  # how far a solver's p may be from the constraints; no bound depends on it


def learn_constrained(
    costs: Costs,
    delta: float = 0.01,
    *,
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
    if method not in PAC_BAYES:
        raise ValueError(
            f"method {method!r} takes no constraints: choose from {', '.join(PAC_BAYES)}"
        )
    budget = budget_for(costs, delta)
    share = budget.spend(method)
    if objective not in ("pinsker", "robust-pinsker"):
        raise ValueError(f"the programmes minimise pinsker or robust-pinsker, not {objective!r}")
    prior, words = prior_for(costs, prior)
    means, width = costs.means, 1.0
    if objective == "robust-pinsker":
        width = math.e - 1
        means = 1 + width * costs.exponential_means
    asked = Programmes(means, costs.environments, prior, share, width)
    raw = solve_programmes(asked, constraints, solver)
    posterior = Categorical.project(np.where(prior.probabilities > 0, raw, 0))
    records = []
    for number, (row, low, high) in enumerate(rows_of(constraints, costs.policies)):
        violation = max(low - row @ posterior.probabilities, row @ posterior.probabilities - high)
        if violation > FEASIBLE:
            raise ValueError(f"the solver's answer violates constraint {number} by {violation:.2g}")
        weights = {int(j): float(row[j]) for j in np.flatnonzero(row)}
        limits = (limit if math.isfinite(limit) else None for limit in (low, high))
        records.append(Constraint.of(weights, *limits, name_of=costs.name))
    posterior = with_costs_used(posterior, prior, costs)
    basis = Basis(costs, prior, posterior, budget, Provenance(objective, words, records))
    return Run(issue(basis, method), costs, prior, posterior)


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
    cp, name = _cvxpy(solver)
    weights = asked.prior.probabilities
    supported = weights > 0
    p, radius = cp.Variable(len(weights), nonneg=True), cp.Parameter(nonneg=True)
    divergence = cp.sum(cp.rel_entr(p[supported], weights[supported]))
    limits = [cp.sum(p) == 1, divergence <= radius]
    limits += [p[~supported] == 0] if not supported.all() else []
    for row, low, high in rows_of(constraints, len(weights)):
        limits += [row @ p >= low] if math.isfinite(low) else []
        limits += [row @ p <= high] if math.isfinite(high) else []
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
    *,
    shift: float,
    solver: str = "clarabel",
) -> float:
    """The paper's final robust bound as a programme of its own (eq. 37), as the solver returned it.

    A cross-check of `bounds.shift.robust_maurer`: the value of a solver is not a valid bound.

    >>> round(solve_robust_bound(0.08, 1.0, 1000, 0.01, shift=0.08), 4)
    0.2721
    """
    cp, name = _cvxpy(solver)
    there, here = cp.Variable(nonneg=True), cp.Variable(nonneg=True)
    radius = float(complexity(kl, log_two_root(n), n, delta))

    def divergence(q: Any, p: Any) -> Any:
        return cp.rel_entr(q, p) + cp.rel_entr(1 - q, 1 - p)

    limits = [divergence(empirical_cost, here) <= radius, divergence(there, here) <= shift]
    problem = cp.Problem(cp.Maximize(there), [*limits, there <= 1, here <= 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about inaccuracy, which is fine for a cross-check
        problem.solve(solver=name)
    return float(problem.value)


def _cvxpy(solver: str) -> tuple[Any, str]:
    """CVXPY, and the solver's name there, if it is installed and knows exponential cones."""
    if find_spec("cvxpy") is None:
        raise ModuleNotFoundError(
            "relative entropy programmes need CVXPY: pip install 'pacbayes-control[cvx]'"
        )
    import cvxpy
    from cvxpy.constraints.exponential import ExpCone
    from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC

    able = [
        name
        for name in cvxpy.installed_solvers()
        if name in SOLVER_MAP_CONIC and ExpCone in SOLVER_MAP_CONIC[name].SUPPORTED_CONSTRAINTS
    ]
    if solver.upper() not in able:
        raise ValueError(
            f"solver {solver!r} is unknown, not installed or unable to solve relative entropy "
            f"programmes: choose from {', '.join(name.lower() for name in able)}"
        )
    return cvxpy, solver.upper()


# ---- linear constraints --------------------------------------------------------------------------


def rows_of(
    constraints: Sequence[LinearConstraint], policies: int
) -> Iterator[tuple[NDArray[np.float64], float, float]]:
    """Every row of the constraints: coefficients (policies,), lower limit, upper limit."""
    for constraint in constraints:
        rows = np.atleast_2d(np.asarray(constraint.A, float))
        if rows.shape[1] != policies:
            raise ValueError(
                f"a constraint has {rows.shape[1]} coefficients for {policies} policies"
            )
        low, high = (np.broadcast_to(x, len(rows)).tolist() for x in (constraint.lb, constraint.ub))
        yield from zip(rows, low, high, strict=True)


def limit_on(text: str, costs: Costs, *, at_most: bool = False) -> LinearConstraint:
    """A lower limit on the mass of some policies, or an upper one.

    The text is such as 0.2:slow,careful or 0.2:3,7-9.

    >>> limit_on("0.2:0-1", Costs([[0, 1, 1], [0, 0, 1]])).A.tolist()
    [[1.0, 1.0, 0.0]]
    """
    share, colon, chosen = text.partition(":")
    value = as_number(share)
    if not colon or value is None or not 0 <= value <= 1:
        raise ValueError(
            f"constraint {text!r}: write SHARE:POLICIES, such as 0.2:slow or 0.2:3,7-9"
        )
    row = np.zeros(costs.policies)
    for part in chosen.split(","):
        row[_policies(part.strip(), costs)] = 1
    return LinearConstraint(row, -np.inf if at_most else value, value if at_most else np.inf)


def _policies(part: str, costs: Costs) -> int | slice:
    if part in costs.names:
        return costs.names.index(part)
    first, _, last = part.partition("-")
    if first.isdecimal() and (last or first).isdecimal():
        start, stop = int(first), int(last or first) + 1
        if start < stop <= costs.policies:
            return slice(start, stop)
    raise ValueError(f"{part!r} names no policy: give a name, or numbers 0 to {costs.policies - 1}")
