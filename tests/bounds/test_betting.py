"""Bounds by bets, against computations of their own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from pacbayes_control.bounds import chernoff_kl_holdout, occam_kl
from pacbayes_control.bounds.betting import (
    AIM,
    GRID,
    MARGIN,
    THRESHOLDS,
    betting_holdout,
    betting_pac_bayes,
    cvar_betting,
    highest_means,
    log_regret,
    minimise_betting,
    occam_betting,
)

Floats = NDArray[np.float64]


def reaches(costs: Floats, m: float, delta: float) -> bool:
    """Whether the wealth against one candidate reaches 1/δ, by the docstring, in logarithms."""
    n, goal = len(costs), math.log(1 / delta) + MARGIN
    aim, log_wealth, t = goal + AIM, 0.0, 0
    while t < n and log_wealth < goal:
        variance = m * (1 - m)
        if t:
            earlier = np.mean((costs[:t] - m) ** 2)
            variance = min(variance, earlier + (1 - m) * aim / (4 * t))
        stake = min(math.sqrt(2 * (aim - log_wealth) / ((n - t) * variance)), 1 / (1 - m))
        for _ in range(1 + min(min(t, n - t - 1) // 16, 15)):
            gain = 1 + stake * (m - costs[t])
            log_wealth += math.log(gain) if gain > 0 else -math.inf
            t += 1
    return log_wealth >= goal


@pytest.mark.parametrize("n", [20, 150])
def test_the_bound_is_the_last_candidate_that_is_rejected_in_a_row(n):
    rng = np.random.default_rng(n)
    for costs in (rng.random(n), rng.beta(1, 9, n), (rng.random(n) < 0.1).astype(float)):
        bound = betting_holdout(costs, 0.05)
        j = round(math.sqrt(bound) * GRID)
        assert (j / GRID) ** 2 == bound
        steps = [*range(GRID - 1, j, -997), *range(j + 8, j - 1, -1)]
        assert all(reaches(costs, (k / GRID) ** 2, 0.05) for k in steps if k < GRID)
        assert not reaches(costs, ((j - 1) / GRID) ** 2, 0.05)


def test_costs_that_vary_little_are_bounded_far_below_chernoff():
    costs = np.random.default_rng(0).beta(20, 80, (1000, 1))
    chernoff = float(chernoff_kl_holdout(costs.mean(), 1000, 0.01))
    assert betting_holdout(costs[:, 0], 0.01) - costs.mean() < (chernoff - costs.mean()) / 5


@pytest.mark.parametrize(("n", "most"), [(1000, 1.10), (4000, 1.0)])
def test_occam_by_bets_is_within_the_deviation_of_a_normal_distribution(n, most):
    """50 graded policies, δ = 0.01: the excess against σ̂ √(2 ln(50/δ)/N)."""
    rng, ratios = np.random.default_rng(n), []
    for _ in range(3):
        shared, own = rng.beta(0.8, 3, (n, 1)), rng.beta(0.8, 3, (n, 50))
        costs = 0.6 * shared + 0.4 * own * np.linspace(0.7, 1, 50)
        bounds = occam_betting(costs, np.full(50, 0.02), 0.01)
        best = int(np.argmin(bounds))
        scale = costs[:, best].std() * math.sqrt(2 * math.log(50 / 0.01) / n)
        ratios.append((bounds[best] - costs[:, best].mean()) / scale)
        assert bounds.min() < occam_kl(costs.mean(axis=0), n, np.full(50, 0.02), 0.01).min()
    assert np.mean(ratios) <= most


def test_a_weight_of_zero_promises_nothing():
    costs = np.random.default_rng(1).random((50, 2))
    assert occam_betting(costs, [1.0, 0.0], 0.05)[1] == 1


@pytest.mark.parametrize("cost", [0.0, 0.5, 1.0])
def test_constant_costs_are_no_trouble(cost):
    costs = np.full((200, 2), cost)
    bound = occam_betting(costs, [0.5, 0.5], 0.01)[0]
    assert cost <= bound <= min(1.0, cost + 0.06)
    p, stake = minimise_betting(costs, np.array([0.5, 0.5]), 0.01)
    assert cost <= betting_pac_bayes(costs, p, 0.0, 0.01, stake=stake) <= min(1.0, cost + 0.1)


# ---- PAC-Bayes ----------------------------------------------------------------------------------


def best_log_wealth(costs: Floats, m: float) -> float:
    """g(m), by a bounded search for the best stake."""
    low, high = -1 / (1 - m) + 1e-12, 1 / m - 1e-12

    def loss(stake: float) -> float:
        return -float(np.sum(np.log(np.maximum(1 + stake * (costs - m), 1e-300))))

    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    return max(0.0, -float(found.fun))


@pytest.mark.parametrize("stake", [0.1, 0.7, 2.0, 8.0])
def test_the_highest_mean_is_that_of_a_search_over_all_means_and_stakes(stake):
    rng = np.random.default_rng(3)
    for costs in (rng.random(40), rng.beta(1, 20, 40), (rng.random(40) < 0.2).astype(float)):
        values = [
            m - best_log_wealth(costs, m) / (stake * 40) for m in np.linspace(0.0005, 0.9995, 1000)
        ]
        highest = highest_means(costs[:, None], stake)[0]
        assert max(values) - 1e-7 <= highest <= max(values) + 2e-3


def test_the_regret_is_a_ratio_of_gamma_functions():
    for n in (1, 10, 1000):
        ratio = math.lgamma(n + 1) - math.lgamma(n + 0.5) + math.log(math.pi) / 2
        assert ratio <= log_regret(n) <= ratio + 1e-9


def test_no_other_posterior_or_stake_has_a_smaller_bound():
    rng = np.random.default_rng(4)
    costs, prior = rng.beta(1, 4, (100, 5)) * np.linspace(0.8, 1.2, 5).clip(max=1), np.full(5, 0.2)
    p, stake = minimise_betting(costs, prior, 0.05)

    def bound(q: Floats, s: float) -> float:
        kl = float(np.sum(q[q > 0] * np.log(5 * q[q > 0])))
        return betting_pac_bayes(costs, q, kl, 0.05, stake=s)

    least = bound(p, stake)
    for _ in range(60):
        other = 0.9 * p + 0.1 * rng.dirichlet(np.ones(5))
        assert bound(other, stake) >= least - 1e-9
    assert all(bound(p, stake * factor) >= least - 1e-6 for factor in (0.5, 0.8, 0.97, 1.03, 1.5))


@given(st.integers(2, 40), st.floats(0.01, 50), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_the_bound_is_never_below_the_mean_cost(n, stake, seed):
    costs = np.random.default_rng(seed).random((n, 2)) ** 3
    assert betting_pac_bayes(costs, [0.5, 0.5], 0.0, 0.05, stake=stake) >= costs.mean() - 1e-12


# ---- CVaR ---------------------------------------------------------------------------------------


def test_cvar_is_the_smallest_of_bounds_at_fixed_thresholds():
    costs = np.random.default_rng(5).random((300, 1))
    [bound], [threshold] = cvar_betting(costs, [1.0], 0.05, 0.2)
    values = [
        c + (1 - c) * betting_holdout(np.maximum(costs[:, 0] - c, 0) / (1 - c), 0.05 / 16) / 0.2
        for c in np.arange(THRESHOLDS) / THRESHOLDS
    ]
    assert bound == pytest.approx(min(values), rel=1e-9)
    assert threshold == np.argmin(values) / THRESHOLDS
    assert np.sort(costs[:, 0])[-60:].mean() < bound < 1


def test_a_cost_outside_of_its_range_is_refused():
    with pytest.raises(ValueError, match="a cost"):
        betting_holdout([0.1, 1.2], 0.05)
    with pytest.raises(ValueError, match="one weight for each policy"):
        occam_betting([[0.1, 0.2]], [1.0], 0.05)
