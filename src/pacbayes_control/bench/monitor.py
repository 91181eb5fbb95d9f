"""The monitor: its speed, its false alarms, and its power against tests that look once."""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from pacbayes_control.bench.timing import peak_mib, repeat
from pacbayes_control.bounds.sequential import bets, wager, wager_on_counts
from pacbayes_control.outcomes import read_outcomes

BOUND, ALPHA = 0.114, 0.05  # the promise to the paper's drone, and the usual level
LOOKS = (20, 100, 300, 1000)


@dataclass(frozen=True)
class Power:
    """How often each test finds that the promise is broken, at one failure rate and one n."""

    rate: float  # of failures; at the bound itself, every find is a false alarm
    trials: int
    monitor: float  # watched after every outcome
    fixed_sample: float  # the exact binomial test, which may look once
    hoeffding: float  # Hoeffding's rule c̄ ≥ b + √(ln(1/α)/2n), which may look once


@dataclass(frozen=True)
class MonitorBench:
    """A million outcomes from a file, and simulated deployments."""

    outcomes: int
    seconds: float  # to read them and to weigh the evidence after each
    reference_seconds: float  # of one bet after another in a loop, scaled from fewer outcomes
    ratio: float
    peak_mib: float
    deployments: int
    power: list[Power]


def bench_monitor(
    outcomes: int = 1_000_000, deployments: int = 10_000, seed: int = 0
) -> MonitorBench:
    """Time the monitor on a file, and simulate deployments that are watched all along."""
    rng = np.random.default_rng(seed)
    costs = (rng.random(outcomes) < BOUND).astype(float)
    start = np.zeros(len(bets(BOUND)[0]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.csv"
        file.write_text("cost\n" + "\n".join("1" if cost else "0" for cost in costs) + "\n")
        _, seconds = repeat(lambda: wager(start, read_outcomes(file), BOUND))
    few = costs[:20_000]
    started = time.perf_counter()
    _plain_loop(few)
    reference = (time.perf_counter() - started) * outcomes / len(few)
    power = []
    for factor in (1.0, 1.3, 1.5, 2.0, 3.0):
        power += simulated_power(factor * BOUND, deployments, rng)
    return MonitorBench(
        outcomes, seconds, reference, reference / seconds, peak_mib(), deployments, power
    )


def simulated_power(rate: float, deployments: int, rng: np.random.Generator) -> list[Power]:
    """Watch deployments with this rate of failures after every outcome."""
    horizon = max(LOOKS)
    limits = alarm_limits(horizon)
    alarmed = np.zeros((deployments, horizon), bool)
    for row in range(0, deployments, 1000):
        failures = rng.random((min(1000, deployments - row), horizon)) < rate
        alarmed[row : row + 1000] = np.cumsum(failures, axis=1) >= limits
    ever = np.maximum.accumulate(alarmed, axis=1)
    return [
        Power(
            rate=rate,
            trials=n,
            monitor=float(ever[:, n - 1].mean()),
            fixed_sample=float(binom.sf(binom.isf(ALPHA, n, BOUND), n, rate)),
            hoeffding=float(
                binom.sf(math.ceil(n * BOUND + math.sqrt(n * -math.log(ALPHA) / 2)) - 1, n, rate)
            ),
        )
        for n in LOOKS
    ]


def alarm_limits(horizon: int) -> NDArray[np.float64]:
    """For each n, how many failures among n raise the alarm; infinite where none do."""
    start = np.zeros(len(bets(BOUND)[0]))
    limits = np.full(horizon, np.inf)
    k = 1
    for n in range(1, horizon + 1):
        while k <= n and wager_on_counts(start, k, n, BOUND)[1] < -math.log(ALPHA):
            k += 1
        limits[n - 1] = k if k <= n else np.inf
    return limits


def _plain_loop(costs: NDArray[np.float64]) -> float:
    """The same bets, one outcome at a time."""
    stakes, shares = bets(BOUND)
    wealth, largest = shares.copy(), 1.0
    for cost in costs:
        wealth *= 1 + stakes * (cost - BOUND)
        largest = max(largest, float(wealth.sum()))
    return largest
