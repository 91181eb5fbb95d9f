"""A robot with a depth sensor among cylinders and walls: all but how it moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.robots.planar import kernel
from pacbayes_control.robots.planar.drivers import drivers_of, why_not
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
from pacbayes_control.tasks.environments import Environments, Noise, in_a_line
from pacbayes_control.tasks.task import Scene, Task, noise_of
from pacbayes_control.tasks.words import one_line

MOST_STEPS = 1_000_000
LARGEST = 1e9  # of a parameter: beyond, single precision could overflow and a NaN touch nothing


def check_range(name: str, value: float, low: float, high: float, whole: bool = False) -> None:
    """An error for anything but a number in a range: a kernel would not notice.

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
    """What stands around."""

    @property
    def walls(self) -> NDArray[np.float64]:
        """Boxes, (walls, 4) as left, right, bottom, top side in m."""
        ...

    @property
    def open_areas(self) -> NDArray[np.float64]:
        """Rectangles that hold no wall, (areas, 4): rays within one need not be tried on any."""
        ...


@dataclass(frozen=True)
class Trajectory:
    """One rollout, until contact or for as many steps as the task has."""

    poses: NDArray[np.float64]  # (steps taken + 1, 3) as x, y in m, ψ in rad
    depths: NDArray[np.float64]  # (steps taken, rays) in m, what the sensor read before each step
    collided: bool


@dataclass(frozen=True)
class Planar(Task):
    """A robot in the plane that steers by the depths along its rays.

    A robot of its own is a dataclass made from this one with its `arena`, its rule `move` and the
    `constants` of that. What a policy is, the `controller` says: a row of gains, one a ray, unless
    another class is chosen. The cost is 1 if the robot touches a cylinder or a wall after any of
    its steps, and 0 otherwise. With `range_noise` each reading is multiplied by 1 plus so much
    times a draw of unit variance.
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
    range_noise: float = 0.0  # relative, of each ray in each step

    uses_all_cores = True  # a call does, so that workers on the same machine would gain nothing
    simulators = ("numba",)
    parts: ClassVar[dict[str, Kinds]] = {  # for records: those that may be replaced, by kind
        "obstacles": {"": ObstacleField},
        "controller": {"gains": Gains, "linear": Linear, "network": Network},
    }
    called: ClassVar[Mapping[str, str]] = {}  # in records, where a field has another name there
    grid: ClassVar[GainGrid | None] = None  # a finite policy space, for policies that are gains

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

    # ---- what a robot says of itself ------------------------------------------------------------

    @property
    def name(self) -> str:  # type: ignore[override]
        """The task's name, for records."""
        return type(self).__name__.lower()

    @staticmethod
    def move(state, control, draws, step, model):
        """One step: see `kernel.robot_moves`, whose place it takes. Compiled by Numba."""
        raise NotImplementedError

    @property
    def constants(self) -> tuple[float, ...]:
        """The numbers that `move` finds in its `model`."""
        return ()

    @property
    def all_steps(self) -> int:
        """How many a rollout takes."""
        return self.steps

    @property
    def own_start(self) -> float:
        """The number that the robot keeps for itself, as a rollout begins."""
        return 0.0

    @property
    def largest_control(self) -> float:
        """What `act` keeps the control within, to either side."""
        return np.inf

    @property
    def noises(self) -> dict[str, float]:
        """What is random in a rollout, and how large it is."""
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
        """What is random in a rollout; empty where nothing is."""
        return ", ".join(f"{name} {size!r}" for name, size in self.noises.items() if size > 0)

    @property
    def cost_rule(self) -> str:
        """What a rollout costs, in a line for records."""
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
        """The robot's finite policy space, (policies, rays), where a policy is a row of gains."""
        return replace(self.grid, fan=self.fan).policies if self.grid and self._by_gains else None

    @property
    def policy_names(self) -> list[str]:  # type: ignore[override]
        """The names of its members."""
        return self.grid.names if self.grid and self._by_gains else []

    @property
    def _by_gains(self) -> bool:
        return self.grid is not None and self.controller == Gains(self.grid.rays)

    @property
    def policy_class(self) -> str:
        """What a row of parameters means, in a word."""
        return self.controller.name

    @property
    def settings(self) -> dict[str, Any] | None:
        """All that tells this robot and its environments from others, as plain values."""
        return settings_of(self)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The robot that a stranger's record describes; an error for one that describes none."""
        return from_settings(cls, settings)

    @cached_property
    def rays(self) -> NDArray[np.float64]:
        """Angle, sine and cosine of each ray; shape (3, rays)."""
        angles = ray_angles(self.controller.rays, self.fan)
        return np.array([angles, np.sin(angles), np.cos(angles)])

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
        environment. Single precision is the rule. Double precision, at half the speed, shows how
        much rounding matters: of the vehicle's rollouts one in 20,000 ends differently, and of the
        Swing's, whose gains are large, one or two in a hundred.
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

    # ---- on the robot ---------------------------------------------------------------------------

    def act(self, policy: NDArray, observation: NDArray) -> float:
        """The control of a policy for depths along the rays, within the robot's limits."""
        depths = np.asarray(observation, float)
        rays = self.controller.rays
        if depths.shape != (rays,):
            raise ValueError(f"an observation is {rays} depths, not an array {depths.shape}")
        if not np.all((depths >= 0) & (depths <= self.horizon)):
            raise ValueError(f"depths lie between 0 and {self.horizon:g} m: {depths.tolist()}")
        self._one(policy)
        limit = self.largest_control
        return float(np.clip(self.respond(policy, depths), -limit, limit))

    def respond(self, policy: NDArray, depths: NDArray) -> NDArray[np.float64]:
        """The control for depths (…, rays), before the robot's limits."""
        return respond(self.controller, policy, depths)

    def depths(self, pose: ArrayLike, obstacles: ArrayLike) -> NDArray[np.float64]:
        """What the sensor reads at a pose (x, y, ψ) among cylinders (cylinders, 3); (rays,)."""
        x, y, heading = np.asarray(pose, float)
        sin, cos = np.sin(heading), np.cos(heading)
        here_x, here_y, sin, cos = (np.array([value]) for value in (x, y, sin, cos))
        cylinders = np.asarray(obstacles, float).reshape(-1, 3)
        walls, open_areas, rays, *_ = self._constants(np.float64)
        read = np.empty((rays.shape[1], 1))
        kernel.sense(
            here_x, here_y, sin, cos, cylinders, walls, open_areas, rays, self.horizon, read
        )
        return read[:, 0]

    def clearance(self, points: ArrayLike, obstacles: ArrayLike) -> NDArray[np.float64]:
        """Metres from each point (points, 2) to the nearest cylinder or wall, 0 in it."""
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
        weights = self._one(policy)
        arrays, keys = environments.arrays(), self._keys(environments, 1, noise)
        models = self.models(environments, 1, noise)
        self._check_models(models, len(environments), 1)
        return [
            self._follow(
                weights,
                arrays["obstacles"][i, :count],
                models[i % len(models)],
                keys[i] if keys.size else keys[0],
            )
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

    def pictures(self, run: Any, environments: Environments) -> dict[str, bytes]:
        """Rollouts of the prior and the posterior in three environments."""
        from pacbayes_control.robots.planar.pictures import draw_rollouts

        picture = BytesIO()
        draw_rollouts(self, run, environments[:3], picture)
        return {"picture.svg": picture.getvalue()}

    def recordings(
        self, policy: NDArray, environments: Environments
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What a policy saw and did along its way: depths (steps, rays), controls (steps,)."""
        seen = np.concatenate([t.depths for t in self.trajectories(policy, environments)])
        limit = self.largest_control
        return seen, np.clip(self.respond(policy, seen), -limit, limit)

    # ---- the kernel -----------------------------------------------------------------------------

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
        models = self.models(environments, weights.shape[-2], noise)
        self._check_models(models, len(environments), weights.shape[-2])
        shape = len(environments), weights.shape[-2]
        collided = np.empty(shape, np.uint8)
        closest = np.empty(shape if measure else (1, 0), dtype)
        walls, open_areas, rays, start = self._constants(dtype)
        self._drivers("collisions")(
            np.ascontiguousarray(np.swapaxes(weights, -1, -2), dtype).reshape(
                -1, weights.shape[-1], shape[1]
            ),
            self.controller.hidden,
            dtype(self.controller.offset),
            np.array(arrays["obstacles"], dtype),
            np.array(arrays["counts"]),
            walls,
            open_areas,
            rays,
            dtype(self.horizon),
            dtype(self.robot_radius),
            models.astype(dtype),
            start,
            self.all_steps,
            dtype(self.range_noise),
            self._keys(environments, shape[1], noise),
            collided,
            closest,
        )
        if collided.max() == kernel.LOST:
            row, column = np.argwhere(collided == kernel.LOST)[0]
            raise self._lost(f"in environment {row} under policy {column}")
        return collided, closest

    def _drivers(self, which: str) -> Callable[..., Any]:
        """One of the robot's drivers; where it cannot be compiled, an error says why in a line."""
        rule, constants = type(self).move, self.constants
        if rule is Planar.move:
            raise ValueError(f"the {self.name} has no move(state, control, draws, step, model)")
        driver = getattr(drivers_of(rule, len(constants)), which)

        def run(*arguments: Any) -> Any:
            try:
                return driver(*arguments)
            except NumbaError as error:
                why = why_not(rule, constants) or in_a_line(error)
                raise ValueError(f"the {self.name}'s rule of motion is none: {why[:300]}") from None

        return run

    def _lost(self, where: str) -> ValueError:
        return ValueError(f"the {self.name}'s place is no number {where}: mend its rule of motion")

    def _check_models(self, models: NDArray, environments: int, policies: int) -> None:
        """A kernel does not check: a smaller array would be read beyond."""
        wanted = [(rows, len(self.constants), policies) for rows in (1, environments)]
        if models.shape not in wanted:
            raise ValueError(f"models are an array {wanted[0]} or {wanted[1]}, not {models.shape}")
        if not np.isfinite(models).all():
            which = int(np.argwhere(~np.isfinite(models))[0][1])
            raise ValueError(f"constant {which} of the {self.name} is no number")

    def _follow(
        self,
        weights: NDArray[np.float64],
        obstacles: NDArray,
        model: NDArray[np.float64],
        keys: NDArray[np.uint64],
    ) -> Trajectory:
        rays = self.controller.rays
        poses, seen = np.empty((self.all_steps + 1, 3)), np.empty((self.all_steps, rays))
        walls, open_areas, directions, start = self._constants(np.float64)
        taken, collided = self._drivers("trajectory")(
            weights[:, None].copy(),  # Numba would compile anew for what is read-only
            self.controller.hidden,
            self.controller.offset,
            obstacles.astype(float),
            walls,
            open_areas,
            directions,
            self.horizon,
            self.robot_radius,
            model,
            start,
            self.range_noise,
            keys,
            poses,
            seen,
        )
        if not np.isfinite(poses[: taken + 1]).all():
            raise self._lost("along a trajectory")
        return Trajectory(poses[: taken + 1], seen[:taken], bool(collided))

    def _weights(self, policies: NDArray, environments: int) -> NDArray[np.float64]:
        """A kernel does not check: a NaN would touch nothing, and a short row be read beyond."""
        rows = np.asarray(policies, float)
        kind, needed = self.controller.name, self.controller.parameters
        if rows.ndim not in (2, 3) or rows.shape[-1] != needed:
            raise ValueError(
                f"the {self.name}'s {kind} policies need {needed} parameters each, "
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

    def _constants(self, dtype: type[np.floating]) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        x, y, heading = self.start
        start = np.array([x, y, np.sin(heading), np.cos(heading), self.own_start], dtype)
        walls, open_areas = self.arena.walls.astype(dtype), self.arena.open_areas.astype(dtype)
        return walls, open_areas, self.rays.astype(dtype), start
