"""The vehicle task: a differential drive in its arena, run by the compiled kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.planar.kernel import F, turned
from pacbayes_control.robots.planar.policies import Gains, Linear
from pacbayes_control.robots.planar.robot import Planar, Walls
from pacbayes_control.robots.vehicle.policies import GRID
from pacbayes_control.robots.vehicle.pretrained import NETWORK
from pacbayes_control.tasks import Environments
from pacbayes_control.tasks.options import option


@dataclass(frozen=True)
class Arena:
    """Walls on three sides, open at the top, so that the robot may leave."""

    half_width: float = 5.0  # m, to the middle of the side walls
    length: float = 10.0  # m
    half_thickness: float = 0.1  # m

    # left, right and bottom wall, (3, 4) as left, right, bottom, top side in m
    walls: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    # rectangles without walls, (2, 4): between the side walls, and above them
    open_areas: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    view = (-5.6, 5.6, -0.5, 14.0)  # m, edges of pictures: left, right, bottom, top

    def __post_init__(self) -> None:
        w, t, length, far = self.half_width, self.half_thickness, self.length, np.inf
        inner = w - t
        sides = [-w - t, -w + t, 0, length], [w - t, w + t, 0, length]
        walls = np.array([*sides, [-w, w, -t, t]])
        open_areas = np.array([[-inner, inner, t, far], [-far, far, length, far]])
        for array in (walls, open_areas):
            array.setflags(write=False)  # every task has them
        vars(self).update(walls=walls, open_areas=open_areas)


CONTROLLERS = {"grid": Gains(), "linear": Linear(), "network": NETWORK}


@dataclass(frozen=True)
class VehicleOptions:
    """Options of the vehicle."""

    policy: Literal["grid", "linear", "network"] = option(
        "grid", "Class of policies: grid (the paper's 50), linear or network."
    )
    wheel_slip: float = option(0.0, "Noise of the wheels, relative.")
    range_noise: float = option(0.0, "Noise of the depths, relative.")


@dataclass(frozen=True)
class Vehicle(Planar):
    """A differential-drive robot with a depth sensor among cylinders (paper: Section 7.1).

    In each step each wheel's turn is multiplied by 1 + `wheel_slip` · z, and each reading of the
    sensor by 1 + `range_noise` · z, where z has mean 0 and variance 1.

    >>> task = Vehicle()
    >>> task.costs(task.policies, task.environments(4, stream="example")).shape
    (4, 50)
    """

    arena: Walls = field(default=Arena(), kw_only=True)
    speed: float = 2.5  # m/s
    wheel_radius: float = 0.1  # m
    base_width: float = 0.5  # m
    wheel_slip: float = 0.0  # relative, for each wheel in each step

    parts: ClassVar = Planar.parts | {"arena": {"": Arena}}
    limits: ClassVar = Planar.limits | {"wheel_slip": (0, 0.25)}
    early = tuple(CONTROLLERS.values())
    grid = GRID
    Options = VehicleOptions
    test_environments = 20_000

    @staticmethod
    def move(state, control, draws, step, model):  # noqa: ARG004 - as the kernel calls it
        """One step of explicit Euler with the old heading, each wheel with its own error.

        model: metres a step, radians of turn a step per unit of u_diff, largest u_diff, slip.
        """
        x, y, sin, cos, own = state
        length, gain, limit = model[0], model[1], model[2]
        left, right = model[3] * draws[0], model[3] * draws[1]
        # u_left = u₀ - u_diff, u_right = u₀ + u_diff, each times 1 plus its error; u₀ = 2·limit
        steered = min(max(control, -limit), limit)
        forward = F(1) + (left + right) / F(2) + steered * (right - left) / (F(4) * limit)
        angle = gain * (steered * (F(1) + (left + right) / F(2)) + limit * (right - left))
        after_sin, after_cos = turned(sin, cos, angle)
        return x - length * forward * sin, y + length * forward * cos, after_sin, after_cos, own

    @property
    def constants(self) -> tuple[float, ...]:
        """The numbers that `move` reads from its `model`."""
        # ψ̇ = (r/L)(u_r - u_l) = (r/L)·2·u_diff
        turn = 2 * self.wheel_radius / self.base_width * self.time_step
        limit = self.speed / self.wheel_radius / 2  # |u_diff| ≤ u₀/2 = v₀/(2r)
        if turn * limit > 0.3:
            raise ValueError(
                f"a turn of {turn * limit:g} rad in one step is beyond the kernel's limit of 0.3 "
                "rad: choose a smaller time_step or speed"
            )
        return self.speed * self.time_step, turn, limit, self.wheel_slip

    @property
    def largest_control(self) -> float:  # type: ignore[override]
        """Of |u_diff|."""
        return self.constants[2]

    @property
    def noises(self) -> dict[str, float]:
        """The sources of noise in a rollout, and their sizes."""
        return {"wheel slip": self.wheel_slip, "range noise": self.range_noise}

    @property
    def priors(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of priors over continuous policies, the usual one first."""
        learnt = ("elsewhere", "split", "imitation")
        if isinstance(self.controller, Gains):
            return ()
        return ("paper", *learnt) if self.controller == Linear() else learnt

    def learn_prior(
        self, name: str, environments: Environments, plan: Any, execution: Any
    ) -> tuple[Any, Environments]:
        """One of `priors`, and the environments that are left for the bound to count."""
        from pacbayes_control.robots.vehicle.priors import learn_prior

        return learn_prior(self, name, environments, plan, execution)

    @classmethod
    def from_options(cls, options: VehicleOptions) -> Self:
        """The vehicle with the chosen class of policies and noise."""
        noise: Any = {"wheel_slip": options.wheel_slip, "range_noise": options.range_noise}
        return cls(controller=CONTROLLERS[options.policy], **noise)
