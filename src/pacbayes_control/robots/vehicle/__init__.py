"""The paper's ground vehicle among cylinders (Section 7.1)."""

from pacbayes_control.robots.planar.obstacles import CommonRadius, ObstacleField, Reshuffled
from pacbayes_control.robots.planar.policies import Gains, Linear, Network, reactive_gains
from pacbayes_control.robots.vehicle.policies import network_start, paper_prior
from pacbayes_control.robots.vehicle.simulator import Arena, Vehicle

__all__ = [
    "Arena",
    "CommonRadius",
    "Gains",
    "Linear",
    "Network",
    "ObstacleField",
    "Reshuffled",
    "Vehicle",
    "network_start",
    "paper_prior",
    "reactive_gains",
]
