"""Obstacle fields as the paper draws them, and the three walls around."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.base import Arrays


@dataclass(frozen=True)
class ObstacleField:
    """The distribution of environments: how many cylinders, where, and how wide.

    Positions and radii are uniform and independent; the number is uniform over a range.
    """

    fewest: int = 20  # cylinders
    most: int = 40  # cylinders
    x: tuple[float, float] = (-5.0, 5.0)  # m
    y: tuple[float, float] = (2.0, 10.0)  # m
    radius: tuple[float, float] = (0.05, 0.2)  # m

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        """`obstacles` (n, most, 3) as x, y, radius in m; the first `counts` (n,) of them count."""
        counts = rng.integers(self.fewest, self.most, size=n, endpoint=True)
        low, high = np.array([self.x, self.y, self.radius]).T
        obstacles = rng.uniform(low, high, size=(n, self.most, 3)).astype(np.float32)
        return {"obstacles": obstacles, "counts": counts}


@dataclass(frozen=True)
class Arena:
    """Walls on three sides, open at the top, so that the robot may leave."""

    half_width: float = 5.0  # m, to the middle of the side walls
    length: float = 10.0  # m
    half_thickness: float = 0.1  # m

    @property
    def walls(self) -> NDArray[np.float64]:
        """Left, right and bottom wall, (3, 4) as left, right, bottom, top side in m."""
        w, t = self.half_width, self.half_thickness
        return np.array(
            [[-w - t, -w + t, 0, self.length], [w - t, w + t, 0, self.length], [-w, w, -t, t]]
        )

    @property
    def open_areas(self) -> NDArray[np.float64]:
        """Rectangles that hold no wall: between the side walls, and above them. (2, 4)."""
        inner = self.half_width - self.half_thickness
        far = np.inf
        return np.array([[-inner, inner, self.half_thickness, far], [-far, far, self.length, far]])
