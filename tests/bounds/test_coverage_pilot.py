"""Whether Occam's bound holds with a prior from a pilot; and that one from the same costs shows.

Twenty policies fail alike and independently of each other, so that the truth is known, and the best
of them in a sample is so by luck alone: a prior that knows which one it was would void the bound.
"""

from __future__ import annotations

import numpy as np
from covering import covers
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.priors import pilot_prior
from pacbayes_control.learn import learn_finite
from sizes import sized

DELTA, RATE, N, POLICIES = 0.1, 0.3, 60, 20
DATA_SETS = sized(200, full=1000)


def violated(same: bool, graded: bool = False) -> NDArray[np.bool_]:
    """Where the bound is below the truth: with a pilot of its own, or the costs themselves."""
    rng = np.random.default_rng(310 + graded)
    found = []
    for _ in range(DATA_SETS):
        pilot, values = (rng.random((N, POLICIES)) < RATE for _ in range(2))
        if graded:  # the same mean
            pilot, values = ((part + RATE) / 2 for part in (pilot, values))
        # Rows that are equal by chance would be refused, as may be the costs themselves: a prior
        # that does not tell its rows is not.
        weights = pilot_prior(Costs(values if same else pilot)).probabilities
        run = learn_finite(Costs(values), DELTA, method="occam", prior=Categorical(weights))
        found.append(run.certificate.bound < RATE)
    return np.array(found)


def test_occams_bound_holds_with_a_prior_from_a_pilot():
    assert covers(violated(same=False), DELTA)
    assert covers(violated(same=False, graded=True), DELTA)


def test_a_prior_from_the_same_costs_is_caught():
    assert not covers(violated(same=True), DELTA)
