"""Comparisons of two policies: how many trials they take beside other tests, and how fast they are.

The 2×2 e-process of Turner, Ly and Grünwald (2024) is for pairs of independent Bernoulli outcomes:
in each pair, the likelihood of θ_A and θ_B, which are posterior means under Beta(0.18, 0.18)
priors, over that of their average for both. Fisher's and McNemar's exact tests are for one look, at
a number of trials fixed beforehand: here the smallest at which they decide in 90 % of cases.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom

from measuring import conclude, main
from pacbayes_control.bounds.anytime import log_e_of_difference
from pacbayes_control.cli.options import JsonFile, Seed, check_json

Floats = NDArray[np.float64]

ALPHA, POWER = 0.05, 0.9
PRIOR = 0.18  # of both parameters of the Beta prior of Turner, Ly and Grünwald
RATES = (  # failures of A and of B, and more pairs than a decision takes
    (0.0, 0.03, 1500),
    (0.02, 0.06, 4000),
    (0.05, 0.10, 5000),
    (0.1, 0.3, 800),
    (0.3, 0.5, 1500),
    (0.5, 0.7, 1500),
    (0.5, 0.9, 300),
)
NULLS = (0.02, 0.1, 0.5)  # failure rates of two equal policies


@dataclass(frozen=True)
class Pair:
    """Mean numbers of pairs until a decision, for two policies with these failure rates."""

    a: float
    b: float
    ours: float
    turner: float
    ratio: float  # of the first to the second
    ours_90: float  # pairs after which 90 % are decided
    mcnemar: int  # pairs, fixed beforehand, for a power of 90 %
    fisher: int  # the same, of independent trials


@dataclass(frozen=True)
class TrialsBench:
    """Comparisons of pairs at α = 0.05, and the commands on 599 × 7 graded trials."""

    draws: int
    pairs: list[Pair]
    worst_ratio: float
    nulls: int
    false_alarms: dict[str, float]  # by the failure rate of both, with a look after each trial
    seconds: dict[str, float]  # by command


def bench_trials(draws: int = 1000, nulls: int = 10_000, seed: int = 0) -> TrialsBench:
    """Simulate comparisons, and run the commands."""
    rng = np.random.default_rng(seed)
    pairs = [compared(rng, a, b, most, draws) for a, b, most in RATES]
    return TrialsBench(
        draws=draws,
        pairs=pairs,
        worst_ratio=max(pair.ratio for pair in pairs),
        nulls=nulls,
        false_alarms={f"{p:g}": false_alarms(rng, p, nulls) for p in NULLS},
        seconds=command_seconds(rng),
    )


def compared(rng: np.random.Generator, a: float, b: float, most: int, draws: int) -> Pair:
    """Both e-processes on the same outcomes, and the exact tests."""
    ours, turner = np.empty(draws), np.empty(draws)
    for draw in range(draws):
        of_a, of_b = (rng.random(most) < rate for rate in (a, b))
        d = of_b.astype(float) - of_a
        paths = log_e_of_difference(d), log_e_of_difference(-d)
        ours[draw] = first(np.maximum(*paths), np.log(2 / ALPHA))
        turner[draw] = first(turner_path(of_a, of_b), np.log(1 / ALPHA))
    mean, other = float(ours.mean()), float(turner.mean())
    ninety = float(np.quantile(ours, POWER))
    return Pair(a, b, mean, other, mean / other, ninety, mcnemar_needed(a, b), fisher_needed(a, b))


def turner_path(of_a: NDArray[np.bool_], of_b: NDArray[np.bool_]) -> Floats:
    """ln of the e-process of Turner, Ly and Grünwald after each pair."""
    before = np.arange(len(of_a))
    rates = []
    for outcomes in (of_a, of_b):
        so_far = np.cumsum(outcomes) - outcomes
        rates.append((so_far + PRIOR) / (before + 2 * PRIOR))
    both = (rates[0] + rates[1]) / 2
    logs = np.zeros(len(of_a))
    for outcomes, rate in zip((of_a, of_b), rates, strict=True):
        logs += np.log(np.where(outcomes, rate / both, (1 - rate) / (1 - both)))
    return np.cumsum(logs)


def first(path: Floats, goal: float) -> int:
    """After how many pairs a path reaches a goal; all of them if it does not."""
    reached = np.flatnonzero(path >= goal)
    return int(reached[0]) + 1 if len(reached) else len(path)


def false_alarms(rng: np.random.Generator, rate: float, nulls: int, pairs: int = 500) -> float:
    """The share of comparisons of equal policies that are ever decided."""
    alarms = 0
    for _ in range(nulls):
        d = (rng.random(pairs) < rate).astype(float) - (rng.random(pairs) < rate)
        highest = max(log_e_of_difference(sign * d).max() for sign in (1, -1))
        alarms += highest >= np.log(2 / ALPHA)
    return alarms / nulls


# ---- tests of a fixed number of trials ----------------------------------------------------------


def mcnemar_needed(a: float, b: float) -> int:
    """Pairs for a power of 90 % of McNemar's exact test, of independent outcomes."""
    only_b, only_a = b * (1 - a), a * (1 - b)
    discordant, share = only_a + only_b, only_b / (only_a + only_b)

    def power(n: int) -> float:
        counts = np.arange(n + 1)
        fewest = binom.isf(ALPHA / 2, counts, 0.5) + 1  # wins that are significant
        return float(binom.pmf(counts, n, discordant) @ binom.sf(fewest - 1, counts, share))

    return smallest(power)


def fisher_needed(a: float, b: float) -> int:
    """Trials of each policy for a power of 90 % of Fisher's exact test."""

    def power(n: int) -> float:
        counts = np.arange(n + 1)
        fails_a, fails_b = np.meshgrid(counts, counts, indexing="ij")
        likely = np.outer(binom.pmf(counts, n, a), binom.pmf(counts, n, b))
        counted = likely > 1e-9
        x, y = fails_a[counted], fails_b[counted]
        significant = hypergeom.sf(y - 1, 2 * n, x + y, n) <= ALPHA / 2
        return float(likely[counted] @ significant)

    return smallest(power)


def smallest(power, most: int = 1 << 12) -> int:
    """A number of trials at which a test has the power, to within a per cent."""
    low, high = 1, 8
    while power(high) < POWER and high < most:
        low, high = high, 2 * high
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high


# ---- the commands -------------------------------------------------------------------------------


def command_seconds(rng: np.random.Generator, environments: int = 599) -> dict[str, float]:
    """Seconds of every command on graded trials of 7 policies, from start to end."""
    hard = rng.beta(1, 2, environments)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trials.csv"
        with file.open("w", encoding="utf-8") as stream:
            stream.write("policy,site,score\n")
            for policy in range(7):
                scores = np.clip(hard + rng.normal(0.03 * policy, 0.15, environments), 0, 1)
                stream.writelines(f"p{policy},s{i},{s:.4f}\n" for i, s in enumerate(scores))
        commands = {
            "choose": ["choose", file, "--out", f"{folder}/run"],
            "choose anytime": ["choose", file, "--stopping", "anytime"],
            "compare": ["compare", "p6", "p5", file, "--out", f"{folder}/comparison"],
            "rank": ["rank", file],
            "verify": ["verify", f"{folder}/run"],
            "report": ["report", f"{folder}/comparison"],
            "plan": ["plan", file, "--bound", "0.9"],
        }
        return {name: _seconds(words) for name, words in commands.items()}


def _seconds(words: list) -> float:
    """Seconds of a command that succeeds or is undecided; of two, since the first one compiles."""
    call = [sys.executable, "-m", "pacbayes_control", *map(str, words)]
    call += ["--force"] if "--out" in call else []
    found = []
    for _ in range(2):
        started = time.perf_counter()
        done = subprocess.run(call, capture_output=True, check=False)
        found.append(time.perf_counter() - started)
        if done.returncode not in (0, 3):
            raise RuntimeError(done.stderr.decode())
    return min(found)


def command(seed: Seed = 0, json_file: JsonFile = None) -> None:
    """Measure comparisons of policies: trials beside other tests, false alarms, and time.

    Example: .venv/bin/python benchmarks/trials.py --json bench.json
    """
    check_json(json_file)
    conclude("trials", bench_trials(seed=seed), json_file)


if __name__ == "__main__":
    main(command)
