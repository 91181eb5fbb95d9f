"""Closed forms between members of a family against 30-digit integrals of the definitions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from pacbayes_control.certify.families import Beta, Discrete, Family, Gaussian, Product, Uniform

mp: Any = mpmath.mp

DIGITS = 30
ALL = ["kl", "reverse-kl", "total-variation", "chi-squared", "hellinger"]
ALL += ["renyi-2", "renyi-0.5", "renyi-7.3", "renyi-0.01", "renyi-0.99", "renyi-1.01"]
ROUNDING = 1e-8  # what closed forms may give away, relative and absolute


# ---- definitions --------------------------------------------------------------------------------


def integrand(name: str, x: Any, y: Any) -> Any:
    """What densities x of D' and y of D, both positive, add to the divergence."""
    if name == "kl":
        return x * mp.log(x / y)
    if name == "reverse-kl":
        return y * mp.log(y / x)
    if name == "total-variation":
        return abs(x - y) / 2
    if name == "chi-squared":
        return (x - y) ** 2 / y
    if name == "hellinger":
        return (mp.sqrt(x) - mp.sqrt(y)) ** 2 / 2
    order = mp.mpf(float(name.removeprefix("renyi-")))
    return x**order * y ** (1 - order)


def of_sum(name: str, total: Any) -> Any:
    if not name.startswith("renyi-"):
        return total
    return mp.log(total) / (mp.mpf(float(name.removeprefix("renyi-"))) - 1)


Density = Callable[[Any], Any]


def integral(name: str, x: Density, y: Density, points: Sequence[Any]) -> Any:
    """D(D'‖D) of two densities on the line, by quadrature between the points."""
    return of_sum(name, mp.quad(lambda t: integrand(name, x(t), y(t)), points))


def crossings(x: Density, y: Density, points: Sequence[Any]) -> list[Any]:
    """Where the densities are equal, found by bisection on a fine grid."""
    found = []
    for start, end in pairwise(points):
        grid = [start + (end - start) * k / 200 for k in range(201)]
        signs = [x(t) > y(t) for t in grid]
        for k in range(200):
            if signs[k] != signs[k + 1]:
                low, high = grid[k], grid[k + 1]
                for _ in range(100):
                    middle = (low + high) / 2
                    inside = (x(middle) > y(middle)) == signs[k]
                    low, high = (middle, high) if inside else (low, middle)
                found.append(low)
    return found


def check(value: float, exact: Any, below: float = 0.0) -> None:
    """Never below the exact divergence, and hardly above."""
    assert value - exact >= -below - mp.mpf(10) ** -20 * (1 + exact), (value, float(exact))
    assert value - exact <= ROUNDING * (1 + exact), (value, float(exact))


# ---- Beta ---------------------------------------------------------------------------------------


@cache
def logit_density(alpha: float, beta: float) -> Density:
    """Of logit(X), X ~ Beta(α, β): its density has no singularity, and tails that vanish."""
    a, b = mp.mpf(alpha), mp.mpf(beta)
    constant = mp.log(mp.beta(a, b))

    @cache  # most divergences are integrated over the same points
    def density(t: Any) -> Any:
        return mp.exp(-a * mp.log1p(mp.exp(-t)) - b * mp.log1p(mp.exp(t)) - constant)

    return density


BETAS = [
    (1.0, 1.0, 0.8, 1.25),
    (0.8, 1.25, 1.0, 1.0),
    (2.0, 5.0, 1.5, 4.0),
    (0.5, 0.7, 0.6, 0.6),
    (3.0, 2.0, 2.8, 2.3),
    (30.0, 12.0, 25.0, 15.0),
    (1.0, 1.0, 1.1, 0.9),
]


def orders_of(name: str) -> float:
    """α for the divergences that are finite for some parameters only; at most 1 for the rest."""
    return {"chi-squared": 2.0}.get(name) or float(name.partition("renyi-")[2] or 1)


def finite_beta(name: str, a: float, b: float, c: float, d: float) -> bool:
    order = orders_of(name)
    return order * a + (1 - order) * c > 0 and order * b + (1 - order) * d > 0


@cache
def beta_points(parameters: tuple[float, float, float, float]) -> tuple[Any, ...]:
    """Ends beyond which nothing of size is left, the modes, and where the densities cross."""
    a, b, c, d = parameters
    modes = sorted({mp.mpf(0), mp.log(mp.mpf(a) / b), mp.log(mp.mpf(c) / d)})
    return (-mp.mpf(75) / min(a, c), *modes, mp.mpf(75) / min(b, d))


@pytest.mark.slow
@pytest.mark.parametrize("parameters", BETAS)
@pytest.mark.parametrize("name", ALL)
def test_beta_distributions_are_as_far_apart_as_the_integral_says(name, parameters):
    with mp.workdps(DIGITS):
        x, y = logit_density(*parameters[:2]), logit_density(*parameters[2:])
        points = list(beta_points(parameters))
        if name == "total-variation":
            points = sorted([*points, *crossings(x, y, points)])
        value = Beta(*parameters[:2]).divergence_from(Beta(*parameters[2:]), name)
        if not finite_beta(name, *parameters):
            assert value == math.inf
            return
        # Rényi's of high order weigh the tails with another exponent than the densities have.
        order = max(orders_of(name), 1)
        thin = min(order * parameters[i] + (1 - order) * parameters[i + 2] for i in (0, 1))
        reach = mp.mpf(75) / min(thin, *parameters)
        check(value, integral(name, x, y, [-reach, *points, reach]))


def test_the_paper_s_number_comes_out():
    assert round(Beta(1, 1).divergence_from(Beta(0.8, 1.25)), 5) == 0.08185
    stretched = Beta(1, 1, 0.05, 0.2).divergence_from(Beta(0.8, 1.25, 0.05, 0.2))
    assert stretched == Beta(1, 1).divergence_from(Beta(0.8, 1.25))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("chi-squared", (1.0, 1.0, 2.1, 1.0)),
        ("renyi-2", (1.0, 1.0, 1.0, 2.0)),
        ("renyi-7.3", (0.5, 0.5, 0.6, 0.5)),
    ],
)
def test_a_moment_that_diverges_is_infinite(name, parameters):
    assert Beta(*parameters[:2]).divergence_from(Beta(*parameters[2:]), name) == math.inf
    assert math.isfinite(Beta(*parameters[2:]).divergence_from(Beta(*parameters[:2]), name))


def test_the_density_of_a_beta_distribution_is_scipy_s():
    x = np.array([-0.5, 0.06, 0.1, 0.19, 0.3])
    ours = Beta(2.5, 0.7, 0.05, 0.2).density(x)
    np.testing.assert_allclose(ours, stats.beta.pdf(x, 2.5, 0.7, loc=0.05, scale=0.15), rtol=1e-12)


# ---- Gaussian -----------------------------------------------------------------------------------


@cache
def gaussian_density(mean: float, std: float) -> Density:
    m, s = mp.mpf(mean), mp.mpf(std)
    return cache(lambda t: mp.exp(-(((t - m) / s) ** 2) / 2) / (s * mp.sqrt(2 * mp.pi)))


GAUSSIANS = [
    (0.0, 1.0, 0.3, 1.0),
    (0.0, 1.0, 0.0, 1.3),
    (0.5, 1.1, -0.2, 1.0),
    (-1.0, 0.4, 2.0, 1.5),
    (3.0, 0.2, 3.001, 0.2),
]


def gaussian_moment(name: str, m: float, s: float, n: float, t: float) -> tuple[Any, Any] | None:
    """Centre and width of p'^α p^{1-α}, or None if it grows to the sides."""
    order = orders_of(name)
    precision = mp.mpf(order) / s**2 + (1 - mp.mpf(order)) / t**2
    if precision <= 0:
        return None
    return (order * m / s**2 + (1 - order) * n / t**2) / precision, 1 / mp.sqrt(precision)


@pytest.mark.slow
@pytest.mark.parametrize("parameters", GAUSSIANS)
@pytest.mark.parametrize("name", ALL)
def test_gaussians_are_as_far_apart_as_the_integral_says(name, parameters):
    with mp.workdps(DIGITS):
        value = Gaussian(*parameters[:2]).divergence_from(Gaussian(*parameters[2:]), name)
        moment = gaussian_moment(name, *parameters)
        if moment is None:
            assert value == math.inf
            return
        x, y = gaussian_density(*parameters[:2]), gaussian_density(*parameters[2:])
        members = [parameters[:2], parameters[2:], moment]
        ends = [min(m - 13 * s for m, s in members), max(m + 13 * s for m, s in members)]
        points = sorted({ends[0], *(mp.mpf(m) for m, _ in members), ends[1]})
        if name == "total-variation":
            points = sorted([*points, *crossings(x, y, points)])
        check(value, integral(name, x, y, points))


def test_a_gaussian_that_is_too_wide_is_infinitely_far_by_some_divergences():
    wide, narrow = Gaussian(0, 2), Gaussian(0, 1)
    for name in ("chi-squared", "renyi-2", "renyi-7.3"):
        assert wide.divergence_from(narrow, name) == math.inf
        assert math.isfinite(narrow.divergence_from(wide, name))
    for name in ("kl", "reverse-kl", "total-variation", "hellinger", "renyi-0.5"):
        assert math.isfinite(wide.divergence_from(narrow, name))


# ---- Uniform and Discrete: sums over pieces -----------------------------------------------------


def piecewise(name: str, shifted: Sequence[Any], training: Sequence[Any]) -> Any:
    """D(D'‖D) of probabilities of pieces in which both are alike, zeros included."""
    total = mp.mpf(0)
    order = orders_of(name)
    for x, y in zip(shifted, training, strict=True):
        if x and y:
            total += integrand(name, x, y)
        elif name in ("total-variation", "hellinger"):
            total += (x + y) / 2
        elif name == "chi-squared" and not x:
            total += y
        elif (x and (name == "kl" or order > 1)) or (y and name == "reverse-kl"):
            return mp.inf
    return of_sum(name, total) if total or not name.startswith("renyi-") else mp.inf


UNIFORMS = [
    (0.0, 1.0, 0.0, 2.0),
    (0.25, 0.5, 0.0, 1.0),
    (0.0, 1.0, 0.25, 0.5),
    (0.0, 1.0, 0.3, 1.7),
    (-3.0, -1.0, -2.0, 5.0),
    (0.0, 1.0, 1.0, 2.0),
    (0.0, 1.0, 5.0, 7.0),
    (0.0, 1.0, 0.0, 1.0),
]


@pytest.mark.parametrize("parameters", UNIFORMS)
@pytest.mark.parametrize("name", ALL)
def test_uniform_distributions_are_as_far_apart_as_their_pieces_say(name, parameters):
    with mp.workdps(DIGITS):
        a, b, c, d = map(mp.mpf, parameters)
        cuts = sorted({a, b, c, d})
        pieces = list(pairwise(cuts))
        shares = [
            [(v - u) / (high - low) if low <= u and v <= high else mp.mpf(0) for u, v in pieces]
            for low, high in ((a, b), (c, d))
        ]
        exact = piecewise(name, *shares)
        value = Uniform(*parameters[:2]).divergence_from(Uniform(*parameters[2:]), name)
        if mp.isinf(exact):
            assert value == math.inf
        else:
            check(value, exact)


DISCRETES = [
    ((0.2, 0.3, 0.5), (0.4, 0.3, 0.3)),
    ((0.5, 0.5), (0.9, 0.1)),
    ((0.0, 0.4, 0.6), (0.3, 0.3, 0.4)),
    ((0.3, 0.3, 0.4), (0.0, 0.4, 0.6)),
    ((0.5, 0.5, 0.0), (0.0, 0.5, 0.5)),
    ((1.0, 0.0), (0.0, 1.0)),
    ((1e-9, 1 - 1e-9), (1e-6, 1 - 1e-6)),
    ((0.25, 0.25, 0.5), (0.25, 0.25, 0.5)),
    ((1.0,), (1.0,)),
]


@pytest.mark.parametrize("pair", DISCRETES)
@pytest.mark.parametrize("name", ALL)
def test_discrete_distributions_are_as_far_apart_as_the_sum_says(name, pair):
    with mp.workdps(DIGITS):
        shares = [[mp.mpf(p) / sum(map(mp.mpf, values)) for p in values] for values in pair]
        exact = piecewise(name, *shares)
        value = Discrete(pair[0]).divergence_from(Discrete(pair[1]), name)
        if mp.isinf(exact):
            assert value == math.inf
        else:
            check(value, exact)


# ---- Product ------------------------------------------------------------------------------------

FIRST = ((0.2, 0.3, 0.5), (0.4, 0.3, 0.3))
SECOND = ((0.6, 0.4), (0.5, 0.5))


@pytest.mark.parametrize("name", [name for name in ALL if name != "total-variation"])
def test_a_product_is_as_far_away_as_its_joint_distribution(name):
    shifted, training = (
        Product(Discrete(p), Discrete(q)) for p, q in zip(FIRST, SECOND, strict=True)
    )
    with mp.workdps(DIGITS):
        joint = [
            [mp.mpf(p) * mp.mpf(q) for p in first for q in second]
            for first, second in zip(FIRST, SECOND, strict=True)
        ]
        joint = [[p / sum(row) for p in row] for row in joint]
        check(shifted.divergence_from(training, name), piecewise(name, *joint))


def test_the_total_variation_of_a_product_is_bounded_from_above():
    shifted, training = (
        Product(Discrete(p), Discrete(q)) for p, q in zip(FIRST, SECOND, strict=True)
    )
    joint = [np.outer(*pair).ravel() for pair in zip(FIRST, SECOND, strict=True)]
    exact = float(np.abs(joint[0] - joint[1]).sum() / 2)
    parts = [0.2, 0.1]
    value = shifted.divergence_from(training, "total-variation")
    assert exact <= value <= sum(parts)
    assert value == pytest.approx(1 - 0.8 * 0.9, rel=1e-9)


def test_parts_of_different_families_add_up():
    shifted = Product(Beta(1, 1), Gaussian(0, 1), Uniform(0, 1), Discrete((0.5, 0.5)))
    training = Product(Beta(0.8, 1.25), Gaussian(0.2, 1.1), Uniform(0, 2), Discrete((0.3, 0.7)))
    for name in ("kl", "renyi-0.5", "renyi-1.01"):
        parts = zip(shifted.parts, training.parts, strict=True)
        total = sum(part.divergence_from(other, name) for part, other in parts)
        assert shifted.divergence_from(training, name) == pytest.approx(total, rel=1e-9)
    apart = 1 - math.prod(
        1 - part.divergence_from(other, "hellinger")
        for part, other in zip(shifted.parts, training.parts, strict=True)
    )
    assert shifted.divergence_from(training, "hellinger") == pytest.approx(apart, rel=1e-9)


def test_one_infinite_part_makes_the_product_infinite():
    shifted = Product(Gaussian(0, 1), Uniform(0, 2))
    training = Product(Gaussian(0, 1), Uniform(0, 1))
    assert shifted.divergence_from(training) == math.inf
    assert shifted.divergence_from(training, "chi-squared") == math.inf
    assert shifted.divergence_from(training, "total-variation") == pytest.approx(0.5)


# ---- what all have in common --------------------------------------------------------------------

MEMBERS = [
    (Beta(0.8, 1.25), Beta(1, 1)),
    (Gaussian(0.3, 1.2), Gaussian(0, 1.5)),
    (Uniform(0.2, 0.9), Uniform(0, 1)),
    (Discrete((0.3, 0.7)), Discrete((0.5, 0.5))),
    (Product(Beta(2, 3), Gaussian(0, 1)), Product(Beta(2.1, 3), Gaussian(0.1, 1.2))),
]


@pytest.mark.parametrize("pair", MEMBERS, ids=str)
@pytest.mark.parametrize("name", ALL)
def test_every_divergence_is_zero_from_itself_and_positive_from_another(name, pair):
    assert 0 <= pair[0].divergence_from(pair[0], name) < 1e-8
    assert pair[0].divergence_from(pair[1], name) > 1e-5


@pytest.mark.parametrize("pair", MEMBERS, ids=str)
def test_the_divergences_are_related_as_they_must_be(pair):
    shifted, training = pair
    d = {name: shifted.divergence_from(training, name) for name in ALL}
    assert d["reverse-kl"] == training.divergence_from(shifted, "kl")
    rising = [d[name] for name in ("renyi-0.01", "renyi-0.5", "kl", "renyi-1.01", "renyi-2")]
    assert np.all(np.diff(rising) > -1e-8)  # equal for uniform distributions
    assert d["chi-squared"] == pytest.approx(math.expm1(d["renyi-2"]), rel=1e-9)
    assert d["hellinger"] == pytest.approx(-math.expm1(-d["renyi-0.5"] / 2), rel=1e-9)
    assert d["total-variation"] >= d["hellinger"] - 1e-9
    if not isinstance(shifted, Product):  # of which the total variation is a bound only
        assert d["total-variation"] <= math.sqrt(d["kl"] / 2)


DISTRIBUTIONS: list[tuple[Family, Any]] = [
    (Beta(0.8, 1.25), stats.beta(0.8, 1.25)),
    (Beta(2, 3, -1, 4), stats.beta(2, 3, loc=-1, scale=5)),
    (Gaussian(-2, 0.5), stats.norm(-2, 0.5)),
    (Uniform(3, 7), stats.uniform(3, 4)),
]


@pytest.mark.parametrize(("family", "known"), DISTRIBUTIONS, ids=lambda part: type(part).__name__)
def test_draws_follow_the_distribution(family, known):
    draws = family.sample(np.random.default_rng(7), 20_000)
    assert stats.kstest(draws, known.cdf).pvalue > 1e-4
    assert family.sample(np.random.default_rng(7), (3, 4)).shape == (3, 4)


def test_draws_of_discrete_and_product_distributions_follow_them():
    counts = np.bincount(Discrete((0.2, 0.3, 0.5)).sample(np.random.default_rng(8), 20_000))
    assert stats.chisquare(counts, [4000, 6000, 10_000]).pvalue > 1e-4
    product = Product(Gaussian(0, 1), Uniform(5, 6))
    draws = product.sample(np.random.default_rng(9), (500, 2))
    assert draws.shape == (500, 2, 2)
    assert np.all((draws[..., 1] >= 5) & (draws[..., 1] <= 6))
    assert abs(draws[..., 0].mean()) < 0.2


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Beta(0, 1), "parameters of a Beta distribution must be positive and finite"),
        (lambda: Beta(1, -1), "parameters of a Beta distribution must be positive and finite"),
        (lambda: Beta(math.nan, 1), "parameters of a Beta distribution must be positive"),
        (lambda: Beta(1, math.inf), "parameters of a Beta distribution must be positive"),
        (lambda: Beta(1, 1, 1, 0), "the range from 1 to 0 is not two increasing finite numbers"),
        (lambda: Gaussian(0, 0), "a Gaussian needs a finite mean and a positive standard"),
        (lambda: Gaussian(0, -1), "a Gaussian needs a finite mean and a positive standard"),
        (lambda: Gaussian(math.nan, 1), "a Gaussian needs a finite mean and a positive standard"),
        (lambda: Gaussian(0, math.inf), "a Gaussian needs a finite mean and a positive standard"),
        (lambda: Uniform(1, 1), "the range from 1 to 1 is not two increasing finite numbers"),
        (
            lambda: Uniform(0, math.inf),
            "the range from 0 to inf is not two increasing finite numbers",
        ),
        (
            lambda: Uniform(math.nan, 1),
            "the range from nan to 1 is not two increasing finite numbers",
        ),
        (lambda: Discrete(()), "probabilities must be numbers of at least 0 that sum to 1"),
        (lambda: Discrete((0.5, 0.6)), "probabilities must be numbers of at least 0 that sum to 1"),
        (lambda: Discrete((1.5, -0.5)), "probabilities must be numbers of at least 0"),
        (lambda: Discrete((math.nan, 1)), "probabilities must be numbers of at least 0"),
        (lambda: Product(), "a product needs at least one part"),
    ],
)
def test_what_is_no_distribution_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("shifted", "training"),
    [
        (Beta(1, 1), Gaussian(0, 1)),
        (Beta(1, 1), Beta(1, 1, 0, 2)),
        (Discrete((0.5, 0.5)), Discrete((1.0,))),
        (Product(Beta(1, 1)), Product(Beta(1, 1), Beta(1, 1))),
        (Product(Beta(1, 1)), Product(Uniform(0, 1))),
        (Product(Beta(1, 1)), Beta(1, 1)),
    ],
)
def test_what_cannot_be_compared_is_refused(shifted, training):
    message = f"{shifted} and {training} have no divergence in closed form: compare members of one"
    for name in ("kl", "total-variation", "renyi-2"):
        with pytest.raises(ValueError, match=re.escape(message)) as e:
            shifted.divergence_from(training, name)
        assert "\n" not in str(e.value)


@pytest.mark.parametrize("pair", MEMBERS, ids=str)
def test_a_divergence_without_a_closed_form_is_refused(pair):
    with pytest.raises(ValueError, match="renyi-inf has no closed form here: choose another"):
        pair[0].divergence_from(pair[1], "renyi-inf")
    with pytest.raises(ValueError, match="is unknown: choose from"):
        pair[0].divergence_from(pair[1], "wasserstein")


# ---- once wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "least"),
    [
        ((1, 1, 2, 1), 0.25),
        ((1, 2, 2, 1), 0.5),
        ((2, 5, 5, 2), 0.78),
        ((0.8, 1.25, 1.25, 0.8), 0.2),
    ],
)
def test_the_total_variation_of_mirrored_beta_distributions_is_not_nothing(parameters, least):
    a, b, c, d = parameters
    assert Beta(a, b).divergence_from(Beta(c, d), "total-variation") >= least


def test_the_total_variation_of_beta_distributions_is_found_whatever_they_are():
    shifted = Beta(2.357629470694947, 0.40404033498077163)
    training = Beta(2.333448252186606, 0.07709523715982666)
    assert 0 < shifted.divergence_from(training, "total-variation") <= 1


@pytest.mark.parametrize(
    ("shifted", "training"),
    [
        (Gaussian(0, 1), Gaussian(60, 1)),
        (Beta(900, 900), Beta(1, 900)),
        (Product(*[Gaussian(1, 1)] * 800), Product(*[Gaussian(0, 1)] * 800)),
    ],
)
def test_a_chi_squared_beyond_all_floats_is_infinite(shifted, training):
    assert shifted.divergence_from(training, "chi-squared") == math.inf


@pytest.mark.parametrize(
    "parameters",
    [
        (2.0213145680442435, 879.2538207123034, 2.78118693554253, 877.9639158233728),
        (712.1421771658589, 1.6098788585502948, 712.141031361396, 1.609949380024883),
        (1.1, 0.9, 1.0, 1.0),
    ],
)
def test_the_kl_of_lopsided_or_close_beta_distributions_is_rounded_upwards(parameters):
    with mp.workdps(50):
        a, b, c, d = map(mp.mpf, parameters)
        exact = mp.log(mp.beta(c, d)) - mp.log(mp.beta(a, b))
        exact += (a - c) * mp.psi(0, a) + (b - d) * mp.psi(0, b)
        exact += (c - a + d - b) * mp.psi(0, a + b)
        assert Beta(*parameters[:2]).divergence_from(Beta(*parameters[2:])) >= exact


def test_the_kl_of_nearly_equal_uniform_distributions_is_rounded_upwards():
    a, b, c, d = (
        0.0024120308841519946,
        0.14908830406175808,
        0.0024120301731977924,
        0.14908830422773112,
    )
    with mp.workdps(50):
        exact = mp.log((mp.mpf(d) - c) / (mp.mpf(b) - a))
        assert Uniform(a, b).divergence_from(Uniform(c, d)) >= exact


@pytest.mark.parametrize("a", [1, 2, 5])
@pytest.mark.parametrize("b", [1, 2, 5])
def test_the_total_variation_between_small_whole_parameters_is_that_of_the_cdfs(a, b):
    for c in (1, 2, 5):
        for d in (1, 2, 5):
            x = np.linspace(0, 1, 20_001)
            gap = stats.beta(a, b).cdf(x) - stats.beta(c, d).cdf(x)
            coarse = np.abs(np.diff(gap)).sum() / 2  # of a partition: never above the truth
            value = Beta(a, b).divergence_from(Beta(c, d), "total-variation")
            assert coarse - 1e-12 <= value < coarse + 1e-6


@pytest.mark.parametrize("largest", [2, 3, 4, 5, 8])
def test_divergences_of_close_beta_distributions_are_rounded_upwards(largest):
    mp.dps, rng = 40, np.random.default_rng(largest)
    for _ in range(40):
        shifted = 10 ** rng.uniform(-2, largest, 2)
        training = shifted * (1 + 10 ** rng.uniform(-9, -1, 2) * rng.choice([-1, 1], 2))
        a, b, c, d = (mp.mpf(float(x)) for x in (*shifted, *training))
        kl = mp.log(mp.beta(c, d) / mp.beta(a, b)) + (a - c) * mp.digamma(a)
        kl += (b - d) * mp.digamma(b) + (c - a + d - b) * mp.digamma(a + b)
        pair = Beta(*shifted.tolist()), Beta(*training.tolist())
        assert pair[0].divergence_from(pair[1]) >= kl
        for order in (0.5, 2.0, 7.0, 100.0):
            e, f = order * a + (1 - order) * c, order * b + (1 - order) * d
            if e > 0 and f > 0:
                moment = mp.log(mp.beta(e, f)) - order * mp.log(mp.beta(a, b))
                exact = (moment - (1 - order) * mp.log(mp.beta(c, d))) / (order - 1)
                assert pair[0].divergence_from(pair[1], f"renyi-{order:g}") >= exact


def test_the_total_variation_of_gaussians_is_right_however_different_their_widths():
    mp.dps, rng = 40, np.random.default_rng(0)
    for _ in range(300):
        mean, other = rng.normal(size=2) * 10 ** rng.uniform(-3, 3, 2)
        std = 10 ** rng.uniform(-3, 3)
        shifted, training = Gaussian(mean, std), Gaussian(other, std * 10 ** rng.uniform(-12, 12))
        m, s, n, t = map(mp.mpf, (shifted.mean, shifted.std, training.mean, training.std))
        a, b = 1 / t**2 - 1 / s**2, m / s**2 - n / t**2
        c = (n / t) ** 2 - (m / s) ** 2 + 2 * mp.log(t / s)
        root = mp.sqrt(b * b - a * c)
        points = [-mp.inf, *sorted([(-b - root) / a, (-b + root) / a]), mp.inf]
        exact = mp.mpf(0)
        for x, y in pairwise(points):
            gained = mp.ncdf((y - m) / s) - mp.ncdf((x - m) / s)
            exact += abs(gained - mp.ncdf((y - n) / t) + mp.ncdf((x - n) / t)) / 2
        assert 0 <= shifted.divergence_from(training, "total-variation") - exact < 1e-11


def test_a_chi_squared_that_nearly_is_infinite_is_rounded_upwards():
    mp.dps = 40
    for gap in 10.0 ** np.arange(-15, -2):
        std = math.sqrt(2) * (1 - float(gap))
        variance = mp.mpf(std) ** 2
        if variance < 2:
            exact = 1 / mp.sqrt(variance * (2 - variance)) - 1
            assert Gaussian(0, std).divergence_from(Gaussian(0, 1), "chi-squared") >= exact


def test_a_range_that_is_wider_by_less_than_a_rounding_error_is_still_another():
    high = 0.00403280053706707
    assert Uniform(0, high).divergence_from(Uniform(-1.18e-19, high)) >= 2.9e-17


@pytest.mark.parametrize("name", ["renyi-100", "renyi-7.3", "renyi-0.5", "chi-squared"])
def test_divergences_of_finite_distributions_are_rounded_upwards(name):
    mp.dps, rng = 40, np.random.default_rng(5)
    order = mp.mpf(2 if name == "chi-squared" else float(name.removeprefix("renyi-")))
    for _ in range(100):
        size = int(rng.integers(2, 6))
        p, q = (Discrete(tuple(rng.dirichlet(np.full(size, 3.0)))) for _ in range(2))
        pairs = list(zip(p.probabilities, q.probabilities, strict=True))
        moment = mp.fsum(mp.mpf(x) ** order * mp.mpf(y) ** (1 - order) for x, y in pairs)
        masses = (mp.fsum(map(mp.mpf, part.probabilities)) for part in (p, q))
        moment *= next(masses) ** -order * next(masses) ** (order - 1)
        exact = moment - 1 if name == "chi-squared" else mp.log(moment) / (order - 1)
        assert p.divergence_from(q, name) >= exact


@pytest.mark.parametrize("std", [1e200, 1e-200, 0.0, math.nan])
def test_a_width_beyond_reason_is_refused(std):
    with pytest.raises(ValueError, match="a Gaussian needs"):
        Gaussian(0, std)


@pytest.mark.parametrize("size", [3e8, 3e10, 3e12, 3e14, 3e16])
@pytest.mark.parametrize("ratio", [1.0, 0.3, 0.7])
def test_the_total_variation_of_huge_beta_parameters_is_not_below_that_of_gaussians(size, ratio):
    """Two that are concentrated at one place, one by a half more: as Gaussians would be, 0.0978."""
    shifted, training = Beta(size, ratio * size), Beta(1.5 * size, 1.5 * ratio * size)
    assert 0.0977 < shifted.divergence_from(training, "total-variation") <= 1
