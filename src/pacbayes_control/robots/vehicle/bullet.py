"""The same vehicle in PyBullet, which the paper used: another simulator to compare with.

Depths come from `rayTestBatch` and contacts from `getClosestPoints`, one rollout at a time.
PyBullet's rays are approximate where they graze a cylinder, and small differences grow along a
trajectory, so a few rollouts in a hundred end differently. Needs the extra `pybullet`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.vehicle.simulator import Vehicle
from pacbayes_control.tasks.environments import Environments, Noise

HEIGHT = 4.0  # m, of cylinders and walls; the robot and its rays are at half of it
NO_TURN = [0, 0, 0, 1]  # quaternion (x, y, z, w)


def has_pybullet() -> bool:
    """Whether PyBullet is installed: it has no wheels beyond Python 3.11."""
    return find_spec("pybullet") is not None


def pybullet() -> Any:
    """The library; an error that says how to install it if it is missing.

    It writes a line to file descriptor 2 when it is loaded, which is discarded here.
    """
    if not has_pybullet():
        raise ModuleNotFoundError(
            "the reference simulator needs PyBullet: pip install 'pacbayes-control[pybullet]'"
        )
    kept = os.dup(2)
    with open(os.devnull, "w") as discarded:
        os.dup2(discarded.fileno(), 2)
        try:
            return import_module("pybullet")
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def bullet_client() -> Iterator[Any]:
    """PyBullet's functions and constants, for a world of their own that ends with this context."""
    library = pybullet()
    client = {"physicsClientId": library.connect(library.DIRECT)}
    bullet = SimpleNamespace(
        **{
            name: partial(value, **client) if callable(value) else value
            for name, value in vars(library).items()
        }
    )
    try:
        yield bullet
    finally:
        bullet.disconnect()


@dataclass(frozen=True)
class BulletVehicle(Vehicle):
    """The vehicle with costs by PyBullet, for policies without hidden units or noise.

    It draws the same environments as `Vehicle`. Its trajectories and pictures are those of
    `Vehicle`, too: only costs come from PyBullet.
    """

    uses_all_cores = False
    simulators = ("pybullet",)  # type: ignore[assignment]
    surrogate = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.controller.hidden or self.noise_kind:
            raise ValueError(
                "the reference simulator runs linear policies in a world without noise"
            )

    @property
    def cost_rule(self) -> str:
        """The cost of a rollout, in a line for records."""
        return f"{super().cost_rule}, in PyBullet"

    def costs(
        self,
        policies: NDArray,
        environments: Environments,
        noise: Noise | None = None,  # noqa: ARG002 - there is none
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> NDArray[np.uint8]:
        """0/1 costs of every policy in every environment, shape (environments, policies).

        Args:
            policies: (policies, parameters), or (environments, policies, parameters)
            environments: the obstacle fields
            noise: None
            progress: called with the rollouts that are done, and their total
        """
        self.check_policies(policies)
        gains = self.controller.weights(np.asarray(policies, float))
        n, count = len(environments), gains.shape[-2]
        costs = np.zeros((n, count), np.uint8)
        with bullet_client() as bullet:
            sphere = bullet.createCollisionShape(bullet.GEOM_SPHERE, radius=self.robot_radius)
            robot = bullet.createMultiBody(0, sphere)
            for e, scene in enumerate(self.scenes(environments)):
                field = _build(bullet, scene.circles, scene.boxes)
                own = gains[e] if gains.ndim == 3 else gains
                costs[e] = [self._collides(bullet, row, robot, field) for row in own]
                bullet.removeBody(field)
                if progress:
                    progress((e + 1) * count, n * count)
        return costs

    def _collides(self, bullet: Any, gains: NDArray, robot: int, field: int) -> bool:
        """Whether a policy fails."""
        step, turn, largest, _ = self.constants
        angles = self.rays[0]
        x, y, heading = self.start
        _place(bullet, robot, x, y)  # otherwise the first rays could meet the robot itself
        ends = np.full((len(angles), 3), HEIGHT / 2)
        for _ in range(self.steps):
            ends[:, 0] = x + self.horizon * np.sin(angles - heading)
            ends[:, 1] = y + self.horizon * np.cos(angles - heading)
            hits = bullet.rayTestBatch([[x, y, HEIGHT / 2]] * len(angles), ends.tolist())
            depths = self.horizon * np.array([hit[2] for hit in hits])
            control = np.clip(gains @ (1 / depths), -largest, largest)
            x -= float(step * np.sin(heading))
            y += float(step * np.cos(heading))
            heading += turn * control
            _place(bullet, robot, x, y)
            if bullet.getClosestPoints(robot, field, 0.0):
                return True
        return False


def _build(bullet: Any, circles: NDArray, boxes: NDArray) -> int:
    """All cylinders (x, y, radius) and walls (left, right, bottom, top) as one fixed body's links.

    The numbers are in m.
    """
    shapes, centres = [], []
    for x, y, radius in circles:
        shapes.append(
            bullet.createCollisionShape(bullet.GEOM_CYLINDER, radius=radius, height=HEIGHT)
        )
        centres.append([x, y, HEIGHT / 2])
    for left, right, bottom, top in boxes:
        extents = [(right - left) / 2, (top - bottom) / 2, HEIGHT / 2]
        shapes.append(bullet.createCollisionShape(bullet.GEOM_BOX, halfExtents=extents))
        centres.append([(left + right) / 2, (bottom + top) / 2, HEIGHT / 2])
    links = len(shapes)
    return bullet.createMultiBody(
        baseMass=0,
        linkMasses=[0] * links,
        linkCollisionShapeIndices=shapes,
        linkVisualShapeIndices=[-1] * links,
        linkPositions=centres,
        linkOrientations=[NO_TURN] * links,
        linkInertialFramePositions=[[0, 0, 0]] * links,
        linkInertialFrameOrientations=[NO_TURN] * links,
        linkParentIndices=[0] * links,
        linkJointTypes=[bullet.JOINT_FIXED] * links,
        linkJointAxis=[[0, 0, 1]] * links,
    )


def _place(bullet: Any, robot: int, x: float, y: float) -> None:
    bullet.resetBasePositionAndOrientation(robot, [x, y, HEIGHT / 2], NO_TURN)
