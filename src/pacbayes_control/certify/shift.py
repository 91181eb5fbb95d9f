"""Certificates under a distribution shift: on every distribution in a ball, and by its radius B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pacbayes_control.bounds.shift import shift_inverse, tolerable_shift
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Budget, Certificate, versions
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.statistics import Statistic

SHARE = "shift"  # the budget's name for the δ of an estimated ball


def check_statistic(of: Statistic) -> None:
    """An error for a statistic of the cost that has no bound under a shift."""
    if of.kind == "cvar":
        raise ValueError("cvar has no bound under a shift here: certify the mean or a quantile")


def under_shift(run: Run[Any], ball: Ball) -> Run[Any]:
    """The same run, certified for every distribution in a ball around the training distribution.

    The bound on D' grows with the bound on D for every ball. So the posterior with the smallest
    bound also has the smallest robust bound, and nothing needs to be learnt again. A ball that is
    assumed or known does not change δ; the δ of an estimated ball is added to that of the run.

    To cost more than a quantile c is an event, and so a cost of 0 or 1: in a ball the same c is
    exceeded in a larger share of new environments.

    >>> from pacbayes_control.learn import learn_finite
    >>> run = learn_finite([[0, 1], [0, 0], [0, 1], [1, 1]] * 250, delta=0.01)
    >>> under_shift(run, Ball("kl", 0.02)).certificate.bound > run.certificate.bound
    True
    """
    if not isinstance(run, Run) or not isinstance(ball, Ball):
        raise ValueError("give a run and a ball, such as Ball('kl', 0.05)")
    certificate = run.certificate
    if certificate.ball is not None:
        raise ValueError(
            f"the certificate already holds where {certificate.ball}: start from the run that it "
            "was made from"
        )
    if certificate.parts:
        raise ValueError(
            "the certificate has bounds for parts of the world, which a ball says nothing of: "
            "learn without parts for a certificate under a shift"
        )
    check_statistic(certificate.statistic)
    budget = dict(certificate.budget)
    if ball.delta:
        budget[SHARE] = ball.delta
    delta = Budget(certificate.delta + ball.delta).total
    above = certificate.most_above  # of a quantile
    base = certificate.bound if above is None else above
    most = float(shift_inverse(base, ball.radius, ball.divergence))
    changed = {"bound" if above is None else "exceeded": most}
    shifted = replace(
        certificate,
        **changed,
        bound_without_shift=certificate.bound,
        ball=ball,
        delta=delta,
        budget=budget,
        versions=versions(run.costs.origin),
        format=max(certificate.format, 3),  # the first with balls
    )
    return replace(run, certificate=shifted, plan=None)  # which would make the run without a ball


@dataclass(frozen=True)
class Curve:
    """The bound as a function of the radius B of the shift; all of it holds at once."""

    divergence: str
    radii: tuple[float, ...]  # B
    bounds: tuple[float, ...]  # on every D' within B
    limit: float  # the largest acceptable bound
    tolerable: float  # the B up to which the bound stays below the limit
    above: float | None = None  # a quantile c: the bounds are on the share that costs more than c


def curve(
    certificate: Certificate,
    divergence: str = "kl",
    *,
    radii: Sequence[float] | None = None,
    limit: float = 0.5,
) -> Curve:
    """The bound for each radius B of a shift, at the confidence of the certificate.

    It is on the expected cost; for a quantile, on the share of environments that cost more.

    Args:
        certificate: of a run.
        divergence: the divergence of the shift.
        radii: by default 41 up to where the bound reaches `limit`, more of them near 0, where it
            rises like a square root.
        limit: the largest acceptable cost, or share of environments.
    """
    if not isinstance(certificate, Certificate):
        raise ValueError("a curve is drawn from a certificate, such as run.certificate")
    of = certificate.statistic
    check_statistic(of)
    quantile = of.kind == "quantile"
    base = 1 - of.share if quantile else certificate.bound_on_training
    if not 0 < limit <= 1:
        what = "a share of environments" if quantile else "a cost"
        raise ValueError(f"a limit of {limit:g} is not {what}: it must lie in (0, 1]")
    reach = float(tolerable_shift(base, limit, divergence)) if limit > base else 0.0
    tilt = certificate.tilt if divergence == "kl" else None
    if tilt is not None:  # the bound is also base + B/λ, for every B
        reach = max(reach, (limit - base) * tilt * (1 - 1e-9))
    half_way = float(tolerable_shift(base, (1 + base) / 2, divergence))
    last = next((radius for radius in (reach, half_way) if 0 < radius < np.inf), 1.0)
    chosen = last * np.linspace(0, 1, 41) ** 2 if radii is None else np.asarray(radii, float)
    bounds = shift_inverse(base, chosen, divergence)
    if tilt is not None:
        bounds = np.minimum(bounds, (base + chosen / tilt) * (1 + 1e-12))
    above = certificate.bound if quantile else None
    return Curve(divergence, tuple(chosen.tolist()), tuple(bounds.tolist()), limit, reach, above)
