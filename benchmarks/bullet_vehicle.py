"""The same vehicle in PyBullet, as the paper simulated it: a reference to compare with.

Depths come from `rayTestBatch` and contacts from `getClosestPoints`, one rollout at a time in one
process. PyBullet's rays are approximate where they graze a cylinder, and small differences grow
along a trajectory, so a few rollouts in a hundred end differently. Needs the extra `pybullet`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bullet import pybullet
from pacbayes_control.robots.vehicle.simulator import Vehicle
from pacbayes_control.tasks.environments import Environments

HEIGHT = 4.0  # m, of cylinders and walls; the robot and its rays are at half of it


def bullet_costs(
    task: Vehicle,
    policies: NDArray,
    environments: Environments,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.uint8]:
    """0/1 costs of every policy in every environment, shape (environments, policies)."""
    library = pybullet()
    if task.controller.hidden or task.noise_kind:
        raise ValueError("the reference simulator runs linear policies in a world without noise")
    client = library.connect(library.DIRECT)
    try:
        gains = task.controller.weights(np.asarray(policies, float))
        return _costs(library, client, task, gains, environments, progress)
    finally:
        library.disconnect(client)


def _costs(
    bullet: Any,
    client: int,
    task: Vehicle,
    policies: NDArray,
    environments: Environments,
    progress: Callable[[int, int], None] | None,
) -> NDArray[np.uint8]:
    arrays = environments.arrays()
    costs = np.zeros((len(environments), len(policies)), np.uint8)
    sphere = bullet.createCollisionShape(
        bullet.GEOM_SPHERE, radius=task.robot_radius, physicsClientId=client
    )
    robot = bullet.createMultiBody(0, sphere, physicsClientId=client)
    for e in range(len(environments)):
        obstacles = arrays["obstacles"][e, : arrays["counts"][e]].astype(float)
        field = _build(bullet, client, obstacles, task.arena.walls)
        for p, gains in enumerate(policies):
            costs[e, p] = _rollout(bullet, client, task, gains, robot, field)
        bullet.removeBody(field, physicsClientId=client)
        if progress:
            progress((e + 1) * len(policies), costs.size)
    bullet.removeBody(robot, physicsClientId=client)
    return costs


def _build(bullet: Any, client: int, obstacles: NDArray, walls: NDArray) -> int:
    """All cylinders and walls as the links of one fixed body."""
    shapes, centres = [], []
    for x, y, radius in obstacles:
        shapes.append(
            bullet.createCollisionShape(
                bullet.GEOM_CYLINDER, radius=radius, height=HEIGHT, physicsClientId=client
            )
        )
        centres.append([x, y, HEIGHT / 2])
    for left, right, bottom, top in walls:
        extents = [(right - left) / 2, (top - bottom) / 2, HEIGHT / 2]
        shapes.append(
            bullet.createCollisionShape(
                bullet.GEOM_BOX, halfExtents=extents, physicsClientId=client
            )
        )
        centres.append([(left + right) / 2, (bottom + top) / 2, HEIGHT / 2])
    links = len(shapes)
    return bullet.createMultiBody(
        baseMass=0,
        linkMasses=[0] * links,
        linkCollisionShapeIndices=shapes,
        linkVisualShapeIndices=[-1] * links,
        linkPositions=centres,
        linkOrientations=[[0, 0, 0, 1]] * links,
        linkInertialFramePositions=[[0, 0, 0]] * links,
        linkInertialFrameOrientations=[[0, 0, 0, 1]] * links,
        linkParentIndices=[0] * links,
        linkJointTypes=[bullet.JOINT_FIXED] * links,
        linkJointAxis=[[0, 0, 1]] * links,
        physicsClientId=client,
    )


def _rollout(
    bullet: Any, client: int, task: Vehicle, gains: NDArray, robot: int, field: int
) -> bool:
    step, turn, largest, _ = task.constants
    horizon = task.horizon
    angles = task.rays[0]
    x, y, heading = task.start
    _place(bullet, client, robot, x, y)  # otherwise the first rays could meet the robot itself
    ends = np.empty((len(angles), 3))
    ends[:, 2] = HEIGHT / 2
    for _ in range(task.steps):
        ends[:, 0] = x + horizon * np.sin(angles - heading)
        ends[:, 1] = y + horizon * np.cos(angles - heading)
        hits = bullet.rayTestBatch(
            [[x, y, HEIGHT / 2]] * len(angles), ends.tolist(), physicsClientId=client
        )
        depths = horizon * np.array([hit[2] for hit in hits])
        control = np.clip(gains @ (1 / depths), -largest, largest)
        x -= float(step * np.sin(heading))
        y += float(step * np.cos(heading))
        heading += turn * control
        _place(bullet, client, robot, x, y)
        if bullet.getClosestPoints(robot, field, 0.0, physicsClientId=client):
            return True
    return False


def _place(bullet: Any, client: int, robot: int, x: float, y: float) -> None:
    bullet.resetBasePositionAndOrientation(
        robot, [x, y, HEIGHT / 2], [0, 0, 0, 1], physicsClientId=client
    )
