"""The Swing in plain NumPy and double precision, straight from Section 8 of the paper (eq. 43).

Yaw is an angle throughout, and its sine and cosine are NumPy's. The net is four lines around the
drone, not walls of any depth. Shapes: P policies, R rays, M discs; a pose is x, y, ψ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robots.vehicle.oracle import directions, disc_depths, disc_gaps

HORIZON = 5.0  # m
ANGLES = np.linspace(-np.pi / 3, np.pi / 3, 40)  # clockwise from the heading
HALF_WIDTH, LENGTH = 3.5, 18.0  # m, of the net
RADIUS = 0.2  # m, of the drone
TIME_STEP = 0.1  # s
STEPS, LANDING = 50, 10
START = (0.0, 1.0, 0.0)


@dataclass(frozen=True)
class Drone:
    """What each drone may have of its own."""

    k_u: float = 3.0  # rad
    k_p: float = 0.4  # 1/s
    speed: float = 2.0  # m/s
    largest_yaw: float = np.pi / 4  # rad


def net_depths(poses: NDArray) -> NDArray:
    """Distance along each ray to the line of the net that it meets first, (P, R), from within."""
    x, y, psi = poses.T[:, :, None]
    ray_x, ray_y = directions(psi[:, 0], ANGLES)
    with np.errstate(divide="ignore"):
        sideways = np.where(ray_x > 0, HALF_WIDTH - x, -HALF_WIDTH - x) / ray_x
        lengthways = np.where(ray_y > 0, LENGTH - y, -y) / ray_y
    return np.minimum(np.minimum(np.abs(sideways), np.abs(lengthways)), HORIZON)


def depths(poses: NDArray, discs: NDArray) -> NDArray:
    """What the sensor reads, (P, R)."""
    return np.minimum(disc_depths(poses, discs, ANGLES), net_depths(poses))


def clearance(points: NDArray, discs: NDArray) -> NDArray:
    """From points (P, 2) within the net to the nearest disc or to the net, (P,)."""
    x, y = points.T
    net = np.minimum.reduce([HALF_WIDTH - np.abs(x), y, LENGTH - y])
    return np.minimum(net, disc_gaps(x, y, discs))


def fly(poses: NDArray, control: NDArray, taken: int, drone: Drone) -> NDArray:
    """One step of 0.1 s: yaw exactly, place by the trapezoidal rule; from step 50 on, landing.

    Landing takes 1 s at an even deceleration, so that in its step j = 0, …, 9 the mean speed is
    1 - (j + 1/2)/10 of what it was.
    """
    psi = poses[:, 2]
    speed, after = drone.speed, psi
    if taken >= STEPS:
        speed = drone.speed * (1 - (taken - STEPS + 0.5) / LANDING)
    else:
        limit = np.floor(100 * min(drone.largest_yaw / drone.k_u, 1))  # in whole percents
        wanted = drone.k_u * np.clip(np.round(100 * control), -limit, limit) / 100
        after = wanted + (psi - wanted) * np.exp(-drone.k_p * TIME_STEP)
    ahead_x = -speed * (np.sin(psi) + np.sin(after)) / 2
    ahead_y = speed * (np.cos(psi) + np.cos(after)) / 2
    moved = [TIME_STEP * ahead_x, TIME_STEP * ahead_y, after - psi]
    return poses + np.stack(moved, axis=1)


def rollouts(
    policies: ArrayLike, discs: NDArray, drone: Drone | None = None, aside: float = 0.0
) -> tuple[NDArray, NDArray[np.int64]]:
    """Gains (P, R) in one environment: poses (61, P, 3) and the step of first contact, or 0.

    Poses after the first contact are those of a drone that flew through. aside: m, of the start.
    """
    gains, drone = np.asarray(policies, float), drone or Drone()
    poses = np.empty((STEPS + LANDING + 1, len(gains), 3))
    poses[0] = START
    poses[0, :, 0] += aside
    contact = np.zeros(len(gains), np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):  # of those that fly on through the net
        for taken in range(STEPS + LANDING):
            # A drone reads no less than a sixteenth of a metre.
            seen = np.maximum(depths(poses[taken], discs), 1 / 16)
            poses[taken + 1] = fly(poses[taken], (gains / seen).sum(axis=1), taken, drone)
            touched = clearance(poses[taken + 1, :, :2], discs) <= RADIUS
            contact[(contact == 0) & touched] = taken + 1
    return poses, contact
