"""Tasks: what can be rolled out."""

from pacbayes_control.tasks.base import Environments, Task
from pacbayes_control.tasks.vehicle import Vehicle

__all__ = ["Environments", "Task", "Vehicle"]
