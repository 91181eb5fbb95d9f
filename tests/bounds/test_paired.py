"""Bounds by bets with the help of simulation, against computations of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from pacbayes_control.bounds.anytime import SHARES, STAKES, highest_cost
from pacbayes_control.bounds.betting import AIM, GRID, MARGIN, betting_holdout
from pacbayes_control.bounds.kernels import last_rejected
from pacbayes_control.bounds.paired import (
    KAPPAS,
    KNOWN,
    MIXED,
    SimulatedMean,
    paired_anytime,
    paired_betting,
    predictable_kappas,
)

Floats = NDArray[np.float64]
Pairs = tuple[Floats, Floats]

MORE = SimulatedMean(0.4, 0.2, 0.42)
GOAL = math.log(1 / 0.05) + MARGIN


def close(rng: np.random.Generator, n: int) -> Pairs:
    """Graded costs, most of which the simulator shares."""
    hard = rng.beta(1, 2, n)
    return 0.8 * hard + 0.2 * rng.random(n), 0.8 * hard + 0.2 * rng.random(n)


def failures(rng: np.random.Generator, n: int) -> Pairs:
    y = rng.random(n) < 0.3
    return y.astype(float), np.where(rng.random(n) < 0.9, y, ~y).astype(float)


def unrelated(rng: np.random.Generator, n: int) -> Pairs:
    return rng.beta(1, 4, n), rng.random(n)


def smaller(rng: np.random.Generator, n: int) -> Pairs:
    """Costs in simulation that vary less: κ above 1 would be best."""
    y = (rng.random(n) < 0.4).astype(float)
    return y, 0.2 + y / 2


DRAWS: list[Callable[[np.random.Generator, int], Pairs]] = [close, failures, unrelated, smaller]

# ---- κ ------------------------------------------------------------------------------------------


def plain_kappa(y: Floats, f: Floats, more: SimulatedMean, n: float) -> float:
    """κ after some pairs: the one of the smallest excess, by sums over these pairs."""
    count, mean = len(y), float(np.mean(y)) if len(y) else 0.0
    d = f - (float(np.mean(f)) if len(f) else 0.0)
    of_y = float(np.sum((y - mean) ** 2)) + KNOWN / 8
    both = float(np.sum((y - mean) * d)) + KNOWN * more.variance / 2
    of_f = float(np.sum(d**2)) + KNOWN * more.variance
    excess = []
    for k in KAPPAS.tolist():
        variance = max((of_y - 2 * k * both + k * k * of_f) / (count + KNOWN), 1e-6)
        largest = 1 - mean + k * more.high
        deviation = math.sqrt(2 * variance * GOAL / n) + largest * GOAL / n
        excess.append(round(deviation + k * (more.high - more.mean), 9))
    return KAPPAS[excess.index(min(excess))]


@pytest.mark.parametrize("draw", DRAWS)
def test_kappa_makes_the_excess_smallest_by_the_moments_of_earlier_pairs(draw):
    y, f = draw(np.random.default_rng(1), 60)
    kappas = predictable_kappas(y, f, MORE, GOAL)
    for t in range(60):
        assert kappas[t] == plain_kappa(y[:t], f[:t], MORE, 60)


@pytest.mark.parametrize("draw", DRAWS)
def test_no_kappa_depends_on_its_own_pair_or_on_later_ones(draw):
    rng = np.random.default_rng(2)
    y, f = draw(rng, 40)
    kappas = predictable_kappas(y, f, MORE, GOAL)
    for t in range(40):
        for later in (np.zeros(40 - t), np.ones(40 - t), rng.random(40 - t)):
            other = np.append(y[:t], later), np.append(f[:t], rng.permutation(later))
            again = predictable_kappas(*other, MORE, GOAL)
            np.testing.assert_array_equal(again[: t + 1], kappas[: t + 1])


def test_kappa_follows_the_simulator():
    """0 where it tells nothing, 1 where it tells all, and as the slope where its costs are half."""
    rng = np.random.default_rng(4)
    y = rng.random(2000)
    more = SimulatedMean(0.5, 1 / 12, 0.501)
    halves = SimulatedMean(0.35, 0.49 / 12, 0.351)
    find = partial(predictable_kappas, goal=GOAL)
    assert find(y, rng.random(2000), more)[-1] <= 0.1
    assert find(y, y, more)[-1] == pytest.approx(1, abs=0.11)
    assert find(y, 0.7 * y, halves)[-1] == pytest.approx(1 / 0.7, abs=0.11)
    assert find(y, 1 - y, more)[-1] == 0


# ---- a fixed number of pairs --------------------------------------------------------------------


def reaches(y: Floats, f: Floats, kappas: Floats, high: float, m: float) -> bool:
    """Whether the wealth against one candidate reaches 1/δ, by the docstring, in logarithms."""
    n, aim, log_wealth = len(y), GOAL + AIM, 0.0
    for t in range(n):
        k = kappas[t]
        most_lost, most_won = 1 - m + k * high, m + k * (1 - high)
        variance = most_lost * most_won
        if t:
            gains = m - y[:t] + k * (f[:t] - high)
            around = max(float(np.mean(gains**2)), 1e-12) + most_lost * aim / (4 * t)
            variance = min(variance, around)
        stake = min(math.sqrt(2 * (aim - log_wealth) / ((n - t) * variance)), 1 / most_lost)
        factor = 1 + stake * (m - y[t] + k * (f[t] - high))
        if factor <= 0:
            return False
        log_wealth += math.log(factor)
        if log_wealth >= GOAL:
            return True
    return False


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("n", [15, 120])
def test_the_bound_is_the_last_candidate_that_is_rejected_in_a_row(draw, n):
    y, f = draw(np.random.default_rng(n), n)
    more = SimulatedMean(0.4, 0.2, 0.43)
    kappas = predictable_kappas(y, f, more, GOAL)
    bound = paired_betting(y, f, more, 0.05)
    j = round(math.sqrt(bound) * GRID)
    assert (j / GRID) ** 2 == bound
    assert y.mean() < bound < 1
    steps = [*range(GRID - 1, j, -397), *range(j + 8, j - 1, -1)]
    assert all(reaches(y, f, kappas, 0.43, (k / GRID) ** 2) for k in steps if k < GRID)
    assert not reaches(y, f, kappas, 0.43, ((j - 1) / GRID) ** 2)


@pytest.mark.parametrize("constant", [0.0, 0.4, 1.0])
def test_a_simulator_that_always_says_the_same_leaves_the_bound_without_simulation(constant):
    rng, more = np.random.default_rng(5), SimulatedMean(constant, 0.0, constant)
    for y in (rng.random(200), rng.beta(1, 9, 200), (rng.random(200) < 0.1).astype(float)):
        f = np.full(200, constant)
        assert not np.any(predictable_kappas(y, f, more, GOAL))
        bound = paired_betting(y, f, more, 0.05)
        alone = last_rejected(y, GOAL, GOAL + AIM, GRID, 1)  # each cost with a stake of its own
        assert bound == (alone / GRID) ** 2
        assert bound == pytest.approx(betting_holdout(y, 0.05), abs=0.005)


def test_a_good_simulator_makes_the_bound_smaller_and_an_unrelated_one_hardly_larger():
    rng, more = np.random.default_rng(6), SimulatedMean(0.5, 1 / 12, 0.503)
    hard, own = rng.random(300), rng.random(300)
    y = 0.9 * hard + 0.1 * own
    alone = betting_holdout(y, 0.01)
    assert paired_betting(y, hard, more, 0.01) < y.mean() + (alone - y.mean()) / 2
    assert paired_betting(y, rng.random(300), more, 0.01) < alone + 0.01


@pytest.mark.parametrize("bound", [paired_betting, paired_anytime])
def test_the_less_is_known_of_the_mean_in_simulation_the_less_it_helps(bound):
    y, f = close(np.random.default_rng(7), 150)
    mean, variance = 1.1 / 3, 0.64 / 18 + 0.04 / 12  # of F
    highs = [mean, mean + 0.003, mean + 0.01, mean + 0.1]
    bounds = [bound(y, f, SimulatedMean(mean, variance, high), 0.05) for high in highs]
    assert np.all(np.diff(bounds) > -1e-3)  # κ is chosen anew
    assert bounds[-1] > bounds[0] + 0.005


# ---- at any time --------------------------------------------------------------------------------


def wealth(y: Floats, f: Floats, m: float) -> float:
    """Of bets at fixed κ and shares of the largest stake, each with its share of the money."""
    total = 0.0
    for k, part in MIXED.items():
        largest = 1 / (1 - m + k * MORE.high)
        gains = largest * (m - y + k * (f - MORE.high))
        for share, stake in zip(SHARES, STAKES, strict=True):
            total += part * share * float(np.prod(1 + stake * gains))
    return total


@pytest.mark.parametrize("draw", DRAWS)
def test_the_bound_at_any_time_is_where_the_wealth_is_enough(draw):
    y, f = draw(np.random.default_rng(8), 100)
    for t in (1, 2, 10, 37, 100):
        bound = paired_anytime(y[:t], f[:t], MORE, 0.05)
        assert bound == 1 or wealth(y[:t], f[:t], bound) >= 20
        assert wealth(y[:t], f[:t], bound - 1e-6) < 20 * math.exp(MARGIN)


@pytest.mark.parametrize("draw", DRAWS)
def test_the_bound_at_any_time_does_not_depend_on_the_order(draw):
    y, f = draw(np.random.default_rng(10), 60)
    expected = paired_anytime(y, f, MORE, 0.05)
    for order in (np.argsort(y), np.argsort(f), np.argsort(y - f)):
        assert paired_anytime(y[order], f[order], MORE, 0.05) == pytest.approx(expected, abs=1e-12)


def test_where_simulation_tells_nothing_it_is_about_the_bound_of_the_trials_alone():
    y = np.random.default_rng(9).random(60)
    known = SimulatedMean(0.0, 0.0, 1.0)
    alone = highest_cost(y, 0.05)
    assert alone < paired_anytime(y, np.zeros(60), known, 0.05) < 1.05 * alone


# ---- extremes and bad input ---------------------------------------------------------------------


@pytest.mark.parametrize("bound", [paired_betting, paired_anytime])
def test_extremes_are_bounded_on_the_safe_side(bound):
    zeros, ones = np.zeros(50), np.ones(50)
    assert bound(ones, zeros, SimulatedMean(0.0, 0.0, 0.01), 0.05) == 1
    assert bound(ones, ones, SimulatedMean(1.0, 0.0, 1.0), 0.05) == 1
    assert 0 < bound(zeros, zeros, SimulatedMean(0.0, 0.0, 0.0), 0.05) < 0.1
    assert 0 < bound(zeros, ones, SimulatedMean(1.0, 0.0, 1.0), 0.05) < 0.15
    assert bound([0.0], [0.0], SimulatedMean(0.0, 0.0, 0.0), 0.05) > 0.9
    assert 0.99 < bound(zeros, zeros, SimulatedMean(0.0, 0.0, 0.0), 1e-300) <= 1


@pytest.mark.parametrize("bound", [paired_betting, paired_anytime])
@pytest.mark.parametrize(
    ("costs", "simulated", "message"),
    [
        ([0.1, 1.2], [0, 0], r"a cost must lie in \[0, 1\]"),
        ([0.1, 0.2], [0, -0.1], r"a cost must lie in \[0, 1\]"),
        ([0.1, math.nan], [0, 0], r"a cost must lie in \[0, 1\]"),
        ([0.1, 0.2], [0, math.inf], r"a cost must lie in \[0, 1\]"),
        ([0.1, 0.2], [0], "are not pairs"),
        ([], [], "are not pairs"),
        ([[0.1, 0.2]], [[0.1, 0.2]], "are not pairs"),
        (0.1, 0.1, "are not pairs"),
    ],
)
def test_costs_that_are_not_pairs_in_the_unit_interval_are_refused(
    bound, costs, simulated, message
):
    with pytest.raises(ValueError, match=message) as error:
        bound(costs, simulated, MORE, 0.05)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("bound", [paired_betting, paired_anytime])
@pytest.mark.parametrize("delta", [0, 1, -0.1, 2, math.nan])
def test_a_probability_of_error_outside_0_to_1_is_refused(bound, delta):
    with pytest.raises(ValueError, match="must lie strictly between 0 and 1"):
        bound([0.1], [0.1], MORE, delta)


@pytest.mark.parametrize(
    "numbers",
    [
        (0.5, 0.1, 0.4),  # a limit below the mean
        (0.5, 0.1, 1.1),
        (-0.1, 0.1, 0.4),
        (0.5, -0.1, 0.6),
        (0.5, 0.3, 0.6),
        (math.nan, 0.1, 0.6),
        (0.5, math.nan, 0.6),
        (0.5, 0.1, math.nan),
    ],
)
def test_moments_that_no_cost_in_the_unit_interval_has_are_refused(numbers):
    with pytest.raises(ValueError, match="no cost in") as error:
        SimulatedMean(*numbers)
    assert "\n" not in str(error.value)
