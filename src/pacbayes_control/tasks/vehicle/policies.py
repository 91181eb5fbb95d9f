"""The vehicle's policies: u_diff = K · (1/y), one gain per ray of the depth sensor."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RAYS = 20
FAN = np.pi / 3  # rad, the outermost rays to either side


def ray_angles(rays: int = RAYS, fan: float = FAN) -> NDArray[np.float64]:
    """Angles of the rays, clockwise from the heading, in rad; shape (rays,)."""
    return np.linspace(-fan, fan, rays)


def reactive_gains(x0: float, y0: float, angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """K[i] of the paper's eq. 41: a line with intercepts x0 and y0, reflected about the origin.

    >>> reactive_gains(2.0, 10.0, np.array([-1.0, 0.0, 1.0])).tolist()
    [-5.0, 10.0, 5.0]
    """
    return (y0 / x0) * (np.where(angles >= 0, x0, -x0) - angles)


def gain_grid() -> NDArray[np.float64]:
    """The paper's 50 policies, for 5 values of x0 and 10 of y0; shape (50, rays)."""
    return np.array([reactive_gains(x0, y0, ray_angles()) for x0, y0 in _intercepts()])


def gain_names() -> list[str]:
    """What to call them."""
    return [f"x0={x0:.3f} y0={y0:.2f}" for x0, y0 in _intercepts()]


def _intercepts() -> list[tuple[float, float]]:
    return [(x0, y0) for x0 in np.linspace(0.1, 5, 5) for y0 in np.linspace(0, 10, 10)]
