"""Whether bounds by bets keep their promise, on costs whose distribution is known.

Each is computed on many data sets, and must be below the truth in at most δ of them; the same count
must reject variants that repeat the mistakes that are easy to make with bets.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from covering import covers
from numba import njit
from numpy.typing import NDArray

from pacbayes_control.bounds.betting import (
    AIM,
    GRID,
    MARGIN,
    THRESHOLDS,
    betting_pac_bayes,
    cvar_betting,
    minimise_betting,
    occam_betting,
)
from pacbayes_control.bounds.distribution import distribution_margin, quantile_bound
from pacbayes_control.bounds.kernels import last_rejected
from pacbayes_control.certify.costs import Costs
from sizes import sized

Floats = NDArray[np.float64]

pytestmark = pytest.mark.slow

DELTA = 0.05
DATA_SETS = sized(250, full=4000)


def rare(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Mostly small, and 1 in one environment of fifty."""
    return np.where(rng.random(shape) < 0.02, 1.0, rng.random(shape) / 10)


def two_point(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.where(rng.random(shape) < 0.3, 0.8, 0.1)


# Draws, and the true mean.
COSTS: dict[str, tuple[Callable[..., Floats], float]] = {
    "uniform": (lambda rng, shape: rng.random(shape), 0.5),
    "beta": (lambda rng, shape: rng.beta(2, 8, shape), 0.2),
    "narrow": (lambda rng, shape: rng.beta(40, 60, shape), 0.4),
    "bernoulli": (lambda rng, shape: (rng.random(shape) < 0.1).astype(float), 0.1),
    "coin": (lambda rng, shape: (rng.random(shape) < 0.5).astype(float), 0.5),
    "two_point": (two_point, 0.31),
    "rare": (rare, 0.02 + 0.98 * 0.05),
}


@cache
def data(name: str, n: int, sets: int = DATA_SETS) -> Floats:
    """Costs of many data sets, (n, data sets)."""
    seed = sum(map(ord, name)) + n
    return COSTS[name][0](np.random.default_rng(seed), (n, sets))


@pytest.mark.parametrize("n", [20, sized(150, full=1000)])
@pytest.mark.parametrize("name", COSTS)
def test_the_bound_by_bets_holds(name, n):
    bounds = by_level(data(name, n), DELTA)
    assert covers(bounds < COSTS[name][1], DELTA)


def by_level(costs: Floats, delta: float) -> Floats:
    """`betting_holdout` of every column, compiled once for all of them."""
    goal = -math.log(delta) + MARGIN
    columns = np.ascontiguousarray(costs.T)
    return np.array([(last_rejected(c, goal, goal + AIM, GRID, 0) / GRID) ** 2 for c in columns])


# ---- mistakes -----------------------------------------------------------------------------------


@njit
def rejected(costs, m, number, look_ahead):  # pragma: no cover - compiled
    """Whether constant stakes against a candidate, in one environment of eight, reach 1/δ.

    Which environments those are differs between candidates, as any predictable stakes may.
    """
    n, log_wealth = len(costs), 0.0
    stake = min(math.sqrt(16 * math.log(1 / DELTA) / (n * m * (1 - m))), 0.99 / (1 - m))
    bits = np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15)
    for t in range(n):
        bits ^= bits << np.uint64(13)
        bits ^= bits >> np.uint64(7)
        bits ^= bits << np.uint64(17)
        bets = bits & np.uint64(7) == 0
        if look_ahead:  # at the cost that the stake is for
            bets = t % 8 == 0 or (t % 8 == 1 and costs[t] < m)
        if bets:
            log_wealth += math.log1p(stake * (m - costs[t]))
        if log_wealth >= math.log(1 / DELTA):
            return True
    return False


@njit
def last_of(costs, candidates, first, look_ahead, stops):  # pragma: no cover - compiled
    """The last candidate that is rejected: in a row, or of all of them."""
    found = 1.0
    for j in range(len(candidates)):
        if rejected(costs, candidates[j], first + j, look_ahead):
            found = candidates[j]
        elif stops:
            break
    return found


def by_fixed_stakes(costs: Floats, *, look_ahead: bool = False, stops: bool = True) -> Floats:
    candidates = np.linspace(0.95, 0.05, 181)
    columns = np.ascontiguousarray(costs.T)
    return np.array([last_of(c, candidates, 0, look_ahead, stops) for c in columns])


def test_bets_with_other_stakes_hold_by_the_same_sequence_of_tests():
    assert covers(by_fixed_stakes(data("coin", 400)) < 0.5, DELTA)


def test_stakes_that_look_ahead_are_caught():
    bounds = by_fixed_stakes(data("coin", 400), look_ahead=True)
    assert not covers(bounds < 0.5, DELTA)


def test_going_on_after_the_first_failure_is_caught():
    bounds = by_fixed_stakes(data("coin", 400), stops=False)
    assert not covers(bounds < 0.5, DELTA)


def test_a_grid_chosen_by_the_data_is_caught():
    """It begins at the candidate from which the bound becomes smallest."""
    columns, found = np.ascontiguousarray(data("coin", 400).T), []
    candidates = np.linspace(0.95, 0.05, 181)
    for column in columns:
        starts = range(len(candidates))
        found.append(min(last_of(column, candidates[k:], k, False, True) for k in starts))
    assert not covers(np.array(found) < 0.5, DELTA)


@pytest.mark.parametrize("name", ["uniform", "beta"])
def test_costs_in_the_order_of_their_size_are_caught(name):
    """So a table that is sorted by its costs must not be read in that order."""
    costs = np.sort(data(name, 150)[:, :150], axis=0)
    either = [by_level(costs[::order], DELTA) < COSTS[name][1] for order in (1, -1)]
    assert not all(covers(wrong, DELTA) for wrong in either)


# ---- many policies ------------------------------------------------------------------------------


def chosen_policies(n: int, sets: int) -> tuple[Floats, Floats]:
    """Twelve policies, with costs half from the environment: (sets, n, policies), and truths."""
    rng = np.random.default_rng(11)
    alpha = np.linspace(1.0, 1.6, 12)
    shared = rng.random((sets, n, 1))
    return (shared + rng.beta(alpha, 4, (sets, n, 12))) / 2, (0.5 + alpha / (alpha + 4)) / 2


@pytest.mark.parametrize("n", [30, 200])
def test_the_policy_with_the_smallest_bound_keeps_it(n):
    sets, truth = chosen_policies(n, sized(60, full=1000))
    weights, wrong = np.full(12, 1 / 12), []
    for costs in sets:
        bounds = occam_betting(costs, weights, DELTA)
        wrong.append(np.any(bounds < truth))
    assert covers(np.array(wrong), DELTA)


@pytest.mark.parametrize("n", [30, 200])
def test_the_posterior_that_minimises_the_bound_by_bets_keeps_it(n):
    sets, truth = chosen_policies(n, sized(60, full=1000))
    prior, wrong = np.full(12, 1 / 12), []
    for costs in sets:
        p, stake = minimise_betting(costs, prior, DELTA)
        kl = float(np.sum(p[p > 0] * np.log(12 * p[p > 0])))
        wrong.append(betting_pac_bayes(costs, p, kl, DELTA, stake=stake) < p @ truth)
    assert covers(np.array(wrong), DELTA)


def test_a_posterior_without_its_divergence_is_caught():
    """All mass on the policy that looks best, as if it had been chosen in advance."""
    rng, wrong = np.random.default_rng(12), []
    for _ in range(sized(100, full=1000)):
        costs = rng.random((40, 2000))
        chosen = costs[:, [np.argmin(costs.mean(axis=0))]]
        best = min(betting_pac_bayes(chosen, [1.0], 0, DELTA, stake=s) for s in (1, 1.5, 2, 2.5))
        wrong.append(best < 0.5)
    assert not covers(np.array(wrong), DELTA)


# ---- more than the mean -------------------------------------------------------------------------


def uniform_quantile(costs: Floats, share: float) -> Floats:
    return np.array([quantile_bound(c, share, DELTA) for c in costs.T])


@pytest.mark.parametrize(("n", "share"), [(60, 0.9), (300, 0.5), (300, 0.95)])
def test_the_bound_on_a_quantile_holds(n, share):
    assert covers(uniform_quantile(data("uniform", n), share) < share, DELTA)


def test_the_empirical_quantile_is_caught():
    empirical = np.quantile(data("uniform", 300), 0.9, axis=0)
    assert not covers(empirical < 0.9, DELTA)


@pytest.mark.parametrize("worst", [0.1, 0.3])
def test_the_bound_on_cvar_holds(worst):
    """The worst share α of uniform costs has a mean of 1 - α/2."""
    costs = data("uniform", 60)[:, : sized(100, full=1000)]
    columns = costs.shape[1]
    weights = np.full(columns, 1 / columns)
    bounds, _ = cvar_betting(costs, weights, min(DELTA * columns, 0.99), worst)
    assert covers(bounds < 1 - worst / 2, min(DELTA, 0.99 / columns))


def test_cvar_at_the_threshold_that_looks_best_is_caught_without_its_share():
    costs = data("uniform", 300)[:, : sized(300, full=1000)]
    best = np.ones(costs.shape[1])
    for c in np.arange(4 * THRESHOLDS) / (4 * THRESHOLDS):
        above = np.maximum(costs - c, 0)
        best = np.minimum(best, c + above.mean(axis=0) / 0.1)  # with no confidence at all
    assert not covers(best < 0.95, DELTA)


@pytest.mark.parametrize("n", [20, 300])
def test_the_whole_distribution_function_holds_at_once(n):
    ordered = np.sort(data("uniform", n), axis=0)
    largest = (np.arange(1, n + 1)[:, None] / n - ordered).max(axis=0)  # of F̂ - F
    assert covers(largest > distribution_margin(n, DELTA), DELTA)
    assert not covers(largest > distribution_margin(n, 4 * DELTA), DELTA)


# ---- tables whose rows were sorted --------------------------------------------------------------


@pytest.mark.parametrize("n", [40, 150])
def test_a_table_that_is_sorted_by_cost_keeps_its_bound(n):
    """In the order of `Costs.order`, another permutation for each table."""
    ordered = np.sort(data("uniform", n), axis=0)[::-1]
    costs = np.stack([c[Costs(c[:, None]).order] for c in ordered.T], axis=1)
    assert covers(by_level(costs, DELTA) < 0.5, DELTA)


def test_one_permutation_for_all_tables_of_a_size_is_caught():
    """Sorted costs in a permutation that depends on their number alone: ranks in a fixed order."""
    ordered = np.sort(data("uniform", 40), axis=0)[::-1]
    names = [f"{i} of 40" for i in range(40)]
    order = sorted(range(40), key=lambda i: hashlib.sha256(names[i].encode()).digest())
    assert not covers(by_level(ordered[order], DELTA) < 0.5, DELTA)
