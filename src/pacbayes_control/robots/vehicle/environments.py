"""The vehicle's arena; its obstacles are drawn by `planar.obstacles`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Arena:
    """Walls on three sides, open at the top, so that the robot may leave."""

    half_width: float = 5.0  # m, to the middle of the side walls
    length: float = 10.0  # m
    half_thickness: float = 0.1  # m

    view = (-5.6, 5.6, -0.5, 14.0)  # m, edges of pictures: left, right, bottom, top

    @property
    def walls(self) -> NDArray[np.float64]:
        """Left, right and bottom wall, (3, 4) as left, right, bottom, top side in m."""
        w, t = self.half_width, self.half_thickness
        return np.array(
            [[-w - t, -w + t, 0, self.length], [w - t, w + t, 0, self.length], [-w, w, -t, t]]
        )

    @property
    def open_areas(self) -> NDArray[np.float64]:
        """Rectangles without walls, (2, 4): between the side walls, and above them."""
        inner = self.half_width - self.half_thickness
        far = np.inf
        return np.array([[-inner, inner, self.half_thickness, far], [-far, far, self.length, far]])
