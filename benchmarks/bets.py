"""Bounds by bets on graded costs: how tight they are, how fast, and how fast they are verified."""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measuring import conclude, main, peak_mib, repeat
from pacbayes_control.bounds import occam_kl
from pacbayes_control.bounds.betting import GRID, occam_betting
from pacbayes_control.certify.costs import Costs
from pacbayes_control.cli.options import JsonFile, Seed, check_json
from pacbayes_control.learn import learn_finite
from pacbayes_control.verify import verify

Floats = NDArray[np.float64]

POLICIES, DELTA = 50, 0.01
MIXTURES = ("kl", "betting", "pinsker")


@dataclass(frozen=True)
class Methods:
    """Mean bounds of every method on the same costs of 50 policies, over draws."""

    costs: str  # graded, or 0/1
    environments: int
    observed: float  # of the policy that occam picks
    occam: float
    kl: float
    betting: float
    pinsker: float
    chernoff: float  # occam with Chernoff's inequality


@dataclass(frozen=True)
class BetsBench:
    """Occam's bound on 50 graded policies.

    The excess of a bound is that over the observed cost of the policy with the smallest one, in
    units of σ̂ √(2 ln(50/δ)/N), as a mean over draws.
    """

    environments: int
    policies: int
    seconds: float  # of the bounds of all policies
    seconds_of_half: float  # with half of the environments: the time grows at most linearly
    reference_seconds: float  # of the same candidates in a plain loop, scaled from a few
    ratio: float
    peak_mib: float
    excess_100: float
    excess_1000: float
    excess_4000: float
    chernoff_1000: float  # the excess of Chernoff's bound
    chernoff_4000: float
    # share of samples of 50 costs, all 0 or 1, where Chernoff's bound is smaller than that by bets
    looser_at_50: float
    verified_environments: int
    verify_seconds: float
    methods: list[Methods]


def graded_costs(rng: np.random.Generator, n: int) -> Floats:
    """Costs of 50 policies, in part the environment's and in part their own; (n, policies)."""
    shared, own = rng.beta(0.8, 3, (n, 1)), rng.beta(0.8, 3, (n, POLICIES))
    return 0.6 * shared + 0.4 * own * np.linspace(0.7, 1, POLICIES)


def bench_bets(environments: int = 4000, draws: int = 20, seed: int = 0) -> BetsBench:
    """Measure tightness on several draws, and the time of one."""
    rng = np.random.default_rng(seed)
    weights = np.full(POLICIES, 1 / POLICIES)
    costs = graded_costs(rng, environments)
    _, seconds = repeat(lambda: occam_betting(costs, weights, DELTA))
    _, half = repeat(lambda: occam_betting(costs[::2], weights, DELTA))
    excess = {n: excesses(rng, n, draws) for n in (100, 1000, 4000)}
    chances = graded_costs(rng, 50 * 10 * draws)[:, 0].reshape(-1, 50, 1)
    few = (rng.random(chances.shape) < chances).astype(float)
    looser = [
        occam_betting(c, [1.0], DELTA)[0] > occam_kl(c.mean(axis=0), 50, [1.0], DELTA)[0]
        for c in few
    ]
    many = 25 * environments
    reference = reference_seconds(costs[:, 0]) * POLICIES
    return BetsBench(
        environments=environments,
        policies=POLICIES,
        seconds=seconds,
        seconds_of_half=half,
        reference_seconds=reference,
        ratio=reference / seconds,
        peak_mib=peak_mib(),
        excess_100=excess[100][0],
        excess_1000=excess[1000][0],
        excess_4000=excess[4000][0],
        chernoff_1000=excess[1000][1],
        chernoff_4000=excess[4000][1],
        looser_at_50=float(np.mean(looser)),
        verified_environments=many,
        verify_seconds=verify_seconds(graded_costs(rng, many)[:, :2]),
        methods=[
            side_by_side(rng, n, draws, binary)
            for binary in (False, True)
            for n in (100, 1000, 4000)
        ],
    )


def side_by_side(rng: np.random.Generator, n: int, draws: int, binary: bool) -> Methods:
    """Every method on the same costs, as a mean over draws."""
    rows = []
    for _ in range(draws):
        costs = graded_costs(rng, n)
        if binary:  # failures with these probabilities
            costs = (rng.random(costs.shape) < costs).astype(float)
        runs = [learn_finite(costs, DELTA, method=name) for name in ("occam", *MIXTURES)]
        chernoff = occam_kl(costs.mean(axis=0), n, np.full(POLICIES, 1 / POLICIES), DELTA).min()
        bounds = [run.certificate.bound for run in runs]
        rows.append([runs[0].certificate.empirical_cost, *bounds, chernoff])
    return Methods("0/1" if binary else "graded", n, *np.mean(rows, axis=0).tolist())


def excesses(rng: np.random.Generator, n: int, draws: int) -> tuple[float, float]:
    """The mean excess of Occam's bound by bets, and by Chernoff's inequality."""
    weights, found = np.full(POLICIES, 1 / POLICIES), []
    for _ in range(draws):
        costs = graded_costs(rng, n)
        means = costs.mean(axis=0)
        row = []
        for bounds in (
            occam_betting(costs, weights, DELTA),
            occam_kl(means, n, weights, DELTA),
        ):
            best = int(np.argmin(bounds))
            scale = costs[:, best].std() * math.sqrt(2 * math.log(POLICIES / DELTA) / n)
            row.append((bounds[best] - means[best]) / scale)
        found.append(row)
    bets, chernoff = np.mean(found, axis=0)
    return float(bets), float(chernoff)


def reference_seconds(costs: Floats, candidates: int = 40) -> float:
    """Seconds of a plain loop over candidates and costs for one policy, scaled from a few."""
    goal, started = math.log(POLICIES / DELTA), time.perf_counter()
    n, tried = len(costs), 0
    for j in np.linspace(GRID - 1, GRID * math.sqrt(costs.mean()), candidates).astype(int):
        m = (j / GRID) ** 2
        log_wealth, squares = 0.0, 0.0
        for t, cost in enumerate(costs):
            variance = min(m * (1 - m), (squares + (1 - m) * goal / 4) / t if t else 1.0)
            stake = math.sqrt(2 * (goal - log_wealth) / ((n - t) * variance))
            log_wealth += math.log1p(max(min(stake, 1 / (1 - m)) * (m - cost), -1 + 1e-12))
            squares += (cost - m) ** 2
            if log_wealth >= goal:
                break
        tried += 1
    spent = time.perf_counter() - started
    return spent / tried * GRID * (1 - math.sqrt(costs.mean()))


def verify_seconds(costs: Floats) -> float:
    """Seconds to verify a run."""
    with tempfile.TemporaryDirectory() as folder:
        run = learn_finite(Costs(costs), DELTA).save(Path(folder) / "run")
        started = time.perf_counter()
        verify(run)
        return time.perf_counter() - started


def command(seed: Seed = 0, json_file: JsonFile = None) -> None:
    """Measure bounds by bets: tightness, time, and the time of a verification.

    Example: .venv/bin/python benchmarks/bets.py --json bench.json
    """
    check_json(json_file)
    conclude("bets", bench_bets(seed=seed), json_file)


if __name__ == "__main__":
    main(command)
