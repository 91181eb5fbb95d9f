"""The winner's curse: the best of several equal checkpoints looks better than it is.

Each of k checkpoints succeeds at the same rate, and is tried n times. The one with the fewest
failures is reported. Its usual interval is computed as if it had been the only one, and lies above
the truth far more often than it should. Occam's bound pays for the choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pacbayes_control.bounds.theorems import occam_exact_tail
from pacbayes_control.tasks.environments import generator
from pacbayes_control.trials.usual import CONFIDENCE, wilson

CHECKPOINTS = (1, 2, 5, 10, 20, 50)
TRIALS = (10, 20, 50, 100, 200)
TRUTH = 0.7  # rate of success of every checkpoint
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
