"""The numbers behind the sections of a page; their words are in the templates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pacbayes_control.certify.certificate import Budget, Certificate
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.issuing import (
    ANYTIME,
    PAC_BAYES,
    SAMPLING,
    Basis,
    Provenance,
    issue_sampled,
)
from pacbayes_control.certify.looks import EARLIER, OTHER
from pacbayes_control.certify.parts import SHARE as PARTS
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import curve, under_shift
from pacbayes_control.certify.simulation import SHARE as SIMULATION
from pacbayes_control.certify.statistics import FUNCTION
from pacbayes_control.certify.trials import LOOKS
from pacbayes_control.learn import compare_methods
from pacbayes_control.report.projection import project, why_no_projection
from pacbayes_control.report.simulation import simulation_values
from pacbayes_control.report.summary import (
    distribution_function,
    environment_costs,
    hardest,
    likeliest,
)
from pacbayes_control.trials.choosing import OTHERS

LISTED = 100  # policies in the table of shares
MEANING = {
    "kl": "Maurer's bound, with his own constant",
    "kl-maurer": "Maurer's bound, with the paper's constant 2√N",
    "pinsker": "the paper's C_PAC: Maurer's bound, relaxed to a formula",
    "betting": "by bets: for graded costs, and for every number of environments at once",
    "occam": "one policy: a union bound over all of them",
    "single-draw": "one policy, drawn once from the posterior and kept",
    "tilted": "for graded costs in a KL ball, by the mean of e^λC",
    ANYTIME: "one policy, by e-values: for every number of trials at once",
}
SPENT_ON = MEANING | {
    FUNCTION: "the whole distribution of the policy's cost",
    "sampling": "what a sample of policies may miss",
    SIMULATION: "what a sample of simulated environments may miss",
    "shift": "the estimate of how far the world has shifted",
    EARLIER: "earlier looks at this campaign, when it was smaller",
    OTHER: "the other looks at this campaign that were declared beforehand",
    PARTS: "the parts of the world that were declared beforehand",
    LOOKS: "declared beforehand, with --spent",
    OTHERS: "the policies that it was chosen among: all have equal shares",
}


def section_values(run: Run[Any]) -> dict[str, Any]:
    """The values that the templates of the sections read, by name."""
    methods, why_no_methods = side_by_side(run)
    c, means = run.certificate, environment_costs(run)
    why_not = why_no_projection(c)
    projection = None if why_not else project(run)
    half_way = projection.half_way if projection else None
    more = half_way[0] - run.costs.environments if half_way else 0
    return {
        "record": record_rows(run.certificate, run.costs.device),
        "budget": budget_rows(run.certificate),
        "methods": methods,
        "why_no_methods": why_no_methods,
        "easy": int(np.sum(means < 0.05)),
        "hard": int(np.sum(means >= 0.5)),
        "hardest": hardest(run),
        "single": run.certificate.policy is not None,
        "projection": projection,
        "why_no_projection": why_not,
        "more_environments": _rounded(more),
        "curve": None if c.statistic.kind == "cvar" else curve(c),
        "function": distribution_function(run),
        "simulation": simulation_values(run),
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


def gaussian_moves(run: Run[DiagonalGaussian]) -> tuple[np.ndarray, np.ndarray]:
    """How far each mean has moved, and how each width has changed, in units of the prior's."""
    spread = np.sqrt(run.prior.variance)
    moved = (run.posterior.mean - run.prior.mean) / spread
    return moved, np.sqrt(run.posterior.variance) / spread


def record_rows(c: Certificate, device: str = "") -> list[tuple[str, str]]:
    """Hashes, versions and all digits, for those who check the certificate."""
    rows = [("method", c.method), ("objective", c.objective), ("delta", f"{c.delta:g}")]
    rows += [("bound, all digits", repr(float(c.bound))), ("KL", f"{c.kl!r} nats")]
    rows += [("of", c.of)] if c.of != "mean" else []
    names = ("tilt", "grid", "threshold", "stake", "margin", "exceeded", "until", "at_most")
    numbers = [(name, getattr(c, name)) for name in names]
    rows += [(name, repr(number)) for name, number in numbers if number is not None]
    if c.graded is not None:
        rows.append(("costs, as declared", "graded" if c.graded else "0 or 1"))
    for number, look in enumerate(c.looks, start=1):
        spent = "not recorded" if look.delta is None else f"{look.delta:g}"
        sizes = f"{look.environments:,} environments × {look.count:,} policies"
        rows.append((f"look {number}", f"{sizes} ({look.policies}), δ = {spent}"))
    rows += [(f"SHA-256 of {name}", digest) for name, digest in sorted(c.hashes.items())]
    rows += [("rollouts ran on", device)] if device else []
    return rows + sorted(c.versions.items())


def budget_rows(c: Certificate) -> list[tuple[str, str, float, float]]:
    """Each share of δ: its name, what it was spent on, its size, and its part of δ."""
    rows = [
        (name, SPENT_ON.get(name, "alternatives that were paid for"), float(share))
        for name, share in c.budget.items()
    ]
    unspent = c.delta - math.fsum(share for _, _, share in rows)
    if unspent > 1e-9 * c.delta:
        rows.append(("not spent", "kept back", unspent))
    return [(*row, row[-1] / c.delta) for row in rows]


# ---- the same costs, certified by every method: each bound holds on its own --------------------


def side_by_side(run: Run[Any]) -> tuple[tuple[Certificate, ...], str]:
    """Certificates by every method that applies, the run's own among them; or the reason why not.

    Finitely many policies: each method chooses its own posterior and has all of δ. A Gaussian
    posterior: the same one, at the same shares of δ, since another would need draws of its own.
    """
    c = run.certificate
    if c.simulation is not None:
        return (), (
            "Simulation joins the mean cost of one policy at a time, which is certified by "
            f"{c.method}: no other method takes it, so that there is nothing to compare."
        )
    if c.candidates is not None:
        return (), _why_chosen_alone(c)
    if c.of != "mean":
        return (), f"{c.of} is certified by {c.method} alone: there is nothing to compare it with."
    if c.until is not None:
        return (), (
            "Environments were added until the bound was small enough, which the method betting "
            "allows for: at this number of them, no other method's bound would hold."
        )
    if c.constraints:
        return (), (
            "This posterior was chosen under constraints, which other methods would have to meet "
            "too: pbc certify with the same constraints shows them side by side."
        )
    if c.method == "single-draw":
        return (), "One drawn policy has one bound: no other method certifies the same draw."
    delta = c.delta - (c.ball.delta if c.ball else 0.0)
    if c.looks and not c.declared_looks:
        delta = c.looks[-1].spent(delta)  # the others' is added to it
    try:
        if isinstance(run.posterior, Categorical):
            compared = compare_methods(run.costs, delta, prior=run.prior, ball=c.ball)
            others = [other.certificate for other in compared.runs]
        else:
            others = [_sampled(run, method, delta) for method in PAC_BAYES]
    except ValueError as error:  # of costs that a method cannot take, or of an earlier format
        return (), f"Nothing is compared: {error}."
    # The run's own certificate is reached again up to the last bits.
    own = [other.method == c.method and abs(other.bound - c.bound) < 1e-9 for other in others]
    methods = [c if same else other for other, same in zip(others, own, strict=True)]
    return tuple(methods if any(own) else [c, *methods]), ""


def _why_chosen_alone(c: Certificate) -> str:
    """Why the bound of a policy that was chosen by its trials is not shown beside others."""
    if c.candidates == 1:
        return f"Trials of one policy are certified by {c.method} alone: nothing is compared."
    return (
        f"The policy was chosen by its trials among {c.candidates:,} policies, for which its bound "
        "pays with a share of δ. Bounds of other methods at the whole of δ would not."
    )


def _sampled(run: Run[Any], method: str, delta: float) -> Certificate:
    """The same posterior by another theorem, which takes over the share of the run's own."""
    c = run.certificate
    shares = {SAMPLING: float(c.budget[SAMPLING]), method: float(c.budget[c.method])}
    provenance = Provenance(c.objective, c.prior)
    basis = Basis(run.costs, run.prior, run.posterior, Budget(delta, shares), provenance)
    other = replace(run, certificate=issue_sampled(basis, method))
    return (under_shift(other, c.ball) if c.ball else other).certificate


def _rounded(count: int) -> int:
    """Two leading digits, rounded upwards: a projection has no more."""
    size = 10 ** max(0, len(str(count)) - 2)
    return -(-count // size) * size
