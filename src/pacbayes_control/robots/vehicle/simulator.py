"""The vehicle task: a differential drive, run by the compiled kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pacbayes_control.robots.planar.kernel import F, turned
from pacbayes_control.robots.planar.policies import Gains, Linear
from pacbayes_control.robots.planar.records import Kinds
from pacbayes_control.robots.planar.robot import Planar, Walls, check_range
from pacbayes_control.robots.vehicle.environments import Arena
from pacbayes_control.robots.vehicle.policies import GRID
from pacbayes_control.robots.vehicle.pretrained import NETWORK


@dataclass(frozen=True)
class Vehicle(Planar):
    """A differential-drive robot with a depth sensor among cylinders (paper: Section 7.1).

    With `wheel_slip` the world has noise of its own: each wheel's turn is multiplied by 1 plus so
    much times a draw of unit variance; with `range_noise`, each reading is.

    >>> task = Vehicle()
    >>> task.costs(task.policies, task.environments(4, stream="example")).shape
    (4, 50)
    """

    arena: Walls = field(default_factory=Arena, kw_only=True)
    speed: float = 2.5  # m/s
    wheel_radius: float = 0.1  # m
    base_width: float = 0.5  # m
    wheel_slip: float = 0.0  # relative, of each wheel in each step

    parts: ClassVar[dict[str, Kinds]] = Planar.parts | {"arena": {"": Arena}}
    grid = GRID

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("wheel_slip", self.wheel_slip, 0, 0.25)

    @staticmethod
    def move(state, control, draws, step, model):  # noqa: ARG004 - as the kernel calls it
        """One step of explicit Euler with the old heading, each wheel with an error of its own.

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
        """What `move` needs."""
        # ψ̇ = (r/L)(u_r - u_l) = (r/L)·2·u_diff
        turn = 2 * self.wheel_radius / self.base_width * self.time_step
        if turn * self.largest_control > 0.3:
            raise ValueError(
                f"a turn of {turn * self.largest_control:g} rad in one step is beyond the "
                "kernel's 0.3"
            )
        return self.speed * self.time_step, turn, self.largest_control, self.wheel_slip

    @property
    def largest_control(self) -> float:
        """|u_diff| ≤ u₀/2 = v₀/(2r)."""
        return self.speed / self.wheel_radius / 2

    @property
    def noises(self) -> dict[str, float]:
        """What is random in a rollout, and how large it is."""
        return {"wheel slip": self.wheel_slip, **super().noises}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The vehicle that a record describes; an early one told the class of policies alone."""
        if set(settings) != {"policy_class"}:
            return super().from_settings(settings)
        for controller in (Gains(), Linear(), NETWORK):
            if controller.name == settings["policy_class"]:
                return cls(controller=controller)
        raise ValueError(f"the vehicle has no {settings['policy_class']} policies")
