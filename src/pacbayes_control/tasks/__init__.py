"""Tasks: what can be rolled out."""

from pacbayes_control.tasks.base import Environments, Noise, Scene, Task
from pacbayes_control.tasks.vehicle import Vehicle

__all__ = ["Environments", "Noise", "Scene", "Task", "Vehicle"]
