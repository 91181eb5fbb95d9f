"""Convex parts of objects, and where their surfaces are.

A part is a hull, given by its corners, or a row of thirteen numbers: its kind, three half sizes,
two exponents, the place of its centre and the quaternion (w, x, y, z) of its turn. Lengths are in
m, in a frame of the object's own.

    box            half sizes along x, y, z
    cylinder       radius, half length along z, and an unused number
    ellipsoid      half axes along x, y, z
    superquadric   the same, with two exponents: (1, 1) is an ellipsoid, towards 0 it becomes a box
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BOX, CYLINDER, ELLIPSOID, SUPERQUADRIC = range(4)
KIND, SIZE, EXPONENTS, PLACE, TURN = 0, slice(1, 4), slice(4, 6), slice(6, 9), slice(9, 13)
WIDTH = 13  # numbers in a row
UPRIGHT = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Hull:
    """A convex part given by its corners, (corners, 3), in the object's frame."""

    corners: Floats


Part = Floats | Hull  # a row of thirteen numbers, or a hull


def primitive(
    kind: int,
    size: Sequence[float],
    place: Sequence[float] = (0.0, 0.0, 0.0),
    turn: Sequence[float] | Floats = UPRIGHT,
    exponents: Sequence[float] = (1.0, 1.0),
) -> Floats:
    """A convex part as a row of thirteen numbers."""
    return np.array([kind, *size, *exponents, *place, *turn])


def rotation(turn: NDArray) -> Floats:
    """The matrix of a quaternion (w, x, y, z) of length 1."""
    w, x, y, z = turn
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def superquadric(size: NDArray, exponents: NDArray) -> Floats:
    """Points on a superquadric, (corners, 3), whose hull is nearly it; convex up to exponent 2."""
    points = 12  # from pole to pole
    up = np.linspace(-np.pi / 2, np.pi / 2, points)[1:-1, None]
    round_ = np.linspace(-np.pi, np.pi, 2 * points, endpoint=False)[None, :]

    def power(wave: NDArray, exponent: float) -> NDArray:
        return np.sign(wave) * np.abs(wave) ** exponent

    first, second = exponents
    ring = power(np.cos(up), first)
    x, y = (ring * power(wave(round_), second) for wave in (np.cos, np.sin))
    z = np.broadcast_to(power(np.sin(up), first), x.shape)
    side = np.stack([x, y, z], axis=-1).reshape(-1, 3)
    return np.concatenate([side, [[0, 0, -1], [0, 0, 1]]]) * size


def corners(part: Part) -> Floats:
    """Points on a part's surface, (corners, 3); the hull of a round part is up to 2 % smaller."""
    if isinstance(part, Hull):
        return part.corners
    size, kind = part[SIZE], int(part[KIND])
    if kind in (SUPERQUADRIC, ELLIPSOID):
        local = superquadric(size, part[EXPONENTS])
    elif kind == CYLINDER:
        angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        rim = np.stack([np.cos(angles) * size[0], np.sin(angles) * size[0]], axis=1)
        local = np.concatenate([np.insert(rim, 2, z, axis=1) for z in (-size[1], size[1])])
    else:
        local = size * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    return local @ rotation(part[TURN]).T + part[PLACE]


def bounding_box(parts: list[Part]) -> tuple[Floats, Floats]:
    """The lowest and highest coordinates of a compound."""
    points = np.concatenate([corners(part) for part in parts])
    return points.min(axis=0), points.max(axis=0)
