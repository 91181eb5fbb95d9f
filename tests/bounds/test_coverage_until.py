"""Whether a bound holds for somebody who adds environments until it is small enough.

The truth is known, and so is the target: just below the truth, so that to stop is to be wrong. By
bets that happens in at most δ of the data sets. Bounds for a number of environments that is fixed
beforehand, looked at in the same way, fail the same count.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from covering import CERTIFICATES, covers
from numpy.typing import NDArray

from pacbayes_control.bounds import clopper_pearson
from pacbayes_control.bounds.betting import (
    betting_pac_bayes,
    highest_means,
    log_regret,
    minimise_betting,
)
from pacbayes_control.certify.looks import growth
from sizes import sized

DATA_SETS = sized(2000, full=20_000)
DELTA = 0.1
TRUTH = np.array([0.2, 0.22, 0.3])  # how often each of three policies fails
LOOKS = [int(10 * 1.1**i) for i in range(4, 34)]  # 14 to 232: many, and early
STAKES = 0.05 * 1.5 ** np.arange(12)  # the bound holds for all of them at once

Bounds = Callable[[int], NDArray[np.float64]]  # for 0, 1, …, n failures in n environments


def by_bets(n: int) -> NDArray[np.float64]:
    """For a posterior that is one of the three policies: KL = ln 3."""
    costs = np.arange(n)[:, None] < np.arange(n + 1)  # a column for each number of failures
    penalty = np.log(3) + log_regret(n) - np.log(DELTA)
    return np.min([penalty / (s * n) + highest_means(costs, s) for s in STAKES], axis=0)


def of_a_fixed_number(n: int) -> NDArray[np.float64]:
    """Occam's bound, with the whole of δ at each look."""
    return clopper_pearson(np.arange(n + 1), n, DELTA / 3)


def stopped(bounds: Bounds, target: float) -> NDArray[np.bool_]:
    """Where a bound of any policy comes down to the target at any look; shape (data sets,)."""
    rng, failures = np.random.default_rng(3), np.zeros((DATA_SETS, 3), int)
    found = np.zeros(DATA_SETS, bool)
    for n, more in zip(LOOKS, np.diff([0, *LOOKS]), strict=True):
        failures += rng.binomial(more, TRUTH, (DATA_SETS, 3))
        found |= np.any(bounds(n)[failures] <= target, axis=1)
    return found


@pytest.mark.slow
def test_to_add_environments_until_the_bound_by_bets_suits_is_valid():
    wrong = stopped(by_bets, TRUTH.min() - 1e-9)
    assert covers(wrong, DELTA, fewest=DATA_SETS)
    assert stopped(by_bets, 0.35).any()  # it does come down


def test_to_do_so_with_a_bound_for_a_fixed_number_is_not():
    assert not covers(stopped(of_a_fixed_number, TRUTH.min() - 1e-9), DELTA, fewest=DATA_SETS)


@pytest.mark.slow
def test_it_is_valid_for_graded_costs_and_the_posterior_that_is_learnt():
    """As `pbc learn --until` computes it: the posterior and the stake are chosen at each look."""
    rng, prior, wrong = np.random.default_rng(4), np.full(3, 1 / 3), np.zeros(CERTIFICATES, bool)
    for data_set in range(CERTIFICATES):
        costs = rng.beta(0.3, 0.3 / TRUTH - 0.3, (134, 3))  # of these means
        for n in growth(134):
            posterior, stake = minimise_betting(costs[:n], prior, DELTA)
            kl = float(np.sum(posterior * np.log(np.maximum(posterior, 1e-300) / prior)))
            bound = betting_pac_bayes(costs[:n], posterior, kl, DELTA, stake=stake)
            wrong[data_set] |= bound < posterior @ TRUTH
    assert covers(wrong, DELTA)
