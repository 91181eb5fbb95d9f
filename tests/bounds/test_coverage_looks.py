"""Whether the certificates of a growing campaign hold, all looks together, at the δ they state.

Policies fail independently with known probabilities, and a campaign is looked at as it grows. A
campaign counts as violated if the certificate of any look is below the truth: so it does for
somebody who stops at the look that suits best. The same count rejects looks at full δ each.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from covering import CERTIFICATES, covers
from numpy.typing import NDArray
from scipy import stats

from pacbayes_control.bounds import clopper_pearson, maurer_xi
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.issuing import budget_for
from pacbayes_control.certify.looks import Look
from pacbayes_control.learn.finite import learn_best, learn_finite
from sizes import sized

pytestmark = pytest.mark.slow

CAMPAIGNS = sized(4000, full=20_000)
DELTA = 0.1
TRUTH = np.array([0.2, 0.25, 0.3])
LOOKS = {"two": [40, 80], "three": [30, 60, 200], "many": [int(10 * 1.2**i) for i in range(30)]}


def shares(numbers: list[int], declared: bool) -> tuple[list[float], float]:
    """The δ of each look's theorem, and the δ that the last certificate states.

    One δ where the looks are declared; otherwise a δ for each, of which the last states the sum.
    """
    found, so_far, policies = [], [], np.arange(3.0)[:, None]
    each = DELTA if declared else DELTA / len(numbers)
    more: dict[str, Any] = {"declared_looks": numbers} if declared else {}
    for n in numbers:
        origin = more | ({"looks": [asdict(look) for look in so_far]} if so_far else {})
        costs = Costs(np.zeros((n, 3)), origin=origin, parameters=policies)
        budget = budget_for(costs, each)
        found.append(budget.left)
        so_far.append(Look.at(costs, budget.left))
    return found, budget.total


def counted(numbers: list[int], seed: int = 7) -> NDArray[np.int64]:
    """Failures at each look; shape (looks, campaigns, policies)."""
    rng, steps = np.random.default_rng(seed), np.diff([0, *numbers])
    return np.cumsum([rng.binomial(n, TRUTH, (CAMPAIGNS, 3)) for n in steps], axis=0)


def violated(numbers: list[int], deltas: list[float], method: str) -> NDArray[np.bool_]:
    """Where a bound at any look is below the truth of any policy; shape (campaigns,)."""
    wrong = np.zeros(CAMPAIGNS, bool)
    for n, delta, failures in zip(numbers, deltas, counted(numbers), strict=True):
        if method == "occam":
            bounds = clopper_pearson(np.arange(n + 1), n, delta / 3)
        else:  # a posterior that is one policy: KL = ln 3
            bounds = maurer_xi(np.arange(n + 1) / n, np.full(n + 1, np.log(3)), n, delta)
        wrong |= np.any(bounds[failures] < TRUTH, axis=1)
    return wrong


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("method", ["occam", "kl"])
def test_all_looks_together_hold_at_the_delta_that_is_stated(
    method: str, looks: str, declared: bool
):
    deltas, stated = shares(LOOKS[looks], declared)
    assert stated == pytest.approx(DELTA)
    assert covers(violated(LOOKS[looks], deltas, method), stated, fewest=CAMPAIGNS)


def test_looks_at_full_delta_each_do_not_hold_at_that_delta():
    """Look until it suits, and state the δ of one look."""
    numbers = LOOKS["many"]
    assert not covers(violated(numbers, [DELTA] * len(numbers), "occam"), DELTA)


def test_the_best_looking_of_many_looks_at_full_delta_does_not_hold_either():
    numbers, best = LOOKS["many"], np.ones(CAMPAIGNS)
    for n, failures in zip(numbers, counted(numbers)[:, :, 0], strict=True):
        best = np.minimum(best, clopper_pearson(np.arange(n + 1), n, DELTA)[failures])
    assert not covers(best < TRUTH[0], DELTA)


def test_certificates_hold_the_whole_way_as_a_campaign_grows():
    """Each look is learnt from with a record of those before, and the smallest bound is shown."""
    rng, numbers, policies = np.random.default_rng(11), [25, 50, 100], np.arange(3.0)[:, None]
    wrong = np.zeros((2, CERTIFICATES), bool)
    for campaign in range(CERTIFICATES):
        fails = rng.random((100, 3)) < TRUTH
        for kind, learn in enumerate((learn_finite, learn_best)):
            looks: list[dict[str, Any]] = []
            for n in numbers:
                origin = {"looks": looks} if looks else {}
                costs = Costs(fails[:n], origin=origin, parameters=policies)
                run = learn(costs, DELTA / 3)
                looks = [*looks, asdict(Look.at(costs, DELTA / 3))]
                truth = run.posterior.probabilities @ TRUTH
                wrong[kind, campaign] |= run.certificate.bound < truth
            assert run.certificate.delta == pytest.approx(DELTA)
            assert [asdict(look) for look in run.certificate.looks] == looks
    assert all(covers(each, DELTA) for each in wrong)


def test_numbers_of_environments_that_are_chosen_by_the_costs_seen_cost_more_than_the_sum():
    """Why a certificate's reader is told that they were not: exact, for one policy and two looks.

    Somebody who sees the costs of 100 environments, and then takes the second number at which
    failure of the bound is likeliest, is wrong with more than 2 δ.
    """
    p, delta, first = 0.3, 0.01, 100
    seen = np.arange(first + 1)
    likeliest = np.zeros(first + 1)

    def too_few(n: int) -> int:
        """The most failures with which the bound is below the truth."""
        return int(np.sum(stats.binom.cdf(np.arange(n + 1), n, p) < delta)) - 1

    numbers = range(first + 1, 4000, 13)
    for n in numbers:
        likeliest = np.maximum(likeliest, stats.binom.cdf(too_few(n) - seen, n - first, p))
    chance, wrong = stats.binom.pmf(seen, first, p), seen <= too_few(first)
    assert np.sum(chance * wrong) <= delta
    assert np.sum(chance * np.where(wrong, 1, likeliest)) > 2.3 * delta
    fixed = stats.binom.cdf(too_few(200) - seen, 100, p)
    assert np.sum(chance * np.where(wrong, 1, fixed)) <= 2 * delta
