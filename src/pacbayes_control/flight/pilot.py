"""The policy of one flight, drawn from the posterior, and the sensor that it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.deployment import DeployedPolicy
from pacbayes_control.flight.tracking import Pose
from pacbayes_control.run import Run


class FlyingTask(Protocol):
    """The task `tasks.swing.Swing`, as far as a flight needs it."""

    @property
    def steps(self) -> int:
        """Commands in a flight."""
        ...

    @property
    def time_step(self) -> float:
        """Seconds between two of them."""
        ...

    @property
    def speed(self) -> float:
        """Of flight, in m/s."""
        ...

    @property
    def k_u(self) -> float:
        """Steady yaw for the full command, in rad."""
        ...

    @property
    def k_p(self) -> float:
        """How fast it is approached, in 1/s."""
        ...

    @property
    def robot_radius(self) -> float:
        """Of the disc that must touch nothing, in m."""
        ...

    @property
    def start(self) -> tuple[float, float, float]:
        """Where flights begin: x, y in m, and the heading in rad."""
        ...

    @property
    def arena(self) -> Any:
        """The net, with its `half_width` and `length` in m, as `tasks.swing.Net` has them."""
        ...

    @property
    def obstacles(self) -> Any:
        """The distribution of cylinders, as `tasks.planar.obstacles.ObstacleField` has it."""
        ...

    @property
    def range_noise(self) -> float:
        """Of the sensor that the policy was certified with."""
        ...

    def act(self, policy: NDArray, observation: NDArray) -> float:
        """The fraction of the full yaw that a policy commands."""
        ...

    def depths(self, pose: Any, obstacles: NDArray) -> NDArray:
        """What the simulated sensor reads at a pose (x, y, ψ)."""
        ...

    def clearance(self, points: NDArray, obstacles: NDArray) -> NDArray:
        """Metres from points (n, 2) to the nearest cylinder or to the net."""
        ...


@dataclass(frozen=True, eq=False)
class Pilot:
    """A policy at work: a pose in, a yaw out."""

    task: FlyingTask
    policy: NDArray  # the parameters of the policy that was drawn
    index: int | None = None  # of the policy, where the posterior is over finitely many
    name: str = ""

    def steer(self, pose: Pose, obstacles: NDArray) -> int:
        """The yaw to command, in whole percent of the full one, which is all that the radio takes.

        The sensor is simulated from the pose and the known obstacles, and the policy sees nothing
        else (paper: Section 8).
        """
        depths = self.task.depths((pose.x, pose.y, pose.yaw), obstacles)
        fraction = float(self.task.act(self.policy, depths))
        if not abs(fraction) <= 1:
            raise ValueError(f"the policy commands {fraction:g} of the full yaw, which is not one")
        return round(100 * fraction)

    def clearance(self, points: NDArray, obstacles: NDArray) -> NDArray:
        """Metres from the drone's hull to the nearest surface, at points (n, 2); 0: contact."""
        return self.task.clearance(points, obstacles) - self.task.robot_radius


def draw_pilot(run: Run[Any], task: FlyingTask, seed: int) -> Pilot:
    """Draw the policy of a flight: one, kept for all of it, as the certificate means it."""
    deployed = DeployedPolicy(run, task, seed)
    deployed.reset()
    policy = np.array(deployed.policy)
    index, name = None, ""
    if run.costs.parameters is not None:
        same = np.flatnonzero((np.asarray(run.costs.parameters) == policy).all(axis=-1))
        if same.size:
            index = int(same[0])
            name = run.costs.name(index)
    return Pilot(task, policy, index, name)
