"""Whether bounds with the help of simulation hold, for simulators from good to misleading.

Each is computed on many data sets whose true mean is known, and must be below it in at most δ of
them; the same count must reject variants that repeat the mistakes that are easy to make.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from covering import covers
from numpy.typing import NDArray

from pacbayes_control.bounds import clopper_pearson
from pacbayes_control.bounds.betting import AIM, MARGIN
from pacbayes_control.bounds.kernels import last_rejected
from pacbayes_control.bounds.paired import SimulatedMean, paired_anytime, paired_betting
from pacbayes_control.bounds.stratified import PairCounts, failure_limits, proves_rate
from sizes import sized

Floats = NDArray[np.float64]
Pairs = tuple[Floats, Floats]

pytestmark = pytest.mark.slow

DELTA, SHARE = 0.2, 0.1  # of δ, the share of the further environments
DATA_SETS = sized(120, full=1500)
MANY = sized(500, full=2000)  # for mistakes that cost little
FURTHER = 10_000  # environments, in simulation alone

AGREEMENTS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 1.0)
PROBLEMS = [(failures, agreement) for failures in (0.3, 0.085) for agreement in AGREEMENTS]


def seeded(*numbers: float) -> np.random.Generator:
    return np.random.default_rng([round(1000 * number) for number in numbers])


def simulated_rate(failures: float, agreement: float) -> float:
    """E F, where F is Y with the probability of agreement, and else 1 - Y."""
    return failures * agreement + (1 - failures) * (1 - agreement)


def failing(rng: np.random.Generator, n: int, failures: float, agreement: float) -> Pairs:
    y = rng.random(n) < failures
    f = np.where(rng.random(n) < agreement, y, ~y)
    return y.astype(float), f.astype(float)


def further(rng: np.random.Generator, rate: float, n: int = FURTHER) -> SimulatedMean:
    """F in further environments, with an exact limit."""
    failures = int(rng.binomial(n, rate))
    mean = failures / n
    high = float(clopper_pearson(failures, n, SHARE * DELTA))
    return SimulatedMean(mean, mean * (1 - mean), high)


# ---- failures, by strata ------------------------------------------------------------------------


@cache
def wrong(counts: PairCounts, limits: tuple[float, float], truth: float, delta: float) -> bool:
    """Whether a smaller rate than the true one is proven."""
    return proves_rate(counts, limits, truth - 1e-9, delta)


def rough_limits(failures: int, n: int, delta: float) -> tuple[float, float]:
    """Limits on E F, rounded away from it to hundredths: so that few differ."""
    low, high = failure_limits(failures, n, delta)
    return math.floor(100 * low) / 100, math.ceil(100 * high) / 100


def counted(rng: np.random.Generator, n: int, failures: float, agreement: float) -> PairCounts:
    return PairCounts.of(*failing(rng, n, failures, agreement))


def by_strata(
    failures: float,
    agreement: float,
    n: int,
    *,
    draw: Callable[..., PairCounts] = counted,
    rate: float | None = None,  # in the further environments, if it is another one
) -> NDArray[np.bool_]:
    rng = seeded(1, failures, agreement, n)
    rate = simulated_rate(failures, agreement) if rate is None else rate
    found = []
    for _ in range(DATA_SETS):
        limits = rough_limits(int(rng.binomial(FURTHER, rate)), FURTHER, SHARE * DELTA)
        counts = draw(rng, n, failures, agreement)
        found.append(wrong(counts, limits, failures, (1 - SHARE) * DELTA))
    return np.array(found)


@pytest.mark.parametrize(("failures", "agreement"), PROBLEMS)
def test_the_exact_bound_on_the_strata_holds(failures, agreement):
    n = sized(12 if failures == 0.3 else 20, full=25)
    assert covers(by_strata(failures, agreement, n), DELTA)


def matched(rng: np.random.Generator, n: int, failures: float, agreement: float) -> PairCounts:
    """Beside each trial a simulation of another environment, picked as one that went alike."""
    y, _ = failing(rng, n, failures, agreement)
    return PairCounts.of(y, y)


def test_simulations_of_other_environments_that_are_matched_by_outcome_are_caught():
    assert covers(by_strata(0.7, 0.75, 30), DELTA)
    assert not covers(by_strata(0.7, 0.75, 30, draw=matched), DELTA)


def test_further_environments_that_are_easier_are_caught():
    assert covers(by_strata(0.3, 1.0, 30), DELTA)
    assert not covers(by_strata(0.3, 1.0, 30, rate=0.2), DELTA)


def test_the_rate_in_a_few_further_environments_taken_as_exact_is_caught():
    rng, delta, naive, right = np.random.default_rng(2), 0.05, [], []
    for _ in range(DATA_SETS):
        counts, few = counted(rng, 60, 0.3, 1.0), int(rng.binomial(10, 0.3))
        naive.append(wrong(counts, (few / 10, few / 10), 0.3, delta))
        limits = failure_limits(few, 10, SHARE * delta)
        right.append(wrong(counts, limits, 0.3, (1 - SHARE) * delta))
    assert covers(np.array(right), delta)
    assert not covers(np.array(naive), delta)


# ---- bets ---------------------------------------------------------------------------------------

LOOKS = (5, 12, 25)


def both_wrong(y: Floats, f: Floats, more: SimulatedMean, truth: float) -> tuple[bool, bool]:
    """Whether the bound for all pairs is below the truth, and whether any of several looks is."""
    share = (1 - SHARE) * DELTA
    looks = (paired_anytime(y[:n], f[:n], more, share) < truth for n in LOOKS)
    return paired_betting(y, f, more, share) < truth, any(looks)


@pytest.mark.parametrize(("failures", "agreement"), PROBLEMS)
def test_bounds_by_bets_on_failures_hold(failures, agreement):
    rng, found = seeded(3, failures, agreement), []
    for _ in range(DATA_SETS):
        more = further(rng, simulated_rate(failures, agreement))
        found.append(both_wrong(*failing(rng, max(LOOKS), failures, agreement), more, failures))
    fixed, anytime = np.array(found).T
    assert covers(fixed, DELTA)
    assert covers(anytime, DELTA)


def graded(rng: np.random.Generator, n: int, shared: float) -> Pairs:
    """Costs Y and F that share a part of what makes an environment hard; the mean of F is ½."""
    hard = rng.random(n)
    own = shared * hard + (1 - shared) * rng.random(n)
    return own**2, shared * hard + (1 - shared) * rng.random(n)


def opposed(rng: np.random.Generator, n: int, shared: float) -> Pairs:
    """The simulator finds hard what is easy."""
    y, f = graded(rng, n, shared)
    return y, 1 - f


GRADED = {
    "close": (graded, 0.9),
    "far": (graded, 0.5),
    "alone": (graded, 0.0),
    "not": (opposed, 0.9),
}


def squared_mean(shared: float) -> float:
    """E (sU + (1-s)V)² for uniform U and V."""
    return (shared**2 + (1 - shared) ** 2) / 12 + 0.25


@pytest.mark.parametrize("name", GRADED)
def test_bounds_by_bets_on_graded_costs_hold(name):
    """The limit on E F is Hoeffding's."""
    draw, shared = GRADED[name]
    rng, found, n = seeded(4, shared, len(name)), [], 500
    margin = math.sqrt(-math.log(SHARE * DELTA) / (2 * n))
    for _ in range(DATA_SETS):
        f = draw(rng, n, shared)[1]
        mean = float(f.mean())
        more = SimulatedMean(mean, float(f.var()), min(mean + margin, 1.0))
        found.append(both_wrong(*draw(rng, max(LOOKS), shared), more, squared_mean(shared)))
    fixed, anytime = np.array(found).T
    assert covers(fixed, DELTA)
    assert covers(anytime, DELTA)


# ---- mistakes with bets -------------------------------------------------------------------------


def exact(rate: float) -> SimulatedMean:
    """So many further environments that the rate is known."""
    return SimulatedMean(rate, rate * (1 - rate), rate)


def with_fixed_kappas(y: Floats, f: Floats, kappas: Floats, rate: float, delta: float) -> float:
    """The smallest of bounds by plain bets on (Y - κF + κ)/(1 + κ), each at the level δ."""
    goal, grid, found = MARGIN - math.log(delta), 512, 1.0
    for k in kappas.tolist():
        z = (y - k * f + k) / (1 + k)
        bound = (last_rejected(z, goal, goal + AIM, grid, 0) / grid) ** 2
        found = min(found, (1 + k) * bound - k + k * rate)
    return found


def test_a_kappa_chosen_by_its_bound_is_caught_unless_each_pays_its_share_of_delta():
    rng, kappas, paid, naive = np.random.default_rng(5), np.linspace(0, 1, 6), [], []
    rate = simulated_rate(0.085, 0.9)
    for _ in range(MANY):
        y, f = failing(rng, 100, 0.085, 0.9)
        naive.append(with_fixed_kappas(y, f, kappas, rate, DELTA) < 0.085)
        paid.append(with_fixed_kappas(y, f, kappas, rate, DELTA / len(kappas)) < 0.085)
    assert covers(np.array(paid), DELTA)
    assert not covers(np.array(naive), DELTA)


def violated(
    n: int, agreement: float, change: Callable[[Floats, Floats], Pairs], delta: float = DELTA
) -> NDArray[np.bool_]:
    """Whether the bound is below the true 0.3 where pairs are changed before it is computed."""
    rng, more = seeded(6, agreement, n), exact(simulated_rate(0.3, agreement))
    pairs = (failing(rng, n, 0.3, agreement) for _ in range(MANY))
    return np.array([paired_betting(*change(*each), more, delta) < 0.3 for each in pairs])


def as_they_are(y: Floats, f: Floats) -> Pairs:
    return y, f


def twice(y: Floats, f: Floats) -> Pairs:
    return np.repeat(y, 2), np.repeat(f, 2)


def test_environments_that_are_counted_twice_are_caught():
    assert covers(violated(20, 0.5, as_they_are, 0.02), 0.02)
    assert not covers(violated(20, 0.5, twice, 0.02), 0.02)


def test_pairs_of_different_environments_that_are_matched_by_cost_are_caught():
    rng, more = np.random.default_rng(7), SimulatedMean(0.5, 1 / 12, 0.5)
    pairs, matched = [], []
    for _ in range(DATA_SETS):
        y, f, order = rng.random(300), rng.random(300), rng.permutation(300)
        pairs.append(paired_betting(y, f, more, 0.05) < 0.5)
        matched.append(paired_betting(np.sort(y)[order], np.sort(f)[order], more, 0.05) < 0.5)
    assert covers(np.array(pairs), 0.05)
    assert not covers(np.array(matched), 0.05)


def test_other_further_environments_are_caught_by_bets():
    """Easier ones, in which the simulator fails less."""
    rng, right, naive = np.random.default_rng(8), [], []
    for _ in range(DATA_SETS):
        y, f = failing(rng, 40, 0.3, 0.97)
        right.append(paired_betting(y, f, further(rng, simulated_rate(0.3, 0.97)), 0.18) < 0.3)
        naive.append(paired_betting(y, f, further(rng, 0.2), 0.18) < 0.3)
    assert covers(np.array(right), DELTA)
    assert not covers(np.array(naive), DELTA)


def test_the_mean_of_a_few_further_environments_taken_as_exact_is_caught_by_bets():
    rng, delta, right, naive = np.random.default_rng(9), 0.05, [], []
    for _ in range(DATA_SETS):
        y, f = failing(rng, 100, 0.3, 1.0)
        few = int(rng.binomial(10, 0.3)) / 10
        high = min(few + math.sqrt(-math.log(SHARE * delta) / 20), 1.0)  # Hoeffding's
        more = SimulatedMean(few, few * (1 - few), high)
        right.append(paired_betting(y, f, more, (1 - SHARE) * delta) < 0.3)
        naive.append(paired_betting(y, f, exact(few), delta) < 0.3)
    assert covers(np.array(right), delta)
    assert not covers(np.array(naive), delta)


def test_looking_at_the_bound_for_a_fixed_number_of_pairs_on_the_way_is_caught():
    rng, more, naive, right = np.random.default_rng(10), exact(0.5), [], []
    for _ in range(MANY):
        y, f = failing(rng, 60, 0.5, 0.5)
        looks = range(10, 61, 10)
        naive.append(any(paired_betting(y[:n], f[:n], more, DELTA) < 0.5 for n in looks))
        right.append(paired_anytime(y, f, more, DELTA) < 0.5)
    assert covers(np.array(right), DELTA)
    assert not covers(np.array(naive), DELTA)
