"""The winner's curse: the best of several equal checkpoints looks better than it is.

Each of k checkpoints succeeds at the same rate, and is tried n times. The one with the fewest
failures is reported. Its usual interval is computed as if it had been the only one, and lies above
the truth far more often than it should. Occam's bound pays for the choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pacbayes_control.bounds.kl import Floats, in_unit_interval
from pacbayes_control.bounds.theorems import check_delta, occam_exact_tail
from pacbayes_control.tasks.environments import generator

CHECKPOINTS = (1, 2, 5, 10, 20, 50)
TRIALS = (10, 20, 50, 100, 200)
TRUTH = 0.7  # rate of success of every checkpoint
CONFIDENCE = 0.95  # of the usual interval, two-sided
DELTA = 0.025  # of the certified bound: one side of the usual interval


@dataclass(frozen=True)
class WinnersCurseRow:
    """The winner of so many checkpoints with so many trials each, over many repetitions."""

    checkpoints: int
    trials: int  # of each checkpoint
    truth: float  # rate of success of every checkpoint
    reported: float  # mean rate of success that the winner had in its trials
    usual_misses: float  # how often the usual interval of the winner lies above the truth
    certified_misses: float  # how often the certified rate of success lies above the truth
    promised: float  # mean certified rate of success


def winners_curse(draws: int = 20_000, seed: int = 0) -> list[WinnersCurseRow]:
    """The simulation, for each number of checkpoints and of trials; `draws` repetitions each.

    >>> row = winners_curse(draws=500)[0]
    >>> row.checkpoints, row.trials, round(row.reported, 1)
    (1, 10, 0.7)
    """
    return [simulated(k, n, draws=draws, seed=seed) for n in TRIALS for k in CHECKPOINTS]


def simulated(
    checkpoints: int, trials: int, *, truth: float = TRUTH, draws: int = 20_000, seed: int = 0
) -> WinnersCurseRow:
    """One row of the simulation, from a stream of random numbers of its own.

    Args:
        checkpoints: k, all equal
        trials: n of each
        truth: rate of success of every checkpoint
        draws: repetitions
        seed: of the stream

    >>> simulated(20, 50, draws=2000).usual_misses > 0.25  # and not 0.025
    True
    """
    if min(checkpoints, trials, draws) < 1:
        raise ValueError("checkpoints, trials and draws must be at least 1")
    rng = generator(seed, f"winner's curse {checkpoints} {trials}", of="noise")
    failures = rng.binomial(trials, 1 - truth, (draws, checkpoints)).min(axis=1)  # of the winner
    counts = np.arange(trials + 1)
    usual = wilson(counts, trials, CONFIDENCE)[1]
    # The smallest bound is that of the fewest failures, since all weights are equal.
    weights = np.full(checkpoints, 1 / checkpoints)
    every = np.broadcast_to(counts[:, None], (trials + 1, checkpoints))
    certified = occam_exact_tail(every, trials, weights, DELTA)[:, 0]
    return WinnersCurseRow(
        checkpoints,
        trials,
        truth,
        reported=float(1 - failures.mean() / trials),
        usual_misses=float(np.mean(usual[failures] < 1 - truth)),
        certified_misses=float(np.mean(certified[failures] < 1 - truth)),
        promised=float(1 - certified[failures].mean()),
    )


def usual_interval(costs: ArrayLike, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval for a mean cost that is usually reported, for comparison with a certified bound.

    Wilson's for 0/1 costs, else the normal one, mean ± 1.96 s/√n at 95 %, cut at 0 and 1. Neither
    is exact, and both are for one policy that was not chosen by these trials.

    >>> [round(limit, 3) for limit in usual_interval([0] * 41 + [1] * 9)]
    [0.098, 0.308]
    """
    costs = in_unit_interval(costs, "a cost")
    check_delta(confidence, "confidence")
    if costs.ndim != 1 or costs.size == 0:
        raise ValueError("an interval needs the cost of at least one trial")
    if np.all((costs == 0) | (costs == 1)):
        low, high = wilson(costs.sum(), len(costs), confidence)
        return float(low), float(high)
    if len(costs) == 1:
        return 0.0, 1.0
    reach = _z(confidence) * float(costs.std(ddof=1)) / math.sqrt(len(costs))
    mean = float(costs.mean())
    return max(mean - reach, 0.0), min(mean + reach, 1.0)


def wilson(failures: ArrayLike, n: int, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Wilson's interval for a failure rate, without a correction for continuity.

    >>> [round(float(limit), 3) for limit in wilson(9, 50)]
    [0.098, 0.308]
    """
    check_delta(confidence, "confidence")
    failures, z2 = np.asarray(failures, float), _z(confidence) ** 2
    if n < 1 or not np.all((failures >= 0) & (failures <= n)):
        raise ValueError(f"failures must be numbers from 0 to {n}, of at least one trial")
    centre = failures + z2 / 2
    reach = np.sqrt(z2 * (failures * (n - failures) / n + z2 / 4))
    low, high = (centre - reach) / (n + z2), (centre + reach) / (n + z2)
    return np.where(failures == 0, 0.0, low), np.where(failures == n, 1.0, high)


def _z(confidence: float) -> float:
    """The quantile of the normal distribution for a two-sided interval: 1.96 for 95 %."""
    return float(scipy.special.ndtri((1 + confidence) / 2))
