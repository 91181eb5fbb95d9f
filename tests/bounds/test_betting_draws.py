"""Bets on the training cost of a posterior, draw by draw, where environments differ."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pacbayes_control.bounds import fresh_draws
from pacbayes_control.bounds.betting import AIM, GRID, MARGIN, betting_draws, betting_holdout
from pacbayes_control.verify.bets import proven_by_bets
from pacbayes_control.verify.intervals import iv, set_precision

Floats = NDArray[np.float64]


def graded(environments: int, draws: int, seed: int = 0, within: float = 0.1) -> Floats:
    """Costs about a mean of each environment's own; (environments, draws)."""
    rng = np.random.default_rng(seed)
    means = rng.normal(0.2, 0.1, (environments, 1))
    return np.clip(means + within * rng.standard_normal((environments, draws)), 0, 1)


def all_or_nothing(rng: np.random.Generator, draws: int = 30) -> tuple[Floats, float]:
    """Costs in 100 environments, easy or hard, with some noise of the draws; and their mean."""
    means = np.where(rng.random(100) < 0.5, 0.05, 0.95)
    noise = rng.uniform(-0.05, 0.05, (100, draws))
    return means[:, None] + noise, float(means.mean())


def plainly(costs: Floats, delta: float) -> float:
    """The same bound, as its definition reads."""
    environments, draws = costs.shape
    goal = MARGIN - math.log(delta)
    aim, last = goal + AIM, 1.0
    for j in range(GRID - 1, 0, -1):
        m = (j / GRID) ** 2
        log_wealth, seen = 0.0, np.empty(0)
        for draw in costs.T:
            variance = m * (1 - m)
            if seen.size:
                around = np.mean((seen - m) ** 2) + (1 - m) * aim / (4 * seen.size)
                variance = min(variance, around)
            left = environments * draws - seen.size
            stake = min(math.sqrt(2 * (aim - log_wealth) / (left * variance)), 1 / (1 - m))
            with np.errstate(divide="ignore"):
                log_wealth += float(np.sum(np.log1p(stake * (m - draw))))
            seen = np.append(seen, draw)
            if log_wealth >= goal or log_wealth == -math.inf:
                break
        if log_wealth < goal:
            return last
        last = m
    return last


@pytest.mark.parametrize("shape", [(2, 5), (30, 1), (20, 10), (7, 40)])
@pytest.mark.parametrize("delta", [0.3, 0.001])
def test_the_bound_is_the_one_that_is_defined(shape, delta):
    for costs in (graded(*shape), graded(*shape) > 0.3):
        found = betting_draws(costs, delta)
        step = 2 / GRID  # rounding may decide about one candidate
        assert found == pytest.approx(plainly(np.asarray(costs, float), delta), abs=step)


@pytest.mark.parametrize("shape", [(1000, 30), (100, 300), (30_000, 1), (100, 30)])
def test_graded_costs_have_a_smaller_bound_than_chernoff_s(shape):
    costs = graded(*shape)
    by_bets, mean = betting_draws(costs, 0.001), costs.mean()
    assert mean < by_bets
    excess = float(fresh_draws(mean, costs.size, 0.001)) - mean
    assert by_bets - mean < (0.4 if shape[1] > 1 else 0.6) * excess


def test_it_is_not_far_from_bets_on_as_many_independent_pairs():
    """Pairs of an environment, drawn with replacement, and a policy are i.i.d. given the rest."""
    costs, rng = graded(1000, 30), np.random.default_rng(1)
    pairs = costs[rng.integers(1000, size=30_000), rng.integers(30, size=30_000)]
    excess = betting_holdout(pairs, 0.001) - pairs.mean()
    assert betting_draws(costs, 0.001) - costs.mean() < 1.3 * excess


def test_the_order_of_the_environments_does_not_matter():
    """Even where the wealth of half of a draw is beyond all floats, or rounds to nothing."""
    set_precision()
    costs, step = np.zeros((5000, 4)), 2 / GRID
    costs[2500:] = 0.98
    found = betting_draws(costs, 0.01)
    for other in (costs[::-1], np.random.default_rng(2).permutation(costs)):
        assert betting_draws(other, 0.01) == pytest.approx(found, abs=step)
        assert proven_by_bets(other.T.ravel(), iv.mpf(0.01), found, 5000) <= found + step
    assert 0.49 < found < 0.53


def test_equal_costs_and_extreme_ones():
    assert betting_draws(np.zeros((1000, 30)), 0.001) < 0.0004
    assert betting_draws(np.ones((10, 3)), 0.001) == 1
    assert betting_draws(np.full((1000, 30), 0.2), 0.001) < 0.2012
    assert betting_draws(np.zeros((2, 1)), 1e-12) > 0.99


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_delta_lies_between_0_and_1(delta):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        betting_draws(np.zeros((5, 2)), delta)


@pytest.mark.parametrize("costs", [np.zeros(5), np.zeros((0, 3)), np.zeros((2, 2, 2))])
def test_costs_are_a_table(costs):
    with pytest.raises(ValueError, match=r"shape \(environments, draws\)"):
        betting_draws(costs, 0.01)


def test_costs_lie_between_0_and_1():
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        betting_draws([[0.1, 1.2]], 0.01)


# ---- whether it keeps its promise ---------------------------------------------------------------


def chance_of_error(bound: Any, means: list[float], draws: int, delta: float) -> float:
    """The probability that a bound is below the mean, over all tables of 0 and 1."""
    total, truth, chance_of_1 = 0.0, float(np.mean(means)), np.array(means)[:, None]
    for outcome in product((0.0, 1.0), repeat=len(means) * draws):
        costs = np.reshape(outcome, (len(means), draws))
        chances = np.where(costs == 1, chance_of_1, 1 - chance_of_1)
        total += float(np.prod(chances)) * (bound(costs, delta) < truth)
    return total


@pytest.mark.parametrize("delta", [0.1, 0.3, 0.6])
@pytest.mark.parametrize(
    ("means", "draws"), [([0.1, 0.9], 4), ([0.0, 0.6], 5), ([0.3, 0.3, 0.9], 3), ([0.8, 0.2], 3)]
)
def test_the_chance_of_an_error_is_at_most_delta_where_it_can_be_counted(means, draws, delta):
    assert chance_of_error(betting_draws, means, draws, delta) <= delta


def by_environment(costs: Floats, delta: float) -> float:
    return betting_holdout(costs.ravel(), delta)


def by_draw_with_stakes_that_learn_within(costs: Floats, delta: float) -> float:
    return betting_holdout(costs.T.ravel(), delta)


def test_bets_from_environment_to_environment_are_wrong_far_more_often_than_delta():
    rng, errors, delta = np.random.default_rng(3), np.zeros(3), 0.001
    for _ in range(100):
        costs, truth = all_or_nothing(rng)
        ordered = costs[np.argsort(costs[:, 0])]
        errors += [
            betting_draws(costs, delta) < truth,
            by_environment(costs, delta) < truth,
            by_draw_with_stakes_that_learn_within(ordered, delta) < truth,
        ]
    assert errors[0] <= 3  # at δ' it would be more with probability 4e-6
    assert errors[1] > 30
    assert errors[2] > 30
