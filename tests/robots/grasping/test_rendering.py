"""Pictures show what is there, from where they say; without a display, and without a crash."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hand_made import alone, at, body, part, pose
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.arm import Arm
from pacbayes_control.robots.grasping.camera import Camera
from pacbayes_control.robots.grasping.models import build, mujoco
from pacbayes_control.robots.grasping.rendering import OBJECT, TABLE, rgb, shaded
from sizes import sized

mj = mujoco()
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


def test_the_object_has_the_colour_that_is_asked_for_and_nothing_else_has_it():
    model, data = brick()
    red = shaded(model, data, *SIDE, (60, 60), colour=(0.8, 0.2, 0.2)).astype(int)
    usual = shaded(model, data, *SIDE, (60, 60))
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


# ---- OpenGL -------------------------------------------------------------------------------------


class Scene:
    """Stands in for MuJoCo's renderer: the scene is made as it does, and only not drawn."""

    last: Any = None

    def __init__(self, model: Any, height: int, width: int) -> None:
        assert (model.vis.global_.offwidth, model.vis.global_.offheight) == (width, height)
        self.model, self.size = model, (height, width, 3)

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update_scene(self, data: Any, camera: Any) -> None:
        Scene.last = mj.MjvScene(self.model, 100)
        options, everything = mj.MjvOption(), mj.mjtCatBit.mjCAT_ALL
        mj.mjv_updateScene(self.model, data, options, None, camera, everything, Scene.last)

    def render(self) -> NDArray[np.uint8]:
        return np.zeros(self.size, np.uint8)


@pytest.mark.parametrize(
    ("eye", "target"), [SIDE, (OVER, ORIGIN), ((-0.3, 0.1, 0.2), (0.1, 0.2, 0.3))]
)
def test_with_opengl_the_view_is_the_same(monkeypatch: pytest.MonkeyPatch, eye: Any, target: Any):
    model, data = brick()
    monkeypatch.setattr(mj, "Renderer", Scene)
    assert rgb(model, data, eye, target, (40, 30), 0.5).shape == (30, 40, 3)
    ahead = np.subtract(target, eye) / np.linalg.norm(np.subtract(target, eye))
    cameras = Scene.last.camera  # of two eyes, a little apart
    np.testing.assert_allclose(np.mean([c.pos for c in cameras], axis=0), eye, atol=1e-6)
    np.testing.assert_allclose(np.mean([c.forward for c in cameras], axis=0), ahead, atol=1e-3)
    half = cameras[0].frustum_top / cameras[0].frustum_near
    assert half == pytest.approx(np.tan(0.25), rel=1e-5)
    if eye == OVER:
        np.testing.assert_allclose(cameras[0].up, [0, 1, 0], atol=1e-6)
    colours = [geom.rgba[:3] for geom in Scene.last.geoms[: Scene.last.ngeom]]
    np.testing.assert_allclose(colours, [TABLE[0], OBJECT], rtol=1e-6)
    assert model.geom_rgba[model.geom_bodyid == model.body("object").id, 0] == 0.5  # as it was


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "warn"),
    sized(
        [("glfw", "always"), ("disabled", "error")],
        full=[("glfw", "error"), ("glfw", "always"), ("disabled", "error")],
    ),
)
def test_without_opengl_there_is_a_line_and_nothing_else(library: str, warn: str):
    """In a process of its own, as MuJoCo chooses its library when it is imported."""
    code = (
        "from hand_made import *\n"
        "from pacbayes_control.robots.grasping.rendering import rgb\n"
        "model, data = alone(body(), pose())\n"
        "try: rgb(model, data, (0, 0, 1), (0, 0, 0))\n"
        "except RuntimeError as error: print(error)\n"
    )
    settings = {k: v for k, v in os.environ.items() if "DISPLAY" not in k}
    settings |= {"MUJOCO_GL": library, "PYTHONPATH": os.path.dirname(__file__)}
    result = subprocess.run(
        [sys.executable, "-W", warn, "-c", code],
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("no OpenGL context could be made here (")
    assert result.stdout.endswith("): set MUJOCO_GL=egl or osmesa, or use the ray-cast picture\n")
    assert result.stdout.count("\n") == 1


def test_an_object_of_several_parts_has_one_colour():
    two = body(part(size=(0.02, 0.02, 0.02)), part(size=(0.01, 0.01, 0.03), place=(0.03, 0, 0)))
    model, data = alone(two, pose())
    top = shaded(model, data, OVER, ORIGIN, (150, 150), 0.3)
    hues = top[blue(top)].astype(float)
    shares = hues / hues.sum(axis=1, keepdims=True)
    inside = np.abs(shares - np.array(OBJECT) / sum(OBJECT)).max(axis=1) < 0.01
    assert inside.mean() > 0.85  # the rest is at the border
