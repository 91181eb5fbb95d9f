"""Bounds for parts of the world, recomputed from the costs of the environments in them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.parts import SHARE, CertifiedPart, Part, costs_in
from pacbayes_control.certify.run import Run
from pacbayes_control.verify import intervals
from pacbayes_control.verify.intervals import Interval, Test, iv, require

# by costs, their mean, a share of δ and the bound that is stated
Proof = Callable[[Costs, Interval, Interval, float], Test]


def check_parts(run: Run, mean: Callable[[list[Interval]], Interval], proof: Proof) -> None:
    """Raise if a bound for a part does not hold, or was not paid for.

    Args:
        run: with its certificate
        mean: of a quantity of each policy, over the posterior
        proof: the test of a bound at a share of δ, for the same policy or posterior
    """
    c = run.certificate
    require(bool(c.parts) == (SHARE in c.budget), "parts of the world are paid for by δ, or absent")
    if not c.parts:
        return
    kind = c.method in ("occam", "kl", "kl-maurer", "pinsker") and c.draws is None
    fits = kind and c.of == "mean" and c.ball is None and c.tasks is None
    require(fits, "parts of the world are for the mean cost of listed policies, without a shift")
    require(len({part.words for part in c.parts}) == len(c.parts), "a part is certified twice")
    shares = [part.delta for part in c.parts]
    paid = min(shares) > 0 and math.fsum(shares) <= c.budget[SHARE] * (1 + 1e-12)
    require(paid, "the parts of the world spend more than their share of δ")
    for part in c.parts:
        _check_part(run, part, mean, proof)


def _check_part(
    run: Run, stated: CertifiedPart, mean: Callable[[list[Interval]], Interval], proof: Proof
) -> None:
    part, costs = Part.parse(stated.words), run.costs
    try:
        inside, here = part.holds(costs.described), costs_in(part, costs)
    except ValueError as error:
        raise intervals.InvalidCertificate(str(error)) from None
    which = f"the part {part}"
    count = int(np.count_nonzero(inside))
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
