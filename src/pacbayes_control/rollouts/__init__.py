"""The one place that runs simulators.

evaluation   every policy in every environment: the table of costs, or its means
sampling     policies drawn from a posterior
jobs         what is to be rolled out, and the pieces of it
workers      pieces handed out, and collected in any order
failures     the error for rollouts that failed
retries      rollouts that failed, and whether they did not when they were run again
pools        who rolls out: threads, processes, a cluster
description  what a folder of rollouts is of: all that its costs depend on
sources      the code that a task consists of, in a digest
kept         costs on disk as they come, taken up where they were
spans        ranges of rollouts
again        recorded rollouts, run again and compared
"""

from pacbayes_control.rollouts.again import Again, recorded_noise, roll_out_again
from pacbayes_control.rollouts.evaluation import Progress, evaluate, mean_costs
from pacbayes_control.rollouts.failures import RolloutError
from pacbayes_control.rollouts.jobs import CHUNK
from pacbayes_control.rollouts.pools import Workers, cluster, pool
from pacbayes_control.rollouts.sampling import (
    certifying_draws,
    estimate_true_cost,
    sample_costs,
    sampled_mean,
)
from pacbayes_control.rollouts.spreading import spread

__all__ = [
    "CHUNK",
    "Again",
    "Progress",
    "RolloutError",
    "Workers",
    "certifying_draws",
    "cluster",
    "estimate_true_cost",
    "evaluate",
    "mean_costs",
    "pool",
    "recorded_noise",
    "roll_out_again",
    "sample_costs",
    "sampled_mean",
    "spread",
]
