"""How many trials on the robot a promise needs, with simulation beside them.

A certificate with simulation comes from n trials on the robot, each paired with simulation of the
same environment, and from M further environments that are simulated alone. Its bound depends on how
many of the pairs fail in simulation, n₁, and on how many of these, k₁, and of the others, k₀, fail
on the robot (`bounds.stratified`). Three rates tell how these are distributed: how often simulation
fails, and how often the robot does where simulation fails and where it does not. They are assumed
before any trial, and estimated from the pairs after some.

The power is a share of evenly spread outcomes, and the numbers of trials are exact to a few per
cent. As without simulation the power is a sawtooth, though a flatter one: with one trial more it
may be a little smaller.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pacbayes_control.bounds.kl import Floats
from pacbayes_control.bounds.stratified import (
    PairCounts,
    failure_limits,
    outcome_ranks,
    proves_rate,
)
from pacbayes_control.bounds.theorems import check_delta, clopper_pearson
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.simulation import PART
from pacbayes_control.trials.plans.environments import (
    check_rate,
    checked_level,
    environments_needed,
)
from pacbayes_control.trials.plans.pair_rates import PairRates

MOST = 20_000  # trials on the robot that are planned for
FURTHER = 10_000  # environments that are simulated alone
SPLITS, OUTCOMES = (13, 8), (89, 55)  # Fibonacci numbers: points of a square, evenly spread
CLOSE = 1.015  # ratio of numbers of trials that are not told apart
RESOLUTION = 200  # steps of the power

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class RobotTrialsNeeded:
    """The number of trials on the robot that certify a policy with enough power."""

    trials: int  # with simulation beside them
    power: float  # the probability of the promise with these
    without: int  # trials that it takes without simulation


@dataclass(frozen=True)
class MoreRobotTrials:
    """New trials on the robot until a promise is reached; None where no number is known."""

    trials: int  # so far
    agreement: float  # the share of these in which robot and simulation both fail, or both succeed
    rates: PairRates  # as estimated from these
    more: int | None  # with simulation beside them; 0 if those so far suffice
    without: int | None  # without simulation
    reasons: Mapping[str, str] = field(default_factory=dict)  # by field, where it is None

    @property
    def total(self) -> int | None:
        """Those so far and new ones, with simulation beside them."""
        return None if self.more is None else self.trials + self.more

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        alone = None if self.without is None else self.trials + self.without
        return {
            "trials": self.trials,
            "agreement": self.agreement,
            "failure_rate": self.rates.failure_rate,
            "with_simulation": {"trials": self.total, "more": self.more},
            "without": {"trials": alone, "more": self.without},
            "reasons": dict(self.reasons),
        }


def robot_trials_needed(
    bound: float,
    rates: PairRates,
    *,
    further: int = FURTHER,
    failures: int | None = None,
    delta: float = 0.05,
    candidates: int = 1,
    power: float = 0.9,
) -> RobotTrialsNeeded:
    """About the smallest number of trials on the robot that certify with enough power.

    The number is fixed before the trials, and limits on the failure rate in simulation take their
    part of delta/candidates, as in `choose`.

    Args:
        bound: b, the failure rate on the robot to be promised
        rates: of failures on the robot and in simulation
        further: M, environments that are simulated alone
        failures: in these, where they are simulated already
        delta: probability of error of the promise
        candidates: policies among which one is chosen by the same trials, each at delta/candidates
        power: the least probability that the promise is reached

    >>> found = robot_trials_needed(0.3, PairRates.assumed(0.2, 0.97))
    >>> found.without, 60 < found.trials < 80
    (175, True)
    """
    level = checked_level(bound, delta, candidates)
    without = environments_needed(bound, rates.failure_rate, delta=level, power=power)
    promise = _Promise(bound, level, rates, further, failures)
    return RobotTrialsNeeded(*promise.needed(power), without.environments)


def more_robot_trials(
    costs: Costs,
    bound: float,
    *,
    policy: int = 0,
    delta: float = 0.05,
    candidates: int = 1,
    power: float = 0.9,
) -> MoreRobotTrials:
    """How many new trials of a policy on the robot, if robot and simulation agree as they did.

    The trials so far choose the number, so that the promise is of the new ones alone. The rates of
    failures on the robot are those of `PairRates.estimated`, and the one in simulation is that of
    the further environments, which serve again.

    Args:
        costs: on the robot, 0 or 1, beside which there is simulation
        bound: b, the failure rate on the robot to be promised
        policy: its number
        delta: probability of error of the promise
        candidates: policies with new trials, each at delta/candidates
        power: the least probability that the promise is reached

    >>> from pacbayes_control.certify.simulated import with_simulation
    >>> simulated = (np.arange(5060) % 5 == 0)[:, None]
    >>> robot = simulated[:60] ^ (np.arange(60) == 7)[:, None]
    >>> found = more_robot_trials(with_simulation(robot, simulated[:60], simulated[60:]), 0.28)
    >>> found.trials, round(found.agreement, 3), round(found.rates.failure_rate, 3)
    (60, 0.983, 0.217)
    """
    level = checked_level(bound, delta, candidates)
    check_delta(power, "power")
    if costs.simulation is None or not costs.success_or_failure:
        raise ValueError("a plan with simulation is for trials that succeed or fail, beside it")
    y = costs.values[:, policy].astype(float)
    f, more = costs.simulation.of(policy, binary=True)
    counts, failures = PairCounts.of(y, f), int(more.sum())
    rates = PairRates.estimated(counts, float(more.mean()))
    promise = _Promise(bound, level, rates, len(more), failures)
    alone = float(clopper_pearson(y.sum(), len(y), level))
    ways = {
        "more": (promise.reached(counts, failures), promise.needed),
        "without": (alone <= bound, promise.needed_without),
    }
    numbers, reasons = {}, {}
    for name, (reached, needed) in ways.items():
        try:
            numbers[name] = 0 if reached else needed(power)[0]
        except ValueError as error:
            numbers[name], reasons[name] = None, str(error)
    agreement = 1 - float(np.abs(y - f).mean())
    return MoreRobotTrials(len(y), agreement, rates, **numbers, reasons=reasons)


@dataclass(frozen=True)
class _Promise:
    """A failure rate to be promised, and how likely that is."""

    bound: float  # b
    level: float  # δ of trials and limits together
    rates: PairRates
    further: int  # M, environments that are simulated alone
    failures: int | None  # in these; None if they are still to be simulated

    def __post_init__(self) -> None:
        if not (self.further >= 2 and self.further == int(self.further)):
            raise ValueError(f"{self.further} further environments: at least 2 are needed")

    def limits(self, failures: int) -> tuple[float, float]:
        """Limits on the failure rate in simulation, from failures in further environments."""
        return failure_limits(failures, self.further, PART * self.level)

    def reached(self, counts: PairCounts, failures: int) -> bool:
        """Whether pairs, and failures in further environments, prove the promise."""
        return proves_rate(counts, self.limits(failures), self.bound, (1 - PART) * self.level)

    def needed_without(self, power: float) -> tuple[int, float]:
        """As `needed`, without simulation."""
        rate = self.rates.failure_rate
        found = environments_needed(self.bound, rate, delta=self.level, power=power)
        return found.environments, found.power

    def needed(self, power: float) -> tuple[int, float]:
        """The number of trials with enough power, and its power; an error if there is none."""
        check_rate(self.bound, self.rates.failure_rate)
        low, high, n, step = 0, 0, min(self._first(power), MOST), 1.3
        while not high or high > max(low * CLOSE, low + 1):
            low, high = (low, n) if self._enough(n, power) else (n, high)
            if low >= MOST:
                raise ValueError(
                    f"a bound of {self.bound:g} at a failure rate of {self.rates.failure_rate:.3g} "
                    f"needs more than {MOST:,} trials on the robot beside {self.further:,} further "
                    "environments in simulation: raise the bound, or simulate more"
                )
            if low and high:
                n = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
            else:
                n = min(math.ceil(n * step), MOST) if low else max(math.floor(n / step), 1)
                step *= step
        return high, self.power(high, power)

    def power(self, n: int, least: float = 0.0) -> float:
        """The probability that n trials prove the promise, if it is known to be at least `least`.

        Evenly spread outcomes (n₁, k₁, k₀) are ranked by the limit of the profile likelihood, by
        which the bound ranks those of one n₁, too. The last one that is proven is found by
        bisection.
        """
        ranked = self._ranked(n)
        low, high = math.ceil(least * len(ranked)), len(ranked) + 1
        while (high - low) * RESOLUTION > len(ranked):
            middle = (low + high) // 2
            proven = self.reached(*ranked[middle - 1])
            low, high = (middle, high) if proven else (low, middle)
        return low / len(ranked)

    def _enough(self, n: int, power: float) -> bool:
        """Whether n trials have enough power: the outcome at that rank is proven."""
        ranked = self._ranked(n)
        return self.reached(*ranked[math.ceil(power * len(ranked)) - 1])

    def _first(self, power: float) -> int:
        """A number of trials to look at first, by a normal approximation.

        An error if the limits on the failure rate in simulation are too wide for any number.
        """
        rates, (_, failures) = self.rates, self._splits(1)
        highest = [max(rates.robot(q) for q in self.limits(k)) for k in failures.tolist()]
        worst = float(np.quantile(highest, power, method="inverted_cdf"))
        if worst >= self.bound:
            raise ValueError(
                f"{self.further:,} further environments in simulation leave a failure rate of "
                f"up to {worst:.3g} on the robot, which is not below the bound {self.bound:g}: "
                "simulate more"
            )
        gap = self.bound - min(worst, float(np.mean(highest)))
        level = (1 - PART) * self.level
        variance = rates.simulated * rates.both * (1 - rates.both)
        variance += (1 - rates.simulated) * rates.alone * (1 - rates.alone)
        spread = scipy.special.ndtri(1 - level) + max(scipy.special.ndtri(power), 0)
        return math.ceil(min(variance * (spread / gap) ** 2 - math.log(level) / gap, MOST))

    def _ranked(self, n: int) -> list[tuple[PairCounts, int]]:
        """Equally likely outcomes of n trials, and failures in further environments, by rank."""
        found: list[tuple[float, PairCounts, int]] = []
        first, second = _square(*OUTCOMES)
        splits = Counter(zip(*(each.tolist() for each in self._splits(n)), strict=True))
        for (simulated, failures), times in splits.items():
            sizes, limits = (simulated, n - simulated), self.limits(failures)
            both = _quantiles(first, sizes[0], self.rates.both)
            alone = _quantiles(second, sizes[1], self.rates.alone)
            level = (1 - PART) * self.level
            ranks = outcome_ranks(both, alone, sizes, limits, level)
            for rank, i, j in zip(ranks.tolist(), both.tolist(), alone.tolist(), strict=True):
                found += [(rank, PairCounts(i, simulated, j, sizes[1]), failures)] * times
        return [outcome[1:] for outcome in sorted(found, key=lambda outcome: outcome[0])]

    def _splits(self, n: int) -> tuple[Counts, Counts]:
        """Equally likely numbers of failures in simulation: of n pairs, and further ones."""
        first, second = _square(*SPLITS)
        failures = _quantiles(second, self.further, self.rates.simulated)
        if self.failures is not None:
            failures = np.full_like(failures, self.failures)
        return _quantiles(first, n, self.rates.simulated), failures


def _square(points: int, step: int) -> tuple[Floats, Floats]:
    """Points that are evenly spread in the unit square, for neighbouring Fibonacci numbers."""
    i = np.arange(points)
    return (i + 0.5) / points, (i * step % points + 0.5) / points


def _quantiles(probabilities: Floats, n: int, rate: float) -> Counts:
    """The least k with P(Bin(n, rate) ≤ k) ≥ each of some probabilities."""
    if n == 0 or rate in (0, 1):
        return np.full(len(probabilities), n if rate == 1 else 0)
    k = np.ceil(scipy.special.bdtrik(probabilities, n, rate))
    return np.clip(k, 0, n).astype(np.int64)
