"""Objects made by hand, whose size and place are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.models import BOX, Body, Part, build, corners, mujoco

Numbers = Sequence[float] | NDArray[np.float64]
UPRIGHT = (1.0, 0.0, 0.0, 0.0)
BRICK = (0.04, 0.02, 0.02)  # half sizes in m: it fits between the fingers across, but not along
ACROSS, ALONG = np.pi / 2, 0.0  # angles of closing


def part(
    kind: int = BOX,
    size: Numbers = BRICK,
    place: Numbers = (0.0, 0.0, 0.0),
    turn: Numbers = UPRIGHT,
    exponents: Numbers = (1.0, 1.0),
) -> NDArray[np.float64]:
    return np.array([kind, *size, *exponents, *place, *turn], float)


def body(*parts: Part, mass: float = 0.1, friction: float = 0.5, inertia: Numbers = (1, 1, 1)):
    return Body(list(parts) or [part()], mass, np.array(inertia, float), friction)


def pose(x: float = 0.0, y: float = 0.0, z: float = BRICK[2], yaw: float = 0.0):
    """A place in m, and a turn about the vertical."""
    return np.array([x, y, z, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)])


def at(model: Any, where: NDArray[np.float64]) -> Any:
    """The data of a model with its object, and nothing else, at a pose."""
    mj = mujoco()
    data = mj.MjData(model)
    first = model.jnt_qposadr[model.joint("object").id]
    data.qpos[first : first + 7] = where
    mj.mj_forward(model, data)
    return data


def alone(one: Body, where: NDArray[np.float64]) -> tuple[Any, Any]:
    """Model and data of an object at a pose on the empty table."""
    model = build(one)
    return model, at(model, where)


def points_at(one: Body, where: NDArray[np.float64]) -> NDArray[np.float64]:
    """The corners of an object at a pose, by a formula of its own; (corners, 3)."""
    points = np.concatenate([corners(p) for p in one.parts])
    w, v = where[3], where[4:]
    across = 2 * np.cross(v, points)
    return points + w * across + np.cross(v, across) + where[:3]
