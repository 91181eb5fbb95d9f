"""The bicycle's rules in plain NumPy and double precision: the heading is an angle throughout.

What the sensor reads and how far walls and discs are is asked of the vehicle's oracle, which tries
every ray on everything.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from bicycles import Bicycle
from numpy.typing import NDArray

from robots.vehicle import oracle

Control = Callable[[NDArray, NDArray], NDArray]  # (P,) of policies (P, …) and depths (P, rays)


def linear(policies: NDArray, depths: NDArray) -> NDArray:
    """A gain for each pair of rays, from the innermost, on how much nearer the right one ends."""
    half = depths.shape[1] // 2
    left, right = depths[:, :half][:, ::-1], depths[:, half:]
    return (policies * (1 / right - 1 / left)).sum(axis=1)


def network(policies: NDArray, depths: NDArray, offset: float = 0.2) -> NDArray:
    """`linear` on depths less an offset, and units of which each has a twin in the mirror."""
    rays = depths.shape[1]
    near = np.maximum(depths - offset, 0.0625)
    control = linear(policies[:, : rays // 2], near)
    for first in range(rays // 2, policies.shape[1], rays + 2):
        inward = policies[:, first : first + rays]
        bias, outward = policies[:, first + rays], policies[:, first + rays + 1]
        for sign, seen in ((1, 1 / near), (-1, 1 / near[:, ::-1])):
            control = control + sign * outward * np.sin(
                np.arctan((inward * seen).sum(axis=1) + bias)
            )
    return control


def rollouts(
    task: Bicycle, policies: NDArray, discs: NDArray, control: Control = oracle.gains_control
) -> tuple[NDArray, NDArray[np.int64]]:
    """Poses (steps + 1, P, 3), through whatever is touched, and the step of first contact or 0."""
    angles = np.linspace(-task.fan, task.fan, task.controller.rays)
    walls, length = task.arena.walls, task.speed * task.time_step
    poses = np.empty((task.steps + 1, len(policies), 3))
    poses[0] = task.start
    steering, contact = np.zeros(len(policies)), np.zeros(len(policies), np.int64)
    for taken in range(1, task.steps + 1):
        x, y, psi = poses[taken - 1].T
        asked = control(policies, oracle.depths(poses[taken - 1], discs, walls, angles))
        turn = length / task.wheelbase * np.tan(steering)
        steering = steering + task.time_step / task.lag * (np.clip(asked, -0.5, 0.5) - steering)
        poses[taken] = np.stack(
            [x - length * np.sin(psi), y + length * np.cos(psi), psi + turn], axis=1
        )
        touched = clearance(task, poses[taken, :, :2], discs) <= task.robot_radius
        contact[(contact == 0) & touched] = taken
    return poses, contact


def clearance(task: Bicycle, points: NDArray, discs: NDArray) -> NDArray:
    """From each point to the nearest surface, negative in a disc, 0 in a wall; (P,)."""
    x, y = points.T
    return np.minimum(oracle.disc_gaps(x, y, discs), oracle.wall_gaps(x, y, task.arena.walls))
