"""Pictures show what is there, from where they say, without a display."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hand_made import alone, at, body, part, pose
from numpy.typing import NDArray

from pacbayes_control.robots.grasping import camera
from pacbayes_control.robots.grasping.camera import OBJECT, Camera, shaded
from pacbayes_control.robots.grasping.models import build
from pacbayes_control.robots.grasping.robots import Arm

OVER = (0.0, 0.0, 0.6)
ORIGIN = (0.0, 0.0, 0.0)
SIDE = ((0.2, -0.4, 0.3), (0.0, 0.0, 0.02))


def brick(**where: float) -> tuple[Any, Any]:
    return alone(body(), pose(**where))


def blue(image: NDArray) -> NDArray[np.bool_]:
    """Where the object is: nothing else is as blue."""
    return image[..., 2].astype(int) - image[..., 0] > 40


def test_a_picture_has_the_size_that_is_asked_for_and_is_the_same_again():
    model, data = brick()
    image = shaded(model, data, *SIDE, (64, 48))
    assert image.shape == (48, 64, 3)
    assert image.dtype == np.uint8
    assert np.array_equal(image, shaded(model, data, *SIDE, (64, 48)))


def test_from_where_the_camera_is_the_object_is_where_the_camera_sees_it():
    camera = Camera()
    model, data = brick(x=0.02, y=0.03, yaw=0.4)
    angle = 2 * np.arctan(camera.reach / camera.height)
    image = shaded(model, data, OVER, ORIGIN, (camera.pixels, camera.pixels), angle)
    view = camera.look(model, data)
    assert view is not None
    rows, columns = np.nonzero(blue(image[::-1]))  # the camera's rows run from -y to y
    place = (np.array([columns.mean(), rows.mean()]) + 0.5) * camera.pixel - camera.reach
    nearer = 1 - view.top / camera.height
    np.testing.assert_allclose(place * nearer, view.centroid, atol=camera.pixel / 4)
    assert abs(blue(image).sum() - view.mask.sum()) < 0.1 * view.mask.sum()


def test_straight_down_x_is_to_the_right_and_y_is_up():
    model, data = brick(x=0.05, y=0.05)
    rows, columns = np.nonzero(blue(shaded(model, data, OVER, ORIGIN, (60, 60))))
    assert rows.mean() < 30 < columns.mean()


def test_what_is_above_the_table_casts_a_shadow_on_it_and_faces_differ_in_light():
    model, data = brick(z=0.1)
    high = shaded(model, data, OVER, ORIGIN, (80, 80)).astype(int)
    model, data = brick(x=5.0)
    empty = shaded(model, data, OVER, ORIGIN, (80, 80)).astype(int)
    dark = (empty - high).min(axis=-1) > 30
    assert not blue(empty).any()
    assert (dark & ~blue(high)).sum() > 100
    model, data = brick()
    faces = shaded(model, data, *SIDE, (80, 80)).astype(int)
    assert np.ptp(faces[blue(faces)][:, 2]) > 40


def test_the_object_has_its_colour_and_nothing_else_has_it(monkeypatch: pytest.MonkeyPatch):
    model, data = brick()
    usual = shaded(model, data, *SIDE, (60, 60))
    with monkeypatch.context() as patch:
        patch.setattr(camera, "OBJECT", (0.8, 0.2, 0.2))
        red = shaded(model, data, *SIDE, (60, 60)).astype(int)
    changed = (red != usual).any(axis=-1)
    assert np.array_equal(changed, changed & (red[..., 0] - red[..., 2] > 3))
    assert blue(usual).sum() <= changed.sum() < 1.3 * blue(usual).sum() + 20
    model.geom_rgba[model.geom("table").id] = (0, 1, 0, 1)  # the table's is the picture's
    assert np.array_equal(usual, shaded(model, data, *SIDE, (60, 60)))


def test_a_robot_has_its_own_colours():
    arm = Arm()
    model = build(body(), arm.world)
    data = at(model, pose())
    image = shaded(model, data, (1.2, -1.6, 0.8), (-0.3, 0, 0.6), (60, 60), 0.8).astype(int)
    assert (image[..., 0] - image[..., 2] > 80).sum() > 50  # orange, at its joints
    assert (image.max(axis=-1) < 80).sum() > 20  # black, at its foot


def test_where_there_is_nothing_the_background_is_plain():
    model, data = brick()
    away = shaded(model, data, (0, 0, 1), (3, 0, 1.5), (20, 20), 0.3)
    assert np.ptp(away.reshape(-1, 3), axis=0).max() == 0


def test_an_object_of_several_parts_has_one_colour():
    two = body(part(size=(0.02, 0.02, 0.02)), part(size=(0.01, 0.01, 0.03), place=(0.03, 0, 0)))
    model, data = alone(two, pose())
    top = shaded(model, data, OVER, ORIGIN, (150, 150), 0.3)
    hues = top[blue(top)].astype(float)
    shares = hues / hues.sum(axis=1, keepdims=True)
    inside = np.abs(shares - np.array(OBJECT) / sum(OBJECT)).max(axis=1) < 0.01
    assert inside.mean() > 0.85  # the rest is at the border
