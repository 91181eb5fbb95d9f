"""The paper's ground vehicle among cylinders (Section 7.1)."""

from pacbayes_control.tasks.planar.obstacles import CommonRadius, ObstacleField, Reshuffled
from pacbayes_control.tasks.planar.policies import Gains, Linear, Network, reactive_gains
from pacbayes_control.tasks.vehicle.environments import Arena
from pacbayes_control.tasks.vehicle.policies import network_start, paper_prior
from pacbayes_control.tasks.vehicle.simulator import Vehicle

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
