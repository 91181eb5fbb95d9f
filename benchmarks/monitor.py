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

from measuring import conclude, main, peak_mib, repeat
from pacbayes_control.bounds.sequential import AT_ONCE, LATER, BettingState, bets, update_wealth
from pacbayes_control.certify.tables.columns import read_outcomes
from pacbayes_control.cli.options import JsonFile, Seed, check_json

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
    delay: float  # outcomes until the alarm where 2,000 at a rate of 0.02 are followed by 0.25
    power: list[Power]


def bench_monitor(
    outcomes: int = 1_000_000, deployments: int = 10_000, seed: int = 0
) -> MonitorBench:
    """Time the monitor on a file, and simulate deployments that are watched all along."""
    rng = np.random.default_rng(seed)
    costs = (rng.random(outcomes) < BOUND).astype(float)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.csv"
        file.write_text("cost\n" + "\n".join("1" if cost else "0" for cost in costs) + "\n")
        _, seconds = repeat(
            lambda: update_wealth(BettingState.initial(BOUND), read_outcomes(file), BOUND)
        )
    few = costs[:20_000]
    started = time.perf_counter()
    _plain_loop(few)
    reference = (time.perf_counter() - started) * outcomes / len(few)
    power = []
    for factor in (1.0, 1.3, 1.5, 2.0, 3.0):
        power += simulated_power(factor * BOUND, deployments, rng)
    return MonitorBench(
        outcomes=outcomes,
        seconds=seconds,
        reference_seconds=reference,
        ratio=reference / seconds,
        peak_mib=peak_mib(),
        deployments=deployments,
        delay=detection_delay(2000, 0.02, 0.25, rng),
        power=power,
    )


def simulated_power(rate: float, deployments: int, rng: np.random.Generator) -> list[Power]:
    """Watch deployments with this rate of failures after every outcome."""
    first = first_alarms(rng.random((max(LOOKS), deployments)) < rate)
    return [
        Power(
            rate=rate,
            trials=n,
            monitor=float(np.mean(first <= n)),
            fixed_sample=float(binom.sf(binom.isf(ALPHA, n, BOUND), n, rate)),
            hoeffding=float(
                binom.sf(math.ceil(n * BOUND + math.sqrt(n * -math.log(ALPHA) / 2)) - 1, n, rate)
            ),
        )
        for n in LOOKS
    ]


def first_alarms(failures: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The outcome at which each deployment raises the alarm, or infinity.

    failures: (outcomes, deployments), in the order in which they occur.
    """
    stakes, shares = bets(BOUND)
    won, lost = 1 + stakes * (1 - BOUND), 1 - stakes * BOUND
    wealth = np.full((failures.shape[1], len(stakes)), AT_ONCE)
    first = np.full(failures.shape[1], np.inf)
    for n, failed in enumerate(failures):
        if n:
            wealth += LATER / (n * (n + 1))
        wealth *= np.where(failed[:, None], won, lost)
        alarmed = wealth @ shares + LATER / (n + 1) >= 1 / ALPHA
        first[alarmed & np.isinf(first)] = n + 1
    return first


def detection_delay(good: int, before: float, after: float, rng: np.random.Generator) -> float:
    """The median number of outcomes until the alarm, after so many at a rate below the bound."""
    rates = np.repeat([before, after], [good, 2000])[:, None]
    first = first_alarms(rng.random((len(rates), 200)) < rates)
    return float(np.median(first[first > good])) - good


def _plain_loop(costs: NDArray[np.float64]) -> float:
    """The same bets, one outcome at a time."""
    stakes, shares = bets(BOUND)
    wealth, largest = np.full(len(stakes), AT_ONCE), 1.0
    for n, cost in enumerate(costs):
        if n:
            wealth += LATER / (n * (n + 1))
        wealth *= 1 + stakes * (cost - BOUND)
        largest = max(largest, float(shares @ wealth) + LATER / (n + 1))
    return largest


def command(seed: Seed = 0, json_file: JsonFile = None) -> None:
    """Measure the monitor's speed, its false alarms, and its power.

    Example: .venv/bin/python benchmarks/monitor.py --json bench.json
    """
    check_json(json_file)
    conclude("monitor", bench_monitor(seed=seed), json_file)


if __name__ == "__main__":
    main(command)
