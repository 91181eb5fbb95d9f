"""The vehicle's rules in plain NumPy and double precision, straight from Section 7.1 of the paper.

Slow and obvious, to hold the compiled kernel against. Nothing is skipped: every ray is tried on
every disc and on each side of every wall. The heading is an angle ψ throughout. Shapes: P poses,
R rays, M discs; a pose is x, y, ψ.
"""

from __future__ import annotations

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


def step(poses: NDArray, gains: NDArray, discs: NDArray) -> NDArray:
    """The poses (P, 3) one time-step on, by explicit Euler; gains (P, R), or (R,) for all."""
    psi = poses[:, 2]
    base_speed = SPEED / WHEEL_RADIUS  # u0
    difference = (gains / depths(poses, discs)).sum(axis=1)
    difference = np.clip(difference, -base_speed / 2, base_speed / 2)
    left, right = base_speed - difference, base_speed + difference
    forward = WHEEL_RADIUS / 2 * (left + right)
    rates = [
        -forward * np.sin(psi),
        forward * np.cos(psi),
        WHEEL_RADIUS / BASE_WIDTH * (right - left),
    ]
    return poses + TIME_STEP * np.stack(rates, axis=1)


def rollouts(gains: ArrayLike, discs: ArrayLike) -> tuple[NDArray, NDArray[np.int64]]:
    """All policies in one environment, gains (P, R) and discs (M, 3).

    Poses (STEPS + 1, P, 3) as x, y, ψ, as if robots passed through what they touch, and the step
    after which each first touches something, 0 where it never does.
    """
    gains, discs = np.asarray(gains, float), np.asarray(discs, float)
    poses = np.empty((STEPS + 1, len(gains), 3))
    poses[0] = START
    contact = np.zeros(len(gains), np.int64)
    for taken in range(1, STEPS + 1):
        poses[taken] = step(poses[taken - 1], gains, discs)
        x, y, _ = poses[taken].T
        contact[(contact == 0) & touching(x, y, discs)] = taken
    return poses, contact
