"""The divergences against their definitions, in 60-digit arithmetic where rounding matters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from pacbayes_control.bounds import kl_bernoulli
from pacbayes_control.bounds.divergences import (
    F_DIVERGENCES,
    NAMES,
    divergence_bernoulli,
    named_divergence,
)

mp: Any = mpmath.mp

DIGITS = 60
WITH_CONJUGATE = ["kl", "reverse-kl", "total-variation", "chi-squared", "hellinger"]
RENYI = ["renyi-2", "renyi-0.5", "renyi-100", "renyi-0.01", "renyi-7.3", "renyi-0.99", "renyi-1.01"]
SUMS = [*WITH_CONJUGATE, *RENYI]  # E_D[g], and for Rényi's an increasing function of it
ALL = [*SUMS, "renyi-inf"]


def f(name: str, x: Any) -> Any:
    """f as the paper or a textbook writes it, for numbers of mpmath or of Python."""
    log, sqrt = (mp.log, mp.sqrt) if isinstance(x, mpmath.mpf) else (math.log, math.sqrt)
    if name == "kl":
        return x * log(x) if x else x
    if name == "reverse-kl":
        return -log(x) if x else math.inf
    if name == "total-variation":
        return abs(x - 1) / 2
    if name == "chi-squared":
        return (x - 1) ** 2
    if name == "hellinger":
        return (sqrt(x) - 1) ** 2 / 2
    order = type(x)(float(name.removeprefix("renyi-")))
    return (x**order - 1) / (order - 1)


def slope_at_one(name: str) -> Any:
    """f'(1)."""
    if name.startswith("renyi-"):
        order = mp.mpf(float(name.removeprefix("renyi-")))
        return order / (order - 1)
    return {"kl": 1, "reverse-kl": -1}.get(name, 0)


def exact_between(name: str, q: Any, p: Any) -> Any:
    """D(Bern(q)‖Bern(p)) for 0 < p < 1: the expectation of f under p, and Rényi's logarithm."""
    up, down = q / p, (1 - q) / (1 - p)
    if name == "renyi-inf":
        return mp.log(max(up, down))
    if name == "reverse-kl" and 0 in (up, down):
        return mp.inf
    total = p * f(name, up) + (1 - p) * f(name, down)
    if name.startswith("renyi-"):
        order = mp.mpf(float(name.removeprefix("renyi-")))
        return mp.log1p((order - 1) * total) / (order - 1)
    return total


# ---- what is added up ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", SUMS)
def test_what_is_added_up_is_f_less_its_tangent_to_full_precision(name):
    tiny = 10.0 ** -np.arange(1, 18)
    ratios = [1 + tiny, 1 - tiny, tiny, 10.0 ** np.arange(0.1, 3, 0.1), np.linspace(0.5, 2, 40)]
    x = np.concatenate(ratios)
    t = np.concatenate([tiny, -tiny, *(part - 1 for part in ratios[2:])]).astype(np.float64)
    x = np.where(np.abs(t) < 0.3, 1 + t, x)
    computed = named_divergence(name).excess(t, x)
    with mp.workdps(DIGITS + 40):
        for t_, x_, value in zip(t.tolist(), x.tolist(), computed.tolist(), strict=True):
            # Where 1+t is rounded, t is what is exact near 1, and 1+t is away from it.
            ratio = 1 + mp.mpf(t_) if abs(t_) < 0.3 else mp.mpf(x_)
            exact = f(name, ratio) - slope_at_one(name) * (ratio - 1)
            assert abs(value - exact) <= 1e-12 * exact, (t_, value, float(exact))


@pytest.mark.parametrize("name", SUMS)
def test_what_is_added_up_is_zero_at_one_and_positive_elsewhere(name):
    excess = named_divergence(name).excess
    assert excess(np.array([0.0]), np.array([1.0])) == 0
    t = np.array([-0.9, -0.3, -1e-8, 1e-8, 0.3, 4.0])
    assert np.all(excess(t, 1 + t) > 0)


@pytest.mark.parametrize("name", SUMS)
def test_the_growth_is_the_slope_far_out(name):
    divergence = named_divergence(name)
    t = np.array([1e12])
    with np.errstate(over="ignore"):
        slope = float(divergence.excess(t, 1 + t)[0] / t[0])
    if math.isinf(divergence.growth):
        assert slope > 20
    else:
        # Of t^α it is left: nothing of the others, and a quarter at α = 0.99 even out there.
        order = divergence.order if divergence.order != 1 else 0.5
        assert slope == pytest.approx(divergence.growth, rel=2 * 1e12 ** (order - 1) + 1e-9)


@pytest.mark.parametrize(
    ("name", "largest"),
    [
        ("kl", math.inf),
        ("reverse-kl", math.inf),
        ("total-variation", 1),
        ("chi-squared", math.inf),
        ("hellinger", 1),
        ("renyi-2", math.inf),
        ("renyi-0.5", 2),
    ],
)
def test_distributions_that_never_meet_are_the_furthest_apart(name, largest):
    divergence = named_divergence(name)
    assert divergence.largest == pytest.approx(largest, rel=1e-15)
    assert float(divergence.of_sum(divergence.largest)) == pytest.approx(
        math.inf if name.startswith("renyi") else largest
    )


# ---- conjugates ---------------------------------------------------------------------------------

# Up to these slopes f* is finite.
STEEPEST = {
    "kl": math.inf,
    "reverse-kl": 0.0,
    "total-variation": 0.5,
    "chi-squared": math.inf,
    "hellinger": 0.5,
}


def conjugate(name: str) -> Callable[[Any], Any]:
    chosen = F_DIVERGENCES[name].conjugate
    assert chosen is not None
    return chosen


def supremum(name: str, y: float) -> float:
    """sup xy - f(x) over x ≥ 0: concave in x, so that it has one hill along ln x."""

    def depth(log_x: float) -> float:
        x = math.exp(log_x)
        return f(name, x) - x * y

    best = minimize_scalar(depth, bounds=(-30, 30), method="bounded", options={"xatol": 1e-12})
    return max(-float(best.fun), -f(name, 0.0))


SLOPES = [-8.0, -2.5, -2.0, -1.5, -1.0, -0.5, -0.3, -0.01, 0.0, 0.2, 0.45, 3.0]


@pytest.mark.parametrize(
    ("name", "y"), [(name, y) for name in WITH_CONJUGATE for y in SLOPES if y < STEEPEST[name]]
)
def test_each_conjugate_is_the_supremum_that_it_stands_for(name, y):
    value = float(conjugate(name)(np.array([y]))[0])
    assert value == pytest.approx(supremum(name, y), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["reverse-kl", "total-variation", "hellinger"])
@pytest.mark.parametrize("above", [1e-9, 0.1, 3.0])
def test_a_conjugate_is_infinite_where_the_supremum_is(name, above):
    y = STEEPEST[name] + above
    assert np.all(np.isinf(conjugate(name)(np.array([y]))))
    reached = [x * y - f(name, x) for x in (1e6, 1e9, 1e12)]
    assert reached == sorted(reached)
    assert reached[-1] > 100


@pytest.mark.slow
@settings(max_examples=200)
@given(st.floats(-20, 20), st.floats(0, 1e3), st.sampled_from(WITH_CONJUGATE))
def test_no_line_exceeds_f_and_its_conjugate(y, x, name):
    value = float(conjugate(name)(np.array([y]))[0])
    assert x * y <= (f(name, x) + value) * (1 + 1e-12) + 1e-9


def test_renyi_s_divergences_have_no_conjugate():
    assert [named_divergence(name).conjugate for name in (*RENYI, "renyi-inf")] == [None] * 8


# ---- between coins ------------------------------------------------------------------------------


def coins() -> list[tuple[float, float]]:
    """Pairs q ≥ p, from alike to as different as can be."""
    rng = np.random.default_rng(11)
    near = 10.0 ** rng.uniform(-17, 0, 200)
    p = np.choose(rng.integers(0, 3, 200), [rng.random(200), near, 1 - near])
    p = np.clip(p, 1e-18, 1 - 1e-15)
    q = p + (1 - p) * np.choose(rng.integers(0, 2, 200), [rng.random(200), near[::-1]])
    far = [(1.0, 0.3), (1.0, 1e-100), (0.5, 1e-100), (1e-50, 1e-100), (1.0, 1 - 1e-15)]
    return [*zip(np.minimum(q, 1).tolist(), p.tolist(), strict=True), *far]


@pytest.mark.parametrize("name", ALL)
def test_the_divergence_between_coins_agrees_with_60_digits(name):
    pairs = coins()
    q, p = np.array(pairs).T
    computed = divergence_bernoulli(q, p, name)
    absolute = 1e-15 if name == "renyi-inf" else 0
    with mp.workdps(DIGITS + 180):
        for (q_, p_), value in zip(pairs, computed.tolist(), strict=True):
            exact = exact_between(name, mp.mpf(q_), mp.mpf(p_))
            if mp.isinf(exact):
                assert value == math.inf
            else:
                assert abs(value - exact) <= 1e-11 * exact + absolute, (q_, p_, value)


@pytest.mark.parametrize("name", ALL)
def test_the_divergence_between_coins_also_knows_smaller_q(name):
    rng = np.random.default_rng(12)
    p, share = rng.uniform(0.01, 0.99, 100), rng.uniform(0.01, 1, 100)
    computed = divergence_bernoulli(p * share, p, name)
    with mp.workdps(DIGITS):
        pairs = zip((p * share).tolist(), p.tolist(), strict=True)
        exact = [float(exact_between(name, mp.mpf(q_), mp.mpf(p_))) for q_, p_ in pairs]
    np.testing.assert_allclose(computed, exact, rtol=1e-11, atol=1e-15)


def test_kl_between_coins_is_the_library_s_other_kl():
    rng = np.random.default_rng(13)
    q, p = rng.random((2, 1000))
    np.testing.assert_allclose(divergence_bernoulli(q, p, "kl"), kl_bernoulli(q, p), atol=1e-14)
    swapped = divergence_bernoulli(p, q, "reverse-kl")
    np.testing.assert_allclose(swapped, kl_bernoulli(q, p), rtol=1e-10, atol=1e-14)


INFINITE = math.inf


@pytest.mark.parametrize(
    ("name", "q", "p", "value"),
    [
        *((name, 0.0, 0.0, 0.0) for name in ALL),
        *((name, 1.0, 1.0, 0.0) for name in ALL),
        *((name, 0.3, 0.3, 0.0) for name in ALL),
        *((name, 0.3, 0.0, INFINITE) for name in ("kl", "chi-squared", "renyi-2", "renyi-inf")),
        *((name, 0.3, 1.0, INFINITE) for name in ("kl", "chi-squared", "renyi-100", "renyi-inf")),
        ("reverse-kl", 0.3, 0.0, -math.log(0.7)),
        ("reverse-kl", 0.3, 1.0, -math.log(0.3)),
        ("reverse-kl", 1.0, 0.0, INFINITE),
        ("reverse-kl", 1.0, 0.4, INFINITE),
        ("total-variation", 0.3, 0.0, 0.3),
        ("total-variation", 0.0, 1.0, 1.0),
        ("hellinger", 0.3, 0.0, 1 - math.sqrt(0.7)),
        ("hellinger", 1.0, 0.0, 1.0),
        ("renyi-0.5", 0.3, 0.0, -math.log(0.7)),
        ("renyi-0.5", 1.0, 0.0, INFINITE),
        ("renyi-0.5", 0.3, 1.0, -math.log(0.3)),
        ("renyi-inf", 1.0, 0.25, math.log(4)),
        ("kl", 1.0, 0.25, math.log(4)),
        ("chi-squared", 1.0, 0.25, 3.0),
    ],
)
def test_the_divergence_between_coins_is_right_at_its_ends(name, q, p, value):
    assert float(divergence_bernoulli(q, p, name)) == pytest.approx(value, rel=1e-12, abs=1e-300)


def test_the_divergence_between_coins_broadcasts():
    q, p = np.array([[0.2], [0.7]]), np.array([0.1, 0.5, 0.9])
    table = divergence_bernoulli(q, p, "hellinger")
    assert table.shape == (2, 3)
    assert table[1, 0] == divergence_bernoulli(0.7, 0.1, "hellinger")


@settings(max_examples=200)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.sampled_from(ALL))
@pytest.mark.slow
def test_a_coin_further_away_is_never_nearer(p, q, other, name):
    nearer, further = sorted((p + (1 - p) * q, p + (1 - p) * other))
    near, far = divergence_bernoulli([nearer, min(further, 1)], p, name)
    assert near <= far * (1 + 1e-11) + 1e-15


@pytest.mark.parametrize(("low", "high"), [("renyi-0.5", "kl"), ("kl", "renyi-2")])
def test_renyi_s_divergences_grow_with_their_order_and_enclose_kl(low, high):
    q, p = np.random.default_rng(14).random((2, 500))
    assert np.all(divergence_bernoulli(q, p, low) <= divergence_bernoulli(q, p, high) + 1e-12)


def test_chi_squared_and_hellinger_are_renyi_s_by_another_name():
    q, p = np.random.default_rng(15).uniform(0.01, 0.99, (2, 500))
    chi_squared = np.expm1(divergence_bernoulli(q, p, "renyi-2"))
    np.testing.assert_allclose(divergence_bernoulli(q, p, "chi-squared"), chi_squared, rtol=1e-11)
    hellinger = -np.expm1(-divergence_bernoulli(q, p, "renyi-0.5") / 2)
    np.testing.assert_allclose(divergence_bernoulli(q, p, "hellinger"), hellinger, rtol=1e-11)


# ---- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_divergence_is_found_by_its_name(name):
    divergence = named_divergence(name)
    assert divergence.name == name


def test_the_names_are_those_that_are_offered():
    assert [*F_DIVERGENCES, "renyi-ORDER"] == list(NAMES)


def test_an_order_may_be_any_number_in_range():
    orders = [named_divergence(f"renyi-{order}").order for order in ("0.01", "1.01", "100", "inf")]
    assert orders == [0.01, 1.01, 100.0, math.inf]


@pytest.mark.parametrize(
    "name", ["", "KL", "kl ", "wasserstein", "renyi", "renyi-", "renyi-two", "renyi--1"]
)
def test_an_unknown_divergence_gets_a_list_of_those_known(name):
    with pytest.raises(ValueError, match="is unknown: choose from kl, reverse-kl, total-var") as e:
        named_divergence(name)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("order", ["1", "1.0", "1.009", "0.991", "0", "0.009", "101"])
def test_an_order_out_of_range_is_refused(order):
    with pytest.raises(ValueError, match=r"give one from 0\.01 to 100, or inf; that of order 1 is"):
        named_divergence(f"renyi-{order}")


@pytest.mark.parametrize(
    ("q", "p", "message"),
    [(-0.1, 0.5, "q must lie"), (math.nan, 0.5, "q must lie"), (0.5, 1.1, "p must lie")],
)
def test_what_is_no_probability_is_refused(q, p, message):
    with pytest.raises(ValueError, match=message):
        divergence_bernoulli(q, p, "kl")


# ---- once wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reverse-kl", "hellinger", "renyi-0.01"])
def test_a_coin_that_hardly_ever_falls_is_far_from_a_fair_one_but_not_infinitely(name):
    with mp.workdps(DIGITS):
        exact = float(exact_between(name, mp.mpf(1e-17), mp.mpf(0.3)))
    assert float(divergence_bernoulli(1e-17, 0.3, name)) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("name", ["renyi-2_0", "renyi- 2", "renyi-2\n", "renyi-２"])
def test_an_order_is_written_plainly(name):
    with pytest.raises(ValueError, match="unknown"):
        named_divergence(name)
