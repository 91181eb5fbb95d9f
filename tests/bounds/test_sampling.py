"""What sampled policies may miss, and the bound for a single draw, against 60 digits.

The inverse of kl is found here as a root in mpmath, in other variables than the library's.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

from pacbayes_control.bounds import (
    chernoff_kl_holdout,
    fresh_draws,
    kl_bernoulli,
    langford_caruana,
    log_xi,
    maurer_xi,
    shared_draws,
    single_draw,
)

mp: Any = mpmath.mp
DIGITS = 60
TOLERANCE = "1e-9"
SAMPLING = [fresh_draws, shared_draws, langford_caruana]


# ---- the independent computations ---------------------------------------------------------------


def exact_kl(q: Any, p: Any) -> Any:
    """kl(q‖p) between Bernoulli distributions, 0 ≤ q < 1."""
    failures = q * mp.log(q / p) if q > 0 else mp.zero
    return failures + (1 - q) * mp.log((1 - q) / (1 - p))


def exact_kl_inverse(q: Any, c: Any) -> Any:
    """The root of kl(q‖p) = c in p, by Newton's method."""
    if c <= 0 or q == 1:
        return q
    if q == 0:
        return -mp.expm1(-c)  # kl(0‖p) = -ln(1-p)
    entropy = q * mp.log(q) + (1 - q) * mp.log(1 - q)

    # In the logit x of p, kl(q‖p) = entropy + q ln(1+e⁻ˣ) + (1-q) ln(1+eˣ) is convex, with slope
    # p - q. As it is at least -(1-q) ln(1-p) - ln 2, Newton's method starts right of the root.
    x = (c + mp.log(2)) / (1 - q) + 1
    for _ in range(200):
        kl = entropy + q * mp.log1p(mp.exp(-x)) + (1 - q) * mp.log1p(mp.exp(x))
        step = (kl - c) / (1 / (1 + mp.exp(-x)) - q)
        x -= step
        if abs(step) < mp.mpf(10) ** -35:
            return 1 / (1 + mp.exp(-x))
    raise ArithmeticError(f"no root for q = {q}, c = {c}")


@cache
def exact_xi(n: int) -> Any:
    """ξ(N) = Σₖ C(N,k) (k/N)ᵏ (1-k/N)ᴺ⁻ᵏ, as it is defined."""
    terms = (math.comb(n, k) * k**k * (n - k) ** (n - k) for k in range(n + 1))
    return mp.mpf(sum(terms)) / mp.mpf(n**n)


def encloses(bound: Any, exact: Any) -> bool:
    """Whether a bound is at least the exact value, and within 1e-9 of it."""
    return bool(exact <= mp.mpf(float(bound)) <= exact + mp.mpf(TOLERANCE))


ESTIMATES = [0.0, 1e-12, 1e-3, 0.08, 1 / 3, 0.5, 0.92, 0.999, 1.0]
DELTAS = [1e-12, 0.001, 0.01, 0.1, 0.5, 0.99]


def cases(count: int, sizes: list[int]) -> list[tuple[float, int, float]]:
    """Extreme values combined at random, and as many ordinary ones."""
    rng = np.random.default_rng(201)
    extreme = zip(
        rng.choice(ESTIMATES, count),
        rng.choice(sizes, count),
        rng.choice(DELTAS, count),
        strict=True,
    )
    ordinary = zip(
        rng.random(count) ** 2,
        rng.integers(2, sizes[-1], count),
        10.0 ** rng.uniform(-6, -0.1, count),
        strict=True,
    )
    return [(float(q), int(n), float(delta)) for q, n, delta in (*extreme, *ordinary)]


def test_the_independent_inverse_is_a_root():
    with mp.workdps(DIGITS):
        for q, c in [(0.0, 0.1), (0.08, 1e-9), (0.3, 0.02), (0.92, 3.0)]:
            p = exact_kl_inverse(mp.mpf(q), mp.mpf(c))
            assert p > q
            assert abs(exact_kl(mp.mpf(q), p) - c) < mp.mpf(10) ** -40


# ---- draws --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "constant"), [(fresh_draws, 1), (shared_draws, 1), (langford_caruana, 2)]
)
def test_the_bound_is_the_formula_rounded_upwards(bound, constant):
    with mp.workdps(DIGITS):
        wrong = []
        for estimate, n, delta in cases(80, [1, 2, 50, 30_000, 3_000_000]):
            exact = exact_kl_inverse(mp.mpf(estimate), mp.log(constant / mp.mpf(delta)) / n)
            if not encloses(bound(estimate, n, delta), exact):
                wrong.append((estimate, n, delta))
    assert wrong == []


def test_the_bound_has_a_closed_form_where_nothing_failed():
    """kl(0‖p) = -ln(1-p), so the bound is 1 - δ^{1/M}."""
    for bound, constant in [(fresh_draws, 1), (shared_draws, 1), (langford_caruana, 2)]:
        expected = 1 - (0.01 / constant) ** (1 / 500)
        assert float(bound(0.0, 500, 0.01)) == pytest.approx(expected, rel=1e-9)


def test_more_draws_and_more_doubt_bring_the_bound_closer_to_the_estimate():
    for bound in SAMPLING:
        by_size = [float(bound(0.1, size, 0.01)) for size in (1, 10, 100, 10_000)]
        by_delta = [float(bound(0.1, 100, delta)) for delta in (1e-9, 1e-3, 0.1, 0.9)]
        for values in (by_size, by_delta):
            assert np.all(np.diff(values) < 0)
            assert values[-1] > 0.1


def test_the_paper_s_bound_is_looser_than_the_one_for_shared_draws():
    for estimate, size, delta in cases(200, [1, 50, 30_000]):
        ours, paper = shared_draws(estimate, size, delta), langford_caruana(estimate, size, delta)
        assert estimate <= float(ours) <= float(paper)
    assert float(langford_caruana(0.1, 1000, 0.01)) > float(shared_draws(0.1, 1000, 0.01)) + 1e-3


def test_fresh_draws_in_several_environments_beat_as_many_shared_ones():
    for environments in (2, 10, 100):
        fresh = fresh_draws(0.1, 20 * environments, 0.01)
        assert float(fresh) < float(shared_draws(0.1, 20, 0.01)) - 0.02


@pytest.mark.parametrize("estimate", [0.0, 0.02, 0.08, 0.2, 0.5])
@pytest.mark.parametrize("delta", [1e-6, 0.001, 0.1])
def test_30_000_fresh_rollouts_have_no_more_slack_than_the_paper_s_three_million(estimate, delta):
    """The paper: 30,000 policies shared by 100 environments."""
    ours = float(fresh_draws(estimate, 3_000_000 // 100, delta))
    assert estimate < ours < float(langford_caruana(estimate, 30_000, delta))
    # Even without the paper's factor of two they would be level, at a hundredth of the rollouts.
    assert ours <= float(shared_draws(estimate, 30_000, delta))


def test_the_number_of_environments_does_not_help_shared_draws():
    """2000 environments × 10 fresh draws beat 1000 shared policies in 2000 environments."""
    assert float(fresh_draws(0.1, 2000 * 10, 0.01)) < float(shared_draws(0.1, 1000, 0.01)) - 0.01


@pytest.mark.parametrize("bound", SAMPLING)
def test_the_bounds_broadcast_over_estimates(bound):
    estimates = np.array([[0.0, 0.1], [0.5, 1.0]])
    table = bound(estimates, 100, 0.05)
    assert table.shape == (2, 2)
    assert float(table[1, 0]) == pytest.approx(float(bound(0.5, 100, 0.05)), rel=1e-14)
    assert table[1, 1] == 1


@pytest.mark.parametrize("bound", [*SAMPLING, lambda q, n, delta: single_draw(q, 0.5, n, delta)])
@pytest.mark.parametrize("estimate", [-1e-9, 1 + 1e-9, math.nan, math.inf, [0.1, 1.2]])
def test_an_estimate_lies_between_0_and_1(bound, estimate):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        bound(estimate, 100, 0.05)


@pytest.mark.parametrize("bound", [*SAMPLING, lambda q, n, delta: single_draw(q, 0.5, n, delta)])
@pytest.mark.parametrize("size", [0, -1, 0.5, 10.5, math.nan])
def test_at_least_one_draw_is_needed(bound, size):
    with pytest.raises(ValueError, match="at least one"):
        bound(0.1, size, 0.05)


@pytest.mark.parametrize("bound", [*SAMPLING, lambda q, n, delta: single_draw(q, 0.5, n, delta)])
@pytest.mark.parametrize("delta", [0.0, -0.1, 1.0, 1.5, 2.0, math.nan])
def test_delta_lies_between_0_and_1(bound, delta):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        bound(0.1, 100, delta)


@pytest.mark.parametrize("bound", [fresh_draws, shared_draws])
def test_small_integers_and_floats_lose_no_precision(bound):
    exact = float(bound(0.25, 100, 0.0625))
    assert float(bound(np.float16(0.25), np.int8(100), np.float16(0.0625))) == exact


def test_one_policy_says_almost_nothing():
    assert float(shared_draws(0.0, 1, 0.01)) == pytest.approx(0.99)
    assert float(shared_draws(1.0, 1, 0.01)) == 1


def test_the_sampling_bounds_are_hold_out_bounds():
    for estimate, size, delta in cases(50, [1, 50, 1000]):
        expected = chernoff_kl_holdout(estimate, size, delta)
        assert fresh_draws(estimate, size, delta) == expected
        assert shared_draws(estimate, size, delta) == expected
        assert langford_caruana(estimate, size, delta) == shared_draws(estimate, size, delta / 2)


# ---- a single draw ------------------------------------------------------------------------------


def test_the_single_draw_bound_is_the_theorem_s_rounded_upwards():
    rng, wrong = np.random.default_rng(202), []
    with mp.workdps(DIGITS):
        for estimate, n, delta in cases(80, [1, 2, 7, 50, 200]):
            ratio = float(rng.choice([-1.0, 0.0, 0.4, 3.0, 40.0, rng.normal(2, 3)]))
            c = (mp.mpf(ratio) + mp.log(exact_xi(n) / mp.mpf(delta))) / n
            exact = exact_kl_inverse(mp.mpf(estimate), c)
            if not encloses(single_draw(estimate, ratio, n, delta), exact):
                wrong.append((estimate, ratio, n, delta))
    assert wrong == []


@pytest.mark.parametrize(("n", "delta"), [(2, 1e-12), (2, 1e-300), (50, 1e-300)])
def test_the_single_draw_bound_is_rounded_upwards_where_its_terms_cancel(n, delta):
    with mp.workdps(DIGITS):
        constant = mp.log(exact_xi(n) / mp.mpf(delta))
        for excess in (0.0, 1e-13, 1e-12, 1e-8):
            ratio = float(excess - constant)
            exact = exact_kl_inverse(mp.mpf(0.3), (mp.mpf(ratio) + constant) / n)
            assert mp.mpf(float(single_draw(0.3, ratio, n, delta))) >= exact


def test_a_single_draw_is_maurer_s_bound_with_the_ratio_in_place_of_the_divergence():
    rng = np.random.default_rng(203)
    cost, ratio = rng.random(300), rng.exponential(4, 300)
    for n, delta in [(1, 0.3), (40, 0.2), (1000, 0.01), (10**6, 1e-9)]:
        np.testing.assert_allclose(
            single_draw(cost, ratio, n, delta), maurer_xi(cost, ratio, n, delta), rtol=1e-13
        )


def test_a_negative_ratio_helps_until_nothing_is_left_to_pay():
    n, delta = 100, 0.05
    constant = log_xi(n) - np.log(delta)
    ratios = constant * np.array([2.0, 0.0, -0.5, -0.9])
    assert np.all(np.diff(single_draw(0.2, ratios, n, delta)) < 0)
    # A negative right-hand side would contradict kl ≥ 0; the bound stops at the empirical cost.
    for ratio in (-1.1 * constant, -1e6, -math.inf):
        assert float(single_draw(0.2, ratio, n, delta)) == 0.2
    assert kl_bernoulli(0.2, float(single_draw(0.2, ratios[-1], n, delta))) > 0


def test_a_single_draw_of_infinite_ratio_promises_nothing():
    assert float(single_draw(0.2, math.inf, 100, 0.05)) == 1


@pytest.mark.parametrize("ratio", [math.nan, [0.0, math.nan]])
def test_the_ratio_of_densities_is_a_number(ratio):
    with pytest.raises(ValueError, match="NaN"):
        single_draw(0.2, ratio, 100, 0.05)
