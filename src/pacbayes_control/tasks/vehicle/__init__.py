"""The paper's ground vehicle among cylinders (Section 7.1)."""

from pacbayes_control.tasks.vehicle.environments import (
    Arena,
    CommonRadius,
    ObstacleField,
    Reshuffled,
)
from pacbayes_control.tasks.vehicle.policies import (
    Gains,
    Linear,
    Network,
    gain_grid,
    gain_names,
    network_start,
    paper_prior,
    reactive_gains,
)
from pacbayes_control.tasks.vehicle.simulator import Trajectory, Vehicle

__all__ = [
    "Arena",
    "CommonRadius",
    "Gains",
    "Linear",
    "Network",
    "ObstacleField",
    "Reshuffled",
    "Trajectory",
    "Vehicle",
    "gain_grid",
    "gain_names",
    "network_start",
    "paper_prior",
    "reactive_gains",
]
