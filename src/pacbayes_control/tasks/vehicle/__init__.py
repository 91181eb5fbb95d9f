"""The paper's ground vehicle among cylinders (Section 7.1)."""

from pacbayes_control.tasks.vehicle.policies import gain_grid, gain_names, reactive_gains
from pacbayes_control.tasks.vehicle.simulator import Vehicle

__all__ = ["Vehicle", "gain_grid", "gain_names", "reactive_gains"]
