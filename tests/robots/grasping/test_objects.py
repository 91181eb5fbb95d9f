"""Shapes of every family have the sizes they should have, and their points lie where they are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hand_made import part
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation
from scipy.stats import chisquare, kstest

from pacbayes_control.robots.grasping.models import (
    BOX,
    CYLINDER,
    ELLIPSOID,
    EXPONENTS,
    KIND,
    PLACE,
    SIZE,
    SUPERQUADRIC,
    TURN,
    WIDTH,
    Hull,
    bounding_box,
    corners,
    rotation,
    superquadric,
)
from pacbayes_control.robots.grasping.objects import FAMILIES, MOST_PARTS, Procedural
from pacbayes_control.tasks.environments import Arrays

Points = NDArray[np.float64]
SHAPES = 1200


@pytest.fixture(scope="module")
def shapes() -> list[Arrays]:
    rng = np.random.default_rng(0)
    return [Procedural().draw(rng) for _ in range(SHAPES)]


def longest_side(shape: Arrays) -> float:
    low, high = bounding_box(Procedural().parts(shape))
    return float((high - low).max())


def matrix(quaternion: NDArray) -> NDArray[np.float64]:
    return Rotation.from_quat(quaternion, scalar_first=True).as_matrix()


def reach(row: Points) -> Points:
    """How far a part that is no superquadric reaches from its centre along x, y and z, exactly."""
    turn, size = matrix(row[TURN]), row[SIZE]
    if row[KIND] == BOX:
        return np.abs(turn) @ size
    if row[KIND] == ELLIPSOID:
        return np.sqrt((turn**2) @ size**2)
    axis = turn[:, 2]
    return size[0] * np.sqrt(np.clip(1 - axis**2, 0, None)) + size[1] * np.abs(axis)


def all_rows(shapes: list[Arrays]) -> Points:
    return np.concatenate([s["parts"][: int(s["count"])] for s in shapes])


# ---- what is drawn ------------------------------------------------------------------------------


def test_every_family_is_drawn_about_equally_often(shapes: list[Arrays]):
    counts = np.bincount([int(s["family"]) for s in shapes], minlength=len(FAMILIES))
    assert len(counts) == len(FAMILIES) == 12
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_family_has_many_shapes_of_few_parts(family: Callable[[np.random.Generator], list]):
    rng = np.random.default_rng(1)
    drawn = [family(rng) for _ in range(30)]
    assert all(1 <= len(parts) <= MOST_PARTS for parts in drawn)
    assert len({repr(parts) for parts in drawn}) == 30


def test_rows_of_parts_are_valid(shapes: list[Arrays]):
    rows = all_rows(shapes)
    assert rows.shape[1] == WIDTH
    assert np.isfinite(rows).all()
    assert set(rows[:, KIND]) == {BOX, CYLINDER, ELLIPSOID, SUPERQUADRIC}
    np.testing.assert_allclose(np.linalg.norm(rows[:, TURN], axis=1), 1, atol=1e-12)
    round_ = rows[:, KIND] == CYLINDER
    assert (rows[round_, SIZE][:, :2] > 0).all()
    assert (rows[~round_, SIZE] > 0).all()
    assert (rows[:, EXPONENTS] > 0).all()
    assert (rows[:, EXPONENTS] < 2).all()


def test_every_shape_fills_arrays_of_the_same_size_and_has_nothing_beyond_its_parts(
    shapes: list[Arrays],
):
    for shape in shapes:
        count = int(shape["count"])
        assert shape["parts"].shape == (MOST_PARTS, WIDTH)
        assert 1 <= count <= MOST_PARTS
        assert not shape["parts"][count:].any()
        assert len(Procedural().parts(shape)) == count


def test_the_longest_side_is_uniform_in_its_range(shapes: list[Arrays]):
    sides = np.array([longest_side(shape) for shape in shapes])
    assert kstest(sides, "uniform", args=(0.07, 0.03)).pvalue > 1e-3
    assert sides.min() >= 0.07 - 1e-12
    assert sides.max() <= 0.10 + 1e-12


def test_another_range_of_sides_is_kept_to():
    objects = Procedural(longest=(0.02, 0.03))
    rng = np.random.default_rng(2)
    sides = np.array([longest_side(objects.draw(rng)) for _ in range(60)])
    assert sides.min() >= 0.02 - 1e-12
    assert sides.max() <= 0.03 + 1e-12
    assert repr(objects) != repr(Procedural())


@pytest.mark.slow
def test_shapes_lie_in_a_cube_of_10_cm_around_the_origin_up_to_the_roundness_of_their_corners(
    shapes: list[Arrays],
):
    """Round parts reach farther than their points: a cylinder by 0.9 %, an ellipsoid by 2.1 %."""
    for shape in shapes:
        low, high = bounding_box(Procedural().parts(shape))
        np.testing.assert_allclose(low, -high, atol=1e-12)
        assert high.max() <= 0.05 + 1e-12
        for row in Procedural().parts(shape):
            assert isinstance(row, np.ndarray)
            if row[KIND] != SUPERQUADRIC:
                assert (np.abs(row[PLACE]) + reach(row)).max() <= 0.05 + 1.1e-3


def test_shapes_are_solid_and_of_the_same_kind_as_their_family(shapes: list[Arrays]):
    names = list(FAMILIES)
    parts_of = {"superquadric": 1, "box": 1, "cylinder": 1, "bowl": 13, "mug": 16, "dumbbell": 3}
    for shape in shapes:
        wanted = parts_of.get(names[int(shape["family"])], 2)
        assert int(shape["count"]) == wanted


def test_the_same_generator_draws_the_same_shape():
    for seed in range(20):
        first, second = (Procedural().draw(np.random.default_rng(seed)) for _ in range(2))
        assert first.keys() == second.keys()
        assert all(np.array_equal(first[name], second[name]) for name in first)
    others = {Procedural().draw(np.random.default_rng(s))["parts"].tobytes() for s in range(50)}
    assert len(others) == 50


# ---- geometry -----------------------------------------------------------------------------------

QUATERNIONS = st.tuples(*[st.floats(-1, 1)] * 4).filter(lambda q: np.linalg.norm(q) > 0.1)


@given(QUATERNIONS)
def test_the_matrix_of_a_quaternion_is_scipys(quaternion: tuple[float, ...]):
    unit = np.array(quaternion) / np.linalg.norm(quaternion)
    np.testing.assert_allclose(rotation(unit), matrix(unit), atol=1e-14)


@given(QUATERNIONS, st.tuples(*[st.floats(0.01, 0.1)] * 3), st.tuples(*[st.floats(-1, 1)] * 3))
def test_corners_of_a_box_are_its_eight(quaternion, size, place):
    unit = np.array(quaternion) / np.linalg.norm(quaternion)
    found = corners(part(BOX, size, place, unit))
    signs = np.array(list(product((-1, 1), repeat=3)))
    wanted = Rotation.from_quat(unit, scalar_first=True).apply(signs * size) + place
    assert found.shape == (8, 3)
    order = [np.linalg.norm(found - one, axis=1).argmin() for one in wanted]
    assert sorted(order) == list(range(8))
    np.testing.assert_allclose(found[order], wanted, atol=1e-12)


def test_corners_of_procedural_parts_lie_on_them_and_reach_as_far(shapes: list[Arrays]):
    for row in all_rows(shapes[:150]):
        found, size = corners(row), row[SIZE]
        local = np.abs((found - row[PLACE]) @ matrix(row[TURN])) / np.where(size > 0, size, 1)
        if row[KIND] == BOX:
            np.testing.assert_allclose(local, 1)
        elif row[KIND] == CYLINDER:
            ends = np.abs((found - row[PLACE]) @ matrix(row[TURN])[:, 2]) / size[1]
            out = np.linalg.norm((found - row[PLACE]) @ matrix(row[TURN])[:, :2], axis=1)
            np.testing.assert_allclose(ends, 1)
            np.testing.assert_allclose(out, size[0])
        else:
            first, second = row[EXPONENTS] if row[KIND] == SUPERQUADRIC else (1.0, 1.0)
            flat = (local[:, 0] ** (2 / second) + local[:, 1] ** (2 / second)) ** (second / first)
            np.testing.assert_allclose(flat + local[:, 2] ** (2 / first), 1, atol=1e-9)
        if row[KIND] != SUPERQUADRIC:
            reached = np.abs(found - row[PLACE]).max(axis=0)
            exact = reach(row)
            assert (reached <= exact + 1e-12).all()
            assert (reached >= 0.975 * exact).all()


def test_corners_of_a_hull_are_its_own():
    points = np.random.default_rng(0).random((9, 3))
    assert np.array_equal(corners(Hull(points)), points)


@given(st.tuples(*[st.floats(0.2, 1.0)] * 3), st.tuples(st.floats(0.2, 1.9), st.floats(0.2, 1.9)))
def test_superquadrics_are_convex(size: tuple[float, ...], exponents: tuple[float, float]):
    assert deepest_point(superquadric(np.array(size), np.array(exponents))) < 1e-6


def test_superquadrics_beyond_exponent_2_are_not_convex():
    assert deepest_point(superquadric(np.ones(3), np.array([3.0, 1.0]))) > 0.01


def deepest_point(points: Points) -> float:
    """How far from the hull of all points lies the one that is farthest inside."""
    planes = ConvexHull(points, qhull_options="QJ Pp").equations
    outside = points @ planes[:, :3].T + planes[:, 3]
    return float(-outside.max(axis=1).min())


def test_a_superquadric_with_exponents_of_1_is_an_ellipsoid_and_towards_0_a_box():
    size = np.array([0.5, 0.3, 0.2])
    round_ = superquadric(size, np.ones(2)) / size
    np.testing.assert_allclose(np.linalg.norm(round_, axis=1), 1)
    square = np.abs(superquadric(size, np.full(2, 0.01)) / size)
    assert (square.max(axis=1) > 0.97).all()
    assert ConvexHull(square * np.sign(round_)).volume > 7  # of 8


def test_the_bounding_box_of_a_compound_holds_all_of_its_parts():
    parts = [part(BOX, (1, 1, 1), (2, 0, 0)), Hull(np.array([[0, 0, 5.0], [-3, 0, 0], [0, 4, 0]]))]
    low, high = bounding_box(parts)
    assert low.tolist() == [-3, -1, -1]
    assert high.tolist() == [3, 4, 5]
