"""The numbers behind the sections of a page; their words are in the templates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import curve
from pacbayes_control.report.environments import environment_costs, hardest
from pacbayes_control.report.plots import gaussian_moves
from pacbayes_control.report.projection import project
from pacbayes_control.report.replay import likeliest
from pacbayes_control.report.side_by_side import MEANING, side_by_side

LISTED = 100  # policies in the table of shares
SPENT_ON = {
    "sampling": "what a sample of policies may miss",
    "shift": "the estimate of how far the world has shifted",
}


def section_values(run: Run[Any]) -> dict[str, Any]:
    """The values that the templates of the sections read, by name."""
    methods, why_no_methods = side_by_side(run)
    projection, means = project(run), environment_costs(run)
    half_way = projection.half_way[0] if projection.half_way else run.costs.environments
    return {
        "record": record_rows(run.certificate),
        "budget": budget_rows(run.certificate),
        "methods": methods,
        "why_no_methods": why_no_methods,
        "easy": int(np.sum(means < 0.05)),
        "hard": int(np.sum(means >= 0.5)),
        "hardest": hardest(run),
        "single": run.certificate.policy is not None,
        "projection": projection,
        "more_environments": _rounded(half_way - run.costs.environments),
        "curve": curve(run.certificate),
        **posterior_values(run),
    }


def posterior_values(run: Run[Any]) -> dict[str, Any]:
    """Shares of the likeliest policies; or how far each parameter of a Gaussian has moved."""
    if not isinstance(run.posterior, Categorical):
        moved, widths = gaussian_moves(run)
        moved = np.abs(moved)
        return {"categorical": False, "moved": moved, "median": np.median(moved), "widths": widths}
    shares, prior = run.posterior.probabilities, run.prior.probabilities
    listed = [
        (run.costs.name(int(i)), shares[i], prior[i], run.costs.means[i])
        for i in likeliest(run)[:LISTED]
    ]
    positive = shares[shares > 0]
    effective = math.exp(-float(np.sum(positive * np.log(positive))))
    return {"categorical": True, "shares": listed, "effective_policies": effective}


def record_rows(c: Certificate) -> list[tuple[str, str]]:
    """Hashes, versions and all digits, for those who check the certificate."""
    rows = [("method", c.method), ("objective", c.objective), ("delta", f"{c.delta:g}")]
    rows += [("bound, all digits", repr(float(c.bound))), ("KL", f"{c.kl!r} nats")]
    rows += [("tilt", f"{c.tilt:g}")] if c.tilt is not None else []
    rows += [(f"SHA-256 of {name}", digest) for name, digest in sorted(c.hashes.items())]
    return rows + sorted(c.versions.items())


def budget_rows(c: Certificate) -> list[tuple[str, str, float, float]]:
    """Each share of δ: its name, what it was spent on, its size, and its part of δ."""
    meanings = MEANING | SPENT_ON
    rows = [
        (name, meanings.get(name, "alternatives that were paid for"), float(share))
        for name, share in c.budget.items()
    ]
    unspent = c.delta - math.fsum(share for _, _, share in rows)
    if unspent > 1e-9 * c.delta:
        rows.append(("not spent", "kept back", unspent))
    return [(*row, row[-1] / c.delta) for row in rows]


def _rounded(count: int) -> int:
    """Two leading digits, rounded upwards: a projection has no more."""
    size = 10 ** max(0, len(str(count)) - 2)
    return -(-count // size) * size
