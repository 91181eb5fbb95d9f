"""The numbers behind the sections of a page; their words are in the templates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pacbayes_control.bounds import chernoff_kl_holdout, clopper_pearson, single_draw
from pacbayes_control.bounds.betting import log_regret
from pacbayes_control.bounds.shift import shift_inverse, tilted_maurer
from pacbayes_control.certify.certificate import Budget, Certificate
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.issuing import (
    BETTING,
    PAC_BAYES,
    SAMPLING,
    Basis,
    Provenance,
    issue_sampled,
    policy_weights,
)
from pacbayes_control.certify.looks import EARLIER, OTHER
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import curve, under_shift
from pacbayes_control.certify.statistics import FUNCTION
from pacbayes_control.learn import compare_methods
from pacbayes_control.report.summary import (
    distribution_function,
    environment_costs,
    hardest,
    likeliest,
)

LISTED = 100  # policies in the table of shares
MEANING = {
    "kl": "Maurer's bound, with his own constant",
    "kl-maurer": "Maurer's bound, with the paper's constant 2√N",
    "pinsker": "the paper's C_PAC: Maurer's bound, relaxed to a formula",
    "betting": "by bets: for graded costs, and for every number of environments at once",
    "occam": "one policy: a union bound over all of them",
    "single-draw": "one policy, drawn once from the posterior and kept",
    "tilted": "for graded costs in a KL ball, by the mean of e^λC",
}
SPENT_ON = MEANING | {
    FUNCTION: "the whole distribution of the policy's cost",
    "sampling": "what a sample of policies may miss",
    "shift": "the estimate of how far the world has shifted",
    EARLIER: "earlier looks at this campaign, when it was smaller",
    OTHER: "the other looks at this campaign that were declared beforehand",
}
POINTS = 61  # of the curve of bounds against environments
FEWEST, MOST = 0.1, 100  # times N, where that curve begins and ends
ENDLESS = 10**12  # environments, at which a bound is its limit to every shown digit


def section_values(run: Run[Any]) -> dict[str, Any]:
    """The values that the templates of the sections read, by name."""
    methods, why_no_methods = side_by_side(run)
    c, means = run.certificate, environment_costs(run)
    projection = project(run) if c.of == "mean" else None
    half_way = projection.half_way if projection else None
    more = half_way[0] - run.costs.environments if half_way else 0
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
        "more_environments": _rounded(more),
        "curve": None if c.statistic.kind == "cvar" else curve(c),
        "function": distribution_function(run),
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


def record_rows(c: Certificate) -> list[tuple[str, str]]:
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
    if isinstance(run.posterior, Categorical):
        try:
            compared = compare_methods(run.costs, delta, prior=run.prior, ball=c.ball)
        except ValueError as error:  # of costs that one of the methods cannot take
            return (), f"Nothing is compared: {error}."
        others = [other.certificate for other in compared.runs]
    else:
        others = [_sampled(run, method, delta) for method in PAC_BAYES]
    # The run's own certificate is reached again up to the last bits.
    own = [other.method == c.method and abs(other.bound - c.bound) < 1e-9 for other in others]
    methods = [c if same else other for other, same in zip(others, own, strict=True)]
    return tuple(methods if any(own) else [c, *methods]), ""


def _sampled(run: Run[Any], method: str, delta: float) -> Certificate:
    """The same posterior by another theorem, which takes over the share of the run's own."""
    c = run.certificate
    shares = {SAMPLING: float(c.budget[SAMPLING]), method: float(c.budget[c.method])}
    provenance = Provenance(c.objective, c.prior)
    basis = Basis(run.costs, run.prior, run.posterior, Budget(delta, shares), provenance)
    other = replace(run, certificate=issue_sampled(basis, method))
    return (under_shift(other, c.ball) if c.ball else other).certificate


# ---- the bound with other numbers of environments: an outlook, not a certificate ---------------


@dataclass(frozen=True)
class Projection:
    """The bound against the number of environments, all else being as in a run."""

    environments: tuple[int, ...]
    bounds: tuple[float, ...]
    limit: float  # of the bound, which always stays above it
    half_way: tuple[int, float] | None  # environments that would halve the way there, and the bound


def project(run: Run[Any]) -> Projection:
    """The bound for a tenth to a hundred times as many environments.

    >>> from pacbayes_control.learn import learn_finite
    >>> projection = project(learn_finite([[0, 1], [0, 0], [0, 1], [1, 1]] * 250))
    >>> projection.environments[0], projection.environments[-1]
    (100, 100000)
    """
    n = run.certificate.environments
    counts = np.unique(np.rint(n * np.geomspace(FEWEST, MOST, POINTS)).astype(int))
    counts = np.union1d(counts[counts >= 2], [n])
    bounds = [projected_bound(run, int(count)) for count in counts]
    limit = projected_bound(run, ENDLESS)
    return Projection(tuple(counts.tolist()), tuple(bounds), limit, _half_way(run, limit))


def projected_bound(run: Run[Any], environments: int) -> float:
    """The run's own bound if so many environments had given the same mean cost and the same KL.

    Occam's bound by bets depends on every cost, so that its excess over the mean is taken to shrink
    like 1/√N.
    """
    c = run.certificate
    share = float(c.budget[c.method])
    cost = c.empirical_cost if c.training_cost_bound is None else c.training_cost_bound
    if c.tilt is not None and c.ball is not None:
        tilted = float(run.posterior.probabilities @ run.costs.tilted_means(c.tilt))
        return float(
            tilted_maurer(tilted, c.kl, environments, share, radius=c.ball.radius, tilt=c.tilt)
        )
    if c.method == BETTING:
        bound = _projected_by_bets(run, environments)
    elif c.method == "occam":
        level = share * float(policy_weights(run.costs, run.prior)[c.policy])
        if c.success_or_failure:  # failures at the same rate, rounded up to a whole number
            failures = min(environments, math.ceil(cost * environments - 1e-6))
            bound = clopper_pearson(failures, environments, level)
        elif c.grid is None:
            bound = chernoff_kl_holdout(cost, environments, level)
        else:  # bets
            excess = (c.bound_on_training - cost) * math.sqrt(c.environments / environments)
            bound = min(cost + excess, 1.0)
    else:
        theorem = single_draw if c.method == "single-draw" else PAC_BAYES[c.method]
        bound = theorem(cost, c.kl, environments, share)
    if c.ball is not None:
        bound = shift_inverse(bound, c.ball.radius, c.ball.divergence)
    return float(bound)


def _projected_by_bets(run: Run[Any], environments: int) -> float:
    """The bound by bets with other numbers of environments, about: it has the form of Bernstein's.

    r̂ + √(2Vx) + kx, where x is (KL + ln(√π Γ(N+1)/Γ(N+½)) + ln(1/δ))/N, V the variance of the
    costs, and k such that it is the run's own bound for its N.
    """
    c, p = run.certificate, run.posterior.probabilities
    counted = p > 1e-4
    values = np.asarray(run.costs.values[:, counted], float)
    variance = float(p[counted] @ values.var(axis=0))
    here, there = (
        (c.kl + log_regret(n) - math.log(c.budget[BETTING])) / n
        for n in (c.environments, environments)
    )
    above = c.bound_on_training - c.empirical_cost
    rest = above - math.sqrt(2 * variance * here)
    if rest < 0:
        return min(1.0, c.empirical_cost + above * math.sqrt(there / here))
    return min(1.0, c.empirical_cost + math.sqrt(2 * variance * there) + rest * there / here)


def _half_way(run: Run[Any], limit: float) -> tuple[int, float] | None:
    """How many environments would bring the bound half of the way to its limit, by bisection."""
    n, bound = run.certificate.environments, run.certificate.bound
    target = (bound + limit) / 2
    low, high = n, MOST * n
    if bound - limit < 1e-4 or projected_bound(run, high) > target:
        return None
    while high - low > max(1, n // 1000):
        middle = (low + high) // 2
        low, high = (middle, high) if projected_bound(run, middle) > target else (low, middle)
    return high, projected_bound(run, high)


def _rounded(count: int) -> int:
    """Two leading digits, rounded upwards: a projection has no more."""
    size = 10 ** max(0, len(str(count)) - 2)
    return -(-count // size) * size
