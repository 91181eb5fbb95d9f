"""Whether a monitor that is watched after every outcome keeps its level, and what it finds.

Deployments exactly at the boundary, where the mean cost is the bound, are watched for 1,000
outcomes, by a loop over the outcomes that shares nothing with `update_wealth` but the bets. For few
outcomes the probability of an alarm is also computed without sampling, by going through all
sequences. The interval depends on the sum of the outcomes alone: there, deployments that it has
never missed are a chain on the counts. The same numbers must catch monitors that are wrong.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache, reduce

import numpy as np
import pytest
from covering import covers
from numpy.typing import NDArray
from scipy import stats

from loading import load
from pacbayes_control.bounds.sequential import (
    AT_ONCE,
    LATER,
    BettingState,
    bets,
    binomial_p_value,
    confidence_sequence,
    update_wealth,
)
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.deploy.monitor import Monitor, Promise
from pacbayes_control.learn.finite import learn_finite
from sizes import sized

benchmark = load("monitor")
ALPHA, BOUND, LOOKS = benchmark.ALPHA, benchmark.BOUND, benchmark.LOOKS
first_alarms, simulated_power = benchmark.first_alarms, benchmark.simulated_power

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DEPLOYMENTS = sized(3000, full=10_000)
REPETITIONS = sized(80, full=500)  # of learning and deployment, the whole way
HORIZON = 1000
STEPS = np.arange(1, HORIZON + 1)


def within(alarms: Bools, level: float = ALPHA) -> bool:
    """Whether there were no more alarms than if each had this probability; (deployments,)."""
    return covers(alarms, level, REPETITIONS)


def failing(rate: float, deployments: int = DEPLOYMENTS, seed: int = 201) -> Bools:
    """0/1 outcomes, independent; shape (horizon, deployments)."""
    return np.random.default_rng(seed).random((HORIZON, deployments)) < rate


def e_values(costs: NDArray, bound: float) -> Iterator[Floats]:
    """After each outcome; costs: (outcomes, deployments)."""
    stakes, shares = bets(bound)
    wealth = np.full((len(stakes), costs.shape[1]), AT_ONCE)
    for n, cost in enumerate(costs):
        if n:
            wealth += LATER / (n * (n + 1))
        wealth *= 1 + stakes[:, None] * (cost - bound)
        yield shares @ wealth + LATER / (n + 1)


def largest(costs: NDArray, bound: float) -> Floats:
    """The largest e-value ever; (deployments,)."""
    return reduce(np.maximum, e_values(costs, bound))


def alarmed(costs: NDArray, bound: float, alpha: float = ALPHA) -> Bools:
    """Whether an alarm was ever raised; (deployments,)."""
    return largest(costs, bound) >= 1 / alpha


# ---- false alarms -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0.02, 0.114, 0.5])
def test_an_alarm_of_the_simulation_is_the_alarm_of_the_monitor(bound):
    rows = failing(1.7 * bound, 40)
    crossed = np.array(list(e_values(rows, bound))) >= 1 / ALPHA
    first = np.where(crossed.any(axis=0), crossed.argmax(axis=0) + 1, 0)
    for outcomes, expected in zip(rows.T, first, strict=True):
        monitor = Monitor(Promise(bound, 0.01), ALPHA)
        monitor.observe(outcomes)
        assert (monitor.alarm_at or 0) == expected
    assert 10 < np.count_nonzero(first) <= 40


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0.001, 0.02, 0.114, 0.5, 0.9])
def test_a_monitor_that_is_always_watched_keeps_its_level_at_the_boundary(bound):
    draws = np.random.default_rng(201).random((HORIZON, DEPLOYMENTS))
    at, below = largest(draws < bound, bound), largest(draws < 0.8 * bound, bound)
    for alpha in (0.01, 0.05, 0.2):
        alarms = at >= 1 / alpha
        assert within(alarms, alpha)
        assert alarms.mean() > alpha / 8  # and is not asleep
        assert np.mean(below >= 1 / alpha) < alarms.mean()


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.5])
@pytest.mark.parametrize("bound", [0.02, 0.114, 0.3, 0.5])
def test_no_false_alarm_is_more_likely_than_alpha_without_sampling(bound, alpha):
    """By all sequences of fourteen outcomes."""
    sequences = np.array(list(itertools.product([0, 1], repeat=14))).T
    failures = sequences.sum(axis=0)
    chances = bound**failures * (1 - bound) ** (14 - failures)
    assert chances.sum() == pytest.approx(1)
    alarm = float(chances[alarmed(sequences, bound, alpha)].sum())
    assert alpha / 100 < alarm <= alpha


@pytest.mark.slow
def test_failures_that_depend_on_the_past_raise_no_more_alarms():
    """The rate is the bound after a failure and while there are many; else it is lower."""
    rng, bound = np.random.default_rng(202), 0.114
    rows, last = np.empty((HORIZON, DEPLOYMENTS), bool), np.zeros(DEPLOYMENTS, bool)
    k = np.zeros(DEPLOYMENTS, int)
    for n in range(HORIZON):
        rate = np.where(last | (k > bound * n), bound, np.where(n % 2, 0.8 * bound, bound))
        last = rng.random(DEPLOYMENTS) < rate
        rows[n] = last
        k += last
    alarms = alarmed(rows, bound)
    assert within(alarms)
    assert alarms.mean() > 0.01


@pytest.mark.slow
def test_a_promise_that_is_kept_well_and_then_just_kept_raises_no_more_alarms():
    """What is staked late must not alarm when a low rate rises to the bound, and not above it."""
    rates = np.where(STEPS <= 400, 0.2 * BOUND, BOUND)[:, None]
    rows = np.random.default_rng(205).random((HORIZON, DEPLOYMENTS)) < rates
    alarms = alarmed(rows, BOUND)
    assert within(alarms)
    assert np.array_equal(alarms, np.isfinite(first_alarms(rows)))
    assert alarms.any()


# ---- graded outcomes ----------------------------------------------------------------------------


@pytest.mark.slow
def test_graded_outcomes_keep_the_level():
    """Beta(0.2, 0.2 (1-b)/b) has mean b = 0.114, most of it near 0 and some near 1."""
    rng, bound = np.random.default_rng(203), 0.114
    costs = rng.beta(0.2, 0.2 * (1 - bound) / bound, (HORIZON, DEPLOYMENTS))
    evidence = largest(costs, bound)
    assert within(evidence >= 1 / ALPHA)
    assert np.mean(evidence >= 1 / ALPHA) > 0.005
    for column in range(100):  # and by the wager itself
        log_e = update_wealth(BettingState.initial(bound), costs[:, column], bound)[1]
        assert math.exp(log_e.max()) == pytest.approx(evidence[column], rel=1e-9)


@pytest.mark.slow
def test_an_adversary_who_chooses_each_distribution_by_the_past_keeps_the_level():
    """Always with mean b = 0.35: 0 or 1 while the mean so far is above b, else 0.2 or 0.95."""
    rng, bound = np.random.default_rng(204), 0.35
    costs, total = np.empty((HORIZON, DEPLOYMENTS)), np.zeros(DEPLOYMENTS)
    for n in range(HORIZON):
        draws = rng.random(DEPLOYMENTS)
        calm = np.where(draws < (bound - 0.2) / 0.75, 0.95, 0.2)
        costs[n] = np.where(total >= bound * n, draws < bound, calm)
        total += costs[n]
    assert costs.mean() == pytest.approx(bound, abs=0.002)
    alarms = alarmed(costs, bound)
    assert within(alarms)
    assert alarms.mean() > 0.01


# ---- limits on the mean, at every look ----------------------------------------------------------


def silence(above: Floats, rate: float, below: Floats | None = None) -> Floats:
    """P(no alarm up to n) if each outcome is a failure with this probability; (horizon,).

    above: for each n, the fewest failures that raise the alarm; below: the most that do.
    """
    alive, result = np.zeros(len(above) + 2), np.empty(len(above))
    alive[0] = 1
    for step, limit in enumerate(above):
        alive[1:] = alive[1:] * (1 - rate) + alive[:-1] * rate
        alive[0] *= 1 - rate
        if np.isfinite(limit):
            alive[int(limit) :] = 0
        if below is not None and below[step] >= 0:
            alive[: int(below[step]) + 1] = 0
        result[step] = alive.sum()
    return result


@cache
def excluding(truth: float, alpha: float = ALPHA) -> tuple[Floats, Floats]:
    """For each n, sums of outcomes from which on, and up to which, the interval misses the truth.

    Halved from sums that it covers and sums that it does not, to a millionth: a sum that is not
    beyond these is covered.
    """
    results = []
    for end, misses in (
        (STEPS.astype(float), lambda total: confidence_sequence(total, STEPS, alpha)[0] > truth),
        (np.zeros(HORIZON), lambda total: confidence_sequence(total, STEPS, alpha)[1] < truth),
    ):
        covered, missed = truth * STEPS, np.where(misses(end), end, np.nan)
        for _ in range(32):
            middle = (covered + missed) / 2
            beyond = misses(np.where(np.isnan(middle), covered, middle))
            missed = np.where(beyond, middle, missed)
            covered = np.where(beyond | np.isnan(missed), covered, middle)
        results.append(missed)
    above, below = results
    return np.where(np.isnan(above), np.inf, above), np.where(np.isnan(below), -1.0, below)


def ever_beyond(costs: NDArray, above: Floats, below: Floats | None = None) -> Bools:
    """Whether the sum of the outcomes was ever beyond limits; costs: (horizon, deployments)."""
    totals = np.cumsum(costs, axis=0, dtype=float)
    beyond = totals >= above[:, None]
    if below is not None:
        beyond |= totals <= below[:, None]
    return np.asarray(beyond.any(axis=0))


def missed(costs: NDArray, truth: float) -> Bools:
    """Whether the interval was ever beside the truth."""
    return ever_beyond(costs, *excluding(truth))


@pytest.mark.slow
@pytest.mark.parametrize("truth", [0.01, 0.114, 0.5])
def test_the_interval_covers_the_truth_at_every_look(truth):
    violated = missed(failing(truth, seed=206), truth)
    assert within(violated)
    assert violated.mean() > ALPHA / 10


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("truth", [0.003, 0.114, 0.5, 0.95])
def test_the_interval_misses_no_truth_more_often_than_alpha_without_sampling(truth, alpha):
    above, below = excluding(truth, alpha)
    probability = 1 - silence(np.ceil(above), truth, np.floor(below))[-1]
    assert alpha / 10 < probability <= alpha


@pytest.mark.slow
def test_the_interval_covers_the_mean_of_graded_outcomes_at_every_look():
    costs = np.random.default_rng(207).beta(0.2, 0.8, (HORIZON, DEPLOYMENTS))
    assert within(missed(costs, 0.2))


@pytest.mark.slow
def test_the_count_of_misses_is_that_of_the_intervals_themselves():
    rows = failing(0.25, 60, seed=208)  # watched for 0.15: nearly all are missed in the end
    for outcomes, truth in ((rows, 0.15), (~rows, 0.85)):
        totals = np.cumsum(outcomes, axis=0)
        low, high = confidence_sequence(totals, STEPS[:, None], ALPHA)
        direct = np.any((low > truth) | (high < truth), axis=0)
        assert np.array_equal(missed(outcomes, truth), direct)
        assert direct.sum() > 30


# ---- power --------------------------------------------------------------------------------------


def found_once(n: int, rate: float) -> float:
    """How often the exact test at n finds a rate, by a sum over the counts that it rejects."""
    k = np.arange(n + 1)
    return float(stats.binom.pmf(k, n, rate)[binomial_p_value(k, n, BOUND) <= ALPHA].sum())


def found_by_hoeffding(n: int, rate: float) -> float:
    """How often Hoeffding's rule at n does."""
    k = np.arange(n + 1)
    rejected = k / n >= BOUND + math.sqrt(math.log(1 / ALPHA) / (2 * n))
    return float(stats.binom.pmf(k, n, rate)[rejected].sum())


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.3, 1.5, 2.0, 3.0])
def test_the_monitor_finds_more_than_hoeffding_s_rule_and_less_than_one_look(factor):
    """Where theirs can be told apart; elsewhere nothing is missed."""
    rate = factor * BOUND
    first = first_alarms(failing(rate, seed=212))
    told_apart = 0
    for n in LOOKS:
        found, hoeffding = float(np.mean(first <= n)), found_by_hoeffding(n, rate)
        if hoeffding < 0.999:
            assert hoeffding < found < found_once(n, rate), n
            told_apart += 1
        else:
            assert found == 1
    assert told_apart >= 2


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 1.3, 2.0])
def test_the_benchmark_simulates_the_monitor_and_sums_the_others(factor):
    rate = factor * BOUND
    rows = simulated_power(rate, 2000, np.random.default_rng(209))
    paths = np.array(list(e_values(failing(rate, 2000, seed=209), BOUND)))
    assert [row.trials for row in rows] == list(LOOKS)
    for row in rows:
        assert row.rate == rate
        assert row.monitor == np.mean(paths[: row.trials].max(axis=0) >= 1 / ALPHA)
        assert row.fixed_sample == pytest.approx(found_once(row.trials, rate), rel=1e-6)
        assert row.hoeffding == pytest.approx(found_by_hoeffding(row.trials, rate), rel=1e-6)
    assert rows[-1].monitor <= ALPHA or factor > 1


def test_the_benchmark_s_loop_bets_as_the_monitor_does():
    costs = failing(1.5 * BOUND, 3)[:, 0].astype(float)
    log_e = update_wealth(BettingState.initial(BOUND), costs, BOUND)[1]
    assert benchmark._plain_loop(costs) == pytest.approx(math.exp(log_e.max()), rel=1e-9)


def test_the_benchmark_waits_for_the_change_and_then_not_long():
    sudden = benchmark.detection_delay(2000, 0.02, 0.25, np.random.default_rng(213))
    slight = benchmark.detection_delay(2000, 0.02, 0.2, np.random.default_rng(213))
    assert 100 < sudden < 400
    assert sudden < slight < 1000


# ---- monitors that are wrong, and must be caught ------------------------------------------------


def one_look(rows: Bools) -> Bools:
    """The exact binomial test, looked at after each outcome."""
    return ever_beyond(rows, stats.binom.isf(ALPHA, STEPS, BOUND) + 1)


def best_bet(rows: Bools) -> Bools:
    """The bet that turned out best, in place of the average over all."""
    stakes, _ = bets(BOUND)
    wealth, alarms = np.ones((len(stakes), rows.shape[1])), np.zeros(rows.shape[1], bool)
    for failed in rows:
        wealth *= 1 + stakes[:, None] * (failed - BOUND)
        alarms |= wealth.max(axis=0) >= 1 / ALPHA
    return alarms


def a_lower_bound(rows: Bools) -> Bools:
    """The alarm against a promise that was never made, a tenth below the true one."""
    return alarmed(rows, 0.9 * BOUND)


def starting_anew(rows: Bools) -> Bools:
    """Whoever has lost starts again with what she had, which finds changes soon, and others too."""
    stakes, shares = bets(BOUND)
    wealth, alarms = np.ones((len(stakes), rows.shape[1])), np.zeros(rows.shape[1], bool)
    for failed in rows:
        wealth = np.maximum(wealth, 1) * (1 + stakes[:, None] * (failed - BOUND))
        alarms |= shares @ wealth >= 1 / ALPHA
    return alarms


WRONG: dict[str, Callable[[Bools], Bools]] = {
    "a p-value for one look, looked at always": one_look,
    "the bet that turned out best": best_bet,
    "another bound": a_lower_bound,
    "a bettor who starts anew when she has lost": starting_anew,
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", WRONG)
def test_a_monitor_that_is_wrong_is_caught(mistake):
    alarms = WRONG[mistake](failing(BOUND))
    assert not within(alarms)
    assert alarms.mean() > 1.2 * ALPHA


@pytest.mark.slow
def test_an_interval_for_one_look_that_is_looked_at_always_is_caught():
    """Clopper and Pearson's: it misses b if either tail of Bin(n, b) from k on is below α/2."""
    above = stats.binom.isf(ALPHA / 2, STEPS, BOUND) + 1
    below = stats.binom.ppf(ALPHA / 2, STEPS, BOUND) - 1
    assert not within(ever_beyond(failing(BOUND), above, below))
    assert 1 - silence(above, BOUND, below)[-1] > 0.2


# ---- certificates that are themselves random ----------------------------------------------------


@pytest.mark.slow
def test_the_conclusion_that_the_world_has_changed_is_wrong_with_at_most_delta_plus_alpha():
    """A policy certified on 12 environments, by all outcomes there, and deployed on others.

    Its true cost is 0.06 above the bound after two failures, so that the certificate is often
    wrong, and found out nearly always when it is: α alone would not do.
    """
    n, delta, alpha = 12, 0.2, 0.05
    bounds = [
        learn_finite(
            (np.arange(n) < k).astype(int)[:, None], delta, method="occam"
        ).certificate.bound
        for k in range(n + 1)
    ]
    truth = bounds[2] + 0.06
    chances = stats.binom.pmf(np.arange(n + 1), n, truth)
    wrong = float(chances[np.array(bounds) < truth].sum())
    assert delta / 2 < wrong <= delta
    rows = failing(truth, 4000, seed=211)
    alarm = float(chances[chances < 1e-3].sum())  # those are not worth the time: at most 1
    for bound, chance in zip(bounds, chances, strict=True):
        if chance >= 1e-3:
            alarm += chance * float(np.mean(alarmed(rows, bound, alpha)))
    assert 1.5 * alpha < alarm <= delta + alpha


def violated(certificate: Certificate, outcomes: Floats, alpha: float) -> bool:
    monitor = Monitor(certificate, alpha)
    monitor.observe(outcomes)
    return monitor.report().verdict == f"violated at level {alpha:g}"


@pytest.mark.slow
def test_what_is_learnt_on_environments_and_deployed_on_more_of_them_keeps_the_level():
    """30 policies, graded costs, a fresh draw from the posterior for every mission."""
    rng, delta, alpha = np.random.default_rng(210), 0.1, 0.05
    exponents = np.linspace(1, 3, 30)
    alarms, changed = [], []
    for repetition in range(REPETITIONS):
        costs = rng.random((40, 1)) ** exponents / 2 + rng.random((40, 30)) ** exponents / 2
        run = learn_finite(costs, delta)
        policies = rng.choice(exponents, 300, p=run.posterior.probabilities)
        environment, noise = rng.random((2, 300))
        missions = (environment**policies + noise**policies) / 2
        alarms.append(violated(run.certificate, missions, alpha))
        if repetition < 50:
            changed.append(violated(run.certificate, 1 - missions, alpha))
    assert within(np.array(alarms), delta + alpha)
    assert np.mean(changed) > 0.95  # and where costs are turned round, it says so
