"""The policy of one flight, drawn from the posterior, and its simulated sensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.run import Run
from pacbayes_control.deploy.policy import DeployedPolicy
from pacbayes_control.robots.swing.flight.tracking import Pose
from pacbayes_control.robots.swing.simulator import Swing


@dataclass(frozen=True, eq=False)
class Pilot:
    """A policy that turns a pose into a yaw command."""

    task: Swing
    policy: NDArray  # the parameters of the policy that was drawn
    index: int | None = None  # of the policy, where the posterior is over finitely many
    name: str = ""

    def steer(self, pose: Pose, obstacles: NDArray) -> int:
        """The yaw to command, in whole percent of the full one, as the radio takes it.

        The sensor is simulated from the pose and the known obstacles, and is the policy's only
        input (paper: Section 8).
        """
        depths = self.task.depths((pose.x, pose.y, pose.yaw), obstacles)
        fraction = float(self.task.act(self.policy, depths))
        if not abs(fraction) <= 1:
            raise ValueError(f"the policy commands {fraction:g} of the full yaw, not in [-1, 1]")
        return round(100 * fraction)

    def clearance(self, points: NDArray, obstacles: NDArray) -> NDArray:
        """Metres from the drone's hull to the nearest surface, at points (n, 2); 0: contact."""
        return self.task.clearance(points, obstacles) - self.task.robot_radius


def draw_pilot(run: Run[Any], task: Swing, seed: int) -> Pilot:
    """Draw one policy for the whole flight, as the certificate assumes."""
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
