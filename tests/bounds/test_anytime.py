"""E-values and limits that may be looked at after every outcome, against computations of their own.

So is the exact tail for a fixed list of tasks, against the distribution of the number of failures.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from pacbayes_control.bounds import clopper_pearson
from pacbayes_control.bounds.anytime import (
    MARGIN,
    ROWS,
    SHARES,
    STAKES,
    difference_limits,
    highest_cost,
    log_e_of_difference,
    log_e_path,
    log_e_value,
    lowest_mean,
    outcomes_needed,
)
from pacbayes_control.bounds.theorems import exact_tail_of_tasks
from sizes import sized

Floats = NDArray[np.float64]

binary = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=40)
graded = st.lists(st.floats(0, 1), min_size=1, max_size=40)
outcomes = st.one_of(binary, graded)
means = st.floats(0.01, 0.99)


def exact_log_e(values: list[float], mean: float) -> Any:
    """ln E(q) with 50 digits, by the definition: stakes 1 and 2^(-j/3), shares as u^(3/2)."""
    with mpmath.workdps(50):
        stakes = [mpmath.mpf(2) ** (-mpmath.mpf(j) / 3) for j in range(1, 22)]
        total = mpmath.fsum(u**1.5 for u in stakes)
        shares = [mpmath.mpf(1) / 2, *(u**1.5 / total / 2 for u in stakes)]
        y, q = [mpmath.mpf(value) for value in values], mpmath.mpf(mean)
        pairs = zip(shares, [mpmath.mpf(1), *stakes], strict=True)
        products = [w * mpmath.fprod((1 - u) + u * each / q for each in y) for w, u in pairs]
        return mpmath.log(mpmath.fsum(products))


# ---- e-values -----------------------------------------------------------------------------------


def test_the_shares_are_a_whole_and_the_stakes_can_be_paid():
    assert math.fsum(SHARES) == pytest.approx(1, abs=1e-15)
    assert SHARES.min() > 0
    assert (STAKES.min(), STAKES.max()) == (2.0**-7, 1.0)


@settings(max_examples=50)
@given(outcomes, means)
def test_the_e_value_is_that_of_50_digits(values: list[float], mean: float):
    exact = exact_log_e(values, mean)
    assert log_e_value(values, mean) == pytest.approx(float(exact), rel=1e-12, abs=1e-12)


def test_a_few_outcomes_give_the_fraction_that_their_products_have():
    """Stakes, shares and outcomes as the fractions that they are: 0, 1, 1 and 1/4 against 1/2."""
    values = [Fraction(0), Fraction(1), Fraction(1), Fraction(1, 4)]
    total = Fraction(0)
    for u, w in zip(map(Fraction, STAKES), map(Fraction, SHARES), strict=True):
        total += w * math.prod((1 - u) + u * 2 * y for y in values)
    assert log_e_value([0, 1, 1, 0.25], 0.5) == pytest.approx(math.log(total), rel=1e-13)


@given(outcomes, means, means)
def test_the_e_value_does_not_grow_with_the_candidate(values: list[float], one: float, two: float):
    low, high = sorted((one, two))
    assert log_e_value(values, low) >= log_e_value(values, high) - 1e-12


@given(outcomes, means, st.randoms(use_true_random=False))
def test_the_last_e_value_does_not_depend_on_the_order(values, mean, random):
    other = random.sample(values, len(values))
    assert log_e_value(other, mean) == log_e_value(values, mean)
    assert log_e_path(other, mean)[-1] == pytest.approx(log_e_value(values, mean), abs=1e-11)


@given(outcomes, means)
def test_the_path_is_the_e_value_after_each_outcome(values: list[float], mean: float):
    each = [log_e_value(values[: t + 1], mean) for t in range(len(values))]
    assert log_e_path(values, mean) == pytest.approx(each, rel=1e-12, abs=1e-11)


def test_the_path_of_more_outcomes_than_are_held_at_a_time_goes_on_where_it_was():
    values = np.random.default_rng(0).random(ROWS + 1000)
    path = log_e_path(values, 0.45)
    for t in (ROWS - 1, ROWS, ROWS + 1, len(values)):
        assert path[t - 1] == pytest.approx(log_e_value(values[:t], 0.45), rel=1e-10)


@given(means)
def test_the_mean_of_the_e_value_is_at_most_1_up_to_the_candidate(q: float):
    """Exactly, over all outcomes of eight Bernoulli trials whose mean is the candidate or less."""
    n = 8
    for p in (q, q / 2):
        expected = math.fsum(
            stats.binom.pmf(k, n, p) * math.exp(log_e_value([1] * k + [0] * (n - k), q))
            for k in range(n + 1)
        )
        assert expected <= 1 + 1e-12
        if p == q:
            assert expected == pytest.approx(1)


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_outcomes_of_different_means_have_an_e_value_of_mean_at_most_1(probabilities: list[float]):
    """So one look at the end is valid for a fixed list of tasks."""
    q, expected = max(float(np.mean(probabilities)), 1e-3), 0.0
    for values in itertools.product((0.0, 1.0), repeat=len(probabilities)):
        chances = (p if y else 1 - p for p, y in zip(probabilities, values, strict=True))
        expected += math.prod(chances) * math.exp(log_e_value(values, q))
    assert expected <= 1 + 1e-9


# ---- limits -------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(outcomes, st.sampled_from([0.5, 0.05, 1e-3, 1e-9]))
@example([0.0], 0.05)
@example([1.0], 0.99)
@example([1.0] * 40, 1e-12)
def test_the_lower_limit_is_rejected_and_no_candidate_above_it_is(values: list[float], delta):
    """With 50 digits: it is the safe end of its bracket, and no more than a rounding below it."""
    limit, goal = lowest_mean(values, delta), -math.log(delta)
    assert 0 <= limit < 1
    if limit:
        assert exact_log_e(values, limit) >= goal
    above = min(limit + 1e-12, 1.0)
    assert exact_log_e(values, above) < goal + 2 * MARGIN + 1e-6 * (limit < 1e-5)


@settings(max_examples=25)
@given(outcomes, st.sampled_from([1, 2, 3]))
def test_looks_on_the_way_give_the_best_of_the_limits_on_the_way(values: list[float], every: int):
    ends = range(every, len(values) + 1, every)
    best = max((lowest_mean(values[:end], 0.2) for end in ends), default=None)
    if best is None:  # before the first look it is the limit of the outcomes so far
        best = lowest_mean(values, 0.2)
    assert lowest_mean(values, 0.2, every=every) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("delta", [0.5, 0.1, 0.05, 0.01, 1e-6])
def test_the_bound_for_every_number_of_trials_is_not_below_the_exact_one_for_this_number(delta):
    for n in (1, 2, 7, 30, 200):
        for k in {0, 1, n // 10, n // 2, n - 1, n}:
            exact = float(clopper_pearson(k, n, delta))
            bound = highest_cost([1] * k + [0] * (n - k), delta)
            assert exact <= bound <= 1
            assert bound - exact < 0.5 or n < 7 or delta < 1e-3  # and it says something


@pytest.mark.parametrize("n", [1, 10, 100_000])
@pytest.mark.parametrize("delta", [0.9, 0.05, 1e-12, 1e-300])
def test_extremes_are_bounded_on_the_safe_side(n: int, delta: float):
    assert highest_cost(np.ones(n), delta) == 1
    bound = highest_cost(np.zeros(n), delta)
    assert float(clopper_pearson(0, n, delta)) <= bound <= 1
    half = highest_cost(np.full(n, 0.5), delta)
    assert half > 0.5
    if n == 100_000:
        assert bound < 0.01
        assert half < 0.54
        assert highest_cost(np.arange(n) % 2, delta) < 0.56


def test_graded_outcomes_that_all_differ_are_bounded_in_their_thousands():
    values = np.random.default_rng(1).beta(2, 8, sized(10_000, full=100_000))
    assert 0.2 < highest_cost(values, 0.05) < 0.215


def test_costs_that_vary_less_are_bounded_more_tightly():
    constant, coin = np.full(200, 0.5), np.arange(200) % 2
    assert highest_cost(constant, 0.05) < highest_cost(coin, 0.05) - 0.05


@pytest.mark.parametrize("values", [[math.nan], [0.5, -1e-9], [1 + 1e-9], [math.inf], [-math.inf]])
def test_outcomes_that_are_not_in_the_unit_interval_are_refused(values: list[float]):
    calls = [
        lambda: log_e_value(values, 0.5),
        lambda: log_e_path(values, 0.5),
        lambda: lowest_mean(values, 0.05),
        lambda: highest_cost(values, 0.05),
        lambda: outcomes_needed(values, 0.5, 0.05),
        lambda: difference_limits([2 * v - 1 for v in values], 0.05),
        lambda: log_e_of_difference([2 * v - 1 for v in values]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"an outcome must lie in \[0, 1\]"):
            call()


@pytest.mark.parametrize("delta", [0, 1, -0.1, math.nan, 2])
def test_a_probability_of_error_outside_0_to_1_is_refused(delta: float):
    for limits in (lowest_mean, highest_cost):
        with pytest.raises(ValueError, match="must lie strictly between 0 and 1"):
            limits([0, 1, 1], delta)


def test_without_outcomes_nothing_is_known():
    assert lowest_mean([], 0.05) == 0
    assert highest_cost([], 0.05) == 1
    assert difference_limits([], 0.05) == (-1, 1)
    assert log_e_value([], 0.3) == pytest.approx(0, abs=1e-15)
    assert log_e_path([], 0.3).shape == (0,)


# ---- differences --------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.sampled_from([-1.0, -0.25, 0.0, 0.5, 1.0]), min_size=1, max_size=30))
def test_the_limits_of_a_difference_are_mirrored_with_the_policies(differences: list[float]):
    low, high = difference_limits(differences, 0.1)
    other = difference_limits([-d for d in differences], 0.1)
    assert -1 <= low < high <= 1
    assert other == pytest.approx((-high, -low), abs=1e-12)


def test_differences_of_0_change_no_e_value_at_a_margin_of_0():
    with_ties = log_e_of_difference([1, 0, 0, 1, -1, 0])
    assert with_ties[[0, 3, 4]] == pytest.approx(log_e_of_difference([1, 1, -1]))
    assert with_ties[-1] == pytest.approx(with_ties[-2])


@settings(max_examples=50)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.floats(0, 0.9))
def test_the_e_value_reaches_its_goal_just_where_the_limit_passes_the_margin(differences, margin):
    """So a verdict by limits and one by e-values are the same, up to a rounding."""
    reached = log_e_of_difference(differences, margin)[-1] - math.log(2 / 0.3)
    low, _ = difference_limits(differences, 0.3)
    if abs(reached) > 1e-6:
        assert (low > margin) == (reached > 0)


# ---- how many more ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "mean", "delta"),
    [
        ([1, 1, 0, 1], 0.5, 0.05),
        ([1], 0.5, 0.05),
        ([1], 0.99, 1e-6),
        ([0.6, 0.7, 0.8], 0.5, 0.01),
        ([1, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0.05, 0.05),
        ([1, 1, 1, 0, 0], 0.5, 0.025),
    ],
)
def test_as_many_outcomes_as_are_needed_reject_when_they_are_repeated(values, mean, delta):
    needed, goal = outcomes_needed(values, mean, delta), math.log(1 / delta) + MARGIN
    assert needed is not None
    repeated = np.resize(values, 4 * needed + 40)
    whole = range(len(values), len(repeated) + 1, len(values))
    actual = next(n for n in whole if log_e_value(repeated[:n], mean) >= goal)
    assert actual - len(values) < needed <= actual


@given(outcomes, means)
def test_outcomes_whose_mean_is_not_above_the_candidate_never_reject_it(values, mean):
    if np.mean(values) <= mean:
        assert outcomes_needed(values, mean, 0.05) is None


def test_outcomes_with_little_growth_need_many_more():
    few, many = (outcomes_needed([1] * k + [0] * (100 - k), 0.5, 0.05) for k in (80, 55))
    assert few is not None
    assert many is not None
    assert many > 10 * few


# ---- a fixed list of tasks ----------------------------------------------------------------------


def failures_of_tasks(probabilities: Floats) -> Floats:
    """The distribution of the number of failures in trials with these probabilities, exactly."""
    chances = np.array([1.0])
    for p in probabilities:
        chances = np.convolve(chances, [1 - p, p])
    return chances


def error_rate(bounds: Floats, probabilities: Floats) -> float:
    """The probability that the bound for the number of failures is below the mean."""
    wrong = bounds < np.mean(probabilities) * (1 - 1e-14)  # which is rounded itself
    return float(failures_of_tasks(probabilities)[wrong].sum())


DELTAS = [0.9, 0.6, 0.5, 0.49, 0.4, 0.25, 0.1, 0.05, 0.01, 1e-4]
EXTREMES = [
    [0, 1],
    [0, 0, 0, 1],
    [1, 1, 1, 0.99],
    [1, 1, 0.52, 0],
    [1, 0.4, 0],
    [0, 0, 0.3],
    [0.5, 0.5],
    [1e-6, 1e-6, 1 - 1e-6],
]


@settings(max_examples=sized(60, full=1000))
@given(
    st.lists(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_the_exact_tail_holds_for_tasks_of_all_probabilities(tasks: list[float], each: int):
    probabilities = np.repeat(tasks, each)
    n = len(probabilities)
    for delta in DELTAS:
        bounds = exact_tail_of_tasks(np.arange(n + 1), n, delta)
        assert error_rate(bounds, probabilities) <= delta + 1e-12


@pytest.mark.parametrize("each", [1, 3, 10])
@pytest.mark.parametrize("tasks", EXTREMES, ids=str)
def test_the_exact_tail_holds_for_extreme_tasks(tasks: list[float], each: int):
    probabilities = np.repeat(tasks, each)
    n = len(probabilities)
    for delta in np.linspace(0.001, 0.999, 200):
        bounds = exact_tail_of_tasks(np.arange(n + 1), n, delta)
        assert error_rate(bounds, probabilities) <= delta + 1e-12


@pytest.mark.parametrize(
    ("tasks", "delta"),
    [
        ([1, 1, 0.52, 0], 0.476),
        ([1, 0.4, 0], 0.58),
        ([0, 1] * 5, 0.65),
        ([1] * 11 + [0.99], 0.00997),
    ],
)
def test_the_tail_for_equal_tasks_is_caught_without_the_second_term(tasks, delta):
    n, probabilities = len(tasks), np.array(tasks, float)
    alone = clopper_pearson(np.arange(n + 1), n, delta)
    assert error_rate(alone, probabilities) > delta + 1e-6
    assert error_rate(exact_tail_of_tasks(np.arange(n + 1), n, delta), probabilities) <= delta


@pytest.mark.parametrize("delta", [0.2, 0.05, 0.01])
def test_the_second_term_costs_nothing_at_usual_levels(delta: float):
    """Where fewer trials fail than all but a few."""
    for n in (10, 50, 400):
        failures = np.arange(n * 3 // 4)
        both = exact_tail_of_tasks(failures, n, delta)
        assert np.array_equal(both, clopper_pearson(failures, n, delta))


def test_no_success_at_all_bounds_nothing():
    assert exact_tail_of_tasks([19, 20], 20, 0.05).tolist() == [1, 1]
