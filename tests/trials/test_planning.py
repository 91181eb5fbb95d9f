"""Numbers of environments to plan for, against SciPy's binomial distribution and brute force."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from pacbayes_control.bounds.theorems import clopper_pearson, occam_exact_tail
from pacbayes_control.trials.plans.environments import (
    at_most,
    bound_curve,
    environments_needed,
    failures_allowed,
    power_curve,
)

LEVELS = st.floats(0.001, 0.3)


def powers(bound: float, rate: float, level: float, numbers: np.ndarray) -> np.ndarray:
    """The power at each number of environments, by SciPy: the largest k with a tail ≤ level."""
    guess = binom.ppf(level, numbers, bound)  # the smallest k with a tail ≥ level
    allowed = np.where(binom.cdf(guess, numbers, bound) <= level, guess, guess - 1)
    return np.where(allowed < 0, 0.0, binom.cdf(allowed, numbers, rate))


@given(st.integers(1, 400), st.floats(0.01, 0.99), LEVELS)
def test_the_allowed_failures_are_the_most_that_are_certified(n: int, bound: float, level: float):
    allowed = int(failures_allowed(n, bound, level))
    assert allowed == -1 or clopper_pearson(allowed, n, level) <= bound
    assert clopper_pearson(allowed + 1, n, level) > bound * (1 - 1e-9)


@pytest.mark.parametrize(
    ("bound", "rate", "delta", "candidates", "power"),
    [
        (0.3, 0.1, 0.05, 1, 0.9),
        (0.5, 0.2, 0.05, 20, 0.8),
        (0.9, 0.6, 0.01, 1, 0.99),
        (0.2, 0.0, 0.05, 5, 0.9),
        (0.1, 0.05, 0.1, 3, 0.5),
        (0.4, 0.35, 0.2, 1, 0.3),
    ],
)
def test_no_larger_number_of_environments_has_too_little_power(
    bound: float, rate: float, delta: float, candidates: int, power: float
):
    found = environments_needed(bound, rate, delta=delta, candidates=candidates, power=power)
    numbers = np.arange(1, 20 * found.environments)
    every = powers(bound, rate, delta / candidates, numbers)
    assert found.environments == numbers[every < power].max() + 1
    assert found.power == pytest.approx(every[found.environments - 1])
    weights = np.full(candidates, 1 / candidates)
    seen = np.full((2, candidates), [[found.failures], [found.failures + 1]])
    certified = occam_exact_tail(seen, found.environments, weights, delta)[:, 0]
    assert certified[0] <= bound < certified[1]


def test_a_smaller_number_may_have_enough_power_and_the_next_one_not():
    numbers = np.arange(1, 200)
    enough = powers(0.2, 0.1, 0.05, numbers) >= 0.9
    first, from_which_on = numbers[enough].min(), environments_needed(0.2, 0.1).environments
    assert first < from_which_on
    assert not enough[first - 1 : from_which_on].all()


def test_the_normal_approximation_would_promise_too_much():
    bound, rate, power = 0.05, 0.01, 0.9
    z = norm.ppf([0.95, power])
    spread = np.sqrt([bound * (1 - bound), rate * (1 - rate)])
    normal = int(np.ceil((z @ spread / (bound - rate)) ** 2))
    assert power_curve(bound, rate, environments=[normal])[0] < power - 0.05
    assert environments_needed(bound, rate, power=power).environments > 1.1 * normal


@pytest.mark.parametrize(("bound", "rate"), [(0.5, 0.498), (0.1, 0.098), (0.01, 0.009)])
def test_close_rates_are_answered_within_a_second(bound: float, rate: float):
    began = time.process_time()
    found = environments_needed(bound, rate)
    assert time.process_time() - began < 2  # a second on a quiet machine
    numbers = np.array([found.environments - 1, found.environments, 2 * found.environments])
    before, at, after = powers(bound, rate, 0.05, numbers)
    assert before < 0.9 <= at <= after


def test_without_failures_only_the_bound_counts():
    found = environments_needed(0.05, 0)
    assert (found.environments, found.failures, found.power) == (59, 0, 1.0)


@given(st.floats(0.01, 0.5), st.floats(0, 1), LEVELS)
def test_the_power_curve_is_the_binomial_tail(bound: float, rate: float, delta: float):
    numbers = np.array([1, 5, 20, 77, 300])
    curve = power_curve(bound, rate, environments=numbers, delta=delta, candidates=2)
    assert curve == pytest.approx(powers(bound, rate, delta / 2, numbers), abs=1e-9)
    if rate > bound:
        assert np.all(curve <= delta / 2)


@pytest.mark.parametrize("power", [0.5, 0.9])
def test_the_bound_curve_is_reached_with_its_probability(power: float):
    numbers, rate = [10, 50, 400], 0.12
    for n, bound in zip(numbers, bound_curve(rate, environments=numbers, power=power), strict=True):
        reached = clopper_pearson(np.arange(n + 1), n, 0.05) <= bound
        chances = binom.pmf(np.arange(n + 1), n, rate)
        assert chances[reached].sum() >= power
        assert chances[: reached.sum() - 1].sum() < power  # and no smaller bound is


def test_tails_at_the_ends():
    assert at_most([-1, 0, 3], 3, 0.5).tolist() == [0.0, 0.125, 1.0]
    assert at_most(0, 5, 0.0) == 1
    assert at_most(4, 5, 1.0) == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"failure_rate": 0.3}, "no number of trials suffices"),
        ({"failure_rate": 0.4}, "no number of trials suffices"),
        ({"failure_rate": -0.1}, "must lie in"),
        ({"failure_rate": float("nan")}, "must lie in"),
        ({"failure_rate": 0.29999}, "more than 10,000,000 environments"),
        ({"bound": 1.0}, "bound = 1.0 must lie strictly between 0 and 1"),
        ({"bound": 0.0}, "bound = 0.0"),
        ({"delta": 0}, "delta = 0 must"),
        ({"power": 1}, "power = 1 must"),
        ({"candidates": 0}, "candidates = 0"),
        ({"candidates": 1.5}, "candidates = 1.5"),
    ],
)
def test_plans_that_cannot_be_made_say_so_in_a_line(wrong: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words) as error:
        environments_needed(**{"bound": 0.3, "failure_rate": 0.1, **wrong})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("numbers", [[0], [1.5], [[1, 2]], [10**8]])
def test_curves_need_whole_numbers_of_environments(numbers: list[Any]):
    with pytest.raises(ValueError, match="whole"):
        power_curve(0.3, 0.1, environments=numbers)
    with pytest.raises(ValueError, match="whole"):
        bound_curve(0.1, environments=numbers)
