"""Rays cast into a model, without a display: depth images for policies, pictures for people."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.robots.grasping.models import Floats, mujoco

FAR = 10.0  # m, beyond which a ray meets nothing

# Colours, as red, green and blue in [0, 1].
OBJECT = (0.30, 0.58, 0.80)
TABLE = (0.90, 0.895, 0.88), (0.86, 0.855, 0.84)
BACKGROUND = (0.95, 0.955, 0.96)
SQUARE = 0.05  # m, of the table's pattern
FADE = (0.45, 0.95)  # m, of the table around the origin, within which it becomes the background

FINER = 2  # rays along each side of a pixel
TOUCH = 1e-3  # m: light that ends so near to a point reaches it

# The light: its distance to the right of the target, beyond it and above it, from the eye, in m.
# It is a ring of points, for shadows that have no hard edge; each ray of a pixel has some of them.
LIGHT = (0.3, -0.5, 0.9)
RING = 0.04  # m, its radius
LIGHTS = 8
AMBIENT, SKY, DIRECT = 0.45, 0.19, 0.45  # shares of light: from all sides, from above, from LIGHT


def cast(
    model: Any, data: Any, origin: Floats, rays: Floats, normals: Floats | None = None
) -> tuple[NDArray[np.int32], Floats]:
    """The geom that each ray from a point meets, or -1, and its distance in m, both (rays,).

    Args:
        model: MuJoCo's model.
        data: its data, after `mj_forward`.
        origin: (3,), where the rays begin, in m.
        rays: (rays, 3), of length 1.
        normals: (rays, 3), filled with the normals of the surfaces that are met.
    """
    geoms, distances = np.empty(len(rays), np.int32), np.empty(len(rays))
    flat = None if normals is None else normals.reshape(-1)
    towards = np.ascontiguousarray(rays).ravel()
    mujoco().mj_multiRay(
        model, data, origin, towards, None, True, -1, geoms, distances, flat, len(rays), FAR
    )
    return geoms, distances


@dataclass(frozen=True, eq=False)
class View:
    """The camera's image of an object; lengths in m."""

    heights: NDArray[np.float32]  # (pixels, pixels), above the table, around the centroid
    mask: NDArray[np.bool_]  # (pixels, pixels), where the object is
    centroid: Floats  # (2,), of the points of the object that are seen
    top: float  # height of the highest point that is seen
    whole: bool = True  # whether the object lies within the image


@dataclass(frozen=True)
class Camera:
    """A pinhole camera above the table, looking straight down."""

    height: float = 0.6  # m
    reach: float = 0.12  # m, from the middle of the image to its side, on the table
    pixels: int = 96  # along a side
    crop: int = 64  # pixels of the part around the object that a policy sees

    @cached_property
    def rays(self) -> Floats:
        """Unit vectors, (pixels², 3); rows from -y to y, columns from -x to x."""
        middle = (np.arange(self.pixels) + 0.5) / self.pixels * 2 - 1
        x, y = np.meshgrid(self.reach * middle, self.reach * middle)
        rays = np.stack([x, y, np.full_like(x, -self.height)], axis=-1).reshape(-1, 3)
        return rays / np.linalg.norm(rays, axis=1, keepdims=True)

    @property
    def pixel(self) -> float:
        """The side of a pixel on the table, in m."""
        return 2 * self.reach / self.pixels

    def look(self, model: Any, data: Any) -> View | None:
        """The view of the object on an empty table; None if it is out of sight."""
        rays, origin = self.rays, np.array([0.0, 0.0, self.height])
        geoms, distances = cast(model, data, origin, rays)
        points = (origin + rays * distances[:, None]).reshape(self.pixels, self.pixels, 3)
        met = (geoms >= 0) & (model.geom_bodyid[np.maximum(geoms, 0)] == model.body("object").id)
        seen = met.reshape(self.pixels, self.pixels)
        if not seen.any():
            return None
        rows, columns = np.nonzero(seen)
        middle = [round(float(axis.mean())) for axis in (rows, columns)]
        edges = (rows.min(), columns.min(), rows.max(), columns.max())
        return View(
            heights=_around(np.maximum(points[..., 2], 0), middle, self.crop).astype(np.float32),
            mask=_around(seen, middle, self.crop),
            centroid=points[seen, :2].mean(axis=0),
            top=float(points[seen, 2].max()),
            whole=bool(min(edges[:2]) > 0 and max(edges[2:]) < self.pixels - 1),
        )


def _around(image: NDArray, middle: list[int], size: int) -> NDArray:
    """A square of an image around a pixel, with zeros outside the image."""
    padded = np.pad(image, size // 2)
    row, column = middle
    return padded[row : row + size, column : column + size]


# ---- pictures -----------------------------------------------------------------------------------


def shaded(
    model: Any,
    data: Any,
    eye: ArrayLike,
    target: ArrayLike,
    size: tuple[int, int],
    field_of_view: float = 0.6,
) -> NDArray[np.uint8]:
    """The view of a model from a point, in light and shadow; (height, width, 3).

    Args:
        model: MuJoCo's model.
        data: its data, after `mj_forward`.
        eye: (3,) in m, the point.
        target: (3,) in m, the middle of the picture; seen straight from above, y points up.
        size: width and height in pixels.
        field_of_view: over the height, in rad.

    >>> from pacbayes_control.robots.grasping.models import build, data_at
    >>> from pacbayes_control.robots.grasping.task import Grasping
    >>> task = Grasping()
    >>> objects = task.environments(1, stream="example").arrays()
    >>> model = build(task.tabletop.body(objects, 0))
    >>> data = data_at(model, objects["rest"][0])
    >>> shaded(model, data, (0.1, -0.3, 0.3), (0.0, 0.0, 0.0), (64, 48)).shape
    (48, 64, 3)
    """
    eye, target = np.asarray(eye, float), np.asarray(target, float)
    width, height = size
    axes = _axes(eye, target)
    rays = _rays(axes, (width * FINER, height * FINER), field_of_view)
    normals = np.zeros_like(rays)
    geoms, distances = cast(model, data, eye, rays, normals)
    seen = geoms >= 0
    rays, geoms, normals = rays[seen], geoms[seen], normals[seen]
    points = eye + rays * distances[seen, None]
    normals[_product(normals, rays) > 0] *= -1  # towards the eye
    level = np.array([-axes[0, 1], axes[0, 0], 0])  # along the table away from the eye
    light = target + LIGHT[0] * axes[0] + LIGHT[1] * level + [0, 0, LIGHT[2]]
    fine = np.flatnonzero(seen)
    ray = fine % FINER + FINER * (fine // (width * FINER) % FINER)  # of its pixel
    brightness = _brightness(model, data, points, normals=normals, light=light, ray=ray)
    colours = np.clip(_albedo(model, geoms, points) * brightness[:, None], 0, 1)
    table = geoms == model.geom("table").id
    away = np.hypot(points[table, 0], points[table, 1])
    near = np.clip((FADE[1] - away) / (FADE[1] - FADE[0]), 0, 1)[:, None]
    colours[table] = near * colours[table] + (1 - near) * np.array(BACKGROUND)
    image = np.tile(np.array(BACKGROUND), (len(seen), 1))
    image[seen] = colours
    pixels = image.reshape(height, FINER, width, FINER, 3).mean(axis=(1, 3))
    return np.round(255 * pixels).astype(np.uint8)


# ---- rays ---------------------------------------------------------------------------------------


def _axes(eye: Floats, target: Floats) -> Floats:
    """To the right, up and ahead, as rows."""
    ahead = (target - eye) / np.linalg.norm(target - eye)
    right = np.cross(ahead, [0, 0, 1])
    if np.linalg.norm(right) < 1e-9:  # straight down
        right = np.array([1.0, 0, 0])
    right /= np.linalg.norm(right)
    return np.array([right, np.cross(right, ahead), ahead])


def _rays(axes: Floats, size: tuple[int, int], field_of_view: float) -> Floats:
    """Unit vectors, (height · width, 3), row by row from the top left."""
    width, height = size
    half = np.tan(field_of_view / 2)
    x = ((np.arange(width) + 0.5) / width * 2 - 1) * half * width / height
    y = (1 - (np.arange(height) + 0.5) / height * 2) * half
    right, up, ahead = axes
    rays = (x[:, None] * right + (y[:, None] * up + ahead)[:, None]).reshape(-1, 3)
    return rays / np.sqrt(_product(rays, rays))[:, None]


def _product(a: Floats, b: Floats) -> Floats:
    """Inner products, row by row."""
    return np.einsum("ij,ij->i", a, b)


# ---- light and colour ---------------------------------------------------------------------------


def _brightness(
    model: Any, data: Any, points: Floats, *, normals: Floats, light: Floats, ray: NDArray[np.int64]
) -> Floats:
    """The light that each point gets, (points,); ray: the number of its ray in its pixel."""
    direct = np.zeros(len(points))
    for number in range(LIGHTS):
        turn = number * 2 * np.pi / LIGHTS
        place = light + RING * np.array([np.cos(turn), np.sin(turn), 0])
        own = ray == number % FINER**2
        way = points[own] - place
        length = np.sqrt(_product(way, way))
        way /= length[:, None]
        _, met = cast(model, data, place, way)
        lit = (met < 0) | (met > length - TOUCH)
        direct[own] += lit * np.maximum(0, -_product(normals[own], way))
    direct *= FINER**2 / LIGHTS
    return AMBIENT + SKY * (1 + normals[:, 2]) / 2 + DIRECT * direct


def _albedo(model: Any, geoms: NDArray[np.int32], points: Floats) -> Floats:
    """The colour of each point in white light; (points, 3)."""
    albedo = model.geom_rgba[geoms, :3].astype(float)
    albedo[model.geom_bodyid[geoms] == model.body("object").id] = OBJECT
    table = geoms == model.geom("table").id
    odd = np.floor(points[table, :2] / SQUARE).sum(axis=1) % 2
    albedo[table] = np.array(TABLE)[odd.astype(int)]
    return albedo
