"""Any Gymnasium environment as a task.

task           GymTask: an environment is a seed and the options of its reset
policies       how a row of parameters acts: a function, a torch module, an object with `predict`
rules          from an episode to a cost in [0, 1]
episodes       one episode for each (environment, policy), alone, in a batch or in a vector
batches        does a policy act in a batch as it does in one episode?
watching       one episode step by step, and its frames
registrations  ids that are registered here, and where a task comes from
"""

from pacbayes_control.tasks.gym.episodes import Episode
from pacbayes_control.tasks.gym.policies import FunctionPolicy, PredictPolicy, TorchPolicy
from pacbayes_control.tasks.gym.rules import FromInfo, FromReturn, FromTermination
from pacbayes_control.tasks.gym.task import GymTask

__all__ = [
    "Episode",
    "FromInfo",
    "FromReturn",
    "FromTermination",
    "FunctionPolicy",
    "GymTask",
    "PredictPolicy",
    "TorchPolicy",
]
