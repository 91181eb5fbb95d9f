"""Tasks: what can be rolled out.

FunctionTask, BatchTask   from a user's functions
GymTask                   from a Gymnasium environment (`tasks.gym`)
Vehicle                   the paper's vehicle; loaded when first used, since its compiler takes long
"""

from typing import TYPE_CHECKING

from pacbayes_control.tasks.base import Environments, Noise, Scene, Task
from pacbayes_control.tasks.functions import BatchTask, FunctionTask

if TYPE_CHECKING:
    from pacbayes_control.tasks.vehicle import Vehicle

__all__ = ["BatchTask", "Environments", "FunctionTask", "Noise", "Scene", "Task", "Vehicle"]


def __getattr__(name: str) -> object:
    if name != "Vehicle":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pacbayes_control.tasks.vehicle import Vehicle

    return Vehicle
