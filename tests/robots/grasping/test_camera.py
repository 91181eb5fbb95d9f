"""The image of a known object is the one that geometry tells."""

from __future__ import annotations

import numpy as np
import pytest
from hand_made import BRICK, alone, at, body, part, pose
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.camera import Camera, View
from pacbayes_control.robots.grasping.models import ELLIPSOID, build
from pacbayes_control.robots.grasping.robots import Gripper

WHOLE = Camera(crop=96)  # the image of an object in the middle is not cut


def seen(x: float = 0.0, y: float = 0.0, yaw: float = 0.0, camera: Camera = WHOLE) -> View:
    view = camera.look(*alone(body(), pose(x, y, yaw=yaw)))
    assert view is not None
    return view


def through_a_box(camera: Camera, centre: NDArray, half: NDArray) -> NDArray[np.float64]:
    """Heights above the table where the camera's rays end, by the three slabs of a box."""
    side = np.linspace(-1, 1, 2 * camera.pixels + 1)[1::2] * camera.reach
    ends = np.array([[[x, y, 0.0] for x in side] for y in side])  # on the table
    eye = np.array([0, 0, camera.height])
    with np.errstate(divide="ignore"):
        a, b = ((centre + sign * half - eye) / (ends - eye) for sign in (-1, 1))
    enters, leaves = np.minimum(a, b).max(axis=-1), np.maximum(a, b).min(axis=-1)
    share = np.where((enters <= leaves) & (enters < 1), enters, 1.0)
    return camera.height * (1 - share)


def test_the_heights_of_a_box_in_the_middle_are_exact():
    view = seen()
    wanted = through_a_box(WHOLE, np.array([0, 0, BRICK[2]]), np.array(BRICK))
    np.testing.assert_allclose(view.heights, wanted, atol=1e-6)
    assert np.array_equal(view.mask, wanted > 0)
    assert view.heights.dtype == np.float32
    assert view.heights.max() == pytest.approx(2 * BRICK[2], abs=1e-6)


@pytest.mark.parametrize(("x", "y"), [(0.03, 0.0), (0.0, -0.05), (-0.041, 0.033)])
def test_the_heights_of_a_box_elsewhere_are_exact_around_it(x: float, y: float):
    camera = Camera()
    image = through_a_box(camera, np.array([x, y, BRICK[2]]), np.array(BRICK))
    view = seen(x, y, camera=camera)
    assert view.heights.shape == view.mask.shape == (64, 64)
    rows, columns = np.nonzero(image > 0)
    middle = [round(float(rows.mean())), round(float(columns.mean()))]
    padded = np.pad(image, 64)
    wanted = padded[middle[0] + 32 : middle[0] + 96, middle[1] + 32 : middle[1] + 96]
    np.testing.assert_allclose(view.heights, wanted, atol=1e-6)
    assert view.whole


def test_columns_go_along_x_and_rows_along_y():
    """Seen in the whole image: objects with a knob on one side are cut around their middles."""
    for axis, place in ((1, (0.045, 0, 0.015)), (0, (0, 0.045, 0.015))):
        knob = body(part(size=(0.03, 0.03, 0.01)), part(size=(0.01, 0.01, 0.025), place=place))
        view = WHOLE.look(*alone(knob, pose(z=0.01)))
        assert view is not None
        high = np.argwhere(view.heights > 0.035)
        low = np.argwhere(view.mask & (view.heights < 0.021))
        assert high[:, axis].min() > low[:, axis].mean() + 5
        assert abs(high[:, 1 - axis].mean() - low[:, 1 - axis].mean()) < 2


def test_an_object_at_a_larger_x_is_seen_by_rays_of_larger_columns():
    rays = Camera().rays.reshape(96, 96, 3)
    assert (np.diff(rays[..., 0], axis=1) > 0).all()
    assert (np.diff(rays[..., 1], axis=0) > 0).all()
    np.testing.assert_allclose(np.linalg.norm(rays, axis=-1), 1)
    ends = rays / -rays[..., 2:] * 0.6
    np.testing.assert_allclose(np.diff(ends[0, :, 0]), Camera().pixel)
    np.testing.assert_allclose(np.abs(ends[..., :2]).max(), 0.12 - Camera().pixel / 2)


@pytest.mark.parametrize(("x", "y"), [(0.0, 0.0), (0.03, 0.0), (-0.02, 0.05), (0.01, -0.04)])
@pytest.mark.parametrize("yaw", [0.0, 0.6])
def test_the_centroid_is_the_boxs_middle(x: float, y: float, yaw: float):
    view = seen(x, y, yaw)
    np.testing.assert_allclose(view.centroid, [x, y], atol=2e-3)
    assert view.top == pytest.approx(2 * BRICK[2], abs=1e-6)


def test_moving_a_flat_object_by_whole_pixels_moves_the_centroid_and_not_the_image():
    camera = Camera()
    pixel = camera.pixel
    flat = body(part(size=(12.5 * pixel, 8.5 * pixel, 1e-4)))  # 25 × 17 pixels
    here, there = (
        camera.look(*alone(flat, pose((x + 0.5) * pixel, (y + 0.5) * pixel, z=1e-4)))
        for x, y in ((0, 0), (8, -5))
    )
    assert here is not None
    assert there is not None
    assert here.mask.sum() == 25 * 17
    assert np.array_equal(here.mask, there.mask)
    moved = np.array([8, -5]) * pixel
    np.testing.assert_allclose(there.centroid - here.centroid, moved, atol=1e-5)


def test_the_top_of_a_ball_is_its_highest_point():
    ball = body(part(ELLIPSOID, (0.03, 0.03, 0.03)))
    view = WHOLE.look(*alone(ball, pose(z=0.03)))
    assert view is not None
    assert 0.06 - 1e-4 < view.top <= 0.06 + 1e-9
    hidden = 0.03 * (1 - 0.03 / (0.6 - 0.03))  # nothing is seen below where rays touch it
    assert view.heights[view.mask].min() >= hidden - 5e-3


@pytest.mark.parametrize(("x", "y"), [(0.3, 0.0), (0.0, -0.3), (0.5, 0.5)])
def test_an_object_out_of_sight_is_not_seen(x: float, y: float):
    assert WHOLE.look(*alone(body(), pose(x, y))) is None


@pytest.mark.parametrize(("x", "y"), [(0.1, 0.0), (-0.1, 0.0), (0.0, 0.11), (0.0, -0.11)])
def test_an_object_partly_in_sight_is_not_whole(x: float, y: float):
    view = seen(x, y, camera=Camera())
    assert not view.whole
    assert view.mask.any()
    assert not view.heights[~view.mask].any()


def test_an_object_well_within_the_image_is_whole():
    assert seen().whole
    assert seen(0.05, -0.06).whole


def test_more_pixels_see_more_of_the_same():
    fine = Camera(pixels=192, crop=192)
    view = seen(0.01, 0.02, camera=fine)
    assert view.heights.shape == (192, 192)
    np.testing.assert_allclose(view.centroid, [0.01, 0.02], atol=1e-3)
    assert view.mask.sum() == pytest.approx(4 * seen(0.01, 0.02).mask.sum(), rel=0.05)


def test_looking_is_the_same_each_time_and_leaves_the_object_where_it_is():
    model, data = alone(body(), pose(0.01, 0.02, yaw=0.3))
    before = data.qpos.copy()
    first, second = WHOLE.look(model, data), WHOLE.look(model, data)
    assert first is not None
    assert second is not None
    assert np.array_equal(first.heights, second.heights)
    assert np.array_equal(before, data.qpos)


def test_only_the_object_is_in_the_mask_even_where_there_is_a_hand():
    model = build(body(), Gripper().world)
    data = at(model, pose(0.5, 0.5))
    assert WHOLE.look(model, data) is None
