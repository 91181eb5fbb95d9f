"""Linear constraints on a posterior: read from text, recorded, and checked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint

from pacbayes_control.certify.certificate import Constraint
from pacbayes_control.certify.costs import Costs

FEASIBLE = 1e-5  # how far a solver's p may be from the constraints; no bound depends on it


def at_least_on(text: str, costs: Costs) -> LinearConstraint:
    """A lower limit on the mass of some policies, from text such as 0.2:slow,careful or 0.2:3,7-9.

    >>> at_least_on("0.2:0-1", Costs([[0, 1, 1], [0, 0, 1]])).A.tolist()
    [[1.0, 1.0, 0.0]]
    """
    share, row = _parse(text, costs)
    return LinearConstraint(row, share, np.inf)


def at_most_on(text: str, costs: Costs) -> LinearConstraint:
    """An upper limit on the mass of some policies."""
    share, row = _parse(text, costs)
    return LinearConstraint(row, -np.inf, share)


def describe(constraint: LinearConstraint, costs: Costs) -> list[Constraint]:
    """A constraint as the certificate records it, row by row."""
    records = []
    for row, lower, upper in rows_of(constraint, costs.policies):
        weights = {int(j): float(row[j]) for j in np.flatnonzero(row)}
        limits = (limit if math.isfinite(limit) else None for limit in (lower, upper))
        records.append(Constraint.of(weights, *limits, name_of=costs.name))
    return records


def rows_of(
    constraint: LinearConstraint, policies: int
) -> list[tuple[NDArray[np.float64], float, float]]:
    """The constraint row by row: coefficients (policies,), lower limit, upper limit."""
    rows = np.atleast_2d(np.asarray(constraint.A, float))
    if rows.shape[1] != policies:
        raise ValueError(f"a constraint has {rows.shape[1]} coefficients for {policies} policies")
    low, high = np.broadcast_to(constraint.lb, len(rows)), np.broadcast_to(constraint.ub, len(rows))
    return list(zip(rows, low.tolist(), high.tolist(), strict=True))


def check_feasible(p: NDArray[np.float64], constraints: Sequence[LinearConstraint]) -> None:
    """Raise ValueError if a posterior violates a constraint by more than a solver's tolerance."""
    for number, constraint in enumerate(constraints):
        for row, lower, upper in rows_of(constraint, len(p)):
            violation = max(lower - row @ p, row @ p - upper)
            if violation > FEASIBLE:
                raise ValueError(
                    f"the solver's answer violates constraint {number} by {violation:.2g}"
                )


def _parse(text: str, costs: Costs) -> tuple[float, NDArray[np.float64]]:
    share, colon, chosen = text.partition(":")
    try:
        value = float(share)
    except ValueError:
        value = math.nan
    if not colon or not 0 <= value <= 1:
        raise ValueError(
            f"constraint {text!r}: write SHARE:POLICIES, such as 0.2:slow or 0.2:3,7-9"
        )
    row = np.zeros(costs.policies)
    for part in chosen.split(","):
        row[_policies(part.strip(), costs)] = 1
    return value, row


def _policies(part: str, costs: Costs) -> slice:
    if part in costs.names:
        index = costs.names.index(part)
        return slice(index, index + 1)
    first, _, last = part.partition("-")
    if first.isdecimal() and (last or first).isdecimal():
        start, stop = int(first), int(last or first) + 1
        if start < stop <= costs.policies:
            return slice(start, stop)
    raise ValueError(f"{part!r} names no policy: give a name, or numbers 0 to {costs.policies - 1}")
