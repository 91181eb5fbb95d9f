"""Whether robust certificates keep their promise on the worst distributions that they cover.

Environments are of finitely many kinds, so that D, every D' and all true costs are known. Many
training sets are drawn from D, a posterior is learnt from each, and then an adversary who knows it
chooses the D' in the ball on which it costs most. The training sets on which the bound is below
that cost are counted: a bound that is wrong with probability δ at most exceeds `most_violations`
with probability LEVEL at most. The same count must reject bounds that are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from covering import CERTIFICATES, LEVEL, covers
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp, rel_entr

from pacbayes_control.bounds import clopper_pearson, kl_inverse, maurer_xi
from pacbayes_control.bounds.shift import (
    donsker_varadhan,
    kl_inequality,
    robust_c_pac,
    robust_maurer,
    shift_inverse,
)
from pacbayes_control.certify.balls import Ball, ball_of_samples
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.learn import learn_finite
from sizes import sized

Floats = NDArray[np.float64]

pytestmark = pytest.mark.slow

RADII = {
    "kl": 0.15,
    "reverse-kl": 0.15,
    "total-variation": 0.2,
    "chi-squared": 0.3,
    "hellinger": 0.04,
}


# ---- the worst distribution in a ball -----------------------------------------------------------


def between(name: str, shifted: Floats, training: Floats) -> Floats:
    """D(D'‖D) along the last axis."""
    if name == "kl":
        return rel_entr(shifted, training).sum(axis=-1)
    if name == "reverse-kl":
        return rel_entr(training, shifted).sum(axis=-1)
    if name == "total-variation":
        return np.abs(shifted - training).sum(axis=-1) / 2
    if name == "chi-squared":
        return (shifted**2 / training).sum(axis=-1) - 1
    return 1 - np.sqrt(shifted * training).sum(axis=-1)


def leaning(name: str, training: Floats, costs: Floats, strength: Floats) -> Floats:
    """D' ∝ (f')⁻¹ of the cost, the form that the worst D' has, by how far it leans on it."""
    top = costs.max(axis=-1, keepdims=True)
    if name == "kl":
        weights = np.exp(strength * (costs - top))
    elif name == "chi-squared":
        mean = (training * costs).sum(axis=-1, keepdims=True)
        weights = np.maximum(1 + strength * (costs - mean), 0)
    else:
        weights = 1 / (1 / strength + top - costs) ** (1 if name == "reverse-kl" else 2)
    shifted = training * weights
    return shifted / shifted.sum(axis=-1, keepdims=True)


def worst(name: str, training: Floats, costs: Floats, radius: float) -> Floats:
    """The D' at the edge of the ball that costs most; costs of shape (data sets, environments)."""
    if name == "total-variation":  # move mass from the cheapest to the most expensive
        order = np.argsort(costs, axis=-1)
        sorted_mass = training[order]
        before = np.cumsum(sorted_mass, axis=-1) - sorted_mass
        left = sorted_mass - np.clip(radius - before, 0, sorted_mass)
        left[:, -1] += radius
        shifted = np.empty_like(left)
        np.put_along_axis(shifted, order, left, axis=-1)
        return shifted
    low, high = np.full((len(costs), 1), 1e-6), np.full((len(costs), 1), 1e6)
    for _ in range(80):
        middle = np.sqrt(low * high)
        inside = between(name, leaning(name, training, costs, middle), training)[:, None] <= radius
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return leaning(name, training, costs, low)


@pytest.mark.parametrize("name", RADII)
def test_the_worst_distribution_is_at_the_edge_of_the_ball_and_the_worst(name):
    rng = np.random.default_rng(201)
    training, costs = rng.dirichlet(np.full(30, 5.0)), rng.random((50, 30))
    shifted = worst(name, training, costs, RADII[name])
    assert np.all(shifted >= 0)
    np.testing.assert_allclose(shifted.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(between(name, shifted, training), RADII[name], rtol=1e-9)
    # No other in the ball costs more: random ones, and such as lean in another fashion.
    most = (shifted * costs).sum(axis=1)
    for other in RADII:
        if other != name:
            for share in np.geomspace(0.03, 3, 12):
                tried = worst(other, training, costs, min(share * RADII[other], 0.9))
                within = between(name, tried, training) <= RADII[name]
                assert np.all((tried * costs).sum(axis=1)[within] <= most[within] + 1e-6)


# ---- learnt posteriors --------------------------------------------------------------------------

DELTA, DATA_SETS, ENVIRONMENTS = 0.2, sized(600, full=1000), 200


@dataclass(frozen=True)
class Learnt:
    """What was learnt from each training set, and what is true of it."""

    training: Floats  # D, (kinds,)
    costs: Floats  # of the posterior on each kind of environment, (data sets, kinds)
    exponentials: Floats  # E_P e^C, the same
    bounds: Floats  # certificates without a shift, (data sets,)
    empirical: Floats  # r̂
    empirical_exponentials: Floats  # r̂ₑ
    kl: Floats

    def cost_on(self, shifted: Floats) -> Floats:
        return (shifted * self.costs).sum(axis=1)


@cache
def learnt(binary: bool) -> Learnt:
    """40 policies on 25 kinds of environments, some of them hard for most policies.

    The posterior is the one on the Gibbs path p ∝ exp(-β r̂) that has the smallest bound.
    """
    rng, kinds, policies = np.random.default_rng(202), 25, 40
    training = rng.dirichlet(np.full(kinds, 3.0))
    hardness = rng.beta(0.6, 1.6, (kinds, 1))
    table = rng.random((kinds, policies)) < hardness
    values = table if binary else 0.7 * hardness + 0.3 * rng.random((kinds, policies))
    shares = rng.multinomial(ENVIRONMENTS, training, DATA_SETS) / ENVIRONMENTS
    means = shares @ values
    log_p = -np.geomspace(0.1, 1e4, 40)[:, None, None] * means  # (betas, data sets, policies)
    log_p -= logsumexp(log_p, axis=2, keepdims=True)
    p = np.exp(log_p)
    empirical = np.minimum((p * means).sum(axis=2), 1)
    kl = np.maximum((p * log_p).sum(axis=2) + math.log(policies), 0)
    bounds = maurer_xi(empirical, kl, ENVIRONMENTS, DELTA)
    best, every = np.argmin(bounds, axis=0), np.arange(DATA_SETS)
    p = p[best, every]
    costs, exponentials = p @ values.T, p @ np.exp(values).T
    return Learnt(
        training,
        costs,
        exponentials,
        bounds[best, every],
        empirical[best, every],
        (shares * exponentials).sum(axis=1),
        kl[best, every],
    )


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", RADII)
def test_the_robust_certificate_holds_on_the_worst_distribution_in_the_ball(name, binary):
    found, radius = learnt(binary), RADII[name]
    truth = found.cost_on(worst(name, found.training, found.costs, radius))
    robust = shift_inverse(found.bounds, radius, name)
    assert covers(robust < truth, DELTA)
    assert np.mean(robust) < 0.95  # it says something


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", RADII)
def test_the_robust_certificate_holds_on_milder_shifts(name, binary):
    found, radius = learnt(binary), RADII[name]
    robust = shift_inverse(found.bounds, radius, name)
    for share in (0.0, 0.3, 0.9):
        shifted = worst(name, found.training, found.costs, radius * share)
        assert covers(robust < found.cost_on(shifted), DELTA)
    away = worst(name, found.training, 1 - found.costs, radius)  # towards the easy ones
    assert covers(robust < found.cost_on(away), DELTA)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", RADII)
def test_a_certificate_that_was_not_shifted_is_caught(name, binary):
    found, radius = learnt(binary), 2 * RADII[name]
    truth = found.cost_on(worst(name, found.training, found.costs, radius))
    assert covers(shift_inverse(found.bounds, radius, name) < truth, DELTA)
    assert not covers(found.bounds < truth, DELTA)


@pytest.mark.parametrize("binary", [True, False])
def test_the_paper_s_robust_bounds_hold_on_the_worst_distribution(binary):
    found, radius = learnt(binary), RADII["kl"]
    truth = found.cost_on(worst("kl", found.training, found.costs, radius))[:CERTIFICATES]
    columns = found.empirical, found.empirical_exponentials, found.kl
    numbers = zip(*(column[:CERTIFICATES] for column in columns), strict=True)
    pairs = [
        (
            robust_maurer(float(cost), float(kl), ENVIRONMENTS, DELTA, radius=radius),
            robust_c_pac(float(exponential), float(kl), ENVIRONMENTS, DELTA, radius=radius),
        )
        for cost, exponential, kl in numbers
    ]
    maurer_s, c_pac = np.array(pairs).T
    assert covers(maurer_s < truth, DELTA)
    assert covers(c_pac < truth, DELTA)
    assert np.mean(maurer_s) < 0.95


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("radius", [0.001, 0.03, 0.15, 0.5])
def test_the_inequalities_with_the_true_mean_are_never_wrong(binary, radius):
    """Nothing is estimated, so nothing may go wrong: not even once."""
    found = learnt(binary)
    truth = found.cost_on(worst("kl", found.training, found.costs, radius))
    here = found.costs @ found.training
    means = found.exponentials @ found.training
    assert np.all(truth <= shift_inverse(here, radius, "kl") + 1e-9)
    for mean, cost in zip(means.tolist(), truth.tolist(), strict=True):
        assert cost <= donsker_varadhan(mean, radius) + 1e-12
        assert cost <= kl_inequality(mean, radius) + 1e-12


# ---- the whole way, with a ball that was estimated ----------------------------------------------


def shifted_run(rng: np.random.Generator) -> bool:
    """Whether a certificate in an estimated ball is below the true cost after the shift.

    Three cells with failure rates of their own, and nothing else differs between D' and D.
    """
    training, shifted = np.array([0.5, 0.3, 0.2]), np.array([0.35, 0.3, 0.35])
    rates = np.array([[0.02, 0.1], [0.1, 0.1], [0.5, 0.2]])  # (cells, policies)
    here, there = rng.choice(3, 150, p=training), rng.choice(3, 60, p=shifted)
    costs = Costs(rng.random((150, 2)) < rates[here])
    # The training environments are counted twice, by the certificate and by the ball: the union
    # bound does not mind.
    ball = ball_of_samples(there, here, 0.1, "hellinger", cells=[0, 1, 2])
    run = under_shift(learn_finite(costs, 0.1), ball)
    assert run.certificate.delta == pytest.approx(0.2)
    return run.certificate.bound < shifted @ rates @ run.posterior.probabilities


def test_a_certificate_in_an_estimated_ball_holds():
    rng = np.random.default_rng(203)
    assert covers(np.array([shifted_run(rng) for _ in range(CERTIFICATES)]), 0.2)


# ---- bounds that waste nothing, so that small mistakes show -------------------------------------
# One policy that fails or not, at the failure rate where Clopper and Pearson's bound is wrong with
# probability δ exactly, and the D' that attains the shift: nothing is left to hide a mistake in.

TIGHT_DATA_SETS = sized(2000, full=4000)


@dataclass(frozen=True)
class Tight:
    n: int
    failures: NDArray[np.int64]  # (data sets,)
    truth: float  # the failure rate under D

    @property
    def bounds(self) -> Floats:
        return clopper_pearson(np.arange(self.n + 1), self.n, DELTA)[self.failures]


@cache
def tight(k: int) -> Tight:
    """A failure rate just above the bound that k of 400 failures give."""
    rng, n = np.random.default_rng(204 + k), 400
    truth = float(clopper_pearson(k, n, DELTA)) + 1e-6
    return Tight(n, rng.binomial(n, truth, TIGHT_DATA_SETS), truth)


def violated(k: int, radius: float, name: str, bound: Callable[[Tight], Any]) -> Any:
    """Where a robust bound is below the cost on the worst D' in the ball.

    It fails with the probability q at which D(Bern(q)‖Bern(p)) = B; from below, lest rounding
    upwards in `shift_inverse` be taken for a violation.
    """
    problem = tight(k)
    truth = float(shift_inverse(problem.truth, radius, name)) - 1e-9
    return bound(problem) < truth


TIGHT = [(k, name) for k in (40, 280) for name in RADII]


@pytest.mark.parametrize(("k", "name"), TIGHT)
def test_the_robust_bound_is_violated_just_as_often_as_delta_allows(k, name):
    radius = RADII[name] / 3
    wrong = violated(k, radius, name, lambda p: shift_inverse(p.bounds, radius, name))
    assert covers(wrong, DELTA)
    assert wrong.sum() >= stats.binom.ppf(LEVEL, TIGHT_DATA_SETS, DELTA)


BROKEN: dict[str, Callable[[], Any]] = {
    "no shift at all": lambda: violated(40, 0.01, "kl", lambda p: p.bounds),
    "the divergence added to the bound": lambda: violated(
        40, 0.05, "kl", lambda p: p.bounds + 0.05
    ),
    "half of the radius": lambda: violated(
        40, 0.05, "kl", lambda p: shift_inverse(p.bounds, 0.025, "kl")
    ),
    "the shift of the empirical cost": lambda: violated(
        40, 0.05, "kl", lambda p: shift_inverse(p.failures / p.n, 0.05, "kl")
    ),
    "kl where it is the reverse kl that is known": lambda: violated(
        40, 0.3, "reverse-kl", lambda p: shift_inverse(p.bounds, 0.3, "kl")
    ),
    "the arguments of kl swapped, for a policy that mostly fails": lambda: violated(
        280, 0.1, "kl", lambda p: kl_inverse(p.bounds, 0.1)
    ),
    "total variation in place of Hellinger's distance": lambda: violated(
        40, 0.04, "hellinger", lambda p: p.bounds + 0.04
    ),
    "Hellinger's distance that was not squared": lambda: violated(
        40, 0.04, "hellinger", lambda p: shift_inverse(p.bounds, 0.04**2, "hellinger")
    ),
    "the variance of costs left out of chi-squared": lambda: violated(
        280, 0.1, "chi-squared", lambda p: p.bounds + math.sqrt(0.1) * p.bounds * (1 - p.bounds)
    ),
    "δ spent twice": lambda: violated(
        40, 0.05, "kl", lambda p: shift_inverse(twice(p), 0.05, "kl")
    ),
}


def twice(problem: Tight) -> Floats:
    """The bound at 2δ."""
    n = problem.n
    return clopper_pearson(np.arange(n + 1), n, 2 * DELTA)[problem.failures]


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_robust_bound_is_caught(mistake):
    assert not covers(BROKEN[mistake](), DELTA)


def test_the_arguments_of_kl_swapped_are_no_mistake_for_rare_failures():
    """There the other order gives the larger bound: it is looser, and right."""
    wrong = violated(40, 0.1, "kl", lambda p: kl_inverse(p.bounds, 0.1))
    assert covers(wrong, DELTA)
    assert np.all(kl_inverse(tight(40).bounds, 0.1) > shift_inverse(tight(40).bounds, 0.1, "kl"))


def test_a_plug_in_estimate_of_the_ball_is_caught_and_the_library_s_is_not():
    """The cost under D is known, and costs are 1 in one of two cells: the ball decides alone."""
    rng, here, there, n = np.random.default_rng(205), 0.2, 0.45, 40
    pairs = rng.binomial(n, [there, here], (TIGHT_DATA_SETS, 2)).tolist()
    bounds: dict[tuple[int, int], list[float]] = {}
    for j, k in sorted({(j, k) for j, k in pairs}):
        samples = [1] * j + [0] * (n - j), [1] * k + [0] * (n - k)
        ball = ball_of_samples(*samples, DELTA, "total-variation", cells=[0, 1])
        radii = np.array([ball.radius, abs(j - k) / n])
        bounds[j, k] = shift_inverse(here, radii, "total-variation").tolist()
    robust, naive = np.array([bounds[j, k] for j, k in pairs]).T
    assert covers(robust < there, DELTA)
    assert not covers(naive < there, DELTA)


def test_the_certificate_of_a_run_is_what_was_counted():
    """The counts above rest on shift_inverse; a run's own certificate is the same number."""
    rng = np.random.default_rng(206)
    run = learn_finite(rng.random((50, 5)) < 0.2, DELTA)
    for name, radius in RADII.items():
        robust = under_shift(run, Ball(name, radius)).certificate.bound
        assert robust == float(shift_inverse(run.certificate.bound, radius, name))
