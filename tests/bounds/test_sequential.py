"""Tests of a promise: p-values against sums, bets against a plain loop, limits against roots.

Whether they keep their level when they are watched is counted in test_coverage_monitor.py.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from pacbayes_control.bounds import kl_bernoulli
from pacbayes_control.bounds.sequential import (
    AT_ONCE,
    LATER,
    BettingState,
    bets,
    binomial_p_value,
    chernoff_p_value,
    confidence_sequence,
    update_wealth,
    update_wealth_by_counts,
)
from sizes import sized

Floats = NDArray[np.float64]

BOUNDS = [0.0, 1e-12, 1e-9, 1e-4, 0.02, 0.114, 0.5, 0.9, 0.999999, 1.0]
SENSIBLE = [1e-4, 0.02, 0.114, 0.5, 0.9]
MANY = sized(100_000, full=1_000_000)


def e_values(costs: Floats, bound: float) -> Floats:
    """After each of the outcomes."""
    return np.exp(update_wealth(BettingState.initial(bound), costs, bound)[1])


def e_value_of_counts(batches: list[tuple[int, int]], bound: float) -> float:
    """After batches of failures among trials."""
    purse = BettingState.initial(bound)
    for failures, trials in batches:
        purse = update_wealth_by_counts(purse, failures, trials, bound)
    return math.exp(purse.log_value(bound))


def alike(one: BettingState, other: BettingState) -> bool:
    """Whether two purses hold the same, in whatever units, but for rounding."""
    assert one.trials == other.trials
    wealth = other.wealth * math.exp(other.scale - one.scale)
    return np.allclose(one.wealth, wealth, rtol=1e-9, atol=1e-12 * float(one.wealth.max()))


def mixed_outcomes(n: int, seed: int = 0) -> Floats:
    """Some 0, some 1, some between."""
    rng = np.random.default_rng(seed)
    graded = rng.beta(0.3, 1.2, n)
    return np.choose(rng.integers(0, 3, n), [np.zeros(n), np.ones(n), graded])


# ---- p-values -----------------------------------------------------------------------------------


def exact_tail(k: int, n: int, bound: float) -> Any:
    """P(Bin(n, b) ≥ k), term by term."""
    with mpmath.workdps(40):
        b = mpmath.mpf(bound)
        return mpmath.fsum(
            mpmath.binomial(n, j) * b**j * (1 - b) ** (n - j) for j in range(k, n + 1)
        )


@pytest.mark.slow
@given(
    k=st.integers(0, 60),
    more=st.integers(0, 60),
    bound=st.one_of(st.floats(0, 1), st.floats(0, 1e-6), st.floats(1 - 1e-6, 1)),
)
def test_the_binomial_p_value_is_the_sum_of_the_tail_and_never_below_it(k, more, bound):
    n = k + more
    exact = exact_tail(k, n, bound)
    p = float(binomial_p_value(k, n, bound))
    assert 0 <= p <= 1
    if exact > 1e-300:
        assert exact <= p <= float(exact) * (1 + 3e-9)
    else:
        assert p <= 1e-299


def test_the_paper_s_flights_are_no_evidence_against_its_bound():
    """Two crashes in twenty flights of a drone that was promised at most 11.4 %."""
    assert float(binomial_p_value(2, 20, 0.114)) == pytest.approx(0.6825, abs=1e-4)
    assert float(binomial_p_value(2, 20, 0.114)) == pytest.approx(stats.binom.sf(1, 20, 0.114))


def test_p_values_come_in_arrays():
    k, n = np.array([[0], [3], [10]]), np.array([10, 50, 100])
    table = binomial_p_value(k, n, 0.05)
    assert table.shape == (3, 3)
    assert table == pytest.approx(stats.binom.sf(k - 1, n, 0.05), rel=3e-9)
    assert np.all(np.diff(table, axis=0) < 0)  # more failures, more evidence
    assert np.all(np.diff(table[1:], axis=1) > 0)  # more trials, less


@pytest.mark.parametrize(
    ("failures", "n"), [(-1, 5), (6, 5), (1.5, 5), (math.nan, 5), (0, -1), (0, math.nan)]
)
def test_numbers_of_failures_that_cannot_be_are_refused(failures, n):
    with pytest.raises(ValueError, match="whole numbers from 0 to the number of trials"):
        binomial_p_value(failures, n, 0.1)


@pytest.mark.parametrize("bound", [-0.1, 1.1, math.nan])
def test_a_bound_outside_of_the_unit_interval_is_refused(bound):
    with pytest.raises(ValueError, match=r"a bound must lie in \[0, 1\]"):
        binomial_p_value(1, 5, bound)
    with pytest.raises(ValueError, match=r"a bound must lie in \[0, 1\]"):
        bets(bound)


def test_p_values_at_the_ends():
    assert float(binomial_p_value(0, 10, 0.0)) == 1
    assert float(binomial_p_value(1, 10, 0.0)) == 0
    assert float(binomial_p_value(10, 10, 1.0)) == 1
    assert float(chernoff_p_value(0.0, 10, 0.0)) == 1
    assert float(chernoff_p_value(0.1, 10, 0.0)) == 0
    assert float(chernoff_p_value(1.0, 10, 1.0)) == 1


@pytest.mark.parametrize("n", [1, 7, 20, 300])
@pytest.mark.parametrize("bound", [1e-6, 0.05, 0.114, 0.5, 0.95])
def test_the_kl_p_value_is_never_below_the_exact_one(n, bound):
    k = np.arange(n + 1)
    exact, loose = binomial_p_value(k, n, bound), chernoff_p_value(k / n, n, bound)
    assert np.all(loose >= exact * (1 - 2e-9))
    assert np.all(loose[k / n <= bound] == 1)
    assert loose[-1] == pytest.approx(bound**n, rel=1e-9)  # and there it is exact


@pytest.mark.slow
@given(mean=st.floats(0, 1), n=st.integers(1, 10_000), bound=st.floats(1e-6, 1, exclude_max=True))
def test_the_kl_p_value_is_its_formula(mean, n, bound):
    expected = math.exp(-n * float(kl_bernoulli(mean, bound))) if mean > bound else 1.0
    assert float(chernoff_p_value(mean, n, bound)) == pytest.approx(expected, rel=1e-7, abs=1e-300)


def largest_excess(p_values: Floats, probabilities: Floats) -> float:
    """max over u of P(p ≤ u)/u, for a p-value that takes finitely many values."""
    order = np.argsort(p_values)
    ratios = np.cumsum(probabilities[order]) / np.maximum(p_values[order], 1e-300)
    last_of_equals = np.append(np.diff(p_values[order]) > 0, True)
    return float(ratios[last_of_equals].max())


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.114])
@pytest.mark.parametrize("n", [5, 20, 200])
def test_p_values_are_small_no_more_often_than_they_say(n, rate):
    """At every level at once: P(p ≤ u) ≤ u, by summing over all counts, for 0/1 and graded."""
    k = np.arange(n + 1)
    weights = stats.binom.pmf(k, n, rate)
    assert largest_excess(binomial_p_value(k, n, 0.114), weights) <= 1 + 1e-9
    assert largest_excess(chernoff_p_value(k / n, n, 0.114), weights) <= 1 + 1e-9
    costs = (0.08 * (n - k) + 0.9 * k) / n  # each is 0.08 or 0.9, with mean 0.08 + 0.82 rate
    p_values = chernoff_p_value(costs, n, 0.08 + 0.82 * 0.114)
    assert largest_excess(p_values, weights) <= 1 + 1e-9


def test_a_p_value_that_leaves_out_what_was_seen_is_caught():
    k = np.arange(21)
    wrong = np.maximum(stats.binom.sf(k, 20, 0.114), 1e-300)  # P(Bin > k)
    assert largest_excess(wrong, stats.binom.pmf(k, 20, 0.114)) > 2


# ---- bets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", BOUNDS)
def test_stakes_leave_something_to_lose_and_shares_are_the_whole_wealth(bound):
    stakes, shares = bets(bound)
    assert stakes.shape == shares.shape
    assert np.all(stakes >= 0)
    assert np.all(stakes * bound <= 0.99 * (1 + 1e-12))
    assert np.all(shares > 0)
    assert shares.sum() == pytest.approx(1, abs=1e-14)


def support(bound: float) -> list[tuple[Floats, Floats]]:
    """Outcomes and their probabilities with mean b: 0/1, two graded values, three of all kinds."""
    low, high = 0.3 * bound, bound + 0.4 * (1 - bound)
    share = (bound - low) / (high - low)
    return [
        (np.array([0.0, 1.0]), np.array([1 - bound, bound])),
        (np.array([low, high]), np.array([1 - share, share])),
        (np.array([0.0, bound, 1.0]), np.array([0.5 * (1 - bound), 0.5, 0.5 * bound])),
    ]


@pytest.mark.parametrize("bound", BOUNDS)
def test_no_bet_wins_on_average_while_the_promise_holds(bound):
    """By one outcome of each kind, bet by bet, through `update_wealth` itself."""
    for values, probabilities in support(bound):
        purses = [
            update_wealth(BettingState.initial(bound), np.array([c]), bound)[0] for c in values
        ]
        growth = np.array([purse.wealth * math.exp(purse.scale) / AT_ONCE for purse in purses])
        assert np.all(growth >= 0.01 * (1 - 1e-12))
        assert np.all(probabilities @ growth <= 1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("bound", SENSIBLE)
def test_the_e_value_is_one_on_average_at_the_bound_and_less_below(bound):
    """By all sequences of five outcomes, at each of their steps."""
    for values, probabilities in support(bound):
        means = np.zeros(5)
        below = 0.0
        for choice in itertools.product(range(len(values)), repeat=5):
            chosen = list(choice)
            chance = np.prod(probabilities[chosen])
            means += chance * e_values(values[chosen], bound)
            below += chance * e_values(0.9 * values[chosen], bound)[-1]
        assert means == pytest.approx(np.ones(5), abs=1e-12)
        assert below < 1 - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1e-6, 0.02, 0.114, 0.9])
def test_failures_and_successes_are_an_e_value_of_one_on_average(bound):
    """By all 0/1 sequences of some outcomes: one by one, and in batches known by counts."""
    sizes = sized([3, 1, 2], full=[3, 1, 3, 2])
    ends, n = np.cumsum(sizes), sum(sizes)
    means, counted, stopped = np.zeros(n), 0.0, 0.0
    for outcomes in itertools.product([0, 1], repeat=n):
        chance = math.prod(bound if outcome else 1 - bound for outcome in outcomes)
        path = e_values(np.array(outcomes, float), bound)
        means += chance * path
        until = outcomes.index(0) if 0 in outcomes else n - 1  # stopping may depend on the past
        stopped += chance * path[until]
        batches = [
            (sum(outcomes[end - size : end]), size) for end, size in zip(ends, sizes, strict=True)
        ]
        counted += chance * e_value_of_counts(batches, bound)
    assert means == pytest.approx(np.ones(n), abs=1e-10)
    assert stopped == pytest.approx(1, abs=1e-10)
    assert AT_ONCE < counted < 1  # what follows during a batch is given up


@pytest.mark.parametrize("bound", SENSIBLE)
def test_how_many_outcomes_the_next_batch_has_may_depend_on_those_before(bound):
    """Ten more after a failure among the first three, and one more if there was none."""
    mean = 0.0
    for failures in range(4):
        more = 10 if failures else 1
        for later in range(more + 1):
            chance = stats.binom.pmf(failures, 3, bound) * stats.binom.pmf(later, more, bound)
            mean += chance * e_value_of_counts([(failures, 3), (later, more)], bound)
    assert AT_ONCE < mean < 1


@pytest.mark.parametrize("bound", SENSIBLE)
def test_counts_are_never_more_evidence_than_the_outcomes_in_any_order(bound):
    """So that nothing is gained by how a log is split into counts, not even with hindsight."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        outcomes = (rng.random(40) < rng.choice([bound, 0.3, 0.9])).astype(float)
        one_by_one = update_wealth(BettingState.initial(bound), outcomes, bound)[1][-1]
        cuts = np.sort(rng.choice(np.arange(1, 40), rng.integers(0, 6), replace=False))
        batches = [(int(part.sum()), len(part)) for part in np.split(outcomes, cuts)]
        assert math.log(e_value_of_counts(batches, bound)) <= one_by_one + 1e-9


def test_all_of_the_wealth_is_staked_or_follows():
    assert AT_ONCE + LATER == 1
    for bound in BOUNDS:
        purse = BettingState.initial(bound)
        assert (purse.trials, purse.scale) == (0, 0)
        assert purse.log_value(bound) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("bound", SENSIBLE)
def test_the_wager_is_a_plain_loop_of_bets(bound):
    """With what follows later and what stays in the pocket, in arithmetic of 30 digits."""
    costs = mixed_outcomes(130)
    purse, log_e = update_wealth(BettingState.initial(bound), costs, bound)
    stakes, shares = bets(bound)
    with mpmath.workdps(30):
        wealth = [mpmath.mpf(AT_ONCE) for _ in stakes]
        cash = mpmath.mpf(LATER)
        for step, cost in enumerate(costs):
            later = mpmath.mpf(LATER) / (step * (step + 1)) if step else mpmath.mpf(0)
            cash -= later
            change = mpmath.mpf(float(cost)) - mpmath.mpf(bound)
            for j, stake in enumerate(stakes):
                wealth[j] = (wealth[j] + later) * (1 + mpmath.mpf(float(stake)) * change)
            staked = mpmath.fsum(
                mpmath.mpf(float(share)) * w for share, w in zip(shares, wealth, strict=True)
            )
            assert log_e[step] == pytest.approx(float(mpmath.log(staked + cash)), abs=1e-10)
        expected = [float(w * mpmath.exp(-purse.scale)) for w in wealth]
    assert purse.trials == 130
    assert purse.wealth == pytest.approx(expected, rel=1e-10)


def loop_of_logarithms(costs: Floats, bound: float) -> Floats:
    """ln of the e-value after each of the outcomes, in numbers that cannot overflow."""
    stakes, shares = bets(bound)
    won, lost = np.log1p(stakes * (1 - bound)), np.log1p(-stakes * bound)
    logs, log_e = np.full(len(stakes), math.log(AT_ONCE)), np.empty(len(costs))
    for n, cost in enumerate(costs):
        if n:
            logs = np.logaddexp(logs, math.log(LATER / (n * (n + 1))))
        logs = logs + (won if cost else lost)
        top = float(logs.max())
        staked = top + math.log(float(shares @ np.exp(logs - top)))
        log_e[n] = np.logaddexp(staked, math.log(LATER / (n + 1)))
    return log_e


@pytest.mark.parametrize("bound", [0.114, 0.5])
def test_the_wager_is_a_loop_of_logarithms_up_and_down(bound):
    """To where the wealth needs units of its own, and back to where most of it is lost."""
    costs = np.repeat([1.0, 0.0], [350, 10_000])
    assert update_wealth(BettingState.initial(bound), costs[:350], bound)[0].scale > 100
    _, log_e = update_wealth(BettingState.initial(bound), costs, bound)
    assert log_e[-1] < 0
    assert log_e == pytest.approx(loop_of_logarithms(costs, bound), rel=1e-10, abs=1e-8)


@pytest.mark.slow
def test_beyond_the_range_of_numbers_the_e_value_is_never_too_large():
    """At e³⁷⁰⁰, bets that have won less are lost; when the others fall, they are missed."""
    costs = np.repeat([1.0, 0.0], [2000, 30_000])
    _, log_e = update_wealth(BettingState.initial(0.114), costs, 0.114)
    exact = loop_of_logarithms(costs, 0.114)
    assert exact.max() > 3700
    assert np.all(log_e <= exact + 1e-6)
    near = exact > exact.max() - 600
    assert np.count_nonzero(near) > 600
    assert log_e[near] == pytest.approx(exact[near], rel=1e-10)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    cuts=st.lists(st.integers(0, 9000), max_size=6),
    bound=st.sampled_from([0.0, *SENSIBLE, 1.0]),
    seed=st.integers(0, 100),
)
def test_the_wager_is_the_same_in_pieces_as_at_once(cuts, bound, seed):
    costs = mixed_outcomes(9000, seed)
    at_once, path_at_once = update_wealth(BettingState.initial(bound), costs, bound)
    purse, path = BettingState.initial(bound), []
    for piece in np.split(costs, sorted(cuts)):
        purse, part = update_wealth(purse, piece, bound)
        path.append(part)
        if len(part):
            assert purse.log_value(bound) == pytest.approx(part[-1], rel=1e-12, abs=1e-9)
    assert alike(purse, at_once)
    assert np.allclose(np.concatenate(path), path_at_once, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 500])
def test_the_wager_is_the_same_one_by_one(n):
    costs, purse = mixed_outcomes(n), BettingState.initial(0.114)
    _, path = update_wealth(purse, costs, 0.114)
    assert path.shape == (n,)
    for step in range(n):
        purse, last = update_wealth(purse, costs[step : step + 1], 0.114)
        assert float(last[0]) == pytest.approx(path[step], rel=1e-12, abs=1e-10)


def test_without_outcomes_nothing_is_won_or_lost():
    purse, _ = update_wealth(BettingState.initial(0.114), mixed_outcomes(50), 0.114)
    same, path = update_wealth(purse, np.empty(0), 0.114)
    assert path.shape == (0,)
    assert (same.trials, same.scale) == (50, purse.scale)
    assert np.array_equal(same.wealth, purse.wealth)


def test_the_wager_leaves_what_it_was_given_as_it_was():
    purse, costs = BettingState.initial(0.114), mixed_outcomes(300)
    before = costs.copy()
    update_wealth(purse, costs, 0.114)
    update_wealth_by_counts(purse, 3, 20, 0.114)
    assert np.all(purse.wealth == AT_ONCE)
    assert (purse.scale, purse.trials) == (0, 0)
    assert np.array_equal(costs, before)


@pytest.mark.parametrize("bound", BOUNDS)
def test_counts_of_single_outcomes_are_the_outcomes(bound):
    one, other = BettingState.initial(bound), BettingState.initial(bound)
    for cost in np.random.default_rng(5).random(sized(80, full=300)) < 0.2:
        one, path = update_wealth(one, np.array([float(cost)]), bound)
        other = update_wealth_by_counts(other, int(cost), 1, bound)
        assert other.log_value(bound) == pytest.approx(path[0], rel=1e-9, abs=1e-9)
    assert alike(one, other)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(("failures", "trials"), [(0, 1), (1, 1), (2, 20), (70, 100), (200, 5000)])
def test_what_is_staked_later_is_not_staked_on_outcomes_known_by_counts(bound, failures, trials):
    stakes, shares = bets(bound)
    b = max(bound, 1e-9)
    logs = failures * np.log1p(stakes * (1 - b)) + (trials - failures) * np.log1p(-stakes * b)
    log_e = np.logaddexp(
        np.logaddexp.reduce(logs + np.log(shares)) + math.log(AT_ONCE), math.log(LATER / trials)
    )
    purse = update_wealth_by_counts(BettingState.initial(bound), failures, trials, bound)
    assert purse.trials == trials
    assert purse.log_value(bound) == pytest.approx(log_e, rel=1e-9, abs=1e-9)


@pytest.mark.slow
def test_whoever_decides_when_to_report_counts_gains_nothing_by_it():
    """The largest E[e-value] over all rules of when to end a batch, from the last outcome back."""
    bound, horizon = 0.114, 40
    best: dict[tuple[int, int], float] = {}
    for n in range(horizon, -1, -1):
        for k in range(n + 1):
            stop = 0.0
            if n:
                stop = math.exp(
                    update_wealth_by_counts(BettingState.initial(bound), k, n, bound).log_value(
                        bound
                    )
                )
            on = 0.0
            if n < horizon:
                on = bound * best[n + 1, k + 1] + (1 - bound) * best[n + 1, k]
            best[n, k] = max(stop, on)
    assert best[0, 0] <= 1 + 1e-9


def test_the_same_number_of_failures_is_more_evidence_at_the_end():
    """What is staked late wins by them, and what came before has lost less of it."""
    late, early = np.repeat([0.0, 1.0], [300, 40]), np.repeat([1.0, 0.0], [40, 300])
    assert e_values(late, 0.114)[-1] > 3 * e_values(early, 0.114)[-1]


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_hundred_thousand_failures_in_a_row_overflow_nothing(bound):
    """Warnings are errors here: neither an overflow nor a logarithm of zero would pass."""
    purse, log_e = update_wealth(BettingState.initial(bound), np.ones(100_000), bound)
    assert np.all(np.isfinite(purse.wealth))
    assert np.all(np.isfinite(log_e))
    assert np.all(np.diff(log_e) >= -1e-9)
    counted = update_wealth_by_counts(
        BettingState.initial(bound), 100_000, 100_000, bound
    ).log_value(bound)
    assert math.log(AT_ONCE) - 1e-6 <= counted - log_e[-1] <= 1e-6
    if bound < 0.95:
        assert log_e[-1] > 1000


@pytest.mark.parametrize("bound", [1e-12, 0.114, 1.0])
def test_many_successes_in_a_row_underflow_nothing(bound):
    purse, log_e = update_wealth(BettingState.initial(bound), np.zeros(MANY), bound)
    assert np.all(np.isfinite(purse.wealth))
    assert np.all(np.isfinite(log_e))
    assert np.all(np.diff(log_e) <= 1e-9)
    assert log_e[-1] <= 1e-12
    assert log_e[-1] >= math.log(LATER / MANY)  # what has not been staked
    again = update_wealth(purse, np.ones(1000), bound)[1]
    assert np.all(np.isfinite(again))


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0.0, 1e-12, 0.114, 0.999999, 1.0])
def test_what_was_won_by_failures_can_be_lost_again(bound):
    """Many failures, then successes, until the wealth needs no units of its own."""
    # Only where failures win much and successes lose some is the way up and back that long.
    failures, successes = (100_000, 1_000_000) if bound == 0.114 else (MANY // 10, MANY)
    purse, up = update_wealth(BettingState.initial(bound), np.ones(failures), bound)
    assert (purse.scale > 0) == (bound < 0.9)
    purse, down = update_wealth(purse, np.zeros(successes), bound)
    assert np.all(np.isfinite(up))
    assert np.all(np.isfinite(down))
    assert np.all(np.isfinite(purse.wealth))
    if bound < 0.1:  # then a success costs next to nothing
        purse = update_wealth_by_counts(purse, 0, 10**14, bound)
    assert purse.scale == 0
    log_value = purse.log_value(bound)
    assert math.log(LATER / purse.trials) - 1e-9 <= log_value <= 1e-9
    _, again = update_wealth(purse, np.ones(1000), bound)
    assert np.all(np.isfinite(again))
    assert again[-1] >= log_value


def test_nothing_can_exceed_a_bound_of_one():
    _, log_e = update_wealth(BettingState.initial(1.0), mixed_outcomes(1000), 1.0)
    assert log_e == pytest.approx(np.zeros(1000), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0.05, 0.114, 0.5])
def test_a_rate_slightly_above_the_bound_is_found_in_the_end(bound):
    n, rng = 600_000 if bound == 0.05 else 300_000, np.random.default_rng(7)
    outcomes = (rng.random(n) < 1.05 * bound).astype(float)
    _, log_e = update_wealth(BettingState.initial(bound), outcomes, bound)
    assert log_e[999] < math.log(20)  # not by a fluke at the start
    assert log_e[-1] > math.log(1e6)


def test_a_rise_of_a_few_ten_thousandths_of_a_deviation_is_found_in_the_end():
    bound, n = 0.114, 4_000_000_000
    rate = bound + 2e-4 * math.sqrt(bound * (1 - bound))
    assert e_value_of_counts([(round(n * rate), n)], bound) > 1e6
    assert e_value_of_counts([(round(n * bound), n)], bound) < 1


@pytest.mark.slow
def test_a_change_after_a_long_good_time_is_found_soon():
    """2,000 outcomes at a rate of 0.02, then 0.25, against a promise of 0.114.

    Somebody who stakes everything before the first outcome has lost nearly all of it by then.
    """
    bound, good, rng = 0.114, 2000, np.random.default_rng(11)
    stakes, shares = bets(bound)
    rates = np.repeat([0.02, 0.25], [good, 3000])
    delays, delays_at_once = [], []
    for _ in range(sized(40, full=100)):
        costs = (rng.random(len(rates)) < rates).astype(float)
        k, n = np.cumsum(costs)[:, None], np.arange(1, len(costs) + 1)[:, None]
        logs = k * np.log1p(stakes * (1 - bound)) + (n - k) * np.log1p(-stakes * bound)
        at_once = np.logaddexp.reduce(logs + np.log(shares), axis=1)
        _, log_e = update_wealth(BettingState.initial(bound), costs, bound)
        for found, path in ((delays, log_e), (delays_at_once, at_once)):
            assert path[:good].max() < math.log(20)
            crossed = path >= math.log(20)
            found.append(np.argmax(crossed) + 1 - good if crossed.any() else math.inf)
    assert np.mean(np.array(delays) <= 400) > 0.8
    assert np.mean(np.array(delays_at_once) > 1000) > 0.9


# ---- limits on the mean -------------------------------------------------------------------------


@cache
def exact_limits(total: float, n: int, alpha: float) -> tuple[float, float]:
    """Where ∫ Πₜ (q/m)^{cₜ} ((1-q)/(1-m))^{1-cₜ} dq/(π√(q(1-q))) as a function of m is 1/α."""
    with mpmath.workdps(40):
        s, f = mpmath.mpf(total), n - mpmath.mpf(total)
        half = mpmath.mpf(1) / 2
        log_mixture = (
            mpmath.loggamma(s + half)
            + mpmath.loggamma(f + half)
            - mpmath.loggamma(s + f + 1)
            - mpmath.log(mpmath.pi)
        )

        def excess(m: Any) -> Any:
            likelihood = (s * mpmath.log(m) if s else 0) + (f * mpmath.log(1 - m) if f else 0)
            return log_mixture - likelihood + mpmath.log(mpmath.mpf(alpha))

        def root(inside: Any, outside: Any) -> float:
            for _ in range(120):
                middle = (inside + outside) / 2
                if excess(middle) > 0:
                    outside = middle
                else:
                    inside = middle
            return float(inside)

        mean, tiny = s / n, mpmath.mpf(10) ** -36
        low = root(mean, tiny) if total > 0 else 0.0
        high = root(mean, 1 - tiny) if total < n else 1.0
    return low, high


@pytest.mark.parametrize("alpha", [1e-6, 0.05, 0.5])
@pytest.mark.parametrize(
    ("total", "n"),
    [
        (0, 1), (1, 1), (0.3, 1), (2, 20), (20, 20), (0, 20), (7.25, 20), (114, 1000), (1, 1000),
        (0.001, 1000), (999.5, 1000), (50_000, 1_000_000), (3, 1_000_000),
    ],
)  # fmt: skip
def test_limits_on_the_mean_invert_the_mixture(total, n, alpha):
    low, high = (float(limit) for limit in confidence_sequence(total, n, alpha))
    exact_low, exact_high = exact_limits(total, n, alpha)
    assert low <= exact_low  # never inside
    assert high >= exact_high
    assert low == pytest.approx(exact_low, rel=1e-6, abs=1e-9)
    assert 1 - high == pytest.approx(1 - exact_high, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("total", "n"), [(0, 3), (2, 5), (1.7, 4), (6, 6)])
def test_the_mixture_is_the_integral_that_it_stands_for(total, n):
    """At each limit, by quadrature with q = sin²θ: the average over q is 1/α."""
    alpha = 0.05
    for limit in confidence_sequence(total, n, alpha):
        m = float(limit)
        if m in (0.0, 1.0):
            continue

        def integrand(theta, m=m):
            q = mpmath.sin(theta) ** 2
            return (q / m) ** total * ((1 - q) / (1 - m)) ** (n - total)

        average = mpmath.quad(integrand, [0, mpmath.pi / 2]) * 2 / mpmath.pi
        assert float(average) == pytest.approx(1 / alpha, rel=1e-6)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    n=st.integers(1, 10**9),
    share=st.floats(0, 1),
    alpha=st.floats(1e-12, 0.999),
)
def test_limits_on_the_mean_contain_it_and_lie_in_the_unit_interval(n, share, alpha):
    total = share * n
    low, high = confidence_sequence(total, n, alpha)
    assert 0 <= low <= min(total / n, 1) <= high <= 1
    wider = confidence_sequence(total, n, alpha / 10)
    assert wider[0] <= low
    assert wider[1] >= high


def test_limits_on_the_mean_come_in_arrays_and_close_in_on_it():
    n = np.array([10, 100, 1000, 10_000, 10**6])
    low, high = confidence_sequence(0.3 * n, n, 0.05)
    assert low.shape == high.shape == (5,)
    assert np.all(np.diff(low) > 0)
    assert np.all(np.diff(high) < 0)
    assert high[-1] - low[-1] < 0.005


def test_limits_are_mirrored_where_failures_and_successes_change_places():
    total, n = np.array([0, 3, 50, 99.5]), 100
    low, high = confidence_sequence(total, n, 0.05)
    mirrored_low, mirrored_high = confidence_sequence(n - total, n, 0.05)
    assert 1 - high == pytest.approx(mirrored_low, abs=1e-11)
    assert 1 - low == pytest.approx(mirrored_high, abs=1e-11)


def test_limits_that_hold_always_are_wider_than_those_for_one_look():
    k = np.arange(101)
    low, high = confidence_sequence(k, 100, 0.05)
    once_low = np.where(k == 0, 0, stats.beta.ppf(0.025, np.maximum(k, 0.5), 101 - k))
    once_high = np.where(k == 100, 1, stats.beta.ppf(0.975, k + 1, np.maximum(100 - k, 0.5)))
    assert np.all(low <= once_low)
    assert np.all(high >= once_high)
