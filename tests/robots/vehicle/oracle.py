"""The vehicle's rules in plain NumPy and double precision, straight from Section 7.1 of the paper.

Slow and obvious, to hold the compiled kernel against. Nothing is skipped: every ray is tried on
every disc and on each side of every wall. The heading is an angle ψ throughout. Shapes: P poses,
R rays, M discs; a pose is x, y, ψ. The world's noise is drawn in Python's whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

SPEED = 2.5  # m/s, v0
WHEEL_RADIUS = 0.1  # m, r
BASE_WIDTH = 0.5  # m, L
ROBOT_RADIUS = 0.27  # m
TIME_STEP = 0.05  # s
STEPS = 100
HORIZON = 5.0  # m
ANGLES = np.linspace(-np.pi / 3, np.pi / 3, 20)  # clockwise from the heading
START = (0.0, 1.0, 0.0)
WALLS = np.array(  # left, right, bottom, top
    [[-5.1, -4.9, 0.0, 10.0], [4.9, 5.1, 0.0, 10.0], [-5.0, 5.0, -0.1, 0.1]]
)


def directions(psi: NDArray, angles: NDArray) -> tuple[NDArray, NDArray]:
    """Unit vectors of the rays in the world, (P, R) each."""
    bearing = angles[None, :] - psi[:, None]
    return np.sin(bearing), np.cos(bearing)


def disc_depths(poses: NDArray, discs: NDArray, angles: NDArray = ANGLES) -> NDArray:
    """Distance to the nearest disc along each ray, (P, R); 5 where there is none within reach.

    The smaller root t of |o + t·d - c|² = r², for every ray and disc.
    """
    x, y, psi = poses.T
    ray_x, ray_y = directions(psi, angles)
    to_x = discs[None, :, 0] - x[:, None]  # (P, M)
    to_y = discs[None, :, 1] - y[:, None]
    along = ray_x[:, :, None] * to_x[:, None, :] + ray_y[:, :, None] * to_y[:, None, :]
    outside = to_x**2 + to_y**2 - discs[None, :, 2] ** 2
    discriminant = along**2 - outside[:, None, :]
    root = along - np.sqrt(np.maximum(discriminant, 0))
    depths = np.where((discriminant >= 0) & (root >= 0), root, HORIZON)
    return np.minimum(depths.min(axis=2, initial=HORIZON), HORIZON)


def wall_depths(poses: NDArray, walls: NDArray = WALLS, angles: NDArray = ANGLES) -> NDArray:
    """Distance to the nearest wall along each ray, (P, R), from outside of all of them.

    Each wall is four line segments, and each is met on its own.
    """
    x, y, psi = poses.T
    ray_x, ray_y = directions(psi, angles)
    x, y = x[:, None], y[:, None]
    depths = np.full(ray_x.shape, HORIZON)

    def meet(distance: NDArray, position: NDArray, low: float, high: float) -> None:
        hit = (distance >= 0) & (position >= low) & (position <= high)
        np.minimum(depths, np.where(hit, distance, HORIZON), out=depths)

    with np.errstate(divide="ignore", invalid="ignore"):  # a ray parallel to a side never meets it
        for left, right, bottom, top in walls:
            for side in (left, right):
                distance = (side - x) / ray_x
                meet(distance, y + distance * ray_y, bottom, top)
            for side in (bottom, top):
                distance = (side - y) / ray_y
                meet(distance, x + distance * ray_x, left, right)
    return depths


def depths(
    poses: NDArray, discs: NDArray, walls: NDArray = WALLS, angles: NDArray = ANGLES
) -> NDArray:
    """What the sensor reads at poses (P, 3), (P, R)."""
    return np.minimum(disc_depths(poses, discs, angles), wall_depths(poses, walls, angles))


def disc_gaps(x: NDArray, y: NDArray, discs: NDArray) -> NDArray:
    """Distance from each point to the edge of the nearest disc, negative inside it; (P,)."""
    to_centres = np.hypot(discs[None, :, 0] - x[:, None], discs[None, :, 1] - y[:, None])
    return (to_centres - discs[None, :, 2]).min(axis=1, initial=np.inf)


def wall_gaps(x: NDArray, y: NDArray, walls: NDArray = WALLS) -> NDArray:
    """Distance from each point to the nearest wall, 0 inside it; (P,)."""
    left, right, bottom, top = walls.T[:, None, :]
    nearest_x = np.clip(x[:, None], left, right)
    nearest_y = np.clip(y[:, None], bottom, top)
    return np.hypot(x[:, None] - nearest_x, y[:, None] - nearest_y).min(axis=1)


def touching(x: NDArray, y: NDArray, discs: NDArray) -> NDArray[np.bool_]:
    """Whether the robot touches a disc or a wall, (P,)."""
    return np.minimum(disc_gaps(x, y, discs), wall_gaps(x, y)) <= ROBOT_RADIUS


# ---- controllers --------------------------------------------------------------------------------

Control = Callable[
    [NDArray, NDArray], NDArray
]  # u_diff (P,) of policies (P or 1, …), depths (P, R)


def gains_control(policies: NDArray, y: NDArray) -> NDArray:
    """A gain for each ray, on the inverse of its depth."""
    return (policies / y).sum(axis=-1)


def sides(y: NDArray) -> tuple[NDArray, NDArray]:
    """Depths to the left and to the right, ten each, from the innermost ray outwards."""
    return y[:, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]], y[:, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]]


def linear_control(policies: NDArray, y: NDArray) -> NDArray:
    """A gain for each pair of rays, on how much nearer the right one's obstacle is."""
    left, right = sides(y)
    return (policies * (1 / right - 1 / left)).sum(axis=-1)


def network_control(policies: NDArray, y: NDArray) -> NDArray:
    """`linear_control` on depths less 0.2 m, and units of which each has a twin in the mirror.

    sin(arctan(t)) is t / √(1 + t²).
    """
    policies = np.atleast_2d(policies)
    y = np.maximum(y - 0.2, 0.0625)
    control = linear_control(policies[:, :10], y)
    seen = 1 / y
    for first in range(10, policies.shape[1], 22):
        inward, bias, outward = (
            policies[:, first : first + 20],
            policies[:, first + 20],
            policies[:, first + 21],
        )
        unit = np.sin(np.arctan((inward * seen).sum(axis=1) + bias))
        twin = np.sin(np.arctan((inward * np.fliplr(seen)).sum(axis=1) + bias))
        control = control + outward * unit - outward * twin
    return control


# ---- the world's own noise ----------------------------------------------------------------------


def scramble(counter: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    z = counter
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def bell(bits: int) -> float:
    """The sum of four whole numbers, uniform below 2¹⁶, less its mean, over its deviation."""
    total = sum((bits >> shift) % 2**16 for shift in (0, 16, 32, 48))
    return (total - 2 * (2**16 - 1)) / ((2**16) / np.sqrt(3))


def draws(key: int, steps: int) -> tuple[NDArray, NDArray]:
    """Errors of the rays (steps, R) and of the left and right wheel (steps, 2), of unit variance.

    A rollout's stream is that of a SplitMix64 generator; 64 numbers of it belong to each step.
    """
    golden = 0x9E3779B97F4A7C15
    which = [*range(20), 62, 63]
    drawn = np.array(
        [
            [bell(scramble((int(key) + (64 * step + i) * golden) % 2**64)) for i in which]
            for step in range(steps)
        ]
    ).reshape(steps, 22)
    return drawn[:, :20], drawn[:, 20:]


# ---- motion -------------------------------------------------------------------------------------


def drive(poses: NDArray, difference: NDArray, errors: ArrayLike = (0.0, 0.0)) -> NDArray:
    """The poses (P, 3) one time-step on, by explicit Euler, for u_diff (P,).

    errors: relative, of the left and right wheel's speed, (2,) or (P, 2).
    """
    psi = poses[:, 2]
    base_speed = SPEED / WHEEL_RADIUS  # u0
    difference = np.clip(difference, -base_speed / 2, base_speed / 2)
    error_left, error_right = np.moveaxis(np.asarray(errors, float), -1, 0)
    left = (base_speed - difference) * (1 + error_left)
    right = (base_speed + difference) * (1 + error_right)
    forward = WHEEL_RADIUS / 2 * (left + right)
    rates = [
        -forward * np.sin(psi),
        forward * np.cos(psi),
        WHEEL_RADIUS / BASE_WIDTH * (right - left),
    ]
    return poses + TIME_STEP * np.stack(rates, axis=1)


def step(
    poses: NDArray, policies: NDArray, discs: NDArray, control: Control = gains_control
) -> NDArray:
    """The poses (P, 3) one time-step on; policies one a row for each pose, or one for all."""
    return drive(poses, control(policies, depths(poses, discs)))


def rollouts(
    policies: ArrayLike, discs: ArrayLike, control: Control = gains_control
) -> tuple[NDArray, NDArray[np.int64]]:
    """All policies in one environment, policies (P, parameters) and discs (M, 3).

    Poses (STEPS + 1, P, 3) as x, y, ψ, as if robots passed through what they touch, and the step
    after which each first touches something, 0 where it never does.
    """
    policies, discs = np.asarray(policies, float), np.asarray(discs, float)
    poses = np.empty((STEPS + 1, len(policies), 3))
    poses[0] = START
    contact = np.zeros(len(policies), np.int64)
    for taken in range(1, STEPS + 1):
        poses[taken] = step(poses[taken - 1], policies, discs, control)
        x, y, _ = poses[taken].T
        contact[(contact == 0) & touching(x, y, discs)] = taken
    return poses, contact


def closest(poses: NDArray, contact: NDArray[np.int64], discs: NDArray) -> NDArray:
    """The smallest distance from the robot's middle to a surface after any step, (P,).

    poses and contact as `rollouts` gives them; nothing after the first contact counts.
    """
    smallest = np.empty(len(contact))
    for p, touched in enumerate(contact):
        x, y, _ = poses[1 : (touched or STEPS) + 1, p].T
        smallest[p] = np.minimum(disc_gaps(x, y, discs), wall_gaps(x, y)).min()
    return np.maximum(smallest, 0)
