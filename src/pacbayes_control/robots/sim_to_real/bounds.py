"""Bounds on failures in reality, with simulation and without it, and their means over draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from pacbayes_control.bounds.stratified import PairCounts
from pacbayes_control.bounds.theorems import clopper_pearson
from pacbayes_control.certify.simulated import UNLIKELY, chance_of_difference, with_simulation
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots.sim_to_real.pairs import Rollouts
from pacbayes_control.rollouts import Execution, Processes
from pacbayes_control.rollouts.processes import cores

DELTA = 0.01
TRIALS = (30, 100, 300)
MOST_TRIALS = 1 << 16  # that a bound is said to be worth


@dataclass(frozen=True)
class Draw:
    """All that the bounds from one draw of the trials depend on."""

    counts: PairCounts
    failures: int  # in simulation, among further environments
    simulated: int  # their number

    def bounds(self) -> tuple[float, float]:
        """Bounds on the failure rate in reality, with simulation and without it.

        One draw in a thousand is refused, because simulation fails there more often or less often
        than elsewhere: then both are the bound without it.
        """
        k = self.counts
        pairs = (k.both, k.simulated - k.both, k.alone, k.other - k.alone)
        real, simulated = np.repeat([1, 0, 1, 0], pairs), np.repeat([1.0, 1.0, 0.0, 0.0], pairs)
        more = np.repeat([1.0, 0.0], [self.failures, self.simulated - self.failures])
        if chance_of_difference(simulated, more) < UNLIKELY:
            without = float(clopper_pearson(k.both + k.alone, len(real), DELTA))
            return without, without
        joined = with_simulation(real[:, None], simulated[:, None], more[:, None])
        certificate = learn_finite(joined, DELTA).certificate
        assert certificate.simulation is not None
        return certificate.bound, certificate.simulation.bound_without


def draws_of(rollouts: Rollouts, trials: int) -> Iterator[Draw]:
    """Disjoint draws of so many trials; each draw of the largest number is cut into some."""
    whole, known = max(TRIALS), (int(rollouts.more.sum()), len(rollouts.more))
    for start in range(0, len(rollouts.reality) - whole + 1, whole):
        for first in range(start, start + whole - trials + 1, trials):
            part = slice(first, first + trials)
            yield Draw(PairCounts.of(rollouts.reality[part], rollouts.simulation[part]), *known)


def bounds_of(
    draws: Iterable[Draw], workers: int | None = None, execution: Execution | None = None
) -> dict[Draw, tuple[float, float]]:
    """The bounds of each draw; those with equal counts have equal bounds.

    workers: processes; by default one for each core
    """
    different, how = [*dict.fromkeys(draws)], replace(execution or Execution(), title="bounds")
    if workers == 0:
        return {draw: draw.bounds() for draw in different}
    with Processes(workers or cores(), threads=1) as pool:
        calls = {pool.submit(draw.bounds): draw for draw in different}
        for done, _ in enumerate(as_completed(calls), 1):
            how.tell(done, len(calls))
        return {draw: call.result() for call, draw in calls.items()}


def expected_bound(trials: int, rate: float) -> float:
    """The mean of the exact tail's bound, over the failures in trials that fail at a rate.

    >>> round(expected_bound(100, 0.3), 3)
    0.417
    """
    failures = np.arange(trials + 1)
    return float(binom.pmf(failures, trials, rate) @ clopper_pearson(failures, trials, DELTA))


def equivalent_trials(bound: float, rate: float) -> int | None:
    """The fewest trials without simulation whose expected bound is at most the given one.

    >>> equivalent_trials(expected_bound(100, 0.3), 0.3)
    100
    """
    if bound <= rate:  # which is below all of them
        return None
    high = 1
    while expected_bound(high, rate) > bound:
        high *= 2
        if high > MOST_TRIALS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if expected_bound(middle, rate) <= bound else (middle, high)
    return high


@dataclass(frozen=True)
class SimToRealRow:
    """One policy and number of trials, over all draws of the trials."""

    robot: str  # vehicle or swing
    policy: str  # best or weaker
    trials: int
    draws: int
    bound: float  # with simulation, mean over draws
    bound_sd: float  # standard deviation over draws; 0 for one
    bound_without: float  # by the exact tail of the trials alone, mean over draws
    looser: float  # ratio of the two means
    equivalent_trials: int | None  # without simulation, for the same bound; None: above 65,536
    errors: int  # draws whose bound lies below the true cost
    true_cost: float  # share of all trials that failed
    simulated_cost: float  # the same in simulation
    agreement: float  # share of all trials that ended in reality as in simulation

    @classmethod
    def of(
        cls, rollouts: Rollouts, trials: int, known: dict[Draw, tuple[float, float]]
    ) -> SimToRealRow:
        """The row of some rollouts, whose bounds are known."""
        found = np.array([known[draw] for draw in draws_of(rollouts, trials)])
        (bound, without), truth = found.mean(axis=0).tolist(), float(rollouts.reality.mean())
        return cls(
            robot=rollouts.robot,
            policy=rollouts.policy,
            trials=trials,
            draws=len(found),
            bound=bound,
            bound_sd=float(found[:, 0].std(ddof=1)) if len(found) > 1 else 0.0,
            bound_without=without,
            looser=bound / without,
            equivalent_trials=equivalent_trials(bound, truth),
            errors=int(np.sum(found[:, 0] < truth)),
            true_cost=truth,
            simulated_cost=float(rollouts.simulation.mean()),
            agreement=float(np.mean(rollouts.reality == rollouts.simulation)),
        )
