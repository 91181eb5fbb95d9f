"""Objects to be grasped, drawn without end from twelve families of compounds of convex parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pacbayes_control.robots.grasping import models
from pacbayes_control.robots.grasping.models import BOX, CYLINDER, Floats, Part, primitive
from pacbayes_control.tasks.environments import Arrays

MOST_PARTS = 16  # of an object
SEGMENTS = 12  # boxes in the wall of a bowl or mug


@dataclass(frozen=True)
class Procedural:
    """Shapes of many kinds, scaled so that the longest side lies in a range.

    >>> shape = Procedural().draw(np.random.default_rng(0))
    >>> parts = Procedural().parts(shape)
    >>> low, high = models.bounding_box(parts)
    >>> bool(0.07 <= (high - low).max() <= 0.1)
    True
    """

    longest: tuple[float, float] = (0.07, 0.10)  # m, of the sides of the bounding box

    def draw(self, rng: np.random.Generator) -> Arrays:
        """`parts` (MOST_PARTS, 13), of which the first `count` count, and the `family`'s number."""
        family = int(rng.integers(len(FAMILIES)))
        rows = np.array(list(FAMILIES.values())[family](rng))
        low, high = models.bounding_box(list(rows))
        scale = rng.uniform(*self.longest) / (high - low).max()
        rows[:, models.PLACE] -= (low + high) / 2
        rows[:, models.SIZE] *= scale
        rows[:, models.PLACE] *= scale
        parts = np.zeros((MOST_PARTS, models.WIDTH))
        parts[: len(rows)] = rows
        return {"parts": parts, "count": np.array(len(rows)), "family": np.array(family)}

    def parts(self, shape: Arrays) -> list[Part]:
        """The convex parts of a shape."""
        return list(shape["parts"][: int(shape["count"])])


# ---- families: lengths in any unit, scaled afterwards ------------------------------------------


def _about(axis: int, angle: float) -> Floats:
    """The quaternion of a turn about one of the three axes."""
    turn = np.array([np.cos(angle / 2), 0.0, 0.0, 0.0])
    turn[1 + axis] = np.sin(angle / 2)
    return turn


def _superquadric(rng: np.random.Generator) -> list[Floats]:
    sides = (1.0, rng.uniform(0.3, 0.8), rng.uniform(0.25, 0.7))
    exponents = (rng.uniform(0.2, 1.6), rng.uniform(0.2, 1.6))
    turn = _about(2, rng.uniform(0, np.pi))
    return [primitive(models.SUPERQUADRIC, sides, turn=turn, exponents=exponents)]


def _box(rng: np.random.Generator) -> list[Floats]:
    size = (1.0, rng.uniform(0.25, 0.8), rng.uniform(0.2, 0.7))
    return [primitive(BOX, size, turn=_about(2, rng.uniform(0, np.pi)))]


def _cylinder(rng: np.random.Generator) -> list[Floats]:
    radius = rng.uniform(0.25, 0.6)
    standing = rng.random() < 0.5
    turn = models.UPRIGHT if standing else _lying(rng.uniform(0, np.pi))
    return [primitive(CYLINDER, (radius, 1.0, 0.0), turn=turn)]


def _lying(yaw: float) -> Floats:
    """The quaternion that turns the z axis to a horizontal direction."""
    c, s, h = np.cos(yaw / 2), np.sin(yaw / 2), np.sqrt(0.5)
    return np.array([c * h, -s * h, c * h, s * h])


def _ring(radius: float, height: float, wall: float, tilt: float = 0.0) -> list[Floats]:
    """A wall of boxes around the vertical axis, from 0 up to a height."""
    out = radius + wall / 2 + height / 2 * np.tan(tilt)
    half = (radius + wall) * np.tan(np.pi / SEGMENTS)
    widened = half + height * max(np.tan(tilt), 0.0) * np.tan(np.pi / SEGMENTS)
    parts = []
    for k in range(SEGMENTS):
        angle = 2 * np.pi * k / SEGMENTS
        place = (out * np.cos(angle), out * np.sin(angle), height / 2)
        turn = _product(_about(2, angle), _about(1, tilt))
        parts.append(primitive(BOX, (wall / 2, widened, height / 2 / np.cos(tilt)), place, turn))
    return parts


def _product(a: Floats, b: Floats) -> Floats:
    """The quaternion of the turn b followed by the turn a."""
    w, x, y, z = a
    p, q, r, s = b
    return np.array(
        [
            w * p - x * q - y * r - z * s,
            w * q + x * p + y * s - z * r,
            w * r - x * s + y * p + z * q,
            w * s + x * r - y * q + z * p,
        ]
    )


def _base(radius: float, wall: float) -> Floats:
    """The bottom of a bowl or a mug."""
    return primitive(CYLINDER, (radius + wall, wall / 2, 0.0), (0.0, 0.0, wall / 2))


def _bowl(rng: np.random.Generator) -> list[Floats]:
    radius, wall = 0.55, rng.uniform(0.09, 0.14)
    height = rng.uniform(0.5, 0.9)
    return [_base(radius, wall), *_ring(radius, height, wall, rng.uniform(0.05, 0.3))]


def _mug(rng: np.random.Generator) -> list[Floats]:
    radius, wall, height = 0.5, rng.uniform(0.08, 0.12), rng.uniform(0.9, 1.5)
    side = rng.uniform(0, 2 * np.pi)
    reach, thick = rng.uniform(0.3, 0.45), 0.08
    turn = _about(2, side)

    def at(out: float, z: float) -> tuple[float, float, float]:
        return (out * np.cos(side), out * np.sin(side), z)

    out = radius + wall
    handle = [
        primitive(BOX, (reach / 2, thick, thick), at(out + reach / 2, 0.25 * height), turn),
        primitive(BOX, (reach / 2, thick, thick), at(out + reach / 2, 0.75 * height), turn),
        primitive(BOX, (thick, thick, 0.25 * height + thick), at(out + reach, 0.5 * height), turn),
    ]
    return [_base(radius, wall), *_ring(radius, height, wall), *handle]


def _turned(parts: list[Floats], yaw: float) -> list[Floats]:
    """The same parts, turned about the vertical axis."""
    c, s, turn = np.cos(yaw), np.sin(yaw), _about(2, yaw)
    for part in parts:
        x, y, z = part[models.PLACE].tolist()
        part[models.PLACE] = c * x - s * y, s * x + c * y, z
        part[models.TURN] = _product(turn, part[models.TURN])
    return parts


def _bars(rng: np.random.Generator, *bars: tuple[float, float, float, float]) -> list[Floats]:
    """Flat bars of one thickness, each as x, y and half sizes along them, turned at random."""
    half = rng.uniform(0.15, 0.3)
    parts = [primitive(BOX, (hx, hy, half), (x, y, 0.0)) for x, y, hx, hy in bars]
    return _turned(parts, rng.uniform(0, 2 * np.pi))


def _l_shape(rng: np.random.Generator) -> list[Floats]:
    arm, width = rng.uniform(0.6, 1.0), rng.uniform(0.15, 0.3)
    return _bars(rng, (0.0, 0.0, 1.0, width), (1 - width, arm, width, arm))


def _t_shape(rng: np.random.Generator) -> list[Floats]:
    stem, width = rng.uniform(0.3, 0.7), rng.uniform(0.15, 0.3)
    return _bars(rng, (0.0, 0.0, 1.0, width), (0.0, stem, width, stem))


def _cross(rng: np.random.Generator) -> list[Floats]:
    width, other = rng.uniform(0.15, 0.3), rng.uniform(0.15, 0.3)
    shift = rng.uniform(-0.4, 0.4)
    return _bars(rng, (0.0, 0.0, 1.0, width), (shift, 0.0, other, rng.uniform(0.5, 1.0)))


def _hammer(rng: np.random.Generator) -> list[Floats]:
    thin = rng.uniform(0.12, 0.2)
    head = (rng.uniform(0.2, 0.3), rng.uniform(0.35, 0.6), rng.uniform(0.2, 0.3))
    handle = primitive(CYLINDER, (thin, 1.0, 0.0), turn=_lying(0.0))
    return _turned([handle, primitive(BOX, head, (1.0, 0.0, 0.0))], rng.uniform(0, 2 * np.pi))


def _dumbbell(rng: np.random.Generator) -> list[Floats]:
    big, small, thin = rng.uniform(0.3, 0.45), rng.uniform(0.25, 0.4), rng.uniform(0.12, 0.2)
    parts = [
        primitive(CYLINDER, (thin, 0.8, 0.0), turn=_lying(0.0)),
        primitive(BOX, (0.2, big, big), (-0.8, 0.0, 0.0)),
        primitive(BOX, (0.2, small, small), (0.8, 0.0, 0.0)),
    ]
    return _turned(parts, rng.uniform(0, 2 * np.pi))


def _bottle(rng: np.random.Generator) -> list[Floats]:
    radius = rng.uniform(0.3, 0.5)
    neck = rng.uniform(0.35, 0.6) * radius
    if rng.random() < 0.5:  # it stands
        body = primitive(CYLINDER, (radius, 0.65, 0.0), (0.0, 0.0, -0.35))
        return [body, primitive(CYLINDER, (neck, 0.35, 0.0), (0.0, 0.0, 0.65))]
    lying = _lying(0.0)
    body = primitive(CYLINDER, (radius, 0.65, 0.0), (-0.35, 0.0, 0.0), lying)
    cap = primitive(CYLINDER, (neck, 0.35, 0.0), (0.65, 0.0, 0.0), lying)
    return _turned([body, cap], rng.uniform(0, 2 * np.pi))


def _pair(rng: np.random.Generator) -> list[Floats]:
    """An ellipsoid and a box that overlap."""
    first = primitive(models.ELLIPSOID, (0.8, rng.uniform(0.3, 0.6), rng.uniform(0.3, 0.5)))
    size = (rng.uniform(0.25, 0.5), rng.uniform(0.25, 0.5), rng.uniform(0.25, 0.4))
    place = (rng.uniform(0.4, 0.9), rng.uniform(-0.3, 0.3), 0.0)
    second = primitive(BOX, size, place, _about(2, rng.uniform(0, np.pi)))
    return _turned([first, second], rng.uniform(0, 2 * np.pi))


FAMILIES: dict[str, Callable[[np.random.Generator], list[Floats]]] = {
    "superquadric": _superquadric,
    "box": _box,
    "cylinder": _cylinder,
    "bowl": _bowl,
    "mug": _mug,
    "L": _l_shape,
    "T": _t_shape,
    "cross": _cross,
    "hammer": _hammer,
    "dumbbell": _dumbbell,
    "bottle": _bottle,
    "pair": _pair,
}
