"""The slopes of what a learner minimises, against differences of the bounds themselves."""

from __future__ import annotations

import numpy as np
import pytest

from pacbayes_control.bounds import quadratic, thiemann
from pacbayes_control.certify.issuing import PAC_BAYES
from pacbayes_control.learn.objectives import OBJECTIVES

POINTS = [
    (0.02, 0.5, 50, 0.2),
    (0.02, 40.0, 1000, 0.01),
    (0.1, 0.0, 100, 0.01),
    (0.1, 2.0, 100, 0.01),
    (0.3, 0.01, 30, 0.1),
    (0.3, 12.0, 5000, 1e-6),
    (0.5, 3.0, 200, 0.05),
    (0.6, 1.0, 400, 0.5),
    (1e-4, 1.0, 10_000, 0.001),
]


def differences(name: str, cost: float, kl: float, n: int, delta: float) -> tuple[float, float]:
    """∂bound/∂r̂ and ∂bound/∂KL by central differences, of the fourth order."""
    bound = OBJECTIVES[name].bound
    offsets, weights = np.array([-2, -1, 1, 2]), np.array([1, -8, 8, -1]) / 12
    by_cost, by_kl = 1e-3 * min(cost, 1 - cost), 1e-3 * max(kl, 1.0)
    if (
        kl < 2 * by_kl
    ):  # a divergence is at least 0, but δ may move in its place: ln(1/δ) adds to it
        moved = [float(bound(cost, kl, n, delta * np.exp(-by_kl * o))) for o in offsets]
    else:
        moved = bound(cost, kl + by_kl * offsets, n, delta)
    return (
        float(weights @ bound(cost + by_cost * offsets, kl, n, delta)) / by_cost,
        float(weights @ moved) / by_kl,
    )


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("point", POINTS)
def test_the_slopes_are_the_bound_s(name, point):
    assert float(OBJECTIVES[name].bound(*point)) < 0.99  # where it is not cut off at 1
    slopes = OBJECTIVES[name].slopes(*point)
    assert slopes == pytest.approx(differences(name, *point), rel=2e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("point", POINTS)
def test_the_exchange_is_the_ratio_of_the_slopes_and_positive(name, point):
    objective = OBJECTIVES[name]
    by_cost, by_kl = differences(name, *point)
    exchange = objective.rates(*point)[0]
    assert exchange > 0
    assert exchange == pytest.approx(by_cost / by_kl, rel=4e-6)
    assert objective.rates(*point)[1] > 0


def test_a_wrong_slope_is_caught():
    """The slope of one bound is not that of another, to a precision a hundred times as coarse."""
    for point in POINTS:
        slopes = {name: OBJECTIVES[name].slopes(*point) for name in OBJECTIVES}
        for name, others in [("kl", ("kl-maurer", "pinsker")), ("pinsker", ("quadratic",))]:
            for other in others:
                assert slopes[other] != pytest.approx(differences(name, *point), rel=2e-4)


@pytest.mark.parametrize("point", POINTS)
def test_the_lambda_objective_is_the_quadratic_one(point):
    lam, quad = OBJECTIVES["lambda"], OBJECTIVES["quadratic"]
    assert float(lam.bound(*point)) == pytest.approx(float(quad.bound(*point)), rel=1e-11)
    assert lam.slopes(*point) == pytest.approx(quad.slopes(*point), rel=1e-11)
    assert lam.rates(*point)[0] == pytest.approx(quad.rates(*point)[0], rel=1e-11)
    assert float(thiemann(*point)) == pytest.approx(float(quadratic(*point)), rel=1e-11)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_lower_costs_and_divergences_are_better_wherever_the_bound_says_something(name):
    rng = np.random.default_rng(301)
    for _ in range(200):
        cost, kl, n = rng.uniform(0.001, 0.7), rng.exponential(5), int(rng.integers(50, 5000))
        point = float(cost), float(kl), n, 0.05
        if float(OBJECTIVES[name].bound(*point)) < 1:
            by_cost, by_kl = OBJECTIVES[name].slopes(*point)
            assert by_cost > 0
            assert 0 < by_kl < np.inf
            assert OBJECTIVES[name].rates(*point)[0] == pytest.approx(by_cost / by_kl)


def test_more_environments_make_training_cost_worth_more_divergence():
    for objective in OBJECTIVES.values():
        values = [objective.rates(0.1, 3.0, n, 0.01)[0] for n in (30, 100, 1000, 100_000)]
        assert np.all(np.diff(values) > 0)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_step_against_the_slopes_lowers_the_bound(name):
    objective = OBJECTIVES[name]
    for cost, kl, n, delta in POINTS:
        by_cost, by_kl = objective.slopes(cost, kl, n, delta)
        step = 1e-3 * cost / by_cost
        lower = objective.bound(cost - step * by_cost, max(kl - step * by_kl, 0), n, delta)
        assert float(lower) < float(objective.bound(cost, kl, n, delta))


def test_every_certificate_that_holds_for_all_posteriors_can_be_minimised():
    for name, theorem in PAC_BAYES.items():
        assert OBJECTIVES[name].bound is theorem


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("cost", [1e-6, 0.5, 1 - 1e-6])
def test_the_slopes_are_finite_also_where_the_bound_says_nothing(name, cost):
    """A search that has gone too far must find its way back."""
    for kl in (50.0, 1e3, 1e6):
        slopes = OBJECTIVES[name].slopes(cost, kl, 20, 0.01)
        assert np.all(np.isfinite(slopes))
        assert min(slopes) > 0
