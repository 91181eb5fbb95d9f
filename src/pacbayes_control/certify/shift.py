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

SHARE = "shift"  # the budget's name for the δ of an estimated ball


def under_shift(run: Run[Any], ball: Ball) -> Run[Any]:
    """The same run, certified for every distribution in a ball around the training distribution.

    The bound on D' grows with the bound on D for every ball. So the posterior with the smallest
    bound also has the smallest robust bound, and nothing needs to be learnt again. A ball that is
    assumed or known does not change δ; the δ of an estimated ball is added to that of the run.

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
    budget = dict(certificate.budget)
    if ball.delta:
        budget[SHARE] = ball.delta
    delta = Budget(certificate.delta + ball.delta).total
    bound = float(shift_inverse(certificate.bound, ball.radius, ball.divergence))
    shifted = replace(
        certificate,
        bound=bound,
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
    limit: float  # the largest acceptable cost
    tolerable: float  # the B up to which the bound stays below the limit


def curve(
    certificate: Certificate,
    divergence: str = "kl",
    *,
    radii: Sequence[float] | None = None,
    limit: float = 0.5,
) -> Curve:
    """The bound on the cost for each radius B of a shift, at the confidence of the certificate.

    Args:
        certificate: of a run.
        divergence: the divergence of the shift.
        radii: by default 41 up to where the bound reaches `limit`, more of them near 0, where it
            rises like a square root.
        limit: the largest acceptable cost.
    """
    if not isinstance(certificate, Certificate):
        raise ValueError("a curve is drawn from a certificate, such as run.certificate")
    base = certificate.bound_without_shift
    base = certificate.bound if base is None else base
    if not 0 < limit <= 1:
        raise ValueError(f"a limit of {limit:g} is not a cost: it must lie in (0, 1]")
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
    return Curve(divergence, tuple(chosen.tolist()), tuple(bounds.tolist()), limit, reach)
