"""The one place that runs simulators.

execution    where and how, in one record
evaluation   every policy in every environment: the table of costs, or its means
sampling     policies drawn from a posterior
jobs         all rollouts of a table of costs, and the pieces of it that workers roll out
dispatch     pieces sent to workers, and collected in any order
worker       what a worker does with a piece
failures     the log of rollouts that failed, perhaps only at first, and the error for them
pools        the workers: this process, threads, processes, or any Executor
processes    processes of this machine, which can be watched and ended
cluster      the workers of a Dask cluster
kept         a campaign: costs on disk, written as they finish, to be resumed and to grow
manifest     what a campaign's costs depend on, and the looks at them
again        recorded rollouts, run again and compared
conformance  checks of a task before it is certified
differences  whether environments differ as they are drawn, and rollouts with them
"""

from pacbayes_control.rollouts.again import roll_out_again
from pacbayes_control.rollouts.cluster import cluster
from pacbayes_control.rollouts.evaluation import Quantity, evaluate, mean_costs
from pacbayes_control.rollouts.execution import Execution, Progress, Workers
from pacbayes_control.rollouts.failures import RolloutError
from pacbayes_control.rollouts.pools import open_workers, pool
from pacbayes_control.rollouts.processes import Processes
from pacbayes_control.rollouts.sampling import (
    Draws,
    certifying_draws,
    estimate_true_cost,
    sample_costs,
    sampled_mean,
)

__all__ = [
    "Draws",
    "Execution",
    "Processes",
    "Progress",
    "Quantity",
    "RolloutError",
    "Workers",
    "certifying_draws",
    "cluster",
    "estimate_true_cost",
    "evaluate",
    "mean_costs",
    "open_workers",
    "pool",
    "roll_out_again",
    "sample_costs",
    "sampled_mean",
]
