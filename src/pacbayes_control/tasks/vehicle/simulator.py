"""The vehicle task: dynamics, sensor and cost, run by the compiled kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.base import Environments
from pacbayes_control.tasks.vehicle import kernel
from pacbayes_control.tasks.vehicle.environments import Arena, ObstacleField
from pacbayes_control.tasks.vehicle.policies import FAN, RAYS, gain_grid, gain_names, ray_angles


@dataclass(frozen=True)
class Vehicle:
    """A differential-drive robot with a depth sensor among cylinders (paper: Section 7.1).

    A policy is a row of gains, one a ray. The cost is 1 if the robot touches a cylinder or a wall
    after any of `steps` steps, and 0 otherwise.

    >>> task = Vehicle()
    >>> task.costs(task.gain_grid(), task.environments(4, stream="example")).shape
    (4, 50)
    """

    speed: float = 2.5  # m/s
    wheel_radius: float = 0.1  # m
    base_width: float = 0.5  # m
    robot_radius: float = 0.27  # m
    time_step: float = 0.05  # s
    steps: int = 100
    horizon: float = 5.0  # m, the sensor's reach; a ray that meets nothing reads this
    start: tuple[float, float, float] = (0.0, 1.0, 0.0)  # x, y in m, heading ψ in rad
    obstacles: ObstacleField = field(default_factory=ObstacleField)
    arena: Arena = field(default_factory=Arena)

    @property
    def name(self) -> str:
        """The task's name, for records."""
        return "vehicle"

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n obstacle fields under a named stream."""
        if n < 1:
            raise ValueError(f"{n} environments were asked for: at least one is needed")
        return Environments(self.obstacles.draw, f"vehicle {self.obstacles}", stream, seed, 0, n)

    def gain_grid(self) -> NDArray[np.float64]:
        """The paper's finite policy space; shape (50, rays)."""
        return gain_grid()

    def gain_names(self) -> list[str]:
        """The names of its members."""
        return gain_names()

    @cached_property
    def rays(self) -> NDArray[np.float64]:
        """Angle, sine and cosine of each ray; shape (3, rays)."""
        angles = ray_angles(RAYS, FAN)
        return np.array([angles, np.sin(angles), np.cos(angles)])

    @property
    def model(self) -> NDArray[np.float64]:
        """Five numbers that the kernel needs.

        Metres a step, radians of turn a step per unit of u_diff, largest u_diff, reach of the
        sensor, radius of the robot.
        """
        # ψ̇ = (r/L)(u_r - u_l) = (r/L)·2·u_diff, and |u_diff| ≤ u₀/2 = v₀/(2r).
        turn = 2 * self.wheel_radius / self.base_width * self.time_step
        largest = self.speed / self.wheel_radius / 2
        if turn * largest > 0.3:
            raise ValueError(
                f"a turn of {turn * largest:g} rad in one step is beyond the kernel's 0.3"
            )
        return np.array(
            [self.speed * self.time_step, turn, largest, self.horizon, self.robot_radius]
        )

    def costs(
        self,
        policies: NDArray,
        environments: Environments,
        dtype: type[np.floating] = np.float32,
    ) -> NDArray[np.uint8]:
        """0/1 costs of every policy in every environment, shape (environments, policies).

        Single precision is the rule; double precision, at half the speed, shows how little it
        matters (one rollout in 20,000 ends differently).
        """
        gains = self._checked_gains(policies)
        arrays = environments.arrays()
        collided = np.empty((len(environments), len(gains)), np.uint8)
        kernel.collisions(
            np.ascontiguousarray(gains.T, dtype),
            arrays["obstacles"].astype(dtype, copy=False),
            arrays["counts"],
            *self._constants(dtype),
            self.steps,
            collided,
        )
        return collided

    def trajectory(
        self, policy: NDArray, environments: Environments, index: int
    ) -> tuple[NDArray[np.float64], bool]:
        """Poses (steps taken + 1, 3) as x, y, ψ of one rollout, and whether it ended in contact."""
        if not 0 <= index < len(environments):
            raise ValueError(f"environment {index} is not one of the {len(environments)} given")
        gains = self._checked_gains(np.atleast_2d(policy))[0]
        arrays = environments[index : index + 1].arrays()
        obstacles = arrays["obstacles"][0, : arrays["counts"][0]].astype(float)
        poses = np.empty((self.steps + 1, 3))
        taken, collided = kernel.trajectory(gains, obstacles, *self._constants(np.float64), poses)
        return poses[: taken + 1], bool(collided)

    def _checked_gains(self, policies: NDArray) -> NDArray[np.float64]:
        """A kernel does not check: a NaN would touch nothing, and a short row be read beyond."""
        gains = np.asarray(policies, float)
        if gains.ndim != 2 or gains.shape[1] != RAYS:
            raise ValueError(
                f"the vehicle's policies need {RAYS} gains each, not an array {gains.shape}"
            )
        bad = ~np.isfinite(gains).all(axis=1)
        if bad.any():
            raise ValueError(f"policy {int(np.argmax(bad))} has a NaN or infinite gain")
        return gains

    def _constants(
        self, dtype: type[np.floating]
    ) -> tuple[NDArray, NDArray, NDArray, NDArray, NDArray]:
        x, y, heading = self.start
        start = np.array([x, y, np.sin(heading), np.cos(heading)], dtype)
        walls, open_areas = self.arena.walls.astype(dtype), self.arena.open_areas.astype(dtype)
        return walls, open_areas, self.rays.astype(dtype), self.model.astype(dtype), start
