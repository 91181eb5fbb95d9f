"""A robot with a depth sensor among cylinders and walls: everything except how it moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from itertools import product
from operator import attrgetter
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.robots.planar import drivers, kernel, records
from pacbayes_control.robots.planar.gpu import compiling as gpu
from pacbayes_control.robots.planar.obstacles import Distribution, ObstacleField, Reshuffled
from pacbayes_control.robots.planar.policies import KINDS, Controller, GainGrid, Gains, ray_angles
from pacbayes_control.tasks.environments import Arrays, Environments, Noise
from pacbayes_control.tasks.identity import one_line
from pacbayes_control.tasks.task import Scene, Task, noise_of

LARGEST_PARAMETER = 1e9  # a larger one could overflow in single precision
LOST = "the position of the {} is NaN or infinite {}: correct `move`"
ONE_ROW = "one policy is a row of parameters, not an array {}"
MOST_STEPS = 1_000_000
NEARBY = (-1e-6, 1e-6, -5e-7, 5e-7, -2e-7, 2e-7, -1e-7, 1e-7, 0.0)  # m and rad, of starts
MANY = 1 << 22  # environments that a GPU is given at once, if there are so many


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


@dataclass(frozen=True)
class Trajectory:
    """One rollout, until contact or until the last step."""

    poses: NDArray[np.float64]  # (steps taken + 1, 3) as x, y in m, ψ in rad
    depths: NDArray[np.float64]  # (steps taken, rays) in m, read by the sensor before each step
    collided: bool


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

    obstacles: Distribution = field(default=ObstacleField())
    arena: Walls = field(kw_only=True)
    controller: Controller = field(default=Gains())
    start: tuple[float, float, float] = (0.0, 1.0, 0.0)  # x, y in m, heading ψ in rad
    steps: int = 100
    time_step: float = 0.05  # s
    robot_radius: float = 0.27  # m
    horizon: float = 5.0  # m, the sensor's reach; a ray that meets nothing reads this
    fan: float = np.pi / 3  # rad, the outermost rays to either side
    range_noise: float = 0.0  # relative, for each ray in each step
    # where collisions are found; not a part of the task, whose costs agree to rounding
    device: str = field(default="cpu", kw_only=True, repr=False, compare=False)  # type: ignore[assignment]

    uses_all_cores = True  # one call does, so more workers on the same machine would gain nothing
    devices = ("cpu", "cuda")
    graded = False  # a collision or none
    # fields that hold an object, and its classes by name in a record
    parts: ClassVar[dict[str, records.Kinds]] = {
        "obstacles": {"": ObstacleField},
        "controller": KINDS,
    }
    called: ClassVar[Mapping[str, str]] = {}  # field -> its name in a record, where they differ
    early: ClassVar[tuple[Controller, ...]] = ()  # those that a record of `policy_class` alone has
    grid: ClassVar[GainGrid | None] = None  # a finite policy space, if policies are gains
    # of fields: the smallest and the largest value, and whether only whole numbers will do
    limits: ClassVar[dict[str, Any]] = {
        "range_noise": (0, 0.25),
        "steps": (1, MOST_STEPS, True),
        "time_step": (1e-6, 1e3),
        "robot_radius": (0, 1e6),
        "horizon": (1e-6, 1e6),
        "fan": (1e-3, 1.5),  # rays to the side and behind are not cast
    }

    def __post_init__(self) -> None:
        for name, limits in self.limits.items():
            check_range(name, getattr(self, name), *limits)
        check_range("rays", self.controller.rays, 2, kernel.DRAWS - 2, whole=True)
        if len(self.start) != 3:
            raise ValueError(f"start = {self.start}: x, y and a heading are needed")
        for value in self.start:
            check_range("start", value, -1e6, 1e6)
        grid = self.grid
        if grid is not None and self.controller == Gains(grid.rays):
            grid = grid if grid.fan == self.fan else replace(grid, fan=self.fan)
            vars(self).update(policies=grid.policies, policy_names=grid.names)

    # ---- what a robot may override --------------------------------------------------------------

    @property
    def name(self) -> str:  # type: ignore[override]
        """The task's name, for records."""
        return type(self).__name__.lower()

    # (state, control, draws, step, model) -> the state after a step, compiled by Numba in the place
    # of `kernel.robot_moves`: see there
    move: ClassVar[Any] = None
    own_start: ClassVar[float] = 0.0  # the fifth number of the state at the start of a rollout
    landing_steps: ClassVar[int] = 0  # of a rollout after its `steps`
    largest_control: ClassVar[float] = np.inf  # the largest absolute value that `act` returns

    @property
    def constants(self) -> tuple[float, ...]:
        """The numbers that `move` reads from its `model`."""
        return ()

    @property
    def noises(self) -> dict[str, float]:
        """The sources of noise in a rollout, and their sizes."""
        return {"range noise": self.range_noise}

    def models(self, environments: Environments, policies: int, noise: Noise | None) -> NDArray:  # noqa: ARG002 - for robots that differ
        """`constants` for each rollout, (1 or environments, constants, policies)."""
        return np.repeat(np.array(self.constants, float)[None, :, None], policies, axis=2)

    # ---- the task -------------------------------------------------------------------------------

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n obstacle fields under a named stream."""
        if n < 1:
            raise ValueError(f"{n} environments were asked for: at least one is needed")
        words = f"{self.name} {self.obstacles}"
        return Environments(self.obstacles.draw, words, stream, seed, 0, n)

    def on_device(self, device: str) -> Self:  # type: ignore[override]
        """The same robot with its rollouts on a device, or on the best one here (auto)."""
        if device == "auto":
            device = "cuda" if gpu.available() else "cpu"
        if device not in self.devices:
            raise ValueError(f"device = {device!r} is none of {', '.join(self.devices)}")
        if device == "cuda":
            gpu.loaded()
        return self if device == self.device else replace(self, device=device)

    @property
    def simulators(self) -> tuple[str, ...]:  # type: ignore[override]
        """Distributions whose versions matter for the costs."""
        return ("numba",) if self.device == "cpu" else ("numba", "numba-cuda")

    @property
    def hardware(self) -> str:  # type: ignore[override]
        """The GPU that rollouts run on, for records; empty for the CPU."""
        return "" if self.device == "cpu" else gpu.name()

    def rounding_decides(
        self, policies: NDArray, environments: Environments, *noise: Noise
    ) -> bool:
        """Whether a rollout ends otherwise in double precision, or from a start very near its own.

        Another device rounds otherwise: an order of operations, or a root to three units in the
        last place, which the robot's loop amplifies.
        """
        here, (x, y, heading) = self.on_device("cpu"), self.start
        found = {*here.costs(policies, environments, *noise, dtype=np.float64).flat}
        for turned, dx, dy in product(NEARBY[-3:], NEARBY, NEARBY):
            moved = replace(here, start=(x + dx, y + dy, heading + turned))
            found |= {*moved.costs(policies, environments, *noise).flat}
            if len(found) > 1:
                return True
        return False

    @property
    def together(self) -> int:  # type: ignore[override]
        """Environments that a GPU should be given at once."""
        return 0 if self.device == "cpu" else MANY

    def describe(self, environments: Environments) -> Arrays:
        """The number of cylinders in each environment, their mean radius, and the room to start."""
        arrays = environments.arrays()
        obstacles, counts = arrays["obstacles"].astype(float), arrays["counts"]
        used = np.arange(obstacles.shape[1]) < counts[:, None]
        away = np.hypot(*np.moveaxis(obstacles[..., :2] - self.start[:2], -1, 0))
        room = np.where(used, away - obstacles[..., 2], np.inf).min(axis=1, initial=self.horizon)
        radii = np.where(used, obstacles[..., 2], 0).sum(axis=1) / np.maximum(counts, 1)
        return {"cylinders": counts, "mean_radius": radii, "room_at_start": room}

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

    parameters = property(attrgetter("controller.parameters"))  # type: ignore[assignment]
    policy_class = property(attrgetter("controller.name"))  # type: ignore[assignment]
    settings = property(records.settings_of)  # type: ignore[assignment]
    from_settings = classmethod(records.from_settings)  # type: ignore[assignment]

    @cached_property
    def rays(self) -> NDArray[np.float64]:
        """Angle, sine and cosine of each ray; shape (3, rays)."""
        angles = ray_angles(self.controller.rays, self.fan)
        return np.array([angles, np.sin(angles), np.cos(angles)])

    def check_policies(self, policies: NDArray) -> None:
        """Raise an error for policies of a wrong shape, or with a NaN or a huge parameter."""
        rows, needed = np.asarray(policies, float), self.controller.parameters
        if rows.ndim not in (2, 3) or rows.shape[-1] != needed:
            raise ValueError(
                f"the {self.name}'s {self.policy_class} policies need {needed} parameters each, "
                f"not an array {rows.shape}"
            )
        if rows.shape[-2] == 0:
            raise ValueError("there are no policies to roll out")
        bad = ~(np.abs(rows) <= LARGEST_PARAMETER).all(axis=-1)
        if bad.any():
            at = np.argwhere(bad)[0]
            where = f"policy {at[-1]}" + (f" of environment {at[0]}" if len(at) == 2 else "")
            raise ValueError(f"{where} has a NaN, an infinite or a huge parameter (above 1e9)")

    def costs(
        self,
        policies: NDArray,
        environments: Environments,
        noise: Noise | None = None,
        *,
        dtype: type[np.floating] = np.float32,
        closest: NDArray | None = None,
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
            closest: where the smallest distances to an obstacle are wanted, an array of this
                precision to write them to, (environments, policies)
        """
        self.check_policies(policies)
        (*given, count, _), n = np.shape(policies), len(environments)
        if given and given != [n]:
            raise ValueError(f"policies for {given[0]} environments were given, and there are {n}")
        collided = np.empty((n, count), np.uint8)
        measured = np.empty((1, 0), dtype) if closest is None else closest
        drivers.run(self, "collisions", policies, environments, noise, collided, measured)
        if collided.max() == kernel.LOST:
            row, column = np.argwhere(collided == kernel.LOST)[0]
            where = f"in environment {row} under policy {column}"
            raised = "" if self.device == "cpu" else ", or it raised an error there"
            raise ValueError(LOST.format(self.name, where + raised))
        return collided

    def surrogate(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray[np.float64]:
        """A cost in [0, 1] that varies continuously with the policy, of the shape of `costs`.

        The negative of the smallest distance to an obstacle along the trajectory, scaled (paper:
        Section 7.1): 1 - d for a distance of d metres from the robot's centre, and 0 beyond 1 m.
        A trajectory ends at the first contact.
        """
        self.check_policies(policies)
        closest = np.empty((len(environments), np.shape(policies)[-2]), np.float32)
        self.costs(policies, environments, noise, closest=closest)
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
        if np.ndim(policy) != 1:
            raise ValueError(ONE_ROW.format(np.shape(policy)))
        self.check_policies(np.array([policy], float))
        limit = self.largest_control
        return float(np.clip(self.controller.respond(policy, depths), -limit, limit))

    def depths(self, pose: ArrayLike, obstacles: ArrayLike) -> NDArray[np.float64]:
        """The sensor's readings at a pose (x, y, ψ) among cylinders (cylinders, 3); (rays,)."""
        x, y, heading = np.asarray(pose, float)
        here = (np.array([value]) for value in (x, y, np.sin(heading), np.cos(heading)))
        cylinders = np.asarray(obstacles, float).reshape(-1, 3)
        around = (part.astype(float) for part in (self.arena.walls, self.arena.open_areas))
        read = np.empty((self.controller.rays, 1))
        kernel.sense(*here, cylinders, *around, self.rays, float(self.horizon), read)
        return read[:, 0]

    def clearance(self, points: ArrayLike, obstacles: ArrayLike) -> NDArray[np.float64]:
        """Metres from each point (points, 2) to the nearest cylinder or wall; 0 inside one."""
        x, y = np.asarray(points, float).reshape(-1, 2).T.copy()
        found = np.full(len(x), np.inf)
        cylinders = np.asarray(obstacles, float).reshape(-1, 3)
        kernel.approach(x, y, cylinders, self.arena.walls.astype(float), found)
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
        """One rollout in each environment, step by step, in double precision."""
        if np.ndim(policy) != 1:
            raise ValueError(ONE_ROW.format(np.shape(policy)))
        rows = np.array([policy], float)
        self.check_policies(rows)
        count, steps = len(environments), self.steps + self.landing_steps
        ends, poses = np.empty((count, 2), int), np.empty((count, steps + 1, 3))
        seen = np.empty((count, steps, self.controller.rays))
        drivers.run(self, "trajectories", rows, environments, noise, ends, poses, seen)
        found = [
            Trajectory(way[: taken + 1], depths[:taken], bool(collided))
            for way, depths, (taken, collided) in zip(poses, seen, ends, strict=True)
        ]
        if not all(np.isfinite(each.poses).all() for each in found):
            raise ValueError(LOST.format(self.name, "along a trajectory"))
        return found

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
        draw_rollouts(self, run, environments[:3], file=picture)
        return {"picture.svg": picture.getvalue()}

    def recordings(
        self, policy: NDArray, environments: Environments
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Depths (steps, rays) and controls (steps,) of a policy along its trajectories."""
        seen = np.concatenate([t.depths for t in self.trajectories(policy, environments)])
        limit = self.largest_control
        return seen, np.clip(self.controller.respond(policy, seen), -limit, limit)
