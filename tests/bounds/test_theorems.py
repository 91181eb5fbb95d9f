"""Each theorem against an independent computation in 60 digits, and against the others.

A bound may exceed the exact value by 1e-9 and must not be below it by anything: `encloses` compares
the number that was returned, as the exact binary fraction that it is, with the exact value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from pacbayes_control.bounds import (
    chernoff_kl_holdout,
    clopper_pearson,
    kl_bernoulli,
    log_xi,
    maurer,
    maurer_xi,
    mcallester_pinsker,
    occam_exact_tail,
    occam_kl,
    quadratic,
    thiemann,
)
from pacbayes_control.bounds.theorems import EXACT_XI_UP_TO
from sizes import sized

mp: Any = mpmath.mp
DIGITS = 60
TOLERANCE = "1e-9"


# ---- the independent computations ---------------------------------------------------------------


def exact_kl_inverse(q: Any, c: Any) -> Any:
    """sup{p : kl(q‖p) ≤ c} by bisection, to 1e-36."""
    if mp.isinf(c) or q == 1:
        return mp.one
    entropy = q * mp.log(q) + (1 - q) * mp.log(1 - q) if q > 0 else mp.zero
    low, high = q, mp.one
    for _ in range(120):
        p = (low + high) / 2
        kl = entropy - (q * mp.log(p) if q > 0 else 0) - (1 - q) * mp.log(1 - p)
        low, high = (p, high) if kl <= c else (low, p)
    return low


@cache
def exact_xi(n: int) -> Any:
    """ξ(N) by Cauchy's identity Σₖ C(N,k) kᵏ (N-k)ᴺ⁻ᵏ = Σⱼ N!/j! Nʲ: about 10√N products."""
    with mp.workdps(DIGITS):
        total, term, negligible = mp.zero, mp.one, mp.mpf(10) ** -DIGITS
        for j in range(n + 1):
            total += term
            term = term * (n - j) / n
            if term < negligible:
                break
        return total


def xi_by_definition(n: int) -> Fraction:
    terms = (math.comb(n, k) * k**k * (n - k) ** (n - k) for k in range(n + 1))
    return Fraction(sum(terms), n**n)


def exact_complexity(kl: float, constant: Any, n: int, delta: float) -> Any:
    return (mp.mpf(kl) + mp.log(constant / mp.mpf(delta))) / n


def exact_maurer(q: Any, kl: float, n: int, delta: float) -> Any:
    return exact_kl_inverse(q, exact_complexity(kl, 2 * mp.sqrt(n), n, delta))


def exact_maurer_xi(q: Any, kl: float, n: int, delta: float) -> Any:
    return exact_kl_inverse(q, exact_complexity(kl, exact_xi(n), n, delta))


def exact_pinsker(q: Any, kl: float, n: int, delta: float) -> Any:
    return q + mp.sqrt(exact_complexity(kl, 2 * mp.sqrt(n), n, delta) / 2)


def exact_quadratic(q: Any, kl: float, n: int, delta: float) -> Any:
    b = exact_complexity(kl, 2 * mp.sqrt(n), n, delta) / 2
    return (mp.sqrt(q + b) + mp.sqrt(b)) ** 2


def binomial_tail(k: int, n: int, p: Any) -> Any:
    """P(Bin(N, p) ≤ k), by summation; exact if p is a fraction."""
    return sum(math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k + 1))


def encloses(bound: Any, exact: Any) -> bool:
    """Whether a bound is at least the exact value, where that is below 1, and within 1e-9 of it."""
    exact = min(exact, mp.one)
    return bool(exact <= mp.mpf(float(bound)) <= exact + mp.mpf(TOLERANCE))


COSTS = [0.0, 5e-324, 1e-300, 1e-12, 1e-3, 0.08, 1 / 3, 0.5, 0.92, 1 - 1e-12, 1.0]
DIVERGENCES = [0.0, 1e-300, 1e-9, 0.3, 1.0, 4.6, 40.0, 1e4, math.inf]
SIZES = [1, 2, 7, 8, 50, 1000, 2345, 10**6]
DELTAS = [1e-300, 1e-12, 0.01, 0.1, 0.5, 0.999999]


def cases(count: int) -> list[tuple[float, float, int, float]]:
    """Extreme values combined at random, and as many ordinary ones."""
    rng = np.random.default_rng(99)
    extreme = zip(
        rng.choice(COSTS, count),
        rng.choice(DIVERGENCES, count),
        rng.choice(SIZES, count),
        rng.choice(DELTAS, count),
        strict=True,
    )
    ordinary = zip(
        rng.random(count) ** 2,
        rng.exponential(3, count),
        rng.integers(1, 5000, count),
        10.0 ** rng.uniform(-6, -0.1, count),
        strict=True,
    )
    return [(float(q), float(k), int(n), float(d)) for q, k, n, d in (*extreme, *ordinary)]


# ---- PAC-Bayes ----------------------------------------------------------------------------------

PAC_BAYES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (maurer, exact_maurer),
    (maurer_xi, exact_maurer_xi),
    (mcallester_pinsker, exact_pinsker),
    (quadratic, exact_quadratic),
    (thiemann, exact_quadratic),
]
POSTERIOR_BOUNDS = [maurer, maurer_xi, mcallester_pinsker, quadratic, thiemann]


@pytest.mark.slow
@pytest.mark.parametrize(("theorem", "exact"), PAC_BAYES)
def test_the_bound_is_the_theorem_s_rounded_upwards(theorem, exact):
    with mp.workdps(DIGITS):
        wrong = [
            case
            for case in cases(sized(60, full=200))
            if not encloses(theorem(*case), exact(mp.mpf(case[0]), *case[1:]))
        ]
    assert wrong == []


@pytest.mark.parametrize("lam", [1e-6, 0.01, 0.3, 1.0, 1.7, 1.999])
def test_thiemann_s_bound_at_a_given_lambda_is_its_formula_rounded_upwards(lam):
    with mp.workdps(DIGITS):
        half = mp.mpf(lam) / 2
        for cost, kl, n, delta in cases(50):
            c = exact_complexity(kl, 2 * mp.sqrt(n), n, delta)
            exact = mp.mpf(cost) / (1 - half) + c / (2 * half * (1 - half))
            assert encloses(thiemann(cost, kl, n, delta, lam=lam), exact)


def test_the_quadratic_bound_is_thiemann_s_at_its_best_lambda():
    for cost, kl, n, delta in cases(200):
        best = float(thiemann(cost, kl, n, delta))
        assert float(quadratic(cost, kl, n, delta)) == pytest.approx(best, rel=1e-11)
        others = thiemann(cost, kl, n, delta, lam=np.linspace(0.01, 1.99, 199))
        assert np.all(others >= best * (1 - 1e-11))


def test_thiemann_s_best_lambda_is_found_among_many():
    grid = np.linspace(1e-4, 1.9999, 200_000)
    for cost, kl, n, delta in [(0.08, 1.0, 1000, 0.01), (0.3, 5.0, 200, 0.1), (0.0, 0.0, 50, 0.1)]:
        lowest = float(np.min(thiemann(cost, kl, n, delta, lam=grid)))
        assert float(thiemann(cost, kl, n, delta)) == pytest.approx(lowest, rel=1e-8)


@pytest.mark.slow
def test_the_bounds_come_in_the_order_of_their_proofs():
    rounding = 1e-14
    for case in cases(sized(150, full=500)):
        tightest, usual = float(maurer_xi(*case)), float(maurer(*case))
        assert tightest <= usual + rounding
        assert usual <= float(quadratic(*case)) + rounding
        assert usual <= float(mcallester_pinsker(*case)) + rounding


def test_the_bounds_differ_where_they_should():
    case = (0.08, 1.0, 1000, 0.01)
    values = [float(bound(*case)) for bound in (maurer_xi, maurer, quadratic, mcallester_pinsker)]
    assert np.all(np.diff(values) > 1e-3)


@pytest.mark.parametrize("theorem", POSTERIOR_BOUNDS)
def test_the_bounds_broadcast_over_costs_and_divergences(theorem):
    costs, kls = np.array([[0.1], [0.2]]), np.array([0.5, 1.0, 2.0])
    table = theorem(costs, kls, 100, 0.05)
    assert table.shape == (2, 3)
    assert table[1, 2] == theorem(0.2, 2.0, 100, 0.05)
    assert np.all(np.diff(table, axis=0) > 0)
    assert np.all(np.diff(table, axis=1) > 0)


@pytest.mark.parametrize("theorem", POSTERIOR_BOUNDS)
def test_nothing_is_promised_where_nothing_is_known(theorem):
    assert theorem(0.3, math.inf, 100, 0.05) == 1
    assert theorem(1.0, 0.0, 100, 0.05) == 1
    assert theorem(0.9, 50.0, 1, 0.05) == pytest.approx(1, abs=1e-9)


# ---- Maurer's constant --------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 31))
def test_log_xi_agrees_with_whole_numbers(n):
    xi = xi_by_definition(n)
    with mp.workdps(DIGITS):
        exact = mp.log(mp.mpf(xi.numerator) / xi.denominator)
        assert encloses_closely(log_xi(n), exact)
        assert abs(exact_xi(n) * xi.denominator / xi.numerator - 1) < 1e-50  # Cauchy's identity


@pytest.mark.parametrize(("n", "rounded"), [(100, 13.21), (1000, 40.30)])
def test_log_xi_agrees_with_the_sum_in_60_digits(n, rounded):
    with mp.workdps(DIGITS):
        terms = (
            mp.binomial(n, k) * mp.mpf(k) ** k * mp.mpf(n - k) ** (n - k) / mp.mpf(n) ** n
            for k in range(n + 1)
        )
        exact = mp.log(mp.fsum(terms))
        assert encloses_closely(log_xi(n), exact)
        assert round(float(mp.exp(exact)), 2) == rounded


@pytest.mark.parametrize("n", [31, 99, 512, 4096, 12345, 10**5, 10**6])
def test_log_xi_never_falls_below_the_exact_value(n):
    with mp.workdps(DIGITS):
        exact = mp.log(exact_xi(n))
        assert exact <= mp.mpf(log_xi(n)) <= exact + mp.mpf("1e-10")


def encloses_closely(computed: float, exact: Any) -> bool:
    return bool(exact <= mp.mpf(computed) <= exact + mp.mpf("1e-10"))


def test_xi_is_at_most_two_root_n():
    for n in range(1, 201):
        assert math.exp(log_xi(n)) <= 2 * math.sqrt(n) * (1 + 1e-10)
        assert xi_by_definition(n) ** 2 <= 4 * n


def test_beyond_ten_billion_environments_the_closed_form_is_above_xi_and_close():
    last = EXACT_XI_UP_TO
    closed = log_xi(last + 1)
    assert closed == pytest.approx(math.log(math.sqrt(math.pi * last / 2) + 2), abs=1e-9)
    assert log_xi(last) < closed < log_xi(last) + 2e-5


def test_maurer_s_closed_form_is_above_xi_at_a_million_and_close():
    with mp.workdps(DIGITS):
        n = 10**6
        closed = mp.exp(mp.mpf(1) / (12 * n)) * mp.sqrt(mp.pi * n / 2) + 2
        assert 1 < closed / exact_xi(n) < 1.0011


@pytest.mark.parametrize("n", [1, 5, 40, 300])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.5])
def test_xi_is_the_moment_in_maurer_s_proof(n, p):
    """E exp(N kl(r̂‖p)) = ξ(N) for 0/1 costs, whatever p is: the step that the theorem rests on."""
    k = np.arange(n + 1)
    moment = np.sum(np.exp(stats.binom.logpmf(k, n, p) + n * kl_bernoulli(k / n, p)))
    assert math.log(moment) == pytest.approx(log_xi(n), abs=1e-10)


# ---- one deterministic policy -------------------------------------------------------------------


def tail_is_inverted(bound: Any, k: int, n: int, level: Any) -> bool:
    """Whether P(Bin(N, bound) ≤ k) ≤ level, and no longer so 1e-9 below the bound.

    The sums are exact: a float is a fraction of whole numbers.
    """
    if k == n:
        return float(bound) == 1
    p = Fraction(float(bound))
    below = max(p - Fraction(TOLERANCE), Fraction(0))
    return binomial_tail(k, n, p) <= level <= binomial_tail(k, n, below)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 30])
@pytest.mark.parametrize("delta", [1e-12, 0.01, 0.1, 0.5, 0.9])
def test_clopper_pearson_inverts_the_binomial_tail_summed_in_fractions(n, delta):
    bounds = clopper_pearson(np.arange(n + 1), n, delta)
    wrong = [k for k in range(n + 1) if not tail_is_inverted(bounds[k], k, n, Fraction(delta))]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, sized(300, full=1000)])
@pytest.mark.parametrize("delta", [1e-100, 1e-12, 0.01, 0.1, 0.99])
def test_clopper_pearson_inverts_the_binomial_tail_summed_in_60_digits(n, delta):
    with mp.workdps(DIGITS):
        for k in {0, 1, 2, n // 10, n // 2, n - 2, n - 1}:
            p = mp.mpf(float(clopper_pearson(k, n, delta)))
            assert binomial_tail(k, n, p) <= delta
            assert delta <= binomial_tail(k, n, max(p - mp.mpf(TOLERANCE), mp.zero))


@pytest.mark.parametrize("n", [1, 20, 1000, 10**6])
@pytest.mark.parametrize("delta", [1e-12, 0.01, 0.5])
def test_clopper_pearson_has_a_closed_form_without_failures(n, delta):
    with mp.workdps(DIGITS):
        assert encloses(clopper_pearson(0, n, delta), 1 - mp.mpf(delta) ** (mp.one / n))


@pytest.mark.parametrize("n", [1, 20, 1000])
def test_clopper_pearson_promises_nothing_after_failures_only(n):
    assert clopper_pearson(n, n, 0.1) == 1
    with mp.workdps(DIGITS):
        assert encloses(clopper_pearson(n - 1, n, 0.1), (1 - mp.mpf(0.1)) ** (mp.one / n))


@pytest.mark.parametrize(("k", "n", "delta"), [(0, 10, 0.05), (3, 20, 0.1), (80, 1000, 0.01)])
def test_clopper_pearson_agrees_with_scipy(k, n, delta):
    bound = float(clopper_pearson(k, n, delta))
    assert bound == pytest.approx(float(stats.beta.isf(delta, k + 1, n - k)), abs=1e-9)
    interval = stats.binomtest(k, n, alternative="less").proportion_ci(1 - delta, "exact")
    assert bound == pytest.approx(interval.high, abs=1e-9)


def test_clopper_pearson_takes_a_level_for_each_policy():
    together = clopper_pearson([0, 3, 20], 20, [0.1, 0.01, 0.5])
    alone = [clopper_pearson(k, 20, delta) for k, delta in [(0, 0.1), (3, 0.01), (20, 0.5)]]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_holdout_bound_is_the_theorem_s_rounded_upwards():
    with mp.workdps(DIGITS):
        for cost, _, n, delta in cases(sized(60, full=150)):
            exact = exact_kl_inverse(mp.mpf(cost), -mp.log(mp.mpf(delta)) / n)
            assert encloses(chernoff_kl_holdout(cost, n, delta), exact)


def test_the_exact_tail_is_tighter_than_the_kl_bound():
    k = np.arange(61)
    kl = chernoff_kl_holdout(k / 60, 60, 0.05)
    assert np.all(clopper_pearson(k, 60, 0.05) <= kl + 1e-12)  # they agree where k is 0
    weights = [0.5, 0.3, 0.2]
    tail = occam_exact_tail([3, 30, 60], 60, weights, 0.05)
    assert np.all(tail <= occam_kl([0.05, 0.5, 1.0], 60, weights, 0.05))


@pytest.mark.parametrize("weights", [[0.25] * 4, [0.5, 0.25, 0.125, 0.0625], [1e-30, 0.9, 0.1, 0]])
def test_occam_s_exact_tail_spends_the_weight_of_each_policy(weights):
    failures, n, delta = [0, 3, 17, 20], 20, 0.05
    bounds = occam_exact_tail(failures, n, weights, delta)
    for bound, k, weight in zip(bounds, failures, weights, strict=True):
        level = Fraction(weight) * Fraction(delta)
        assert bound == 1 if weight == 0 else tail_is_inverted(bound, k, n, level)


@pytest.mark.parametrize("weights", [[0.25] * 4, [0.5, 0.25, 0.125, 0.0625], [1e-30, 0.9, 0.1, 0]])
@pytest.mark.parametrize(("n", "delta"), [(1, 0.5), (20, 0.05), (1000, 1e-9)])
def test_occam_s_kl_bound_is_the_theorem_s_rounded_upwards(weights, n, delta):
    costs = [0.0, 0.123, 0.85, 1.0]
    bounds = occam_kl(costs, n, weights, delta)
    with mp.workdps(DIGITS):
        for bound, cost, weight in zip(bounds, costs, weights, strict=True):
            level = mp.mpf(weight) * mp.mpf(delta)
            c = -mp.log(level) / n if weight else mp.inf
            assert encloses(bound, exact_kl_inverse(mp.mpf(cost), c))


def test_a_single_policy_of_weight_one_is_a_holdout():
    assert occam_exact_tail([4], 50, [1.0], 0.1)[0] == clopper_pearson(4, 50, 0.1)
    assert float(occam_kl([0.08], 50, [1.0], 0.1)[0]) == pytest.approx(
        float(chernoff_kl_holdout(0.08, 50, 0.1)), abs=1e-14
    )


# ---- bad input ----------------------------------------------------------------------------------

# Each theorem as a function of the number of environments and δ.
SINGLE_BOUNDS = {
    clopper_pearson: lambda n, delta: clopper_pearson(0, n, delta),
    chernoff_kl_holdout: lambda n, delta: chernoff_kl_holdout(0.1, n, delta),
    occam_exact_tail: lambda n, delta: occam_exact_tail([0, 0], n, [0.5, 0.5], delta),
    occam_kl: lambda n, delta: occam_kl([0.1, 0.2], n, [0.5, 0.5], delta),
}
EVERY_BOUND = [
    *(
        pytest.param(lambda n, delta, f=f: f(0.1, 1.0, n, delta), id=f.__name__)
        for f in POSTERIOR_BOUNDS
    ),
    *(pytest.param(call, id=f.__name__) for f, call in SINGLE_BOUNDS.items()),
]


@pytest.mark.parametrize("bound", EVERY_BOUND)
@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.1, math.nan])
def test_delta_must_lie_between_0_and_1(bound, delta):
    with pytest.raises(ValueError, match=r"delta = .* must lie strictly between 0 and 1"):
        bound(100, delta)


@pytest.mark.parametrize("n", [0, -1])
@pytest.mark.parametrize(
    "bound",
    [param for param in EVERY_BOUND if param.id not in ("clopper_pearson", "occam_exact_tail")],
)
def test_at_least_one_environment_is_needed(bound, n):
    with pytest.raises(ValueError, match="at least one, is needed"):
        bound(n, 0.1)


def test_at_least_one_environment_is_needed_to_count_failures():
    with pytest.raises(ValueError, match="at least one, is needed"):
        clopper_pearson(0, 0, 0.1)
    with pytest.raises(ValueError, match="at least one, is needed"):
        occam_exact_tail([0], 0, [1.0], 0.1)
    with pytest.raises(ValueError, match="at least one, is needed"):
        clopper_pearson(0, -1, 0.1)


@pytest.mark.parametrize("n", [0, -5])
def test_xi_needs_at_least_one_environment(n):
    with pytest.raises(ValueError, match="at least one, is needed"):
        log_xi(n)


@pytest.mark.parametrize("theorem", POSTERIOR_BOUNDS)
@pytest.mark.parametrize("kl", [-1e-300, -1.0, math.nan, [1.0, math.nan]])
def test_a_divergence_is_a_number_of_at_least_0(theorem, kl):
    with pytest.raises(ValueError, match="must be a number of at least 0"):
        theorem(0.1, kl, 100, 0.1)


@pytest.mark.parametrize("cost", [-0.1, 1.1, math.nan, [0.1, math.nan]])
@pytest.mark.parametrize(
    "bound",
    [
        lambda cost: maurer(cost, 1.0, 100, 0.1),
        lambda cost: maurer_xi(cost, 1.0, 100, 0.1),
        lambda cost: chernoff_kl_holdout(cost, 100, 0.1),
        lambda cost: occam_kl(np.broadcast_to(cost, 2), 100, [0.5, 0.5], 0.1),
        lambda cost: mcallester_pinsker(cost, 1.0, 100, 0.1),
        lambda cost: quadratic(cost, 1.0, 100, 0.1),
        lambda cost: thiemann(cost, 1.0, 100, 0.1),
    ],
    ids=["maurer", "maurer_xi", "holdout", "occam_kl", "pinsker", "quadratic", "thiemann"],
)
def test_an_empirical_cost_lies_between_0_and_1(bound, cost):
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        bound(cost)


@pytest.mark.parametrize("lam", [0.0, 2.0, -1.0, math.nan, [1.0, 2.5]])
def test_thiemann_s_lambda_lies_between_0_and_2(lam):
    with pytest.raises(ValueError, match="λ must lie in"):
        thiemann(0.1, 1.0, 100, 0.1, lam=lam)


@pytest.mark.parametrize("failures", [-1, 21, 2.5, math.nan, math.inf, [3, 4.5]])
def test_failures_are_whole_numbers_up_to_n(failures):
    with pytest.raises(ValueError, match="whole numbers from 0 to 20"):
        clopper_pearson(failures, 20, 0.1)


@pytest.mark.parametrize("failures", [[3, -1], [3, 21], [3, 2.5], [3, math.nan]])
def test_failures_of_several_policies_are_whole_numbers_up_to_n(failures):
    with pytest.raises(ValueError, match="whole numbers from 0 to 20"):
        occam_exact_tail(failures, 20, [0.5, 0.5], 0.1)


@pytest.mark.parametrize("weights", [[0.6, 0.5], [1.0, 1e-6], [-0.1, 0.5], [math.nan, 0.5]])
@pytest.mark.parametrize("occam", [occam_exact_tail, occam_kl])
def test_weights_are_at_least_0_and_sum_to_at_most_1(occam, weights):
    with pytest.raises(ValueError, match="weights of the policies must be"):
        occam([0, 0], 20, weights, 0.1)


@pytest.mark.parametrize("weights", [1.0, [1.0]])
@pytest.mark.parametrize("occam", [occam_exact_tail, occam_kl])
def test_each_policy_needs_a_weight_of_its_own(occam, weights):
    with pytest.raises(ValueError):  # noqa: PT011 - any wording will do
        occam([0, 0, 1], 20, weights, 0.1)


def test_failures_may_be_counted_in_bytes():
    assert clopper_pearson(np.array([2], np.uint8), 1000, 0.1) == clopper_pearson(2, 1000, 0.1)


@pytest.mark.parametrize("delta", [1e-100, 1e-150, 1e-250, 1e-300])
@pytest.mark.parametrize("n", [5, 100, 10_000])
def test_levels_at_which_the_inverse_gives_up_still_have_a_bound(n, delta):
    for failures in (0, 1, n // 2, n - 1):
        bound = float(clopper_pearson(failures, n, delta))
        assert failures / n < bound <= 1
        assert bound <= float(chernoff_kl_holdout(failures / n, n, delta)) + 1e-9


def test_weights_that_underflow_with_delta_still_have_a_bound():
    weights = [1e-300, 0.5]
    bounds = occam_exact_tail([0, 0], 10_000, weights, 1e-50)
    assert bounds[0] == occam_kl([0, 0], 10_000, weights, 1e-50)[0] < 0.1


@pytest.mark.parametrize("bound", [maurer, maurer_xi, mcallester_pinsker, quadratic, thiemann])
def test_small_integers_and_floats_lose_no_precision(bound):
    assert bound(0.1, 1.0, np.uint8(24), 0.25) == bound(0.1, 1.0, 24, np.float16(0.25))
    assert bound(0.1, 1.0, np.uint8(24), 0.25) == bound(0.1, 1.0, 24, 0.25)
