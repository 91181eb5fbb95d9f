"""A cost on the robot with the help of simulation: bounds side by side, and their time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measuring import conclude, main, peak_mib, repeat
from pacbayes_control.bounds import clopper_pearson
from pacbayes_control.bounds.anytime import highest_cost
from pacbayes_control.bounds.betting import AIM, GRID, MARGIN, betting_holdout, occam_betting
from pacbayes_control.bounds.paired import (
    SimulatedMean,
    paired_anytime,
    paired_betting,
    predictable_kappas,
)
from pacbayes_control.bounds.stratified import PairCounts, failure_limits, stratified_exact_tail
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.simulated import with_simulation
from pacbayes_control.certify.simulation import PART as SHARE
from pacbayes_control.cli.options import JsonFile, Seed, check_json
from pacbayes_control.learn import learn_finite

Floats = NDArray[np.float64]
Pairs = tuple[Floats, Floats]
Draw = Callable[[np.random.Generator, int], Pairs]

DELTA = 0.01
FURTHER = 100_000  # environments, in simulation alone
PAIRS = (30, 100, 300)
SIMILAR = 50  # policies of a mixture
KAPPAS = (0.0, 0.25, 0.5, 0.75, 1.0)  # each at the same share of δ


@dataclass(frozen=True)
class Bounds:
    """Mean bounds of every kind on the same pairs, over draws."""

    costs: str  # on the robot, and the simulator
    environments: int  # with trials on the robot
    alone: float  # of the trials: the exact tail of failures, and bets for graded costs
    grid: float  # the smallest of bounds with a fixed κ, each at its share of δ
    predictable: float  # κ by earlier pairs
    certified: float  # exact on the strata for failures, and with predictable κ for graded costs
    anytime_alone: float  # for any number of trials
    anytime: float


@dataclass(frozen=True)
class Mixtures:
    """Mean bounds on one of 50 similar policies, and on a posterior over them."""

    environments: int  # with trials on the robot
    alone: float  # of one policy, by its trials
    certified: float  # with simulation
    posterior: float  # by PAC-Bayes bets on (Y - F + 1)/2, with the same prior


@dataclass(frozen=True)
class SimToRealBench:
    """What simulation does for the bound on the cost of one policy on the robot."""

    draws: int
    further: int
    # by how many per cent bounds are larger than that of the trials alone, for 100 of them and a
    # simulator that is a coin, by failure rate
    coin_looser_certified: dict[str, float]
    coin_looser_grid: dict[str, float]
    seconds_strata: float  # of the exact bound for 300 pairs
    growth_strata: float  # its time for 600 pairs, over that
    seconds_bets: float  # of the bound by bets for 300 pairs
    growth_bets: float
    reference_seconds: float  # of such bets in a plain loop, scaled from a few candidates
    ratio: float
    peak_mib: float
    methods: list[Bounds]
    mixtures: list[Mixtures]


# ---- costs --------------------------------------------------------------------------------------


def failures(rate: float, agreement: float) -> Draw:
    """As many fail in simulation as on the robot, and so many agree."""

    def draw(rng: np.random.Generator, n: int) -> Pairs:
        other = (1 - agreement) / 2  # that one fails and the other does not
        cells = rng.choice(4, n, p=[1 - rate - other, other, other, rate - other])
        return (cells >= 2).astype(float), (cells % 2).astype(float)

    return draw


def coin(rate: float) -> Draw:
    """A simulator that knows nothing."""

    def draw(rng: np.random.Generator, n: int) -> Pairs:
        return (rng.random(n) < rate).astype(float), (rng.random(n) < 0.5).astype(float)

    return draw


def graded(shared: float) -> Draw:
    """So much of both costs is how hard the environment is."""

    def draw(rng: np.random.Generator, n: int) -> Pairs:
        hard, one, two = rng.beta(0.8, 3, (3, n))
        return shared * hard + (1 - shared) * one, shared * hard + (1 - shared) * two

    return draw


PROBLEMS: dict[str, Draw] = {
    "0.3 fail, 97 % agree": failures(0.3, 0.97),
    "0.085 fail, 96.7 % agree": failures(0.085, 0.967),
    "0.3 fail, coin": coin(0.3),
    "0.085 fail, coin": coin(0.085),
    "graded, close": graded(0.9),
    "graded, far": graded(0.6),
    "graded, unrelated": graded(0.0),
}


# ---- bounds -------------------------------------------------------------------------------------


def bench_sim_to_real(draws: int = 20, further: int = FURTHER, seed: int = 0) -> SimToRealBench:
    """Measure every kind of bound on the same draws, and the time of two."""
    rng = np.random.default_rng(seed)
    methods = []
    for name, draw in PROBLEMS.items():
        more, limits = simulated_alone(draw(rng, further)[1])
        for n in PAIRS:
            rows = [side_by_side(*draw(rng, n), more, limits) for _ in range(draws)]
            methods.append(Bounds(name, n, *np.mean(rows, axis=0).tolist()))
    beside_coin = [m for m in methods if m.costs.endswith("coin") and m.environments == 100]
    return SimToRealBench(
        draws=draws,
        further=further,
        coin_looser_certified={rate_of(m): looser(m.certified, m.alone) for m in beside_coin},
        coin_looser_grid={rate_of(m): looser(m.grid, m.alone) for m in beside_coin},
        **times(rng, further),
        peak_mib=peak_mib(),
        methods=methods,
        mixtures=[mixed(rng, n, max(1, draws // 4), further // 5) for n in PAIRS],
    )


def rate_of(row: Bounds) -> str:
    """The failure rate on the robot."""
    return row.costs.split()[0]


def simulated_alone(f: Floats) -> tuple[SimulatedMean, tuple[float, float] | None]:
    """F in further environments: moments and limits, exact ones for failures."""
    mean, variance, level = float(f.mean()), float(f.var()), SHARE * DELTA
    if {*np.unique(f)} <= {0.0, 1.0}:
        count = int(f.sum())
        high = float(clopper_pearson(count, len(f), level))
        return SimulatedMean(mean, variance, high), failure_limits(count, len(f), level)
    return SimulatedMean(mean, variance, max(betting_holdout(f, level), mean)), None


def side_by_side(
    y: Floats, f: Floats, more: SimulatedMean, limits: tuple[float, float] | None
) -> tuple[float, ...]:
    """Every bound on the same pairs, in the order of the fields of `Bounds`."""
    level = (1 - SHARE) * DELTA
    alone = betting_holdout(y, DELTA) if limits is None else exact_tail(y, DELTA)
    predictable = bets_bound(y, f, more)
    return (
        alone,
        grid_bound(y, f, more, binary=limits is not None),
        predictable,
        predictable if limits is None else strata_bound(y, f, limits),
        highest_cost(y, DELTA),
        paired_anytime(y, f, more, level),
    )


def looser(bound: float, other: float) -> float:
    """By how many per cent it is larger."""
    return 100 * (bound / other - 1)


def exact_tail(y: Floats, delta: float) -> float:
    """Clopper and Pearson's bound on the rate of failures."""
    return float(clopper_pearson(int(y.sum()), len(y), delta))


def bets_bound(y: Floats, f: Floats, more: SimulatedMean) -> float:
    """κ by earlier pairs."""
    return paired_betting(y, f, more, (1 - SHARE) * DELTA)


def strata_bound(y: Floats, f: Floats, limits: tuple[float, float]) -> float:
    """The exact one."""
    return stratified_exact_tail(PairCounts.of(y, f), limits, (1 - SHARE) * DELTA)


def grid_bound(y: Floats, f: Floats, more: SimulatedMean, *, binary: bool) -> float:
    """The smallest with a fixed κ, by bets on Z = (Y - κF + κ)/(1 + κ).

    E Y ≤ (1 + κ) U_Z - κ + κu; at κ = 0 it is the exact tail for failures.
    """
    kappas, level = np.array(KAPPAS), (1 - SHARE) * DELTA
    z = (y[:, None] - kappas * f[:, None] + kappas) / (1 + kappas)
    of_z = occam_betting(z, np.full(len(kappas), 1 / len(kappas)), level)
    found = (1 + kappas) * of_z - kappas + kappas * more.high
    if binary:
        found[0] = exact_tail(y, level / len(kappas))
    return float(min(found.min(), 1.0))


def mixed(rng: np.random.Generator, n: int, draws: int, further: int) -> Mixtures:
    """One policy or a posterior: policies fail in 0.3 of environments, or little more."""
    rows = []
    for _ in range(draws):
        hard = rng.standard_normal((n + further, 1)) * 0.8
        easy = hard + 0.6 * rng.standard_normal((n + further, SIMILAR))
        f = (easy < np.linspace(-0.52, -0.46, SIMILAR)).astype(float)
        y = np.where(rng.random((n, SIMILAR)) < 0.03, 1 - f[:n], f[:n])
        run = learn_finite(with_simulation(y, f[:n], f[n:]), DELTA)
        use, prior = run.certificate.simulation, run.prior.probabilities
        assert use is not None
        z = Costs((y - f[:n] + 1) / 2, origin={"graded": True})
        level = SHARE * DELTA / SIMILAR
        high = clopper_pearson(f[n:].sum(axis=0).astype(int), further, level)
        other = learn_finite(z, (1 - SHARE) * DELTA, method="betting", prior=prior)
        mixture = 2 * other.certificate.bound - 1 + float(other.posterior.probabilities @ high)
        rows.append((use.bound_without, run.certificate.bound, mixture))
    return Mixtures(n, *np.mean(rows, axis=0).tolist())


# ---- time ---------------------------------------------------------------------------------------


def times(rng: np.random.Generator, further: int) -> dict[str, float]:
    """Of both bounds on the same pairs, and of a plain loop."""
    draw, level = PROBLEMS["0.3 fail, 97 % agree"], SHARE * DELTA
    alone, sets = draw(rng, further)[1], [draw(rng, 600) for _ in range(4)]
    more, limits = simulated_alone(alone)[0], failure_limits(int(alone.sum()), further, level)
    strata = [seconds(lambda y, f: strata_bound(y, f, limits), sets, n) for n in (300, 600)]
    bets = [seconds(lambda y, f: bets_bound(y, f, more), sets, n) for n in (300, 600)]
    reference = float(np.mean([seconds_of_loop(y[:300], f[:300], more) for y, f in sets]))
    return {
        "seconds_strata": strata[0],
        "growth_strata": strata[1] / strata[0],
        "seconds_bets": bets[0],
        "growth_bets": bets[1] / bets[0],
        "reference_seconds": reference,
        "ratio": reference / bets[0],
    }


def seconds(bound: Callable[[Floats, Floats], float], sets: list[Pairs], n: int) -> float:
    """The time of a bound for n pairs: the shortest of three, since machines are noisy."""

    def every() -> list[float]:
        return [bound(y[:n], f[:n]) for y, f in sets]

    return min(repeat(every, at_least=0.0)[1] for _ in range(3)) / len(sets)


def seconds_of_loop(y: Floats, f: Floats, more: SimulatedMean, candidates: int = 20) -> float:
    """Seconds of a plain loop over candidates and pairs, scaled from a few.

    Those are spread over all candidates that the bound by bets looks at.
    """
    goal = MARGIN - math.log((1 - SHARE) * DELTA)
    lowest = GRID * math.sqrt(bets_bound(y, f, more))
    started = time.perf_counter()
    kappas = predictable_kappas(y, f, more, goal).tolist()
    for j in np.linspace(GRID - 1, lowest, candidates):
        log_wealth, squares, m, u = 0.0, 0.0, (j / GRID) ** 2, more.high
        for t, (cost, simulated, k) in enumerate(zip(y.tolist(), f.tolist(), kappas, strict=True)):
            largest, gain = 1 - m + k * u, m - cost + k * (simulated - u)
            variance = largest * (m + k * (1 - u))
            if t:
                variance = min(variance, (squares + largest * goal / 4) / t)
            stake = math.sqrt(2 * (goal + AIM - log_wealth) / ((len(y) - t) * variance))
            log_wealth += math.log(max(1 + min(stake, 1 / largest) * gain, 1e-12))
            squares += gain * gain
            if log_wealth >= goal:
                break
    return (time.perf_counter() - started) / candidates * (GRID - lowest)


def command(seed: Seed = 0, json_file: JsonFile = None) -> None:
    """Measure bounds on a cost on the robot: what simulation is worth, and their time.

    Example: .venv/bin/python benchmarks/sim_to_real.py --json bench.json
    """
    check_json(json_file)
    conclude("sim_to_real", bench_sim_to_real(seed=seed), json_file)


if __name__ == "__main__":
    main(command)
