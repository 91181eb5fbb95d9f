"""Bounds for parts of the world, recomputed from the costs of the environments in them."""

from __future__ import annotations

import math
from collections.abc import Callable

from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.parts import MOST, SHARE, CertifiedPart, Part, costs_in
from pacbayes_control.certify.run import Run
from pacbayes_control.verify import intervals
from pacbayes_control.verify.intervals import Interval, Test, iv, require

# by costs, their mean, a share of δ and the bound that is stated
Proof = Callable[[Costs, Interval, Interval, float], Test]


def check_declared(c: Certificate) -> None:
    """Raise if a certificate of this kind has no parts, or its parts are not paid for.

    Every certificate is checked: those of a kind that has parts are then to pass `check_parts`.
    """
    require(bool(c.parts) == (SHARE in c.budget), "parts of the world are paid for by δ, or absent")
    if not c.parts:
        return
    kind = c.method in ("occam", "kl", "kl-maurer", "pinsker") and c.draws is None
    fits = kind and c.of == "mean" and c.ball is None and c.candidates is None
    require(fits, "parts of the world are for the mean cost of listed policies, without a shift")
    require(len(c.parts) <= MOST, f"a certificate has at most {MOST} parts of the world")
    require(len({part.words for part in c.parts}) == len(c.parts), "a part is certified twice")
    shares = [part.delta for part in c.parts]
    require(len({*shares}) == 1, "the parts of the world have different shares of δ")
    paid = shares[0] > 0 and math.fsum(shares) <= c.budget[SHARE] * (1 + 1e-12)
    require(paid, "the parts of the world spend more than their share of δ")


def check_parts(run: Run, mean: Callable[[list[Interval]], Interval], proof: Proof) -> None:
    """Raise if a bound for a part does not hold.

    Args:
        run: with its certificate, after `check_declared`
        mean: of a quantity of each policy, over the posterior
        proof: the test of a bound at a share of δ, for the same policy or posterior
    """
    for part in run.certificate.parts:
        _check_part(run, part, mean, proof)


def _check_part(
    run: Run, stated: CertifiedPart, mean: Callable[[list[Interval]], Interval], proof: Proof
) -> None:
    part = Part.parse(stated.words)
    try:
        count, here = costs_in(part, run.costs)
    except ValueError as error:
        raise intervals.InvalidCertificate(str(error)) from None
    which = f"the part {part}"
    require(stated.environments == count, f"{which} has {count} environments, not as stated")
    if here is None:
        fits = stated.bound == 1 and stated.empirical_cost is None
        require(fits, f"{which} has too few environments for a bound below 1")
        return
    cost = mean(intervals.exact_means(here.values))
    close = stated.empirical_cost is not None and abs(stated.empirical_cost - cost.mid) <= 1e-9
    require(close, f"the cost in {which} is not as stated")
    require(0 <= stated.bound <= 1, f"the bound for {which} is outside [0, 1]")
    holds = proof(here, cost, iv.mpf(stated.delta), stated.bound)
    proven = stated.bound == 1 or holds(iv.mpf(stated.bound))
    require(proven, f"the bound {stated.bound:.6g} for {which} is not proven by its costs")
