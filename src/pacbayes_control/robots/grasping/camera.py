"""A camera above the table: depth images by casting rays, which needs no display."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.models import cast
from pacbayes_control.robots.grasping.shapes import Floats


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
        points, seen = self._points(model, data)
        seen = seen.reshape(self.pixels, self.pixels)
        if not seen.any():
            return None
        heights = np.maximum(points[:, 2], 0).reshape(seen.shape)
        object_points = points.reshape(*seen.shape, 3)[seen]
        centroid = object_points[:, :2].mean(axis=0)
        rows, columns = np.nonzero(seen)
        middle = [round(float(axis.mean())) for axis in (rows, columns)]
        edges = (rows.min(), columns.min(), rows.max(), columns.max())
        whole = min(edges[:2]) > 0 and max(edges[2:]) < self.pixels - 1
        return View(
            _around(heights, middle, self.crop).astype(np.float32),
            _around(seen, middle, self.crop),
            centroid,
            float(object_points[:, 2].max()),
            bool(whole),
        )

    def _points(self, model: Any, data: Any) -> tuple[Floats, NDArray[np.bool_]]:
        """Where the rays end, (pixels², 3), and which of them meet the object."""
        rays, origin = self.rays, np.array([0.0, 0.0, self.height])
        geoms, distances = cast(model, data, origin, rays)
        target = model.body("object").id
        met = (geoms >= 0) & (model.geom_bodyid[np.maximum(geoms, 0)] == target)
        return origin + rays * distances[:, None], met


def _around(image: NDArray, middle: list[int], size: int) -> NDArray:
    """A square of an image around a pixel, with zeros outside the image."""
    padded = np.pad(image, size // 2)
    row, column = middle
    return padded[row : row + size, column : column + size]
