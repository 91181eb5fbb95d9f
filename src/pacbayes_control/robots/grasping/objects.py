"""Objects to be grasped, as compounds of convex parts, drawn without end from a few families.

A part is a row of thirteen numbers: its kind, three half sizes, two exponents, the place of its
centre and the quaternion of its turn. Lengths are in m, in a frame of the object's own.

    box            half sizes along x, y, z
    cylinder       radius, half length along z, and a number that has no meaning
    ellipsoid      half axes along x, y, z
    superquadric   the same, with two exponents: (1, 1) is an ellipsoid, towards 0 it becomes a box
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.environments import Arrays

Floats = NDArray[np.float64]

BOX, CYLINDER, ELLIPSOID, SUPERQUADRIC = range(4)
KIND, SIZE, EXPONENTS, PLACE, TURN = 0, slice(1, 4), slice(4, 6), slice(6, 9), slice(9, 13)
WIDTH = 13  # numbers in a part
MOST_PARTS = 16
UPRIGHT = (1.0, 0.0, 0.0, 0.0)
SEGMENTS = 12  # boxes in the wall of a bowl or mug


@dataclass(frozen=True)
class Hull:
    """A convex part given by its corners, (corners, 3), in the object's frame."""

    corners: Floats


Part = Floats | Hull  # a row of thirteen numbers, or a hull


class Objects(Protocol):
    """A distribution over the shapes of objects. Its `repr` must tell it from every other."""

    def draw(self, rng: np.random.Generator) -> Arrays:
        """One shape, as arrays that are equally large for every shape."""
        ...

    def parts(self, shape: Arrays) -> list[Part]:
        """The convex parts of a shape."""
        ...


@dataclass(frozen=True)
class Procedural:
    """Shapes of many kinds, scaled so that the longest side lies in a range.

    >>> shape = Procedural().draw(np.random.default_rng(0))
    >>> parts = Procedural().parts(shape)
    >>> low, high = bounding_box(parts)
    >>> bool(0.07 <= (high - low).max() <= 0.1)
    True
    """

    longest: tuple[float, float] = (0.07, 0.10)  # m, of the sides of the bounding box

    def draw(self, rng: np.random.Generator) -> Arrays:
        """`parts` (MOST_PARTS, 13), of which the first `count` count, and the `family`'s number."""
        family = int(rng.integers(len(FAMILIES)))
        rows = np.array([_flat(part) for part in list(FAMILIES.values())[family](rng)])
        low, high = bounding_box(list(rows))
        scale = rng.uniform(*self.longest) / (high - low).max()
        rows[:, PLACE] -= (low + high) / 2
        rows[:, SIZE] *= scale
        rows[:, PLACE] *= scale
        parts = np.zeros((MOST_PARTS, WIDTH))
        parts[: len(rows)] = rows
        return {"parts": parts, "count": np.array(len(rows)), "family": np.array(family)}

    def parts(self, shape: Arrays) -> list[Part]:
        """The convex parts of a shape."""
        return list(shape["parts"][: int(shape["count"])])


# ---- families: lengths in any unit, scaled afterwards ------------------------------------------


@dataclass(frozen=True)
class _Part:
    kind: int
    size: tuple[float, float, float]
    place: tuple[float, float, float] = (0.0, 0.0, 0.0)
    turn: tuple[float, float, float, float] = UPRIGHT
    exponents: tuple[float, float] = (1.0, 1.0)


def _flat(part: _Part) -> Floats:
    return np.array([part.kind, *part.size, *part.exponents, *part.place, *part.turn])


def _about(axis: int, angle: float) -> tuple[float, float, float, float]:
    turn = [np.cos(angle / 2), 0.0, 0.0, 0.0]
    turn[1 + axis] = np.sin(angle / 2)
    return (turn[0], turn[1], turn[2], turn[3])


def _superquadric(rng: np.random.Generator) -> list[_Part]:
    sides = (1.0, rng.uniform(0.3, 0.8), rng.uniform(0.25, 0.7))
    exponents = (rng.uniform(0.2, 1.6), rng.uniform(0.2, 1.6))
    return [_Part(SUPERQUADRIC, sides, turn=_about(2, rng.uniform(0, np.pi)), exponents=exponents)]


def _box(rng: np.random.Generator) -> list[_Part]:
    size = (1.0, rng.uniform(0.25, 0.8), rng.uniform(0.2, 0.7))
    return [_Part(BOX, size, turn=_about(2, rng.uniform(0, np.pi)))]


def _cylinder(rng: np.random.Generator) -> list[_Part]:
    radius = rng.uniform(0.25, 0.6)
    if rng.random() < 0.5:  # it stands
        return [_Part(CYLINDER, (radius, 1.0, 0.0))]
    return [_Part(CYLINDER, (radius, 1.0, 0.0), turn=_lying(rng.uniform(0, np.pi)))]


def _lying(yaw: float) -> tuple[float, float, float, float]:
    """From along z to along a horizontal direction."""
    c, s, h = np.cos(yaw / 2), np.sin(yaw / 2), np.sqrt(0.5)
    return (c * h, -s * h, c * h, s * h)


def _ring(radius: float, height: float, wall: float, tilt: float = 0.0) -> list[_Part]:
    """A wall of boxes around the vertical axis, from 0 up to a height."""
    parts = []
    half = (radius + wall) * np.tan(np.pi / SEGMENTS)
    for k in range(SEGMENTS):
        angle = 2 * np.pi * k / SEGMENTS
        out = radius + wall / 2 + height / 2 * np.tan(tilt)
        place = (out * np.cos(angle), out * np.sin(angle), height / 2)
        turn = _product(_about(2, angle), _about(1, tilt))
        widened = half + height * max(np.tan(tilt), 0.0) * np.tan(np.pi / SEGMENTS)
        parts.append(_Part(BOX, (wall / 2, widened, height / 2 / np.cos(tilt)), place, turn))
    return parts


def _product(
    a: tuple[float, float, float, float], b: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    w, x, y, z = a
    p, q, r, s = b
    return (
        w * p - x * q - y * r - z * s,
        w * q + x * p + y * s - z * r,
        w * r - x * s + y * p + z * q,
        w * s + x * r - y * q + z * p,
    )


def _bowl(rng: np.random.Generator) -> list[_Part]:
    radius, wall = 0.55, rng.uniform(0.09, 0.14)
    height = rng.uniform(0.5, 0.9)
    base = _Part(CYLINDER, (radius + wall, wall / 2, 0.0), (0.0, 0.0, wall / 2))
    return [base, *_ring(radius, height, wall, rng.uniform(0.05, 0.3))]


def _mug(rng: np.random.Generator) -> list[_Part]:
    radius, wall, height = 0.5, rng.uniform(0.08, 0.12), rng.uniform(0.9, 1.5)
    base = _Part(CYLINDER, (radius + wall, wall / 2, 0.0), (0.0, 0.0, wall / 2))
    side = rng.uniform(0, 2 * np.pi)
    reach, thick = rng.uniform(0.3, 0.45), 0.08
    turn = _about(2, side)

    def at(out: float, z: float) -> tuple[float, float, float]:
        return (out * np.cos(side), out * np.sin(side), z)

    out = radius + wall
    handle = [
        _Part(BOX, (reach / 2, thick, thick), at(out + reach / 2, 0.25 * height), turn),
        _Part(BOX, (reach / 2, thick, thick), at(out + reach / 2, 0.75 * height), turn),
        _Part(BOX, (thick, thick, 0.25 * height + thick), at(out + reach, 0.5 * height), turn),
    ]
    return [base, *_ring(radius, height, wall), *handle]


def _turned(parts: list[_Part], yaw: float) -> list[_Part]:
    """The same about the vertical axis."""
    c, s, turn = np.cos(yaw), np.sin(yaw), _about(2, yaw)
    return [
        _Part(
            p.kind,
            p.size,
            (c * p.place[0] - s * p.place[1], s * p.place[0] + c * p.place[1], p.place[2]),
            _product(turn, p.turn),
            p.exponents,
        )
        for p in parts
    ]


def _bars(rng: np.random.Generator, *bars: tuple[float, float, float, float]) -> list[_Part]:
    """Flat bars of one thickness, each as x, y and half sizes along them, turned at random."""
    half = rng.uniform(0.15, 0.3)
    parts = [_Part(BOX, (hx, hy, half), (x, y, 0.0)) for x, y, hx, hy in bars]
    return _turned(parts, rng.uniform(0, 2 * np.pi))


def _corner(rng: np.random.Generator) -> list[_Part]:  # an L
    arm, width = rng.uniform(0.6, 1.0), rng.uniform(0.15, 0.3)
    return _bars(rng, (0.0, 0.0, 1.0, width), (1 - width, arm, width, arm))


def _tee(rng: np.random.Generator) -> list[_Part]:
    stem, width = rng.uniform(0.3, 0.7), rng.uniform(0.15, 0.3)
    return _bars(rng, (0.0, 0.0, 1.0, width), (0.0, stem, width, stem))


def _cross(rng: np.random.Generator) -> list[_Part]:
    width, other = rng.uniform(0.15, 0.3), rng.uniform(0.15, 0.3)
    shift = rng.uniform(-0.4, 0.4)
    return _bars(rng, (0.0, 0.0, 1.0, width), (shift, 0.0, other, rng.uniform(0.5, 1.0)))


def _hammer(rng: np.random.Generator) -> list[_Part]:
    thin = rng.uniform(0.12, 0.2)
    head = (rng.uniform(0.2, 0.3), rng.uniform(0.35, 0.6), rng.uniform(0.2, 0.3))
    handle = _Part(CYLINDER, (thin, 1.0, 0.0), (0.0, 0.0, 0.0), _lying(0.0))
    return _turned([handle, _Part(BOX, head, (1.0, 0.0, 0.0))], rng.uniform(0, 2 * np.pi))


def _dumbbell(rng: np.random.Generator) -> list[_Part]:
    big, small, thin = rng.uniform(0.3, 0.45), rng.uniform(0.25, 0.4), rng.uniform(0.12, 0.2)
    parts = [
        _Part(CYLINDER, (thin, 0.8, 0.0), turn=_lying(0.0)),
        _Part(BOX, (0.2, big, big), (-0.8, 0.0, 0.0)),
        _Part(BOX, (0.2, small, small), (0.8, 0.0, 0.0)),
    ]
    return _turned(parts, rng.uniform(0, 2 * np.pi))


def _bottle(rng: np.random.Generator) -> list[_Part]:
    radius = rng.uniform(0.3, 0.5)
    neck = rng.uniform(0.35, 0.6) * radius
    if rng.random() < 0.5:  # it stands
        body = _Part(CYLINDER, (radius, 0.65, 0.0), (0.0, 0.0, -0.35))
        return [body, _Part(CYLINDER, (neck, 0.35, 0.0), (0.0, 0.0, 0.65))]
    lying = _lying(0.0)
    body = _Part(CYLINDER, (radius, 0.65, 0.0), (-0.35, 0.0, 0.0), lying)
    cap = _Part(CYLINDER, (neck, 0.35, 0.0), (0.65, 0.0, 0.0), lying)
    return _turned([body, cap], rng.uniform(0, 2 * np.pi))


def _stack(rng: np.random.Generator) -> list[_Part]:
    """Two blobs side by side or one on the other, of different kinds."""
    first = _Part(ELLIPSOID, (0.8, rng.uniform(0.3, 0.6), rng.uniform(0.3, 0.5)))
    size = (rng.uniform(0.25, 0.5), rng.uniform(0.25, 0.5), rng.uniform(0.25, 0.4))
    place = (rng.uniform(0.4, 0.9), rng.uniform(-0.3, 0.3), 0.0)
    second = _Part(BOX, size, place, _about(2, rng.uniform(0, np.pi)))
    return _turned([first, second], rng.uniform(0, 2 * np.pi))


FAMILIES: dict[str, Callable[[np.random.Generator], list[_Part]]] = {
    "superquadric": _superquadric,
    "box": _box,
    "cylinder": _cylinder,
    "bowl": _bowl,
    "mug": _mug,
    "L": _corner,
    "T": _tee,
    "cross": _cross,
    "hammer": _hammer,
    "dumbbell": _dumbbell,
    "bottle": _bottle,
    "pair": _stack,
}


# ---- geometry ----------------------------------------------------------------------------------


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


def superquadric(size: NDArray, exponents: NDArray, points: int = 12) -> Floats:
    """Points on a superquadric, (corners, 3), whose hull is it, nearly; convex up to exponent 2."""
    up = np.linspace(-np.pi / 2, np.pi / 2, points)[1:-1, None]
    round_ = np.linspace(-np.pi, np.pi, 2 * points, endpoint=False)[None, :]

    def power(wave: NDArray, exponent: float) -> NDArray:
        return np.sign(wave) * np.abs(wave) ** exponent

    first, second = exponents
    ring = power(np.cos(up), first)
    side = np.stack(
        [
            (ring * power(np.cos(round_), second)).ravel(),
            (ring * power(np.sin(round_), second)).ravel(),
            np.repeat(power(np.sin(up), first).ravel(), 2 * points),
        ],
        axis=1,
    )
    return np.concatenate([side, [[0, 0, -1], [0, 0, 1]]]) * size


def corners(part: Part) -> Floats:
    """Points of the part's surface: their hull is the part, or for what is round up to 2 % less."""
    if isinstance(part, Hull):
        return part.corners
    size, kind = part[SIZE], int(part[KIND])
    if kind == SUPERQUADRIC:
        local = superquadric(size, part[EXPONENTS])
    elif kind == ELLIPSOID:
        local = superquadric(size, np.ones(2))
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
