"""Divergences against direct computation, and their inverses against 60-digit arithmetic.

No inversion in high precision is needed: kl(q‖p) grows with p beyond q, so a returned p is at least
the exact supremum if kl(q‖p) ≥ c, and within a tolerance of it if kl(q‖p - tolerance) ≤ c.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import betaln, log_expit

from pacbayes_control.bounds import (
    kl_bernoulli,
    kl_beta,
    kl_categorical,
    kl_gaussian,
    kl_inverse,
    kl_inverse_lower,
)
from sizes import sized

Floats = NDArray[np.float64]
mp: Any = mpmath.mp

DIGITS = 60
# With 60 digits, kl is wrong by less than 1e-55: a larger difference leaves no doubt. There always
# is one, because an inverse is at least 4e-16 away from q, where kl exceeds 2 (4e-16)².
CERTAIN = "1e-50"
TOLERANCE = "1e-9"
RANDOM_INPUTS = sized(8_000, full=100_000)

EXTREME_Q = [0, 5e-324, 1e-310, 1e-300, 1.1e-300, 1e-200, 1e-100, 1e-30, 1e-20, 1e-16, 2.0**-53]
EXTREME_Q += [1e-9, 1e-3, 0.1, 1 / 3, 0.5, 2 / 3, 0.9, 1 - 1e-3, 1 - 1e-9, 1 - 1e-15, 1 - 1e-16, 1]
EXTREME_C = [0, 5e-324, 1e-310, 1e-300, 1e-140, 1e-139, 1e-100, 1e-50, 1e-35, 1e-33, 1e-32, 1e-31]
EXTREME_C += [1e-30, 1e-20, 1e-17, 1e-16, 1e-12, 1e-9, 1e-3, 0.1, 1, 10, 20, 29, 30, 31, 34, 36, 37]
EXTREME_C += [40, 100, 690, 708, 745, 1e3, 1e10, 1e100, 1e154, 1e300, 1.7e308, math.inf]


# ---- the inverses against 60 digits -------------------------------------------------------------


def random_probabilities(rng: np.random.Generator, size: int) -> Floats:
    """Uniform ones, whole per mille, and such as crowd at 0 and at 1."""
    near, far = 10.0 ** rng.uniform(-17, 0, size), 10.0 ** rng.uniform(-323, 0, size)
    kinds = [rng.random(size), rng.integers(0, 1001, size) / 1000, near, 1 - near, far]
    return np.choose(rng.integers(0, len(kinds), size), kinds)


def random_complexities(rng: np.random.Generator, q: Floats) -> Floats:
    """Such as bounds have, such as are lost in rounding, and kl(q‖p) itself at random p."""
    size = len(q)
    p = random_probabilities(rng, size)
    kl = np.maximum(kl_bernoulli(q, p), 0)
    kinds = [
        10.0 ** rng.uniform(-5, 2, size),
        10.0 ** rng.uniform(-40, 4, size),
        10.0 ** rng.uniform(-323, 308, size),
        kl,
    ]
    return np.choose(rng.integers(0, len(kinds), size), kinds)


def inputs() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(20240611)
    q = random_probabilities(rng, RANDOM_INPUTS)
    c = random_complexities(rng, q)
    grid_q, grid_c = np.meshgrid(np.array(EXTREME_Q, float), np.array(EXTREME_C, float))
    return np.append(q, grid_q.ravel()), np.append(c, grid_c.ravel())


def faults(q: Floats, c: Floats, p: Floats, upper: bool, tolerance: str = TOLERANCE) -> list[Any]:
    """The inputs at which p is not an inverse on the safe side, or is too far from the exact one.

    kl(q‖p) = -h(q) - q ln p - (1-q) ln(1-p), with the entropy h(q) computed once.
    """
    found = []
    with mp.workdps(DIGITS):
        certain, away = mp.mpf(CERTAIN), mp.mpf(tolerance) * (1 if upper else -1)
        last = 1 if upper else 0
        for q_, c_, p_ in zip(q.tolist(), c.tolist(), p.tolist(), strict=True):
            if c_ == 0:
                if p_ != q_:
                    found.append((q_, c_, p_, "not q at c = 0"))
                continue
            x, rest, limit, inverse = mp.mpf(q_), 1 - mp.mpf(q_), mp.mpf(c_), mp.mpf(p_)
            entropy = xlogy(x, x) + xlogy(rest, rest)
            if p_ != last:
                kl = entropy - xlogy(x, inverse) - xlogy(rest, 1 - inverse)
                if not kl - limit > certain:
                    found.append((q_, c_, p_, "on the unsafe side"))
            nearer = inverse - away
            if (nearer > x) if upper else (nearer < x):
                kl = entropy - xlogy(x, nearer) - xlogy(rest, 1 - nearer)
                if not limit - kl > certain:
                    found.append((q_, c_, p_, "too far out"))
    return found


def xlogy(x: Any, y: Any) -> Any:
    return x * mp.log(y) if x else x


@pytest.mark.slow
def test_the_upper_inverse_is_never_below_the_exact_value_and_within_1e_9_of_it():
    q, c = inputs()
    assert len(q) > RANDOM_INPUTS
    assert faults(q, c, kl_inverse(q, c), upper=True) == []


@pytest.mark.slow
def test_the_lower_inverse_is_never_above_the_exact_value_and_within_1e_9_of_it():
    q, c = inputs()
    assert faults(q, c, kl_inverse_lower(q, c), upper=False) == []


@pytest.mark.slow
def test_the_inverses_give_away_less_than_1e_12():
    q, c = inputs()
    q, c = q[:5000], c[:5000]
    assert faults(q, c, kl_inverse(q, c), upper=True, tolerance="1e-12") == []
    assert faults(q, c, kl_inverse_lower(q, c), upper=False, tolerance="1e-12") == []


@pytest.mark.parametrize(
    ("error", "complaint"), [(-1e-12, "on the unsafe side"), (2e-9, "too far out")]
)
def test_the_comparison_catches_an_inverse_that_is_slightly_wrong(error, complaint):
    rng = np.random.default_rng(1)
    q, c = rng.uniform(0.1, 0.5, 200), rng.uniform(0.01, 0.2, 200)
    for p, upper in [(kl_inverse(q, c) + error, True), (kl_inverse_lower(q, c) - error, False)]:
        assert [fault[-1] for fault in faults(q, c, p, upper)] == [complaint] * 200


def test_the_comparison_catches_a_bisection_that_returns_its_middle():
    rng = np.random.default_rng(2)
    q, c = rng.uniform(0.01, 0.9, 200), 10.0 ** rng.uniform(-4, 0, 200)
    low, high = q, np.ones(200)
    for _ in range(100):
        middle = (low + high) / 2
        outside = kl_bernoulli(q, middle) > c
        low, high = np.where(outside, low, middle), np.where(outside, middle, high)
    found = faults(q, c, (low + high) / 2, upper=True)
    assert len(found) > 20
    assert {fault[-1] for fault in found} == {"on the unsafe side"}


@pytest.mark.parametrize("q", [0.0, 1e-300, 0.25, 1 - 1e-16, 1.0])
def test_the_inverses_know_their_ends(q):
    assert kl_inverse(q, 0.0) == q
    assert kl_inverse_lower(q, 0.0) == q
    assert kl_inverse(q, math.inf) == 1
    assert kl_inverse_lower(q, math.inf) == 0
    assert kl_inverse(1.0, 0.3) == 1
    assert kl_inverse_lower(0.0, 0.3) == 0


@pytest.mark.parametrize("c", [1e-12, 1e-3, 0.5, 5.0, 30.0])
def test_the_inverse_at_zero_cost_has_a_closed_form(c):
    assert float(kl_inverse(0.0, c)) == pytest.approx(-math.expm1(-c), rel=0, abs=1e-12)
    assert float(kl_inverse_lower(1.0, c)) == pytest.approx(math.exp(-c), rel=0, abs=1e-12)


def test_the_inverses_broadcast_and_keep_the_shape():
    q, c = np.array([[0.1], [0.2]]), np.array([0.01, 0.1, 1.0])
    table = kl_inverse(q, c)
    assert table.shape == (2, 3)
    assert table[1, 2] == kl_inverse(0.2, 1.0)
    assert kl_inverse_lower(q, c).shape == (2, 3)
    assert kl_inverse([], 1.0).shape == (0,)


def test_a_long_array_gives_what_its_elements_give():
    rng = np.random.default_rng(3)
    q, c = rng.random(40_000), rng.exponential(0.1, 40_000)  # more than one block
    at = rng.integers(0, 40_000, 200)
    alone = np.array([float(kl_inverse(q[i], c[i])) for i in at])
    np.testing.assert_allclose(kl_inverse(q, c)[at], alone, rtol=0, atol=1e-14)


# ---- properties of the inverses -----------------------------------------------------------------

ROUNDING = 1e-12


def test_the_inverses_enclose_q_and_stay_probabilities():
    q, c = inputs()
    upper, lower = kl_inverse(q, c), kl_inverse_lower(q, c)
    assert np.all((q <= upper) & (upper <= 1))
    assert np.all((lower >= 0) & (lower <= q))


@pytest.mark.slow
def test_the_inverses_grow_with_q():
    q, c = inputs()
    low, high = np.sort([q, np.random.default_rng(5).permutation(q)], axis=0)
    assert np.all(kl_inverse(low, c) <= kl_inverse(high, c) + ROUNDING)
    assert np.all(kl_inverse_lower(low, c) <= kl_inverse_lower(high, c) + ROUNDING)


@pytest.mark.slow
def test_the_inverses_widen_with_c():
    q, c = inputs()
    low, high = np.sort([c, np.random.default_rng(6).permutation(c)], axis=0)
    assert np.all(kl_inverse(q, low) <= kl_inverse(q, high) + ROUNDING)
    assert np.all(kl_inverse_lower(q, low) >= kl_inverse_lower(q, high) - ROUNDING)


def test_the_lower_inverse_mirrors_the_upper_one():
    q, c = inputs()
    q = np.rint(q * 2**30) / 2**30  # so that 1 - q is exact
    mirrored = 1 - kl_inverse(1 - q, c)
    np.testing.assert_allclose(kl_inverse_lower(q, c), mirrored, rtol=0, atol=1e-15)


def test_pinsker_s_inequality_limits_the_inverses():
    q, c = inputs()
    width = np.sqrt(c / 2)
    assert np.all(kl_inverse(q, c) <= q + width + ROUNDING)
    assert np.all(kl_inverse_lower(q, c) >= q - width - ROUNDING)


# ---- the divergences ----------------------------------------------------------------------------


def test_kl_bernoulli_agrees_with_60_digits():
    rng = np.random.default_rng(4)
    q, p = random_probabilities(rng, 2000), random_probabilities(rng, 2000)
    inside = (p > 0) & (p < 1)
    q, p = q[inside], p[inside]
    with mp.workdps(DIGITS):
        exact = []
        for x, y in zip(map(mp.mpf, q.tolist()), map(mp.mpf, p.tolist()), strict=True):
            entropy = xlogy(x, x) + xlogy(1 - x, 1 - x)
            exact.append(float(entropy - xlogy(x, y) - xlogy(1 - x, 1 - y)))
    np.testing.assert_allclose(kl_bernoulli(q, p), exact, rtol=1e-13, atol=4e-16)


@pytest.mark.parametrize(
    ("q", "p", "kl"),
    [
        (0.0, 0.0, 0.0),
        (1.0, 1.0, 0.0),
        (0.3, 0.3, 0.0),
        (0.0, 0.25, math.log(4 / 3)),
        (1.0, 0.25, math.log(4)),
        (0.5, 0.0, math.inf),
        (0.5, 1.0, math.inf),
        (1.0, 0.0, math.inf),
    ],
)
def test_kl_bernoulli_is_right_at_its_ends(q, p, kl):
    assert float(kl_bernoulli(q, p)) == pytest.approx(kl, rel=1e-15)


@pytest.mark.parametrize("policies", [1, 2, 50, 5000])
def test_kl_categorical_agrees_with_the_sum_in_60_digits(policies):
    rng = np.random.default_rng(policies)
    posterior, prior = rng.dirichlet(np.full(policies, 0.3)), rng.dirichlet(np.ones(policies))
    posterior[rng.random(policies) < 0.2] = 0
    posterior[0] += 1 - posterior.sum()
    with mp.workdps(DIGITS):
        pairs = zip(map(mp.mpf, posterior.tolist()), map(mp.mpf, prior.tolist()), strict=True)
        exact = mp.fsum(xlogy(p, p) - xlogy(p, p0) for p, p0 in pairs)
        assert kl_categorical(posterior, prior) == pytest.approx(float(exact), rel=1e-13, abs=1e-15)


def test_kl_categorical_knows_its_special_cases():
    assert kl_categorical([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]) == 0
    assert kl_categorical([0.0, 1.0], [0.0, 1.0]) == 0
    assert kl_categorical([0.0, 1.0, 0.0, 0.0], np.full(4, 0.25)) == pytest.approx(math.log(4))
    assert kl_categorical([0.5, 0.5], [1.0, 0.0]) == math.inf


def integral_gaussian(mean: float, variance: float, prior_mean: float, prior_variance: float):
    """∫ p ln(p/p₀), over 12 standard deviations on both sides."""

    def integrand(z: float) -> float:
        x = mean + z * math.sqrt(variance)
        log_ratio = (
            math.log(prior_variance / variance) / 2
            - z * z / 2
            + (x - prior_mean) ** 2 / (2 * prior_variance)
        )
        return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) * log_ratio

    return quad(integrand, -12, 12, epsabs=1e-13, epsrel=1e-12, limit=200)[0]


@pytest.mark.parametrize(
    ("mean", "variance", "prior_mean", "prior_variance"),
    [
        ([0.0], [1.0], [0.0], [1.0]),
        ([0.3], [0.5], [-0.2], [2.0]),
        ([1.0], [4.0], [0.0], [0.25]),
        ([-3.0], [1e-4], [2.0], [9.0]),
        ([1.0, -2.0, 0.5], [0.1, 1.0, 3.0], [0.0, 0.0, 0.5], [1.0, 2.0, 0.3]),
    ],
)
def test_kl_gaussian_agrees_with_numerical_integration(mean, variance, prior_mean, prior_variance):
    coordinates = zip(mean, variance, prior_mean, prior_variance, strict=True)
    exact = math.fsum(integral_gaussian(*coordinate) for coordinate in coordinates)
    computed = kl_gaussian(mean, variance, prior_mean, prior_variance)
    assert computed == pytest.approx(exact, rel=1e-10, abs=1e-12)


def integral_beta(alpha: float, beta: float, prior_alpha: float, prior_beta: float) -> float:
    """∫ p ln(p/p₀) in the variable t = logit(x), in which no density has a singularity."""

    def integrand(t: float) -> float:
        log_x, log_rest = log_expit(t), log_expit(-t)
        log_ratio = (
            betaln(prior_alpha, prior_beta)
            - betaln(alpha, beta)
            + (alpha - prior_alpha) * log_x
            + (beta - prior_beta) * log_rest
        )
        return math.exp(alpha * log_x + beta * log_rest - betaln(alpha, beta)) * log_ratio

    ends, middle = (-45 / alpha - 10, 45 / beta + 10), math.log(alpha / beta)
    below = quad(integrand, ends[0], middle, epsabs=1e-13, epsrel=1e-12, limit=500)[0]
    return below + quad(integrand, middle, ends[1], epsabs=1e-13, epsrel=1e-12, limit=500)[0]


@pytest.mark.parametrize(
    "parameters",
    [
        (1.0, 1.0, 1.0, 1.0),
        (1.0, 1.0, 0.8, 1.25),
        (2.0, 5.0, 1.0, 1.0),
        (0.5, 0.7, 3.0, 2.0),
        (4.0, 0.3, 0.6, 0.6),
        (30.0, 12.0, 25.0, 15.0),
    ],
)
def test_kl_beta_agrees_with_numerical_integration(parameters):
    assert kl_beta(*parameters) == pytest.approx(integral_beta(*parameters), rel=1e-9, abs=1e-11)


def test_kl_beta_gives_the_paper_s_number():
    assert round(kl_beta(1.0, 1.0, 0.8, 1.25), 5) == 0.08185


def test_integration_would_catch_the_divergences_turned_round():
    assert kl_beta(1.0, 1.0, 2.0, 5.0) != pytest.approx(integral_beta(2.0, 5.0, 1.0, 1.0), abs=0.1)
    swapped, exact = kl_gaussian([0.0], [9.0], [0.0], [1.0]), integral_gaussian(0.0, 1.0, 0.0, 9.0)
    assert swapped != pytest.approx(exact, abs=0.1)


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", [kl_inverse, kl_inverse_lower])
@pytest.mark.parametrize(
    ("q", "c", "message"),
    [
        (-1e-300, 0.1, "q must lie"),
        (1 + 1e-15, 0.1, "q must lie"),
        (math.nan, 0.1, "q must lie"),
        (math.inf, 0.1, "q must lie"),
        ([0.1, 1.1], 0.1, "q must lie"),
        (0.1, -1e-300, "c must be"),
        (0.1, math.nan, "c must be"),
        (0.1, -math.inf, "c must be"),
        ([0.1, 0.2], [0.1, -0.1], "c must be"),
        ([0.1, 0.2], [0.1, 0.1, 0.1], "shape"),
    ],
)
def test_the_inverses_reject_what_has_no_inverse(inverse, q, c, message):
    with pytest.raises(ValueError, match=message):
        inverse(q, c)


@pytest.mark.parametrize(
    "arguments",
    [
        ([0.0], [0.0], [0.0], [1.0]),
        ([0.0], [1.0], [0.0], [0.0]),
        ([0.0], [-1.0], [0.0], [1.0]),
        ([0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, -1.0]),
        ([0.0], [math.nan], [0.0], [1.0]),
        ([0.0], [1.0], [0.0], [math.nan]),
    ],
)
def test_kl_gaussian_rejects_variances_that_are_not_positive(arguments):
    with pytest.raises(ValueError, match="variances must be positive"):
        kl_gaussian(*arguments)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_kl_beta_rejects_parameters_that_are_not_positive(place, value):
    parameters = [1.0, 1.0, 1.0, 1.0]
    parameters[place] = value
    with pytest.raises(ValueError, match="must be positive"):
        kl_beta(*parameters)


@pytest.mark.parametrize(
    ("divergence", "arguments"),
    [
        (kl_categorical, ([math.nan, 0.5], [0.5, 0.5])),
        (kl_categorical, ([0.5, 0.5], [math.nan, 0.5])),
        (kl_gaussian, ([math.nan], [1.0], [0.0], [1.0])),
        (kl_gaussian, ([0.0], [1.0], [math.nan], [1.0])),
        (kl_beta, (math.nan, 1.0, 1.0, 1.0)),
        (kl_beta, (1.0, math.nan, 1.0, 1.0)),
        (kl_beta, (1.0, 1.0, math.nan, 1.0)),
        (kl_beta, (1.0, 1.0, 1.0, math.nan)),
    ],
)
def test_a_divergence_of_what_is_not_a_number_is_an_error(divergence, arguments):
    with pytest.raises(ValueError):  # noqa: PT011 - any wording will do
        divergence(*arguments)


def test_kl_categorical_rejects_vectors_of_different_lengths():
    with pytest.raises(ValueError):  # noqa: PT011 - any wording will do
        kl_categorical([0.5, 0.5], [1.0])


@pytest.mark.parametrize(
    ("divergence", "arguments"),
    [
        (kl_gaussian, ([0.0], [math.inf], [5.0], [math.inf])),
        (kl_beta, (math.inf, 1.0, 1.0, 1.0)),
        (kl_categorical, ([0.5, 0.5], [5.0, 5.0])),
    ],
)
def test_what_is_no_divergence_does_not_pass_for_zero(divergence, arguments):
    with pytest.raises(ValueError):  # noqa: PT011 - any wording will do
        divergence(*arguments)
