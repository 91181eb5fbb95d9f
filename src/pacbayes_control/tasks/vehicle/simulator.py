"""The vehicle task: dynamics, sensor and cost, run by the compiled kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.base import Environments, Noise, Scene, noise_of
from pacbayes_control.tasks.vehicle import kernel
from pacbayes_control.tasks.vehicle.environments import (
    Arena,
    Distribution,
    ObstacleField,
    Reshuffled,
)
from pacbayes_control.tasks.vehicle.policies import (
    FAN,
    RAYS,
    Controller,
    Gains,
    gain_grid,
    gain_names,
    ray_angles,
    respond,
)

LARGEST = 1e9  # of a parameter: beyond, single precision could overflow and a NaN touch nothing


@dataclass(frozen=True)
class Trajectory:
    """One rollout, until contact or for as many steps as the task has."""

    poses: NDArray[np.float64]  # (steps taken + 1, 3) as x, y in m, ψ in rad
    depths: NDArray[np.float64]  # (steps taken, rays) in m, what the sensor read before each step
    collided: bool


@dataclass(frozen=True)
class Vehicle:
    """A differential-drive robot with a depth sensor among cylinders (paper: Section 7.1).

    What a policy is, the `controller` says: a row of gains, one a ray, unless another class is
    chosen. The cost is 1 if the robot touches a cylinder or a wall after any of `steps` steps, and
    0 otherwise. With `wheel_slip` or `range_noise` the world has noise of its own: each wheel's
    turn, or each reading, is multiplied by 1 plus so much times a draw of unit variance.

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
    obstacles: Distribution = field(default_factory=ObstacleField)
    arena: Arena = field(default_factory=Arena)
    controller: Controller = field(default_factory=Gains)
    wheel_slip: float = 0.0  # relative, of each wheel in each step
    range_noise: float = 0.0  # relative, of each ray in each step

    uses_all_cores = True  # a call does, so that workers on the same machine would gain nothing

    def __post_init__(self) -> None:
        for name in ("wheel_slip", "range_noise"):
            if not 0 <= getattr(self, name) <= 0.25:
                raise ValueError(f"{name} = {getattr(self, name)} must lie between 0 and 0.25")

    @property
    def name(self) -> str:
        """The task's name, for records."""
        return "vehicle"

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n obstacle fields under a named stream."""
        if n < 1:
            raise ValueError(f"{n} environments were asked for: at least one is needed")
        return Environments(self.obstacles.draw, f"vehicle {self.obstacles}", stream, seed, 0, n)

    @property
    def noise_kind(self) -> str:
        """What is random in a rollout; empty where nothing is."""
        kinds = {"wheel slip": self.wheel_slip, "range noise": self.range_noise}
        return ", ".join(f"{name} {size!r}" for name, size in kinds.items() if size > 0)

    @property
    def depends_on(self) -> tuple[Environments, ...]:
        """Recorded environments that the obstacle fields are made from."""
        return (self.obstacles.recorded,) if isinstance(self.obstacles, Reshuffled) else ()

    @property
    def policy_class(self) -> str:
        """What a row of parameters means, in a word."""
        return self.controller.name

    def act(self, policy: NDArray, observation: NDArray) -> float:
        """u_diff of a policy for depths along the rays, within the wheels' limits."""
        depths = np.asarray(observation, float)
        if depths.shape != (RAYS,):
            raise ValueError(f"an observation is {RAYS} depths, not an array {depths.shape}")
        if not np.all((depths >= 0) & (depths <= self.horizon)):
            raise ValueError(f"depths lie between 0 and {self.horizon:g} m: {depths.tolist()}")
        self._one(policy)
        limit = self.model[2]
        return float(np.clip(self.respond(policy, depths), -limit, limit))

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

    def check_policies(self, policies: NDArray) -> None:
        """An error for policies that the controller has no use for."""
        self._weights(policies, len(policies))

    def costs(
        self,
        policies: NDArray,
        environments: Environments,
        noise: Noise | None = None,
        *,
        dtype: type[np.floating] = np.float32,
    ) -> NDArray[np.uint8]:
        """0/1 costs of every policy in every environment, shape (environments, policies).

        policies: (policies, parameters), or (environments, policies, parameters) for others in each
        environment. Single precision is the rule; double precision, at half the speed, shows how
        little it matters (one rollout in 20,000 ends differently).
        """
        return self._roll_out(policies, environments, noise, dtype, measure=False)[0]

    def surrogate(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray[np.float64]:
        """A cost that varies with the policy where `costs` is flat, of the same shape, in [0, 1].

        The negative of the smallest distance to an obstacle along the trajectory, scaled (paper:
        Section 7.1): 1 - d for d in metres from the robot's middle to a surface, 0 beyond 1 m. A
        trajectory ends at the first contact.
        """
        _, closest = self._roll_out(policies, environments, noise, np.float32, measure=True)
        return 1 - np.minimum(closest.astype(float), 1)

    def _roll_out(
        self,
        policies: NDArray,
        environments: Environments,
        noise: Noise | None,
        dtype: type[np.floating],
        measure: bool,
    ) -> tuple[NDArray[np.uint8], NDArray]:
        weights = self._weights(policies, len(environments))
        arrays = environments.arrays()
        shape = len(environments), weights.shape[-2]
        collided = np.empty(shape, np.uint8)
        closest = np.empty(shape if measure else (1, 0), dtype)
        kernel.collisions(
            np.ascontiguousarray(np.swapaxes(weights, -1, -2), dtype).reshape(
                -1, weights.shape[-1], shape[1]
            ),
            self.controller.hidden,
            dtype(self.controller.offset),
            arrays["obstacles"].astype(dtype, copy=False),
            arrays["counts"],
            *self._constants(dtype),
            self.steps,
            np.array([self.wheel_slip, self.range_noise], dtype),
            self._keys(environments, shape[1], noise),
            collided,
            closest,
        )
        return collided, closest

    def trajectory(
        self,
        policy: NDArray,
        environments: Environments,
        index: int,
        noise: Noise | None = None,
    ) -> Trajectory:
        """One rollout, step by step."""
        if not 0 <= index < len(environments):
            raise ValueError(f"environment {index} is not one of the {len(environments)} given")
        return self.trajectories(policy, environments[index : index + 1], noise)[0]

    def trajectories(
        self, policy: NDArray, environments: Environments, noise: Noise | None = None
    ) -> list[Trajectory]:
        """One rollout in each environment, step by step."""
        weights = self._one(policy)
        arrays, keys = environments.arrays(), self._keys(environments, 1, noise)
        return [
            self._follow(weights, arrays["obstacles"][i, :count], keys[i] if keys.size else keys[0])
            for i, count in enumerate(arrays["counts"])
        ]

    def scenes(self, environments: Environments) -> list[Scene]:
        """Cylinders and walls of each environment."""
        arrays = environments.arrays()
        return [
            Scene(fields[:count].astype(float), self.arena.walls, self.robot_radius, self.time_step)
            for fields, count in zip(arrays["obstacles"], arrays["counts"], strict=True)
        ]

    def paths(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> list[list[NDArray[np.float64]]]:
        """Poses (steps taken + 1, 3) as x, y, ψ, of each policy in each environment."""
        noise = noise_of(self, environments, noise)
        columns = [
            self.trajectories(policy, environments, noise.shifted(column) if noise else None)
            for column, policy in enumerate(policies)
        ]
        return [[rollout.poses for rollout in row] for row in zip(*columns, strict=True)]

    def recordings(
        self, policy: NDArray, environments: Environments
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What a policy saw and did along its way: depths (steps, rays) and u_diff (steps,)."""
        seen = np.concatenate([t.depths for t in self.trajectories(policy, environments)])
        limit = self.model[2]
        return seen, np.clip(self.respond(policy, seen), -limit, limit)

    def respond(self, policy: NDArray, depths: NDArray) -> NDArray[np.float64]:
        """u_diff for depths (…, rays), before the wheels' limits."""
        return respond(self.controller, policy, depths)

    def _follow(
        self, weights: NDArray[np.float64], obstacles: NDArray, keys: NDArray[np.uint64]
    ) -> Trajectory:
        poses, seen = np.empty((self.steps + 1, 3)), np.empty((self.steps, RAYS))
        taken, collided = kernel.trajectory(
            weights[:, None],
            self.controller.hidden,
            self.controller.offset,
            obstacles.astype(float),
            *self._constants(np.float64),
            np.array([self.wheel_slip, self.range_noise]),
            keys,
            poses,
            seen,
        )
        return Trajectory(poses[: taken + 1], seen[:taken], bool(collided))

    def _weights(self, policies: NDArray, environments: int) -> NDArray[np.float64]:
        """A kernel does not check: a NaN would touch nothing, and a short row be read beyond."""
        rows = np.asarray(policies, float)
        kind, needed = self.controller.name, self.controller.parameters
        if rows.ndim not in (2, 3) or rows.shape[-1] != needed:
            raise ValueError(
                f"the vehicle's {kind} policies need {needed} parameters each, "
                f"not an array {rows.shape}"
            )
        if rows.ndim == 3 and len(rows) != environments:
            raise ValueError(
                f"policies for {len(rows)} environments were given, and there are {environments}"
            )
        if rows.shape[-2] == 0:
            raise ValueError("there are no policies to roll out")
        bad = ~(np.abs(rows) <= LARGEST).all(axis=-1)
        if bad.any():
            at = np.argwhere(bad)[0]
            where = f"policy {at[-1]}" + (f" of environment {at[0]}" if len(at) == 2 else "")
            raise ValueError(f"{where} has a NaN, an infinite or a huge parameter (above 1e9)")
        return self.controller.weights(rows)

    def _one(self, policy: NDArray) -> NDArray[np.float64]:
        """The weights of a single policy."""
        row = np.asarray(policy, float)
        if row.ndim != 1:
            raise ValueError(f"one policy is a row of parameters, not an array {row.shape}")
        return self._weights(row[None], 1)[0]

    def _keys(
        self, environments: Environments, policies: int, noise: Noise | None
    ) -> NDArray[np.uint64]:
        """Where each rollout's own noise begins; nothing where the world has none."""
        noise = noise_of(self, environments, noise)
        return noise.keys(environments, policies) if noise else np.empty((1, 0), np.uint64)

    def _constants(
        self, dtype: type[np.floating]
    ) -> tuple[NDArray, NDArray, NDArray, NDArray, NDArray]:
        x, y, heading = self.start
        start = np.array([x, y, np.sin(heading), np.cos(heading)], dtype)
        walls, open_areas = self.arena.walls.astype(dtype), self.arena.open_areas.astype(dtype)
        return walls, open_areas, self.rays.astype(dtype), self.model.astype(dtype), start
