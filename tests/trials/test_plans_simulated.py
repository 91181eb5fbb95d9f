"""Trials on the robot to plan for with simulation, against drawn ones and their bounds."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacbayes_control.bounds.stratified import PairCounts, failure_limits, stratified_exact_tail
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.simulated import with_simulation
from pacbayes_control.certify.simulation import PART
from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.choosing import choose
from pacbayes_control.trials.plans.environments import environments_needed
from pacbayes_control.trials.plans.pair_rates import PairRates
from pacbayes_control.trials.plans.simulated import (
    MOST,
    more_robot_trials,
    robot_trials_needed,
)
from sizes import sized

FURTHER = 10_000

# ---- rates --------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(0, 1))
def test_assumed_rates_have_the_failure_rate_and_disagree_equally_often(rate: float, part: float):
    least = max(rate, 1 - rate)
    agreement = least + part * (1 - least)
    rates = PairRates.assumed(rate, agreement)
    assert 0 <= rates.simulated <= 1
    assert 1 - rates.both == pytest.approx(rates.alone, abs=1e-12)
    assert rates.agreement == pytest.approx(agreement)
    if agreement > 0.5 + 1e-6:
        assert rates.failure_rate == pytest.approx(rate, abs=1e-6)


def test_estimated_rates_have_half_a_failure_and_half_a_success_more():
    rates = PairRates.estimated(PairCounts(4, 4, 1, 9), 0.2)
    assert (rates.both, rates.alone) == pytest.approx((4.5 / 5, 1.5 / 10))
    assert rates.failure_rate == pytest.approx(0.2 * 0.9 + 0.8 * 0.15)
    assert rates.agreement == pytest.approx(0.2 * 0.9 + 0.8 * 0.85)
    assert PairRates.estimated(PairCounts(0, 0, 0, 9), 0.0).both == 0.5


# ---- the power ----------------------------------------------------------------------------------


def drawn_power(n: int, bound: float, rates: PairRates, *, failures: int, delta: float) -> float:
    """The share of n drawn pairs with a bound that is small enough."""
    limits = failure_limits(failures, FURTHER, PART * delta)

    @cache
    def proven(both: int, simulated: int, alone: int) -> bool:
        counts = PairCounts(both, simulated, alone, n - simulated)
        return stratified_exact_tail(counts, limits, (1 - PART) * delta) <= bound

    rng, draws = np.random.default_rng(1), sized(800, full=15_000)
    simulated = rng.binomial(n, rates.simulated, draws)
    both, alone = rng.binomial(simulated, rates.both), rng.binomial(n - simulated, rates.alone)
    drawn = zip(both.tolist(), simulated.tolist(), alone.tolist(), strict=True)
    return float(np.mean([proven(*outcome) for outcome in drawn]))


@pytest.mark.parametrize(
    ("bound", "rate", "agreement", "delta"),
    [(0.5, 0.25, 0.97, 0.05), *sized([], full=[(0.25, 0.1, 0.97, 0.1)])],
)
def test_drawn_trials_have_the_power_and_fewer_do_not(
    bound: float, rate: float, agreement: float, delta: float
):
    rates = PairRates.assumed(rate, agreement)
    failures = round(FURTHER * rates.simulated)
    found = robot_trials_needed(bound, rates, failures=failures, delta=delta)
    assert found.power >= 0.9
    known: dict[str, Any] = {"failures": failures, "delta": delta}
    assert drawn_power(found.trials, bound, rates, **known) == pytest.approx(found.power, abs=0.03)
    assert drawn_power(found.trials * 2 // 3, bound, rates, **known) < 0.85
    assert found.without == environments_needed(bound, rate, delta=delta).environments


def test_simulating_further_environments_later_takes_more_trials_than_knowing_them():
    rates = PairRates.assumed(0.2, 0.95)
    failures = round(1000 * rates.simulated)
    known = robot_trials_needed(0.3, rates, further=1000, failures=failures)
    assert robot_trials_needed(0.3, rates, further=1000).trials > 1.05 * known.trials


def test_the_better_they_agree_the_fewer_trials_are_needed():
    numbers = [
        robot_trials_needed(0.4, PairRates.assumed(0.2, agreement)).trials
        for agreement in (0.8, 0.93, 1.0)
    ]
    assert all(more > 1.1 * fewer for more, fewer in pairwise(numbers))


@pytest.mark.parametrize(("rate", "agreement"), [(0.5, 0.5), (0.25, 0.75)])
def test_a_coin_takes_about_as_many_trials_as_no_simulation(rate: float, agreement: float):
    rates = PairRates.assumed(rate, agreement)
    found = robot_trials_needed(rate + 0.2, rates, further=1_000_000)
    assert found.trials == pytest.approx(found.without, rel=0.1)


@pytest.mark.parametrize(("further", "ratio"), [(100, 1.6), (1000, 1.1), (10_000, 1.05)])
def test_a_coin_costs_little_beside_further_environments(further: int, ratio: float):
    found = robot_trials_needed(0.7, PairRates.assumed(0.5, 0.5), further=further)
    assert found.trials <= ratio * found.without


def test_candidates_share_delta():
    rates = PairRates.assumed(0.2, 0.97)
    shared = robot_trials_needed(0.5, rates, delta=0.1, candidates=4)
    assert shared == robot_trials_needed(0.5, rates, delta=0.025)
    assert shared.trials > robot_trials_needed(0.5, rates, delta=0.1).trials


@pytest.mark.parametrize(("bound", "power"), [(0.99, 0.1), (0.4, 0.99)])
def test_any_power_is_planned_for(bound: float, power: float):
    found = robot_trials_needed(bound, PairRates.assumed(0.1, 0.98), power=power)
    assert 1 <= found.trials < MOST
    assert found.power >= power


# ---- after some trials --------------------------------------------------------------------------


def outcomes(counts: PairCounts) -> tuple[np.ndarray, np.ndarray]:
    """Costs on the robot and in simulation with these counts."""
    sizes = counts.both, counts.simulated - counts.both, counts.alone, counts.other - counts.alone
    return np.repeat([1, 0, 1, 0], sizes), np.repeat([1, 1, 0, 0], sizes)


def joined(counts: PairCounts, rate: float, further: int = FURTHER) -> Costs:
    y, f = (each[:, None] for each in outcomes(counts))
    return with_simulation(y, f, (np.arange(further) < rate * further)[:, None])


def test_new_trials_are_those_of_the_estimated_rates_and_known_limits():
    counts = PairCounts(5, 6, 1, 24)
    found = more_robot_trials(joined(counts, 0.2), 0.3, candidates=2)
    assert (found.trials, found.agreement) == (30, pytest.approx(28 / 30))
    assert found.rates == PairRates.estimated(counts, 0.2)
    planned = robot_trials_needed(0.3, found.rates, failures=2000, delta=0.025)
    assert (found.more, found.without) == (planned.trials, planned.without)
    record = found.to_dict()
    assert record["with_simulation"] == {"trials": 30 + planned.trials, "more": planned.trials}
    assert record["without"] == {"trials": 30 + planned.without, "more": planned.without}


def test_a_promise_that_choose_makes_needs_no_more_trials():
    counts = PairCounts(11, 12, 1, 48)
    names, costs = [f"s{i}" for i in range(60)], outcomes(counts)
    same = [Trials.from_costs(each[:, None], ["new"], names, graded=False) for each in costs]
    further = np.arange(FURTHER)[:, None] < 2000
    more = Trials.from_costs(further, ["new"], [f"m{i}" for i in range(FURTHER)], graded=False)
    chosen = choose(same[0], candidates=3, simulated=(same[1], more)).run
    bound = chosen.certificate.bound
    for wanted, reached in ((bound, True), (bound + 1e-4, True), (bound - 1e-3, False)):
        assert (more_robot_trials(chosen.costs, wanted, candidates=3).more == 0) == reached
    alone = choose(same[0], candidates=3).run.certificate.bound
    assert more_robot_trials(chosen.costs, alone + 1e-6, candidates=3).without == 0
    assert more_robot_trials(chosen.costs, alone - 1e-3, candidates=3).without != 0


def test_a_bound_that_no_trials_reach_has_a_reason():
    costs = joined(PairCounts(18, 18, 0, 42), 0.3)
    found = more_robot_trials(costs, 0.28)
    assert found.more is found.without is found.total is None
    assert {*found.reasons} == {"more", "without"}
    assert all("is not below the bound 0.28" in reason for reason in found.reasons.values())


def test_too_few_further_environments_have_a_reason_of_their_own():
    costs = joined(PairCounts(18, 18, 0, 42), 0.3, further=200)
    found = more_robot_trials(costs, 0.35)
    assert found.more is None
    assert found.without is not None
    assert found.reasons["more"].startswith("200 further environments in simulation leave")
    assert found.reasons["more"].endswith("simulate more")


# ---- bad input ----------------------------------------------------------------------------------

GOOD = PairRates.assumed(0.25, 0.97)
GRADED = with_simulation(*np.split(np.random.default_rng(2).random((600, 1)), [50, 100]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PairRates.assumed(0.25, 0.7), r"0.7 must lie in \[0.75, 1\]"),
        (lambda: PairRates.assumed(0.9, 0.8), r"0.8 must lie in \[0.9, 1\]"),
        (lambda: PairRates.assumed(0.25, 1.1), r"1.1 must lie in \[0.75, 1\]"),
        (lambda: PairRates.assumed(0.25, float("nan")), "nan must lie in"),
        (lambda: PairRates.assumed(float("nan"), 0.9), "failure rate nan must lie"),
        (lambda: robot_trials_needed(0.24, GOOD), "no number of trials suffices"),
        (lambda: robot_trials_needed(0.255, GOOD), "leave a failure rate of up to"),
        (lambda: robot_trials_needed(0.3, GOOD, further=500), "simulate more"),
        (lambda: robot_trials_needed(0.2695, GOOD), "more than 20,000 trials on the robot"),
        (lambda: robot_trials_needed(0.3, GOOD, further=1), "at least 2"),
        (lambda: robot_trials_needed(0.3, GOOD, power=1), "power = 1 must"),
        (lambda: robot_trials_needed(0.3, GOOD, delta=0), "delta = 0 must"),
        (lambda: robot_trials_needed(0.3, GOOD, candidates=0), "candidates = 0"),
        (lambda: more_robot_trials(GRADED, 0.9), "trials that succeed or fail"),
        (lambda: more_robot_trials(Costs([[1], [0]]), 0.9), "trials that succeed or fail"),
        (lambda: more_robot_trials(joined(PairCounts(1, 1, 0, 9), 0.1), 0.5, power=0), "power = 0"),
    ],
)
def test_plans_that_cannot_be_made_say_so_in_a_line(call: Any, words: str):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)
