"""Tasks: what can be rolled out.

FunctionTask, BatchTask   from a user's functions
GymTask                   from a Gymnasium environment (`tasks.gym`)
Vehicle, Swing, Grasping  the paper's vehicle, drone and arm; loaded when first used: they take long
Planar                    to make another robot in the plane from (`tasks.planar`)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pacbayes_control.tasks.base import Environments, Noise, Scene, Task
from pacbayes_control.tasks.functions import BatchTask, FunctionTask

if TYPE_CHECKING:
    from pacbayes_control.tasks.grasping import Grasping
    from pacbayes_control.tasks.planar import Planar
    from pacbayes_control.tasks.swing import Swing
    from pacbayes_control.tasks.vehicle import Vehicle

__all__ = [
    "BatchTask",
    "Environments",
    "FunctionTask",
    "Grasping",
    "Noise",
    "Planar",
    "Scene",
    "Swing",
    "Task",
    "Vehicle",
]


def __getattr__(name: str) -> object:
    if name not in ("Vehicle", "Swing", "Grasping", "Planar"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{name.lower()}"), name)
