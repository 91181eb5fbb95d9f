"""Robots in the plane that steer by depths among cylinders and walls: their common base.

To add a robot, derive a dataclass from `Planar` with a rule of motion: see docs/own-planar.md.
"""

from pacbayes_control.robots.planar.kernel import turned
from pacbayes_control.robots.planar.obstacles import CommonRadius, ObstacleField, Reshuffled
from pacbayes_control.robots.planar.policies import (
    GainGrid,
    Gains,
    Linear,
    Network,
    ray_angles,
    reactive_gains,
)
from pacbayes_control.robots.planar.robot import Planar, Trajectory

__all__ = [
    "CommonRadius",
    "GainGrid",
    "Gains",
    "Linear",
    "Network",
    "ObstacleField",
    "Planar",
    "Reshuffled",
    "Trajectory",
    "ray_angles",
    "reactive_gains",
    "turned",
]
