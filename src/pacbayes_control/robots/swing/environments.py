"""The netted area that the Swing flies in (paper: Section 8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.planar.robot import check_range


@dataclass(frozen=True)
class Net:
    """A net on all four sides, which counts as a wall."""

    half_width: float = 3.5  # m
    length: float = 18.0  # m

    def __post_init__(self) -> None:
        check_range("half_width", self.half_width, 1e-3, 1e6)
        check_range("length", self.length, 1e-3, 1e6)

    @property
    def view(self) -> tuple[float, float, float, float]:
        """The part that pictures show: left, right, bottom, top in m."""
        return (-self.half_width - 0.3, self.half_width + 0.3, -0.3, self.length + 0.3)

    @property
    def walls(self) -> NDArray[np.float64]:
        """Left, right, near and far side, (4, 4) as left, right, bottom, top in m.

        Each is half a metre deep, so that nothing passes it between two steps.
        """
        w, length, deep = self.half_width, self.length, 0.5
        across = (-w - deep, w + deep)
        return np.array(
            [
                [-w - deep, -w, -deep, length + deep],
                [w, w + deep, -deep, length + deep],
                [*across, -deep, 0],
                [*across, length, length + deep],
            ]
        )

    @property
    def open_areas(self) -> NDArray[np.float64]:
        """The area inside the net, (1, 4)."""
        return np.array([[-self.half_width, self.half_width, 0, self.length]])
