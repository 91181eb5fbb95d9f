"""The same costs, certified by every method that applies: each bound holds on its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pacbayes_control.certify.certificate import Budget, Certificate
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import PAC_BAYES, SAMPLING, Basis, Provenance, issue_sampled
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.learn import compare

MEANING = {
    "kl": "Maurer's bound, with his own constant",
    "kl-maurer": "Maurer's bound, with the paper's constant 2√N",
    "pinsker": "the paper's C_PAC: Maurer's bound, relaxed to a formula",
    "occam": "one policy: a union bound over all of them",
    "single-draw": "one policy, drawn once from the posterior and kept",
    "tilted": "for graded costs in a KL ball, by the mean of e^λC",
}


@dataclass(frozen=True)
class Method:
    """A certificate for the same costs by one method, which may be the run's own."""

    certificate: Certificate
    own: bool


def side_by_side(run: Run[Any]) -> tuple[tuple[Method, ...], str]:
    """Every method that applies, or none and the reason why.

    Finitely many policies: each method chooses its own posterior and has all of δ. A Gaussian
    posterior: the same one, at the same shares of δ, since another would need draws of its own.
    """
    c = run.certificate
    if c.constraints:
        return (), (
            "This posterior was chosen under constraints, which other methods would have to meet "
            "too: pbc certify with the same constraints shows them side by side."
        )
    if c.method == "single-draw":
        return (), "One drawn policy has one bound: no other method certifies the same draw."
    if isinstance(run.posterior, Categorical):
        others = _finite(run)
    else:
        others = [_sampled(run, method) for method in PAC_BAYES]
    methods = [Method(c, True) if _same(other, c) else Method(other, False) for other in others]
    if not any(method.own for method in methods):
        methods.insert(0, Method(c, True))
    return tuple(methods), ""


def _finite(run: Run[Any]) -> list[Certificate]:
    c = run.certificate
    delta = c.delta - (c.ball.delta if c.ball else 0.0)
    comparison = compare(run.costs, delta, run.prior, ball=c.ball)
    return [other.certificate for other in comparison.runs]


def _sampled(run: Run[Any], method: str) -> Certificate:
    """The same posterior by another theorem, which takes over the share of the run's own."""
    c = run.certificate
    shares = {SAMPLING: float(c.budget[SAMPLING]), method: float(c.budget[c.method])}
    delta = c.delta - (c.ball.delta if c.ball else 0.0)
    provenance = Provenance(c.objective, c.prior)
    budget = Budget(delta, shares)
    issued = issue_sampled(Basis(run.costs, run.prior, run.posterior, budget, provenance), method)
    other = replace(run, certificate=issued)
    return under_shift(other, c.ball).certificate if c.ball else issued


def _same(other: Certificate, own: Certificate) -> bool:
    """Whether this is the run's certificate, reached again; the last bits may differ."""
    return other.method == own.method and abs(other.bound - own.bound) < 1e-9
