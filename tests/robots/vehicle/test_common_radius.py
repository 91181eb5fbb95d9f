"""The distribution of environments that shifts: a few cylinders, all of one random radius."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import oracle
import pytest
from numpy.typing import NDArray
from scenes import discs_in
from scipy import integrate, stats

from pacbayes_control.certify.balls import ball_between
from pacbayes_control.certify.families import Beta, Uniform
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.planar import ObstacleField
from pacbayes_control.robots.vehicle import CommonRadius
from pacbayes_control.robots.vehicle.table2 import SHIFTED, TRAINING
from sizes import sized

ROUNDING = 1e-6  # of single precision
FIELDS = pytest.mark.parametrize("field", [TRAINING, SHIFTED], ids=["training", "test"])


def drawn(field: CommonRadius, n: int, stream: str = "train", seed: int = 0) -> NDArray:
    """Obstacles (n, count, 3) of a task's environments."""
    return Vehicle(obstacles=field).environments(n, stream, seed).arrays()["obstacles"]


def radii(field: CommonRadius, n: int = 5000) -> NDArray[np.float64]:
    return drawn(field, n)[:, 0, 2].astype(float)


# ---- what is drawn ------------------------------------------------------------------------------


def test_the_papers_distributions_are_those_of_the_table():
    assert CommonRadius() == TRAINING
    assert CommonRadius(7, (-5, 5), (2, 10), Beta(0.8, 1.25, 0.1, 1.1)) == TRAINING
    assert replace(TRAINING, radius=Beta(1, 1, 0.1, 1.1)) == SHIFTED


@FIELDS
def test_every_cylinder_counts_and_lies_in_its_range(field: CommonRadius):
    arrays = Vehicle(obstacles=field).environments(3000, stream="train").arrays()
    assert arrays["obstacles"].shape == (3000, 7, 3)
    assert arrays["obstacles"].dtype == np.float32
    assert arrays["counts"].tolist() == [7] * 3000
    for column, (low, high) in enumerate([(-5, 5), (2, 10), (0.1, 1.1)]):
        values = arrays["obstacles"][..., column]
        assert low - ROUNDING <= values.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < values.max() <= high + ROUNDING


@FIELDS
def test_each_environment_has_one_radius_of_its_own(field: CommonRadius):
    found = drawn(field, 500)[..., 2]
    assert np.all(found == found[:, :1])
    assert len(set(found[:, 0].tolist())) > 490


@FIELDS
def test_the_radius_follows_its_beta_distribution_and_not_the_other(field: CommonRadius):
    other = SHIFTED if field is TRAINING else TRAINING
    laws = []
    for each in (field, other):
        assert isinstance(each.radius, Beta)
        laws.append(stats.beta(each.radius.alpha, each.radius.beta, loc=0.1, scale=1.0))
    found = radii(field)
    assert stats.kstest(found, laws[0].cdf).pvalue > 1e-3
    assert stats.kstest(found, laws[1].cdf).pvalue < 1e-12
    error = laws[0].std() / np.sqrt(len(found))
    assert abs(found.mean() - laws[0].mean()) < 4 * error


@FIELDS
@pytest.mark.parametrize(("column", "low", "high"), [(0, -5, 5), (1, 2, 10)], ids=["x", "y"])
def test_places_are_uniform(field: CommonRadius, column: int, low: float, high: float):
    values = drawn(field, 2000)[..., column].ravel().astype(float)
    assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > 1e-3


def test_places_and_radius_are_independent():
    obstacles = drawn(TRAINING, 8000)
    columns = np.column_stack([obstacles[:, 0], obstacles[:, 1, :2], obstacles[:, 6, :2]])
    correlations = np.corrcoef(columns.T)[np.triu_indices(7, k=1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(len(columns))


def test_the_first_of_many_environments_are_the_same_as_of_few():
    many = drawn(TRAINING, 2500)  # beyond two blocks
    for n in (1, 7, 1024, 1025, 2300):
        np.testing.assert_array_equal(drawn(TRAINING, n), many[:n])
    part = Vehicle(obstacles=TRAINING).environments(2500, "train")[1000:1100]
    np.testing.assert_array_equal(part.arrays()["obstacles"], many[1000:1100])


def test_other_streams_and_seeds_draw_other_environments():
    first = drawn(TRAINING, 50)
    np.testing.assert_array_equal(drawn(TRAINING, 50), first)
    for other in (drawn(TRAINING, 50, seed=1), drawn(TRAINING, 50, stream="test")):
        assert not np.isin(other[..., 2], first[..., 2]).any()


def test_another_field_is_drawn_as_it_is_described():
    field = CommonRadius(count=3, x=(0, 1), y=(3, 4), radius=Uniform(0.2, 0.3))
    obstacles = drawn(field, 400)
    assert obstacles.shape == (400, 3, 3)
    low, high = obstacles.min(axis=(0, 1)), obstacles.max(axis=(0, 1))
    np.testing.assert_allclose(low, [0, 3, 0.2], atol=0.01)
    np.testing.assert_allclose(high, [1, 4, 0.3], atol=0.01)


# ---- how far two are apart ----------------------------------------------------------------------


def test_the_test_distribution_is_as_far_from_training_as_the_paper_says():
    radius = SHIFTED.divergence_from(TRAINING)
    assert radius == pytest.approx(0.08185, abs=5e-6)
    assert radius <= 0.0819  # as the paper prints it
    # The density of Beta(1, 1) is 1.
    numeric = integrate.quad(lambda x: -stats.beta.logpdf(x, 0.8, 1.25), 0, 1)[0]
    assert radius == pytest.approx(numeric, rel=1e-7)
    ball = ball_between(SHIFTED, TRAINING)
    assert (ball.divergence, ball.radius, ball.delta) == ("kl", radius, 0)


@pytest.mark.parametrize(
    ("divergence", "g"),  # E_D[f(dD'/dD)] with densities 1 for D' and p for D
    [
        ("kl", lambda p: -np.log(p)),
        ("reverse-kl", lambda p: p * np.log(p)),
        ("total-variation", lambda p: np.abs(1 - p) / 2),
        ("chi-squared", lambda p: (1 - p) ** 2 / p),
        ("hellinger", lambda p: (1 - np.sqrt(p)) ** 2 / 2),
    ],
)
def test_each_divergence_is_the_integral_that_defines_it(divergence: str, g):
    def summand(x: float) -> float:
        return g(stats.beta.pdf(x, 0.8, 1.25))

    numeric = integrate.quad(summand, 0, 1, points=[0.2, 0.5, 0.8], limit=400)[0]
    assert SHIFTED.divergence_from(TRAINING, divergence) == pytest.approx(numeric, rel=1e-4)


def test_a_divergence_has_a_direction_and_is_zero_from_itself():
    assert TRAINING.divergence_from(TRAINING) == pytest.approx(0, abs=1e-12)
    there, back = SHIFTED.divergence_from(TRAINING), TRAINING.divergence_from(SHIFTED)
    assert there > back + 2e-4
    assert SHIFTED.divergence_from(TRAINING, "reverse-kl") == back


@pytest.mark.parametrize(
    "difference", [{"count": 8}, {"x": (-5.0, 4.0)}, {"y": (2.0, 11.0)}], ids=str
)
def test_fields_that_differ_in_more_than_the_radius_are_refused(difference: dict[str, Any]):
    for shifted, training in (
        (replace(SHIFTED, **difference), TRAINING),
        (SHIFTED, replace(TRAINING, **difference)),
        (replace(TRAINING, **difference), TRAINING),
    ):
        with pytest.raises(ValueError, match="only the distribution of the radius may differ"):
            shifted.divergence_from(training)
        with pytest.raises(ValueError, match="only the distribution of the radius may differ"):
            ball_between(shifted, training)


def test_radii_without_a_closed_form_are_refused():
    with pytest.raises(ValueError, match="compare members of one family, on the same values"):
        replace(SHIFTED, radius=Beta(1, 1, 0.1, 1.2)).divergence_from(TRAINING)
    with pytest.raises(ValueError, match="compare members of one family"):
        replace(SHIFTED, radius=Uniform(0.1, 1.1)).divergence_from(TRAINING)


def test_a_field_of_another_kind_is_refused():
    other: Any = ObstacleField()
    with pytest.raises(ValueError, match="only the distribution of the radius may differ"):
        TRAINING.divergence_from(other)


# ---- in the vehicle's world ---------------------------------------------------------------------


def test_environments_are_told_from_those_of_every_other_field():
    fields = [
        TRAINING,
        SHIFTED,
        replace(TRAINING, count=8),
        replace(TRAINING, y=(2.0, 9.0)),
        replace(TRAINING, radius=Beta(0.8, 1.25, 0.1, 1.2)),
        replace(TRAINING, radius=Uniform(0.1, 1.1)),
        ObstacleField(),
    ]
    tasks = [Vehicle(obstacles=field).environments(2, "train").task for field in fields]
    assert len(set(tasks)) == len(fields)
    assert "Beta(alpha=0.8, beta=1.25, low=0.1, high=1.1)" in tasks[0]
    assert Vehicle(obstacles=CommonRadius()).environments(9, "test").task == tasks[0]


@pytest.mark.slow
@FIELDS
def test_every_outcome_is_the_oracles_and_every_trajectory_ends_as_it_costs(field: CommonRadius):
    task = Vehicle(obstacles=field)
    gains = task.policies[3::4]
    environments = task.environments(sized(10, full=25), stream="oracle")
    costs = task.costs(gains, environments, dtype=np.float64)
    contact = np.array([oracle.rollouts(gains, discs)[1] for discs in discs_in(environments)])
    assert 0.03 < costs.mean() < 0.6
    np.testing.assert_array_equal(costs, contact > 0)
    for e in range(len(environments)):
        taken = [task.trajectory(policy, environments, e) for policy in gains]
        assert [one.collided for one in taken] == (costs[e] == 1).tolist()
        steps = [len(one.poses) - 1 for one in taken]
        assert steps == np.where(contact[e] > 0, contact[e], oracle.STEPS).tolist()


@pytest.mark.slow
def test_wider_cylinders_are_hit_more_often():
    """In the same places: the distribution of the test is the harder one for a good policy."""
    widths = (0.2, 0.6, 1.0)
    fields = [CommonRadius(radius=Uniform(width, width + 1e-9)) for width in widths]
    hits = []
    for field in fields:
        task = Vehicle(obstacles=field)
        hits.append(task.costs(np.zeros((1, 20)), task.environments(600, "train"))[:, 0])
    assert hits[0].sum() < hits[1].sum() < hits[2].sum()
    assert np.all((hits[0] <= hits[1]) & (hits[1] <= hits[2]))
