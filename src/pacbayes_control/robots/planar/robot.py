"""A robot with a depth sensor among cylinders and walls: everything except how it moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.robots.planar import kernel, rollouts
from pacbayes_control.robots.planar.obstacles import Distribution, ObstacleField, Reshuffled
from pacbayes_control.robots.planar.policies import (
    Controller,
    GainGrid,
    Gains,
    Linear,
    Network,
    ray_angles,
    respond,
)
from pacbayes_control.robots.planar.records import Kinds, from_settings, settings_of
from pacbayes_control.robots.planar.rollouts import Trajectory
from pacbayes_control.tasks.environments import Environments, Noise
from pacbayes_control.tasks.identity import one_line
from pacbayes_control.tasks.task import Scene, Task, noise_of

MOST_STEPS = 1_000_000


def check_range(name: str, value: float, low: float, high: float, whole: bool = False) -> None:
    """Raise an error unless `value` is a number from `low` to `high`: the kernel does not check.

    >>> check_range("steps", 0, 1, 10)
    Traceback (most recent call last):
    ...
    ValueError: steps = 0 must be a number from 1 to 10
    """
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        kind = "whole number" if whole else "number"
        raise ValueError(f"{name} = {value!r} must be a {kind} from {low:g} to {high:g}")


class Walls(Protocol):
    """The walls of an arena."""

    @property
    def walls(self) -> NDArray[np.float64]:
        """Boxes, (walls, 4) as left, right, bottom, top side in m."""
        ...

    @property
    def open_areas(self) -> NDArray[np.float64]:
        """Rectangles without walls, (areas, 4): a ray that stays within one meets no wall."""
        ...


@dataclass(frozen=True)
class Planar(Task):
    """A robot in the plane that steers by the depths along its rays.

    To add a robot, derive a frozen dataclass with its `arena`, its rule of motion `move` and the
    `constants` of that rule. The `controller` says what a policy is: by default a row of gains, one
    for each ray. The cost is 1 if the robot touches a cylinder or a wall after any of its steps,
    and 0 otherwise. Each reading of the sensor is multiplied by 1 + `range_noise` · z, where z has
    mean 0 and variance 1.
    """

    obstacles: Distribution = field(default_factory=ObstacleField)
    arena: Walls = field(kw_only=True)
    controller: Controller = field(default_factory=Gains)
    start: tuple[float, float, float] = (0.0, 1.0, 0.0)  # x, y in m, heading ψ in rad
    steps: int = 100
    time_step: float = 0.05  # s
    robot_radius: float = 0.27  # m
    horizon: float = 5.0  # m, the sensor's reach; a ray that meets nothing reads this
    fan: float = np.pi / 3  # rad, the outermost rays to either side
    range_noise: float = 0.0  # relative, for each ray in each step

    uses_all_cores = True  # one call does, so more workers on the same machine would gain nothing
    simulators = ("numba",)
    parts: ClassVar[
        dict[str, Kinds]
    ] = {  # fields that hold an object, and its classes by name in a record
        "obstacles": {"": ObstacleField},
        "controller": {"gains": Gains, "linear": Linear, "network": Network},
    }
    called: ClassVar[Mapping[str, str]] = {}  # field -> its name in a record, where they differ
    grid: ClassVar[GainGrid | None] = None  # a finite policy space, if policies are gains

    def __post_init__(self) -> None:
        check_range("range_noise", self.range_noise, 0, 0.25)
        check_range("steps", self.steps, 1, MOST_STEPS, whole=True)
        check_range("time_step", self.time_step, 1e-6, 1e3)
        check_range("robot_radius", self.robot_radius, 0, 1e6)
        check_range("horizon", self.horizon, 1e-6, 1e6)
        check_range("fan", self.fan, 1e-3, 1.5)  # rays to the side and behind are not cast
        check_range("rays", self.controller.rays, 2, kernel.DRAWS - 2, whole=True)
        if len(self.start) != 3:
            raise ValueError(f"start = {self.start}: x, y and a heading are needed")
        for value in self.start:
            check_range("start", value, -1e6, 1e6)

    # ---- what a robot may override --------------------------------------------------------------

    @property
    def name(self) -> str:  # type: ignore[override]
        """The task's name, for records."""
        return type(self).__name__.lower()

    @staticmethod
    def move(state, control, draws, step, model):
        """One step, compiled by Numba in the place of `kernel.robot_moves`: see there."""
        raise NotImplementedError

    @property
    def constants(self) -> tuple[float, ...]:
        """The numbers that `move` reads from its `model`."""
        return ()

    @property
    def all_steps(self) -> int:
        """How many steps a rollout takes."""
        return self.steps

    @property
    def own_start(self) -> float:
        """The fifth number of the state at the start of a rollout."""
        return 0.0

    @property
    def largest_control(self) -> float:
        """The largest absolute value of a control that `act` returns."""
        return np.inf

    @property
    def noises(self) -> dict[str, float]:
        """The sources of noise in a rollout, and their sizes."""
        return {"range noise": self.range_noise}

    def models(
        self,
        environments: Environments,  # noqa: ARG002 - for robots that differ
        policies: int,
        noise: Noise | None,  # noqa: ARG002
    ) -> NDArray[np.float64]:
        """`constants` for each rollout, (1 or environments, constants, policies)."""
        return np.repeat(np.array(self.constants, float)[None, :, None], policies, axis=2)

    # ---- the task -------------------------------------------------------------------------------

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n obstacle fields under a named stream."""
        if n < 1:
            raise ValueError(f"{n} environments were asked for: at least one is needed")
        words = f"{self.name} {self.obstacles}"
        return Environments(self.obstacles.draw, words, stream, seed, 0, n)

    @property
    def noise_kind(self) -> str:
        """The sources of noise in a rollout, in words; empty if there are none."""
        return ", ".join(f"{name} {size!r}" for name, size in self.noises.items() if size > 0)

    @property
    def cost_rule(self) -> str:
        """The cost of a rollout, in a line for records."""
        return f"1 where the robot touches a cylinder or a wall in {self.steps} steps, 0 otherwise"

    @property
    def distribution(self) -> str:
        """How obstacle fields are drawn, in a line for records."""
        return one_line(getattr(self.obstacles, "words", "") or repr(self.obstacles))

    @property
    def depends_on(self) -> tuple[Environments, ...]:
        """Recorded environments that the obstacle fields are made from."""
        return (self.obstacles.recorded,) if isinstance(self.obstacles, Reshuffled) else ()

    @property
    def policies(self) -> Any:  # type: ignore[override]
        """The finite policy space, (policies, rays), if a policy is a row of gains."""
        return replace(self.grid, fan=self.fan).policies if self.grid and self._by_gains else None

    @property
    def policy_names(self) -> list[str]:  # type: ignore[override]
        """The names of `policies`."""
        return self.grid.names if self.grid and self._by_gains else []

    @property
    def parameters(self) -> int:  # type: ignore[override]
        """How many parameters a policy has."""
        return self.controller.parameters

    @property
    def _by_gains(self) -> bool:
        return self.grid is not None and self.controller == Gains(self.grid.rays)

    @property
    def policy_class(self) -> str:
        """The name of the class of policies, for records."""
        return self.controller.name

    @property
    def settings(self) -> dict[str, Any] | None:
        """All fields of this robot as plain values; None if a class is unknown."""
        return settings_of(self)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The robot that a record describes; an error if the record is not valid."""
        return from_settings(cls, settings)

    @cached_property
    def rays(self) -> NDArray[np.float64]:
        """Angle, sine and cosine of each ray; shape (3, rays)."""
        angles = ray_angles(self.controller.rays, self.fan)
        return np.array([angles, np.sin(angles), np.cos(angles)])

    def check_policies(self, policies: NDArray) -> None:
        """Raise an error for policies of a wrong shape, or with a NaN or a huge parameter."""
        rollouts.checked_weights(self, policies, len(policies))

    def costs(
        self,
        policies: NDArray,
        environments: Environments,
        noise: Noise | None = None,
        *,
        dtype: type[np.floating] = np.float32,
    ) -> NDArray[np.uint8]:
        """0/1 costs of every policy in every environment, shape (environments, policies).

        Double precision, at half the speed, shows how much rounding matters: one in 20,000 of the
        vehicle's rollouts ends differently, and one or two in a hundred of the Swing's, whose gains
        are large.

        Args:
            policies: (policies, parameters), or (environments, policies, parameters) where each
                environment has its own
            environments: the obstacle fields
            noise: of the rollouts, where the robot has any
            dtype: precision of the rollouts
        """
        return self._roll_out(policies, environments, noise, dtype, measure=False)[0]

    def _roll_out(
        self,
        policies: NDArray,
        environments: Environments,
        noise: Noise | None,
        dtype: type[np.floating],
        measure: bool,
    ) -> tuple[NDArray[np.uint8], NDArray]:
        """Costs and smallest distances; the Swing overrides it."""
        return rollouts.roll_out(self, policies, environments, noise, dtype=dtype, measure=measure)

    def surrogate(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray[np.float64]:
        """A cost in [0, 1] that varies continuously with the policy, of the shape of `costs`.

        The negative of the smallest distance to an obstacle along the trajectory, scaled (paper:
        Section 7.1): 1 - d for a distance of d metres from the robot's centre, and 0 beyond 1 m.
        A trajectory ends at the first contact.
        """
        _, closest = self._roll_out(policies, environments, noise, np.float32, measure=True)
        return 1 - np.minimum(closest.astype(float), 1)

    # ---- on the robot ---------------------------------------------------------------------------

    def act(self, policy: NDArray, observation: NDArray) -> float:
        """The control of a policy for depths along the rays, within the robot's limits."""
        depths = np.asarray(observation, float)
        rays = self.controller.rays
        if depths.shape != (rays,):
            raise ValueError(f"an observation is {rays} depths, not an array {depths.shape}")
        if not np.all((depths >= 0) & (depths <= self.horizon)):
            raise ValueError(f"depths lie between 0 and {self.horizon:g} m: {depths.tolist()}")
        rollouts.weights_of_one(self, policy)  # checks the policy
        limit = self.largest_control
        return float(np.clip(self.respond(policy, depths), -limit, limit))

    def respond(self, policy: NDArray, depths: NDArray) -> NDArray[np.float64]:
        """The control for depths (…, rays), before the robot's limits."""
        return respond(self.controller, policy, depths)

    def depths(self, pose: ArrayLike, obstacles: ArrayLike) -> NDArray[np.float64]:
        """The sensor's readings at a pose (x, y, ψ) among cylinders (cylinders, 3); (rays,)."""
        x, y, heading = np.asarray(pose, float)
        sin, cos = np.sin(heading), np.cos(heading)
        here_x, here_y, sin, cos = (np.array([value]) for value in (x, y, sin, cos))
        cylinders = np.asarray(obstacles, float).reshape(-1, 3)
        read = np.empty((self.controller.rays, 1))
        around = rollouts.surroundings(self, np.float64)
        kernel.sense(here_x, here_y, sin, cos, cylinders, *around, read)
        return read[:, 0]

    def clearance(self, points: ArrayLike, obstacles: ArrayLike) -> NDArray[np.float64]:
        """Metres from each point (points, 2) to the nearest cylinder or wall; 0 inside one."""
        x, y = np.asarray(points, float).reshape(-1, 2).T.copy()
        found = np.full(len(x), np.inf)
        cylinders = np.asarray(obstacles, float).reshape(-1, 3)
        kernel.nearest(x, y, cylinders, self.arena.walls, found)
        return found

    # ---- rollouts to look at --------------------------------------------------------------------

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
        return rollouts.trajectories(self, policy, environments, noise)

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

    def pictures(self, run: Any, environments: Environments) -> dict[str, bytes]:
        """Rollouts of the prior and the posterior in three environments."""
        from pacbayes_control.robots.planar.pictures import draw_rollouts

        picture = BytesIO()
        draw_rollouts(self, run, environments[:3], picture)
        return {"picture.svg": picture.getvalue()}

    def recordings(
        self, policy: NDArray, environments: Environments
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Depths (steps, rays) and controls (steps,) of a policy along its trajectories."""
        seen = np.concatenate([t.depths for t in self.trajectories(policy, environments)])
        limit = self.largest_control
        return seen, np.clip(self.respond(policy, seen), -limit, limit)
