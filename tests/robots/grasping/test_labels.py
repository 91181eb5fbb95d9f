"""Grids of grasps, how much error each grasp tolerates, and the one to aim for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.labels import Grid, Labels, targets, tolerances
from pacbayes_control.tasks.environments import Arrays, Environments

SMALL = Grid(half_width=0.02, places=3, angles=6)
TABLES = arrays(np.uint8, st.tuples(st.integers(1, 4), st.just(54)), elements=st.integers(0, 1))


def draw(rng: np.random.Generator, n: int) -> Arrays:
    return {"number": rng.random(n)}


def some(start: int, stop: int, stream: str = "train", seed: int = 0, task: str = "grasping"):
    return Environments(draw, task, stream, seed, start, stop, 16)


def labels(start: int = 32, stop: int = 40, grid: Grid = SMALL, seed: int = 0) -> Labels:
    rng = np.random.default_rng(seed)
    failures = rng.integers(0, 2, (stop - start, len(grid.grasps)), np.uint8)
    return Labels(some(start, stop), failures, grid)


# ---- the grid -----------------------------------------------------------------------------------


def test_the_papers_grid_has_5_by_5_places_and_30_angles():
    grasps = Grid().grasps
    assert grasps.shape == (750, 3)
    assert np.unique(grasps, axis=0).shape == (750, 3)
    for axis in range(2):
        np.testing.assert_allclose(
            np.unique(grasps[:, axis]), [-0.03, -0.015, 0, 0.015, 0.03], atol=1e-12
        )
    angles = np.unique(grasps[:, 2])
    np.testing.assert_allclose(angles, np.arange(30) * np.pi / 30, atol=1e-12)


def test_the_angle_varies_fastest_and_then_y():
    grid = Grid(half_width=0.01, places=3, angles=4)
    assert grid.shape == (3, 3, 4)
    i = 0
    for x in (-0.01, 0, 0.01):
        for y in (-0.01, 0, 0.01):
            for k in range(4):
                np.testing.assert_allclose(grid.grasps[i], [x, y, k * np.pi / 4], atol=1e-15)
                i += 1


@pytest.mark.parametrize(
    "wrong", [{"places": 1}, {"angles": 1}, {"half_width": 0.0}, {"half_width": np.nan}]
)
def test_a_grid_without_extent_is_refused(wrong: dict):
    with pytest.raises(ValueError, match=r"a grid needs at least two places and two angles"):
        Grid(**wrong)


# ---- tolerances ---------------------------------------------------------------------------------


def tolerated(row: NDArray, k: int) -> int:
    """The largest error, in steps and up to half a circle, that a grasp survives either way."""
    n = len(row)
    reach = -1
    while reach < n // 2 and all(not row[(k + s * (reach + 1)) % n] for s in (-1, 1)):
        reach += 1
    return reach


@pytest.mark.slow
@given(
    arrays(np.uint8, array_shapes(min_dims=1, max_dims=3, max_side=11), elements=st.integers(0, 1))
)
def test_tolerances_are_those_of_brute_force(failures: NDArray):
    found = tolerances(failures)
    assert found.shape == failures.shape
    for index in np.ndindex(*failures.shape):
        assert found[index] == tolerated(failures[index[:-1]], index[-1])


@given(arrays(np.uint8, 12, elements=st.integers(0, 1)), st.integers(0, 11))
def test_tolerances_go_around_with_the_circle(failures: NDArray, turn: int):
    assert np.array_equal(tolerances(np.roll(failures, turn)), np.roll(tolerances(failures), turn))


def test_tolerances_of_what_always_or_never_succeeds():
    assert tolerances(np.zeros(30)).tolist() == [15] * 30
    assert tolerances(np.ones(30)).tolist() == [-1] * 30
    assert tolerances(np.array([[1, 0, 0, 0, 0, 1]])).tolist() == [[-1, 0, 1, 1, 0, -1]]
    assert tolerances(np.array([0, 0, 1, 1, 1, 0])).tolist() == [1, 0, -1, -1, -1, 0]


# ---- targets ------------------------------------------------------------------------------------


@given(TABLES)
def test_the_target_is_the_most_tolerant_grasp_and_of_those_the_nearest(failures: NDArray):
    aims, known = targets(failures, SMALL)
    assert aims.shape == (len(failures), 3)
    for row, aim, has_one in zip(failures, aims, known, strict=True):
        candidates = []
        for i, (x, y, _) in enumerate(SMALL.grasps):
            first = i - i % SMALL.angles
            reach = tolerated(row[first : first + SMALL.angles], i % SMALL.angles)
            if reach >= 0:
                candidates.append((-reach, round(float(np.hypot(x, y)), 9), i))
        assert has_one == bool(candidates) == bool((row == 0).any())
        if candidates:
            best = min(candidates)[:2]
            chosen = [i for *rank, i in candidates if tuple(rank) == best]
            assert any(np.array_equal(aim, SMALL.grasps[i]) for i in chosen)


def test_ties_go_to_the_centroid():
    aims, known = targets(np.zeros((2, 54)), SMALL)
    assert known.all()
    assert not aims[:, :2].any()


def test_tolerance_counts_more_than_nearness():
    failures = np.ones((3, 3, 6))
    failures[1, 1, 0] = 0  # in the middle, with no error allowed
    failures[0, 2, 2:5] = 0  # at a corner, with one step either way
    aims, known = targets(failures.reshape(1, 54), SMALL)
    assert known.tolist() == [True]
    np.testing.assert_allclose(aims[0], [-0.02, 0.02, np.pi / 2])


def test_an_object_without_any_success_has_no_target():
    failures = np.ones((3, 54))
    failures[1, 20] = 0
    aims, known = targets(failures, SMALL)
    assert known.tolist() == [False, True, False]
    assert np.isfinite(aims).all()
    assert np.array_equal(aims[1], SMALL.grasps[20])


# ---- labels -------------------------------------------------------------------------------------


def test_rows_are_those_of_the_objects_asked_for():
    known = labels(32, 40)
    assert known.rows(known.environments) == slice(0, 8)
    assert known.rows(some(34, 36)) == slice(2, 4)
    assert known.rows(known.environments[3:5]) == slice(3, 5)


@pytest.mark.parametrize(
    "others",
    [
        some(31, 36),
        some(36, 41),
        some(0, 8),
        some(34, 36, stream="test"),
        some(34, 36, seed=1),
        some(34, 36, task="grasping other objects"),
    ],
    ids=["before", "beyond", "elsewhere", "stream", "seed", "task"],
)
def test_objects_without_labels_are_refused_in_a_line(others: Environments):
    with pytest.raises(ValueError, match=r"^objects \d+ to \d+ of stream '\w+' have no labels: "):
        labels(32, 40).rows(others)


@pytest.mark.parametrize("shape", [(7, 54), (8, 53), (8, 3, 3, 6)])
def test_labels_of_another_shape_are_refused(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"were given for 8 objects and 54 grasps each"):
        Labels(some(32, 40), np.zeros(shape, np.uint8), SMALL)


def test_labels_are_told_apart_by_objects_grid_and_failures():
    one = labels()
    others = [
        labels(seed=1),
        labels(33, 41),
        labels(grid=Grid(0.03, 3, 6)),
        Labels(some(32, 40, stream="test"), one.failures, SMALL),
        Labels(some(32, 40, seed=1), one.failures, SMALL),
    ]
    assert len({repr(other) for other in [one, *others]}) == 6
    assert repr(labels()) == repr(one)


def test_labels_keep_their_targets():
    one = labels()
    aims, known = one.targets
    wanted, has_one = targets(one.failures, SMALL)
    assert np.array_equal(aims, wanted)
    assert np.array_equal(known, has_one)
    assert one.targets is one.targets
