"""The exact bound on failures with the help of simulation, against computations of their own.

Its probability of error is not sampled here: for a few pairs it is summed over all outcomes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq, minimize_scalar
from scipy.special import rel_entr

from pacbayes_control.bounds import clopper_pearson
from pacbayes_control.bounds.stratified import (
    CLOSE,
    STEPS,
    PairCounts,
    failure_limits,
    likelihood_limit,
    proves_rate,
    stratified_exact_tail,
)
from sizes import sized

Floats = NDArray[np.float64]
Limits = tuple[float, float]

# ---- counts and limits --------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from([0, 1]), st.floats(0, 1)), min_size=1, max_size=30))
def test_pairs_are_counted_one_by_one(pairs: list[tuple[int, float]]):
    counts = PairCounts.of([y for y, _ in pairs], [f for _, f in pairs])
    failed = [y for y, f in pairs if f > 0.5]
    passed = [y for y, f in pairs if f <= 0.5]
    assert counts == PairCounts(sum(failed), len(failed), sum(passed), len(passed))


def test_the_estimate_weighs_both_strata_by_the_rate_in_simulation():
    assert PairCounts(3, 4, 1, 10).estimate(0.2) == pytest.approx(0.2 * 0.75 + 0.8 * 0.1)
    assert PairCounts(0, 0, 3, 10).estimate(0.2) == pytest.approx(0.3)
    assert PairCounts(3, 4, 0, 0).estimate(0.0) == pytest.approx(0.75)


@pytest.mark.parametrize("n", [1, 10, 1000])
@pytest.mark.parametrize("delta", [0.2, 0.001])
def test_limits_on_a_failure_rate_are_where_the_binomial_tails_are_half_of_delta(n, delta):
    for k in {0, 1, n // 3, n - 1, n}:
        low, high = failure_limits(k, n, delta)
        assert 0 <= low <= k / n <= high <= 1
        assert (low == 0) == (k == 0)
        assert (high == 1) == (k == n)
        if low:
            assert stats.binom.sf(k - 1, n, low) <= delta / 2
            assert stats.binom.sf(k - 1, n, low + 1e-9) > delta / 2
        if high < 1:
            assert stats.binom.cdf(k, n, high) <= delta / 2
            assert stats.binom.cdf(k, n, high - 1e-9) > delta / 2


# ---- the rank of an outcome ---------------------------------------------------------------------


def kl(share: float, rate: float) -> float:
    return float(rel_entr(share, rate) + rel_entr(1 - share, 1 - rate))


def highest_rate(share: float, n: int, spent: float) -> float:
    """The largest rate with n kl(share‖rate) ≤ spent; 1 where there are no trials."""
    if n == 0 or share == 1:
        return 1.0
    top = 1 - 1e-15
    if n * kl(share, top) <= spent:
        return top
    found: Any = brentq(lambda rate: n * kl(share, rate) - spent, share, top, xtol=1e-14)
    return found


def searched_limit(counts: PairCounts, rate: float, delta: float) -> float:
    """The largest qa + (1-q)c within the likelihood region, by a search over what a spends."""
    allowed = stats.norm.isf(delta) ** 2 / 2
    sizes = counts.simulated, counts.other
    shares = [k / n if n else 1.0 for k, n in zip((counts.both, counts.alone), sizes, strict=True)]

    def mean(part: float) -> float:
        spent = float(part * allowed), float((1 - part) * allowed)
        a, c = (highest_rate(s, n, x) for s, n, x in zip(shares, sizes, spent, strict=True))
        return rate * a + (1 - rate) * c

    parts = np.linspace(0, 1, 41)
    best = int(np.argmax([mean(part) for part in parts]))
    around = parts[max(best - 1, 0)], parts[min(best + 1, 40)]
    found = minimize_scalar(lambda x: -mean(x), bounds=around, method="bounded")
    return max(-float(found.fun), mean(0.0), mean(1.0), mean(parts[best]))


@pytest.mark.parametrize("delta", [0.2, 0.01])
@pytest.mark.parametrize(
    ("counts", "rate"),
    [
        (PairCounts(28, 30, 2, 70), 0.3),
        (PairCounts(0, 30, 0, 70), 0.3),
        (PairCounts(30, 30, 70, 70), 0.3),
        (PairCounts(3, 3, 0, 5), 0.7),
        (PairCounts(1, 5, 4, 5), 0.05),
        (PairCounts(0, 0, 2, 9), 0.2),
        (PairCounts(2, 9, 0, 0), 0.9),
        (PairCounts(2, 9, 3, 9), 0.0),
        (PairCounts(2, 9, 3, 9), 1.0),
        (PairCounts(7, 100, 60, 900), 0.1),
    ],
)
def test_the_rank_is_the_largest_mean_of_the_likelihood_region(counts, rate, delta):
    sizes = counts.simulated, counts.other
    rank = float(likelihood_limit(counts.both, counts.alone, sizes, rate, delta))
    assert rank == pytest.approx(searched_limit(counts, rate, delta), abs=2e-8)


def test_the_rank_does_not_fall_with_failures():
    both, alone = np.arange(9)[:, None], np.arange(13)
    for rate in (0.0, 0.1, 0.5, 0.97, 1.0):
        ranks = likelihood_limit(both, alone, (8, 12), rate, 0.05)
        assert ranks.shape == (9, 13)
        assert np.all(np.diff(ranks, axis=0) >= -CLOSE / 10)
        assert np.all(np.diff(ranks, axis=1) >= -CLOSE / 10)


# ---- the bound ----------------------------------------------------------------------------------


def plain_tail(
    counts: PairCounts, limits: Limits, delta: float
) -> Callable[[Floats, Floats], Floats]:
    """P(T ≤ as observed) by rates a and c: all outcomes listed one by one."""
    sizes = (counts.simulated, counts.other)

    def rank(both: int, alone: int) -> float:
        return max(float(likelihood_limit(both, alone, sizes, q, delta)) for q in limits)

    observed = rank(counts.both, counts.alone)
    every = itertools.product(range(sizes[0] + 1), range(sizes[1] + 1))
    counted = [(i, j) for i, j in every if rank(i, j) <= observed + CLOSE]

    def tail(a: Floats, c: Floats) -> Floats:
        first = [stats.binom.pmf(i, sizes[0], a) for i in range(sizes[0] + 1)]
        second = [stats.binom.pmf(j, sizes[1], c) for j in range(sizes[1] + 1)]
        return np.asarray(sum(first[i] * second[j] for i, j in counted))

    return tail


def largest_tail(tail: Callable[[Floats, Floats], Floats], limits: Limits, m: float) -> float:
    """The largest on a fine grid of all rates whose mean is m for a rate q within the limits."""
    found = 0.0
    for q in np.linspace(*limits, 3):
        if q in (0, 1):  # one rate is m, and the other does not count
            a, c = np.linspace(0, 1, 101), np.full(101, m)
            a, c = (a, c) if q == 0 else (c, a)
        else:
            low, high = max(0.0, (m - (1 - q)) / q), min(1.0, m / q)
            a = np.linspace(low, high, 301)
            c = np.clip((m - q * a) / (1 - q), 0, 1)
        found = max(found, float(np.max(tail(a, c))))
    return found


def plain_bound(counts: PairCounts, limits: Limits, delta: float) -> float:
    """The least m whose largest tail is below δ, by bisection; a little small, as the grid is."""
    tail, low, high = plain_tail(counts, limits, delta), 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        proven = largest_tail(tail, limits, middle) < delta
        low, high = (low, middle) if proven else (middle, high)
    return high


CASES = [
    (PairCounts(2, 3, 1, 5), (0.3, 0.3)),
    (PairCounts(2, 3, 1, 5), (0.25, 0.4)),
    (PairCounts(0, 3, 0, 6), (0.1, 0.12)),
    (PairCounts(3, 3, 5, 5), (0.1, 0.12)),
    (PairCounts(3, 3, 0, 5), (0.5, 0.9)),
    (PairCounts(0, 0, 2, 6), (0.05, 0.1)),
    (PairCounts(2, 6, 0, 0), (0.8, 0.95)),
    (PairCounts(0, 4, 2, 4), (0.0, 1.0)),
    (PairCounts(1, 4, 1, 4), (0.0, 0.0)),
    (PairCounts(1, 4, 1, 4), (1.0, 1.0)),
    (PairCounts(1, 2, 0, 2), (0.0, 0.2)),
]


@pytest.mark.parametrize(("counts", "limits"), CASES)
@pytest.mark.parametrize("delta", [0.2, 0.01])
def test_the_bound_is_that_of_a_plain_search_over_all_outcomes_and_rates(counts, limits, delta):
    bound, plain = stratified_exact_tail(counts, limits, delta), plain_bound(counts, limits, delta)
    assert plain - 1e-6 <= bound <= plain + 2 / STEPS + 1e-5
    if bound < 1:
        assert largest_tail(plain_tail(counts, limits, delta), limits, bound) < delta


@pytest.mark.parametrize(("counts", "limits"), [*CASES, (PairCounts(28, 30, 2, 70), (0.29, 0.31))])
def test_a_rate_is_proven_from_the_bound_on_and_not_below(counts, limits):
    bound = stratified_exact_tail(counts, limits, 0.05)
    for above in (0.0, 1e-6, 0.01, 0.1, 1.0):
        assert proves_rate(counts, limits, bound + above, 0.05)
    for below in (2.5 / STEPS, 0.01, 0.1):
        assert not proves_rate(counts, limits, bound - below, 0.05)


@pytest.mark.parametrize("limits", [(0.3, 0.3), (0.2, 0.5), (0.0, 0.1)])
def test_the_bound_does_not_fall_with_failures(limits):
    bounds = np.array([[of(i, 5, j, 7, limits, 0.1) for j in range(8)] for i in range(6)])
    assert np.all(np.diff(bounds, axis=0) >= 0)
    assert np.all(np.diff(bounds, axis=1) >= 0)
    assert bounds[-1, -1] == 1


@settings(max_examples=20)
@given(st.integers(0, 8), st.integers(0, 8), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.5))
def test_wider_limits_on_the_same_rate_never_make_the_bound_smaller(i, j, one, two, width):
    """With the same midpoint, by which outcomes are ranked."""
    counts = PairCounts(min(i, 4), 4, min(j, 6), 6)
    q, wide = (one + two) / 2, width * min(one, two, 1 - one, 1 - two)
    narrow = stratified_exact_tail(counts, (q, q), 0.1)
    assert stratified_exact_tail(counts, (q - wide, q + wide), 0.1) >= narrow - 2 / STEPS


@pytest.mark.parametrize("k", [0, 1, 7, 20])
def test_in_one_stratum_it_is_the_exact_bound_on_these_trials(k):
    """Where the simulator never fails, or always does, it tells nothing."""
    exact = float(clopper_pearson(k, 20, 0.05))
    for counts, q in ((PairCounts(0, 0, k, 20), 0.0), (PairCounts(k, 20, 0, 0), 1.0)):
        assert exact <= stratified_exact_tail(counts, (q, q), 0.05) <= exact + 2.1 / STEPS


def test_nothing_is_promised_without_pairs_or_of_a_stratum_without_any():
    assert stratified_exact_tail(PairCounts(0, 0, 0, 20), (0.3, 0.3), 0.05) > 0.3
    assert stratified_exact_tail(PairCounts(0, 20, 0, 0), (0.3, 0.3), 0.05) > 0.7
    assert stratified_exact_tail(PairCounts(0, 20, 0, 0), (0.0, 0.0), 0.05) == 1


def test_a_good_simulator_makes_the_bound_smaller_and_a_coin_hardly_larger():
    alone = float(clopper_pearson(30, 100, 0.01))
    good = stratified_exact_tail(PairCounts(29, 30, 1, 70), (0.298, 0.302), 0.01)
    coin = stratified_exact_tail(PairCounts(15, 50, 15, 50), (0.498, 0.502), 0.01)
    assert good < alone - 0.06
    assert coin < alone * 1.02


@pytest.mark.parametrize(
    "call",
    [
        lambda: stratified_exact_tail(PairCounts(1, 2, 1, 2), (0.4, 0.3), 0.05),
        lambda: stratified_exact_tail(PairCounts(1, 2, 1, 2), (-0.1, 0.3), 0.05),
        lambda: stratified_exact_tail(PairCounts(1, 2, 1, 2), (0.1, 1.1), 0.05),
        lambda: stratified_exact_tail(PairCounts(1, 2, 1, 2), (math.nan, 0.3), 0.05),
        lambda: stratified_exact_tail(PairCounts(1, 2, 1, 2), (0.2, math.nan), 0.05),
        lambda: stratified_exact_tail(PairCounts(1, 2, 1, 2), (0.2, 0.3), 0.0),
        lambda: stratified_exact_tail(PairCounts(1, 2, 1, 2), (0.2, 0.3), 1.0),
        lambda: stratified_exact_tail(PairCounts(1, 2, 1, 2), (0.2, 0.3), math.nan),
        lambda: proves_rate(PairCounts(1, 2, 1, 2), (0.4, 0.3), 0.9, 0.05),
        lambda: proves_rate(PairCounts(1, 2, 1, 2), (0.2, 0.3), 0.9, -1),
        lambda: failure_limits(11, 10, 0.05),
        lambda: failure_limits(-1, 10, 0.05),
        lambda: failure_limits(0, 0, 0.05),
        lambda: failure_limits(1, 10, 0),
        lambda: failure_limits(1, 10, math.nan),
        lambda: PairCounts.of([0, 1, 1], [1, 0]),
        lambda: PairCounts.of([0, 1], [1]),
        lambda: PairCounts.of([0.9], [1]),
        lambda: PairCounts.of([math.nan], [1]),
        lambda: PairCounts.of([1], [math.nan]),
        lambda: PairCounts(0, 0, 0, 0),
        lambda: PairCounts(3, 2, 1, 2),
        lambda: PairCounts(-1, 2, 1, 2),
        lambda: PairCounts(1, 2, 0.5, 2),  # pyright: ignore[reportArgumentType]
        lambda: proves_rate(PairCounts(1, 2, 1, 2), (0.2, 0.3), math.nan, 0.05),
    ],
)
def test_bad_input_gets_one_clear_line(call):
    with pytest.raises(ValueError, match=r"low ≤ high|must|is needed|shape") as error:
        call()
    assert "\n" not in str(error.value)


# ---- how often it is wrong ----------------------------------------------------------------------

DELTA = 0.2
LIMITS = [(0.3, 0.3), (0.25, 0.35), (0.0, 0.1), (0.9, 1.0)]
Bound = Callable[[int, int, int, int], float]  # by k₁, n₁, k₀, n₀


@cache
def of(both: int, simulated: int, alone: int, other: int, limits: Limits, delta: float) -> float:
    return stratified_exact_tail(PairCounts(both, simulated, alone, other), limits, delta)


def errors(bound: Bound, n: int, q: float, rates: Floats) -> Floats:
    """The probability that a bound is below qa + (1-q)c, exactly, by rates a and c of a grid."""
    means = q * rates[:, None] + (1 - q) * rates
    total = np.zeros(means.shape)
    for n1 in range(n + 1):
        k1, k0 = np.arange(n1 + 1), np.arange(n - n1 + 1)
        table = np.array([[bound(i, n1, j, n - n1) for j in k0.tolist()] for i in k1.tolist()])
        first = stats.binom.pmf(k1, n1, rates[:, None])  # (rates, k₁)
        second = stats.binom.pmf(k0, n - n1, rates[:, None])
        wrong = table < means[:, :, None, None]
        total += stats.binom.pmf(n1, n, q) * np.einsum("ai,cj,acij->ac", first, second, wrong)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, sized(6, full=12)])
@pytest.mark.parametrize("limits", LIMITS)
def test_the_bound_is_wrong_no_more_often_than_delta_whatever_the_rates(n, limits):
    rates = np.linspace(0, 1, 31)
    for q in (limits[0], sum(limits) / 2, limits[1]):
        wrong = errors(lambda *counts: of(*counts, limits, DELTA), n, q, rates)
        assert wrong.max() <= DELTA
    assert n == 3 or wrong.max() > DELTA / 4  # and it wastes little


def smaller_of_two(*counts: int) -> float:
    """The bound, or that of the trials alone if it is smaller: chosen after looking."""
    alone = float(clopper_pearson(counts[0] + counts[2], counts[1] + counts[3], DELTA))
    return min(of(*counts, (0.25, 0.35), DELTA), alone)


BROKEN: dict[str, tuple[Bound, float]] = {
    "limits that are not those of the rate": (lambda *k: of(*k, (0.25, 0.35), DELTA), 0.5),
    "each pair counted twice": (lambda *k: of(*(2 * each for each in k), (0.3, 0.3), DELTA), 0.3),
    "the smaller of two bounds": (smaller_of_two, 0.35),
    "δ spent twice": (lambda *k: of(*k, (0.3, 0.3), 2 * DELTA), 0.3),
    "the estimate": (lambda *k: PairCounts(*k).estimate(0.3), 0.3),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_bound_is_wrong_more_often(mistake):
    bound, q = BROKEN[mistake]
    assert errors(bound, sized(6, full=8), q, np.linspace(0, 1, 41)).max() > DELTA
