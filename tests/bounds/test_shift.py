"""The largest cost in a ball against 60-digit arithmetic, and the paper's statements about it.

No inversion in high precision is needed: D(Bern(q)‖Bern(U)) grows with q beyond U, so a returned q
is at least the exact maximum if the divergence there is at least B, and within a tolerance of it if
the divergence is at most B that much below q.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import rel_entr

from pacbayes_control.bounds import kl_bernoulli, kl_inverse, maurer
from pacbayes_control.bounds.divergences import divergence_bernoulli, named_divergence
from pacbayes_control.bounds.shift import (
    checked_radius,
    donsker_varadhan,
    f_divergence_inequality,
    kl_inequality,
    robust_c_pac,
    robust_maurer,
    shift_inverse,
    tolerable_shift,
)
from sizes import sized

Floats = NDArray[np.float64]
mp: Any = mpmath.mp

DIGITS = 60
TOLERANCE = "1e-9"
F_DIVERGENCES = ["kl", "reverse-kl", "total-variation", "chi-squared", "hellinger"]
RENYI = ["renyi-2", "renyi-0.5", "renyi-inf", "renyi-100", "renyi-0.01", "renyi-7.3"]
ALL = [*F_DIVERGENCES, *RENYI]
# D' must not be where D never is.
ABSOLUTE = ["kl", "chi-squared", "renyi-2", "renyi-inf", "renyi-100", "renyi-7.3"]

EXTREME_U = [1e-300, 1e-200, 1e-100, 1e-40, 1e-18, 1e-16, 1e-9, 1e-3, 0.1, 1 / 3, 0.5, 0.9]
EXTREME_U += [1 - 1e-3, 1 - 1e-9, 1 - 1e-15]
EXTREME_B = [1e-18, 1e-16, 1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-9, 1, 1.1, 2, 10, 37]
EXTREME_B += [40, 100, 700, 745, 1e3]


# ---- the inverse against 60 digits --------------------------------------------------------------


def exact_divergence(name: str, q: Any, p: Any) -> Any:
    """D(Bern(q)‖Bern(p)) by its definition, for 0 < p < 1 and p ≤ q ≤ 1."""
    if name == "kl":
        return xlogy(q, q / p) + xlogy(1 - q, (1 - q) / (1 - p))
    if name == "reverse-kl":
        return mp.inf if q == 1 else p * mp.log(p / q) + (1 - p) * mp.log((1 - p) / (1 - q))
    if name == "total-variation":
        return (abs(q - p) + abs((1 - q) - (1 - p))) / 2
    if name == "chi-squared":
        return (q - p) ** 2 / p + (p - q) ** 2 / (1 - p)
    if name == "hellinger":
        return ((mp.sqrt(q) - mp.sqrt(p)) ** 2 + (mp.sqrt(1 - q) - mp.sqrt(1 - p)) ** 2) / 2
    order = float(name.removeprefix("renyi-"))
    if order == math.inf:
        return mp.log(max(q / p, (1 - q) / (1 - p)))
    moment = q**order * p ** (1 - mp.mpf(order))
    moment += (1 - q) ** order * (1 - p) ** (1 - mp.mpf(order))
    return mp.log(moment) / (mp.mpf(order) - 1)


def xlogy(x: Any, y: Any) -> Any:
    return x * mp.log(y) if x else x


def inputs() -> tuple[Floats, Floats]:
    """Bounds strictly between 0 and 1 that crowd at both ends, with radii of all sizes."""
    rng, size = np.random.default_rng(20250301), 300
    near, far = 10.0 ** rng.uniform(-15, 0, size), 10.0 ** rng.uniform(-300, 0, size)
    u = np.choose(rng.integers(0, 4, size), [rng.random(size), near, 1 - near, far])
    kinds = [rng.random(size), 10.0 ** rng.uniform(-4, 1, size), 10.0 ** rng.uniform(-18, 3, size)]
    b = np.choose(rng.integers(0, 3, size), kinds)
    grid_u, grid_b = np.meshgrid(np.array(EXTREME_U, float), np.array(EXTREME_B, float))
    return np.append(u, grid_u.ravel()), np.append(b, grid_b.ravel())


def faults(name: str, u: Floats, b: Floats, q: Floats, tolerance: str = TOLERANCE) -> list[Any]:
    """The inputs at which q is below the largest cost in the ball, or too far above it."""
    found = []
    with mp.workdps(DIGITS):
        away = mp.mpf(tolerance)
        for u_, b_, q_ in zip(u.tolist(), b.tolist(), q.tolist(), strict=True):
            bound, radius, inverse = mp.mpf(u_), mp.mpf(b_), mp.mpf(q_)
            if q_ < 1 and not exact_divergence(name, inverse, bound) >= radius:
                found.append((u_, b_, q_, "below"))
            nearer = inverse - away
            if nearer > bound and not exact_divergence(name, nearer, bound) <= radius:
                found.append((u_, b_, q_, "too far above"))
    return found


@pytest.mark.parametrize("name", ALL)
def test_the_inverse_is_never_below_the_exact_value_and_within_1e_9_of_it(name):
    u, b = inputs()
    assert u.size == 600
    q = shift_inverse(u, b, name)
    assert faults(name, u, b, q) == []


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("error", "complaint"), [(-1e-11, "below"), (2e-9, "too far above")])
def test_the_comparison_catches_an_inverse_that_is_slightly_wrong(name, error, complaint):
    rng = np.random.default_rng(1)
    u, b = rng.uniform(0.05, 0.4, 20), rng.uniform(0.01, 0.03, 20)
    q = shift_inverse(u, b, name) + error
    assert [fault[-1] for fault in faults(name, u, b, q)] == [complaint] * 20


def test_the_comparison_catches_the_other_order_of_arguments():
    rng = np.random.default_rng(2)
    u, b = rng.uniform(0.05, 0.4, 20), rng.uniform(0.01, 0.3, 20)
    assert len(faults("reverse-kl", u, b, shift_inverse(u, b, "kl"))) == 20
    assert len(faults("kl", u, b, shift_inverse(u, b, "reverse-kl"))) == 20


@pytest.mark.parametrize("name", ALL)
def test_nothing_moves_without_a_shift(name):
    u = np.array([0, 1e-300, 0.25, 1 - 1e-15, 1])
    np.testing.assert_array_equal(shift_inverse(u, 0.0, name), u)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("radius", [1e-18, 0.1, 1e3])
def test_a_bound_of_one_stays_one(name, radius):
    assert shift_inverse(1.0, radius, name) == 1


@pytest.mark.parametrize("name", ABSOLUTE)
@pytest.mark.parametrize("radius", [1e-18, 0.1, 1e3])
def test_what_never_happens_never_happens_under_a_continuous_shift(name, radius):
    assert shift_inverse(0.0, radius, name) == 0


@pytest.mark.parametrize("radius", [1e-18, 1e-9, 0.01, 0.3, 0.9])
def test_what_never_happened_may_happen_under_other_shifts(radius):
    largest = {
        "reverse-kl": -math.expm1(-radius),
        "total-variation": radius,
        "hellinger": 1 - (1 - radius) ** 2,
        "renyi-0.5": -math.expm1(-radius),
        "renyi-0.01": -math.expm1(-radius * 99),
    }
    for name, exact in largest.items():
        q = float(shift_inverse(0.0, radius, name))
        assert exact * (1 - 1e-15) <= q <= exact + 1e-9, name


# ---- closed forms -------------------------------------------------------------------------------


def grid() -> tuple[Floats, Floats]:
    u, b = np.meshgrid([1e-6, 0.01, 0.1, 0.3, 0.5, 0.8, 0.999], [1e-9, 1e-4, 0.02, 0.1, 0.4, 0.95])
    return u.ravel(), b.ravel()


def hellinger_in_closed_form(u: Floats, b: Floats) -> Floats:
    angle = np.arcsin(np.sqrt(u)) + np.arccos(1 - b)
    return np.where(angle < np.pi / 2, np.sin(np.minimum(angle, np.pi / 2)) ** 2, 1)


CLOSED = {
    "total-variation": lambda u, b: u + b,
    "chi-squared": lambda u, b: u + np.sqrt(b * u * (1 - u)),
    "hellinger": hellinger_in_closed_form,
    "renyi-0.5": lambda u, b: hellinger_in_closed_form(u, -np.expm1(-b / 2)),
    "renyi-2": lambda u, b: u + np.sqrt(np.expm1(b) * u * (1 - u)),
    "renyi-inf": lambda u, b: u * np.exp(b),
    "reverse-kl": kl_inverse,
}


@pytest.mark.parametrize("name", CLOSED)
def test_the_inverse_agrees_with_its_closed_form(name):
    u, b = grid()
    closed = np.minimum(CLOSED[name](u, b), 1)
    assert np.sum(closed < 1) > 15
    np.testing.assert_allclose(shift_inverse(u, b, name), closed, rtol=0, atol=1e-9)


@pytest.mark.parametrize("u", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("b", [0.001, 0.08, 0.25])
def test_the_kl_ball_agrees_with_an_independent_root(u, b):
    def excess(q: float) -> float:
        return float(rel_entr(q, u) + rel_entr(1 - q, 1 - u)) - b

    assert float(shift_inverse(u, b, "kl")) == pytest.approx(brentq(excess, u, 1), abs=1e-9)


def test_the_inverse_broadcasts_and_keeps_the_shape():
    table = shift_inverse([[0.1], [0.2]], [0.01, 0.1, 1.0], "hellinger")
    assert table.shape == (2, 3)
    assert table[1, 1] == pytest.approx(float(shift_inverse(0.2, 0.1, "hellinger")), abs=1e-14)
    assert shift_inverse([], 0.1, "kl").shape == (0,)


# ---- properties ---------------------------------------------------------------------------------

ROUNDING = 1e-12


def inputs_and_ends() -> tuple[Floats, Floats]:
    """The inputs, and balls around what never or always happens, and of radius 0."""
    u, b = inputs()
    return np.append(u, [0, 0, 1, 1, 0.3]), np.append(b, [0, 0.2, 0, 0.2, 0])


@pytest.mark.parametrize("name", ALL)
def test_the_inverse_is_a_cost_no_lower_than_the_bound(name):
    u, b = inputs_and_ends()
    q = shift_inverse(u, b, name)
    assert np.all((u <= q) & (q <= 1))


@pytest.mark.parametrize("name", ALL)
def test_the_inverse_grows_with_the_bound_and_with_the_radius(name):
    (u, b), rng = inputs_and_ends(), np.random.default_rng(7)
    low, high = np.sort([u, rng.permutation(u)], axis=0)
    assert np.all(shift_inverse(low, b, name) <= shift_inverse(high, b, name) + ROUNDING)
    low, high = np.sort([b, rng.permutation(b)], axis=0)
    assert np.all(shift_inverse(u, low, name) <= shift_inverse(u, high, name) + ROUNDING)


@pytest.mark.parametrize("name", ALL)
def test_the_tolerable_shift_leads_back_to_its_limit(name):
    u, _ = inputs_and_ends()
    share = np.random.default_rng(8).random(len(u))
    share[::5] = np.arange(len(share[::5])) % 2
    limit = np.minimum(u + (1 - u) * share, 1)
    radius = tolerable_shift(u, limit, name)
    there = radius < 1e8  # beyond, and where it is infinite, there is no ball that large
    assert np.all(shift_inverse(u[there], radius[there], name) <= limit[there] + 1e-15)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("u", "limit"), [(0.01, 0.02), (0.1, 0.5), (0.3, 0.31), (0.6, 0.9)])
def test_the_tolerable_shift_is_the_largest(name, u, limit):
    radius = float(tolerable_shift(u, limit, name))
    assert radius == pytest.approx(float(divergence_bernoulli(limit, u, name)), rel=2e-9)
    assert float(shift_inverse(u, radius, name)) == pytest.approx(limit, abs=2e-9)
    assert shift_inverse(u, radius * (1 + 1e-6), name) > limit


def test_the_tolerable_shift_knows_its_ends():
    assert tolerable_shift(0.3, 0.3, "kl") == 0
    assert tolerable_shift(1.0, 1.0, "kl") == 0
    assert tolerable_shift(0.0, 0.0, "total-variation") == 0
    assert tolerable_shift(0.0, 0.5, "kl") == math.inf
    assert tolerable_shift(0.5, 1.0, "reverse-kl") == math.inf
    assert float(tolerable_shift(0.25, 1.0, "kl")) == pytest.approx(math.log(4), rel=1e-8)
    assert tolerable_shift([0.1, 0.2], 0.5, "kl").shape == (2,)


# ---- nothing better can be said, and nothing worse happens --------------------------------------


def between(name: str, shifted: Floats, training: Floats) -> Floats:
    """D(D'‖D) of distributions over finitely many environments, along the last axis."""
    x, y = shifted, training
    if name == "kl":
        return rel_entr(x, y).sum(axis=-1)
    if name == "reverse-kl":
        return rel_entr(y, x).sum(axis=-1)
    if name == "total-variation":
        return np.abs(x - y).sum(axis=-1) / 2
    if name == "chi-squared":
        return ((x - y) ** 2 / y).sum(axis=-1)
    if name == "hellinger":
        return ((np.sqrt(x) - np.sqrt(y)) ** 2).sum(axis=-1) / 2
    order = float(name.removeprefix("renyi-"))
    if order == math.inf:
        return np.log((x / y).max(axis=-1))
    return np.log((y * (x / y) ** order).sum(axis=-1)) / (order - 1)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("u", "b"), [(0.02, 0.01), (0.1, 1e-4), (0.45, 0.05)])
def test_an_explicit_worst_case_attains_the_promise(name, u, b):
    """A policy that fails on a set of probability U, and a D' that leans on that set alike."""
    training = np.random.default_rng(3).dirichlet(np.ones(500))
    fails = np.arange(500) < 120
    training = np.where(fails, training * u / training[fails].sum(), training)
    training = np.where(fails, training, training * (1 - u) / training[~fails].sum())
    promise = float(shift_inverse(u, b, name))
    factor = np.where(fails, promise / u, (1 - promise) / (1 - u))
    shifted = training * factor
    assert shifted.sum() == pytest.approx(1, rel=1e-12)
    assert training @ fails == pytest.approx(u, rel=1e-12)
    assert between(name, shifted, training) == pytest.approx(b, rel=1e-6)
    assert shifted @ fails == pytest.approx(promise, rel=1e-12)


def random_shifts() -> tuple[Floats, Floats, Floats]:
    """D, D' and graded costs over 3 to 12 environments; shapes (shifts, environments)."""
    rng, shifts, size = np.random.default_rng(4), sized(1000, full=4000), 12
    held = np.arange(size) < rng.integers(3, size + 1, (shifts, 1))
    training = np.where(held, rng.gamma(rng.choice([0.5, 1, 5], (shifts, 1)), size=held.shape), 0)
    training = np.where(held, np.maximum(training, 1e-6), 0)
    costs = rng.random(held.shape) ** rng.choice([0.2, 1, 5], (shifts, 1))
    costs = np.where(rng.random((shifts, 1)) < 0.3, costs > 0.7, costs)
    # Half of the shifts lean on costs, as the worst ones do, and half are arbitrary.
    strength = 10 ** rng.uniform(-2, 0.7, (shifts, 1))
    direction = np.where(rng.random((shifts, 1)) < 0.5, costs, rng.normal(size=held.shape))
    shifted = training * np.exp(strength * direction)
    training, shifted = (x / x.sum(axis=1, keepdims=True) for x in (training, shifted))
    return training, shifted, costs


def arrays_of(name: str, shifted: Floats, training: Floats) -> Floats:
    """The divergences of the rows, of which some have fewer environments than others."""
    pairs = zip(shifted, training, strict=True)
    return np.array([between(name, x[y > 0], y[y > 0]) for x, y in pairs])


@pytest.mark.parametrize("name", ALL)
def test_no_shift_within_the_ball_costs_more_than_promised(name):
    training, shifted, costs = random_shifts()
    here, there = (training * costs).sum(axis=1), (shifted * costs).sum(axis=1)
    radius = np.maximum(arrays_of(name, shifted, training), 0)
    promise = shift_inverse(np.minimum(here, 1), radius, name)
    assert np.all(there <= promise + 1e-9)
    # Some shifts come close: on 3 environments with costs of 0 and 1 the worst is not far.
    room = (there - here) / np.maximum(promise - here, 1e-12)
    assert np.max(room[there > here + 0.01]) > 0.95


def test_the_comparison_would_catch_a_promise_for_another_ball():
    training, shifted, costs = random_shifts()
    here, there = (training * costs).sum(axis=1), (shifted * costs).sum(axis=1)
    kl = np.maximum(arrays_of("kl", shifted, training), 0)
    for share, name in ((0.5, "kl"), (1.0, "renyi-2"), (1.0, "reverse-kl")):
        assert np.sum(there > shift_inverse(np.minimum(here, 1), share * kl, name) + 1e-9) > 20


# ---- the paper's statements ---------------------------------------------------------------------


def variational(
    name: str, costs: Floats, weights: Floats, radius: float, scale: float, offset: float
) -> float:
    """λB + ν + λ E_D f*((C - ν)/λ): the inequality for λf, whose ball has radius λB."""
    conjugate = named_divergence(name).conjugate
    assert conjugate is not None
    with np.errstate(all="ignore"):
        mean = float(weights @ conjugate((costs - offset) / scale))
    return scale * radius + offset + scale * mean


@pytest.mark.parametrize("name", F_DIVERGENCES)
@pytest.mark.parametrize("offset", [-1.0, 0.0, 0.3, 1.5])
def test_the_variational_inequality_is_the_paper_s_formula(name, offset):
    costs, weights = np.array([0.0, 0.2, 0.5, 0.9]), np.array([0.4, 0.3, 0.2, 0.1])
    direct = variational(name, costs, weights, 0.02, 1.0, offset)
    value = f_divergence_inequality(costs, 0.02, name, offset=offset, weights=weights)
    assert value == pytest.approx(min(direct, 1), rel=1e-11)
    repeated = np.repeat(costs, [4, 3, 2, 1])
    assert f_divergence_inequality(repeated, 0.02, name, offset=offset) == pytest.approx(
        value, rel=1e-11
    )


@pytest.mark.parametrize("name", F_DIVERGENCES)
def test_no_shift_within_the_ball_exceeds_the_variational_inequality(name):
    training, shifted, costs = (x[:300] for x in random_shifts())
    informative = 0
    for y, x, c in zip(training, shifted, costs, strict=True):
        held = y > 0
        radius = max(float(between(name, x[held], y[held])), 0.0)
        for offset in [1.2] if name == "reverse-kl" else [-1.0, -0.3, 0.0, 0.5]:
            value = f_divergence_inequality(c[held], radius, name, offset=offset, weights=y[held])
            assert x @ c <= value + 1e-9
            informative += value < 0.9
    assert informative > 50


@pytest.mark.parametrize("name", ["kl", "chi-squared", "hellinger"])
@pytest.mark.parametrize(("u", "b"), [(0.1, 0.01), (0.1, 0.1), (0.3, 0.05), (0.05, 0.002)])
def test_the_best_scale_and_offset_reach_the_exact_value_for_costs_of_0_and_1(name, u, b):
    """Strong duality: what the variational inequality loses is lost by λ = 1 and ν = 0."""
    costs, weights = np.array([0.0, 1.0]), np.array([1 - u, u])
    exact = float(shift_inverse(u, b, name))

    def value(point: Floats) -> float:
        result = variational(name, costs, weights, b, math.exp(point[0]), point[1])
        return min(result, 10.0)

    starts = [np.array([log_scale, 0.0]) for log_scale in (-1.0, 0.0, 1.0, 2.0)]
    options = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 4000, "maxfev": 4000}
    best = min(minimize(value, x, method="Nelder-Mead", options=options).fun for x in starts)
    assert best == pytest.approx(exact, abs=1e-7)
    assert best >= exact - 1e-9
    assert f_divergence_inequality(costs, b, name, offset=0.0, weights=weights) > exact + 1e-4


@pytest.mark.parametrize("name", F_DIVERGENCES)
def test_the_exact_value_is_never_above_the_variational_inequality(name):
    rng = np.random.default_rng(5)
    points = np.column_stack([rng.random(60), rng.random(60) / 4, rng.uniform(-2, 2, 60)])
    for u, b, offset in points.tolist():
        value = f_divergence_inequality([0, 1], b, name, offset=offset, weights=[1 - u, u])
        assert shift_inverse(u, b, name) <= value + 1e-9


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 2))
def test_the_kl_inequality_is_the_variational_one_with_an_offset_of_minus_one(costs, radius):
    mean = float(np.mean(np.exp(costs)))
    value = f_divergence_inequality(costs, radius, "kl", offset=-1.0)
    assert kl_inequality(mean, radius) == pytest.approx(value, rel=1e-10, abs=1e-14)


@settings(max_examples=60)
@given(st.floats(1, math.e), st.floats(0, 2))
def test_donsker_and_varadhan_are_never_above_the_kl_inequality(mean, radius):
    assert donsker_varadhan(mean, radius) <= kl_inequality(mean, radius) + 1e-15
    direct = radius + math.log(mean)
    assert donsker_varadhan(mean, radius) == pytest.approx(min(direct, 1), rel=1e-10, abs=1e-15)


@settings(max_examples=60)
@given(st.floats(0, 1), st.floats(0, 1))
def test_the_exact_value_is_never_above_donsker_and_varadhan_s(u, radius):
    mean = 1 + u * (math.e - 1)  # of e^C for costs of 0 and 1
    assert shift_inverse(u, radius, "kl") <= donsker_varadhan(min(mean, math.e), radius) + 1e-12


@pytest.mark.parametrize(("n", "delta"), [(50, 0.1), (1000, 0.01), (100_000, 1e-6)])
def test_the_robust_bound_is_the_paper_s_formula(n, delta):
    for mean, kl, radius in product((1.0, 1.1, 1.7, math.e), (0.0, 0.7, 12.0), (0.0, 0.05, 0.4)):
        complexity = (kl + math.log(2 * math.sqrt(n) / delta)) / (2 * n)
        inside = mean + (math.e - 1) * math.sqrt(complexity)
        direct = min(radius + math.log(min(inside, math.e)), 1)
        value = robust_c_pac(mean, kl, n, delta, radius=radius)
        assert value == pytest.approx(direct, rel=1e-10), (mean, kl, radius)
        assert value >= direct, (mean, kl, radius)


SETTINGS = [(0.0, 100, 0.05), (1.0, 1000, 0.01), (20.0, 5000, 1e-4)]
COSTS_AND_RADII = list(product((0.0, 0.02, 0.08, 0.3, 0.7), (0.0, 0.01, 0.08185, 0.5)))


@pytest.mark.parametrize(("kl", "n", "delta"), SETTINGS)
def test_the_final_bound_is_never_above_the_robust_one_for_costs_of_0_and_1(kl, n, delta):
    for cost, radius in COSTS_AND_RADII:
        mean = 1 + cost * (math.e - 1)
        value = robust_maurer(cost, kl, n, delta, radius=radius)
        assert value <= robust_c_pac(mean, kl, n, delta, radius=radius) + 1e-12, (cost, radius)


@pytest.mark.parametrize(("kl", "n", "delta"), SETTINGS)
def test_the_final_bound_solves_the_paper_s_programme(kl, n, delta):
    for cost, radius in COSTS_AND_RADII:
        shifted = solved_programme(cost, kl, n, delta, radius)
        value = robust_maurer(cost, kl, n, delta, radius=radius)
        assert value == pytest.approx(float(shifted), abs=1e-9), (cost, radius)
        assert value >= shifted - mp.mpf("1e-20"), (cost, radius)


def solved_programme(cost: float, kl: float, n: int, delta: float, radius: float) -> Any:
    """max c' subject to kl(r̂‖c) ≤ complexity and kl(c'‖c) ≤ B, by 30-digit bisections."""
    with mp.workdps(30):
        complexity = (mp.mpf(kl) + mp.log(2 * mp.sqrt(n) / mp.mpf(delta))) / n
        r = mp.mpf(cost)

        def excess(c: Any) -> Any:
            return xlogy(r, r / c) + xlogy(1 - r, (1 - r) / (1 - c))

        c = last_with(lambda c: excess(c) <= complexity, r)
        return last_with(lambda x: exact_divergence("kl", x, c) <= radius, c)


def last_with(holds: Any, start: Any) -> Any:
    """The end of the stretch from `start` on which a condition holds, up to 1."""
    low, high = start, mp.mpf(1)
    for _ in range(90):
        middle = (low + high) / 2
        low, high = (middle, high) if middle == start or holds(middle) else (low, middle)
    return low


def test_the_programme_is_not_better_solved_with_a_smaller_cost():
    """The largest c comes first: over a grid of feasible pairs, none has a larger c'."""
    cost, kl, n, delta, radius = 0.08, 1.0, 1000, 0.01, 0.08
    c = np.linspace(1e-4, 0.5, 2000)
    feasible = c[kl_bernoulli(cost, c) <= (kl + math.log(2 * math.sqrt(n) / delta)) / n]
    pairs = shift_inverse(feasible, radius, "kl")
    value = robust_maurer(cost, kl, n, delta, radius=radius)
    assert np.max(pairs) <= value
    assert np.max(pairs) == pytest.approx(value, abs=2e-3)
    assert value == shift_inverse(maurer(cost, kl, n, delta), radius, "kl")


def test_no_value_leaves_the_unit_interval():
    assert kl_inequality(math.e, 5.0) == donsker_varadhan(math.e, 5.0) == 1
    assert robust_c_pac(math.e, 1.0, 10, 0.1, radius=0.0) == 1
    assert robust_maurer(1.0, 1.0, 10, 0.1, radius=0.0) == 1
    assert f_divergence_inequality([0.0, 0.0], 0.0, "chi-squared", offset=-1.0) >= 0
    assert f_divergence_inequality([0.5], 0.1, "reverse-kl") == 1


# ---- bad input ----------------------------------------------------------------------------------

BAD_RADII = [-1e-300, -1.0, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("radius", BAD_RADII)
def test_what_is_no_radius_is_refused_everywhere(radius):
    for call in (
        lambda: checked_radius(radius),
        lambda: shift_inverse(0.1, radius, "kl"),
        lambda: shift_inverse([0.1, 0.2], [0.1, radius], "hellinger"),
        lambda: f_divergence_inequality([0, 1], radius),
        lambda: kl_inequality(1.2, radius),
        lambda: donsker_varadhan(1.2, radius),
        lambda: robust_c_pac(1.2, 1.0, 100, 0.1, radius=radius),
        lambda: robust_maurer(0.2, 1.0, 100, 0.1, radius=radius),
    ):
        with pytest.raises(ValueError, match=r"B = .* must be a finite number of at least 0") as e:
            call()
        assert "\n" not in str(e.value)


@pytest.mark.parametrize("bound", [-1e-300, 1 + 1e-15, math.nan, math.inf])
def test_what_is_no_bound_is_refused(bound):
    for call in (
        lambda: shift_inverse(bound, 0.1, "kl"),
        lambda: shift_inverse([0.1, bound], 0.1, "chi-squared"),
        lambda: tolerable_shift(bound, 0.5, "kl"),
    ):
        with pytest.raises(ValueError, match=r"a bound must lie in \[0, 1\]"):
            call()


@pytest.mark.parametrize("limit", [0.05, 1.1, math.nan, -1.0])
def test_a_limit_must_lie_above_the_bound(limit):
    with pytest.raises(ValueError, match="a limit must lie between the bound and 1"):
        tolerable_shift(0.1, limit, "kl")


@pytest.mark.parametrize("name", ["renyi-1", "renyi-0", "renyi-nan", "Kl", "wasserstein", ""])
def test_an_unknown_divergence_is_refused(name):
    for call in (
        lambda: shift_inverse(0.1, 0.1, name),
        lambda: tolerable_shift(0.1, 0.5, name),
        lambda: f_divergence_inequality([0, 1], 0.1, name),
    ):
        with pytest.raises(ValueError, match=r"choose from|order 1 is kl"):
            call()


@pytest.mark.parametrize("name", RENYI)
def test_renyi_s_divergences_have_no_variational_inequality(name):
    with pytest.raises(ValueError, match=f"{name} has no conjugate f\\*: choose an f-divergence"):
        f_divergence_inequality([0, 1], 0.1, name)


@pytest.mark.parametrize("costs", [[0.1, 1.1], [-0.1], [math.nan]])
def test_costs_outside_the_unit_interval_are_refused(costs):
    with pytest.raises(ValueError, match=r"a cost must lie in \[0, 1\]"):
        f_divergence_inequality(costs, 0.1)


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.6], [1.5, -0.5], [math.nan, 1.0], [[0.5, 0.5]]])
def test_weights_must_be_probabilities(weights):
    with pytest.raises(ValueError, match="the weights must be probabilities, one for each cost"):
        f_divergence_inequality([0, 1], 0.1, "kl", offset=0.0, weights=weights)


@pytest.mark.parametrize("mean", [0.99, 2.72, math.nan, math.inf])
def test_a_mean_of_exponentials_outside_its_range_is_refused(mean):
    for call in (
        lambda: kl_inequality(mean, 0.1),
        lambda: donsker_varadhan(mean, 0.1),
        lambda: robust_c_pac(mean, 1.0, 100, 0.1, radius=0.1),
    ):
        with pytest.raises(ValueError, match=r"must lie in \[1, e\]"):
            call()


# ---- once wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["renyi-2", "renyi-7.3", "renyi-100", "renyi-inf"])
def test_the_inverse_of_a_tiny_bound_in_a_large_ball_is_within_1e_9(name):
    u, b = np.array([1e-300]), np.array([690.0])
    assert faults(name, u, b, shift_inverse(u, b, name)) == []


def test_the_inverse_in_a_huge_chi_squared_ball_is_within_1e_9():
    u, b = np.array([1e-12]), np.array([1e8])
    assert faults("chi-squared", u, b, shift_inverse(u, b, "chi-squared")) == []


def test_the_inverse_at_zero_for_an_order_close_to_one_is_within_1e_9():
    exact = -math.expm1(-5.0 * 0.01 / 0.99)  # (1-q)^α = e^{(α-1) B}
    assert float(shift_inverse(0.0, 5.0, "renyi-0.99")) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("name", ["reverse-kl", "total-variation", "hellinger"])
def test_a_cost_that_never_occurs_does_not_spoil_the_variational_inequality(name):
    offset = {"reverse-kl": 0.9}.get(name, 0.0)
    without = f_divergence_inequality([0.1, 0.3], 0.01, name, offset=offset, weights=[0.5, 0.5])
    with np.errstate(invalid="ignore"):
        value = f_divergence_inequality(
            [0.1, 0.3, 1.0], 0.01, name, offset=offset, weights=[0.5, 0.5, 0.0]
        )
    assert value == pytest.approx(without, rel=1e-12)
