"""Tasks: distributions over environments, and the costs of policies in them.

FunctionTask, BatchTask   from a user's functions
GymTask                   from a Gymnasium environment (`tasks.gym`)
"""

from pacbayes_control.tasks.environments import Environments, Noise
from pacbayes_control.tasks.functions import BatchTask, FunctionTask
from pacbayes_control.tasks.task import Scene, Task, as_task

__all__ = ["BatchTask", "Environments", "FunctionTask", "Noise", "Scene", "Task", "as_task"]
