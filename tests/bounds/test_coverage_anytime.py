"""Whether limits keep their promise when they are looked at after every outcome.

Outcomes are drawn with a known mean, and a data set counts as wrong if the limit was wrong at any
of the looks. The same count rejects the mistakes that are easy to make: looks in the order of a log
that is sorted by task, stakes that cannot be paid, episodes that were stopped at a success, and the
best of many policies as if it were the only one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from covering import covers
from numpy.typing import NDArray

from pacbayes_control.bounds import clopper_pearson
from pacbayes_control.bounds.anytime import (
    MARGIN,
    STAKES,
    difference_limits,
    highest_cost,
    log_e_of_difference,
    log_e_path,
)
from pacbayes_control.bounds.theorems import exact_tail_of_tasks
from pacbayes_control.trials.choosing import choose
from pacbayes_control.trials.comparing import compare
from recorded_trials import paired, unpaired
from sizes import sized

Floats = NDArray[np.float64]

pytestmark = pytest.mark.slow

DELTA = 0.1
DATA_SETS = sized(1000, full=10_000)
WHOLE = sized(120, full=1500)  # data sets that take the whole way

# Draws of outcomes in [0, 1], and their mean.
OUTCOMES: dict[str, tuple[Callable[..., Floats], float]] = {
    "coin": (lambda rng, shape: (rng.random(shape) < 0.5).astype(float), 0.5),
    "rare": (lambda rng, shape: (rng.random(shape) < 0.05).astype(float), 0.05),
    "likely": (lambda rng, shape: (rng.random(shape) < 0.95).astype(float), 0.95),
    "uniform": (lambda rng, shape: rng.random(shape), 0.5),
    "beta": (lambda rng, shape: rng.beta(2, 8, shape), 0.2),
    "two-point": (lambda rng, shape: np.where(rng.random(shape) < 0.3, 0.8, 0.1), 0.31),
}


def drawn(name: str, n: int, sets: int = DATA_SETS, seed: int = 0) -> Floats:
    """Outcomes of many data sets; (data sets, n)."""
    draw, _ = OUTCOMES[name]
    return draw(np.random.default_rng(seed + sum(map(ord, name))), (sets, n))


def ever_wrong(outcomes: Floats, mean: float, delta: float) -> NDArray[np.bool_]:
    """Whether a lower limit was above the mean at any look: E at the mean then reached 1/δ."""
    goal = MARGIN - math.log(delta)
    return np.array([log_e_path(each, mean).max() >= goal for each in outcomes])


# ---- limits after every outcome -----------------------------------------------------------------


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_lower_limit_that_is_looked_at_after_every_outcome_holds(name: str):
    assert covers(ever_wrong(drawn(name, 120), OUTCOMES[name][1], DELTA), DELTA)


@pytest.mark.parametrize("name", ["coin", "rare", "beta"])
def test_the_bound_on_a_cost_holds_whenever_the_trials_are_stopped(name: str):
    """By somebody who stops where the bound is smallest."""
    costs, mean = drawn(name, 40, WHOLE, seed=1), OUTCOMES[name][1]
    best = [min(highest_cost(each[:n], DELTA) for n in (5, 10, 20, 40)) for each in costs]
    assert covers(np.array(best) < mean, DELTA)


def test_the_fixed_bound_is_caught_when_trials_are_stopped_where_it_is_smallest():
    costs, best = drawn("coin", 120), np.ones(DATA_SETS)
    for n in range(1, 121):
        failures = costs[:, :n].sum(axis=1).astype(int)
        best = np.minimum(best, clopper_pearson(np.arange(n + 1), n, DELTA)[failures])
    assert not covers(best < 0.5, DELTA)


@pytest.mark.parametrize("every", [0, 1])
@pytest.mark.parametrize("name", ["coin", "two-point", "uniform"])
def test_the_limits_of_a_difference_hold(name: str, every: int):
    """At the end, or after every pair."""
    d, mean = 2 * drawn(name, 30, WHOLE, seed=2) - 1, 2 * OUTCOMES[name][1] - 1
    limits = np.array([difference_limits(each, DELTA, every=every) for each in d])
    assert covers((limits[:, 0] > mean) | (limits[:, 1] < mean), DELTA)


# ---- two equal policies -------------------------------------------------------------------------


def differences(kind: str, n: int, sets: int = DATA_SETS) -> Floats:
    """Of policies that are equally good; (data sets, n)."""
    rng = np.random.default_rng(len(kind))
    if kind == "graded":
        return rng.random((sets, n)) - rng.random((sets, n))
    if kind == "skewed":  # B is a little worse nine times in ten, and then much better
        return np.where(rng.random((sets, n)) < 0.9, 0.1, -0.9)
    rates = {"coins": 0.5, "both fail rarely": 0.05}[kind]
    one, other = (rng.random((sets, n)) < rates for _ in range(2))
    return other.astype(float) - one


@pytest.mark.parametrize("kind", ["coins", "both fail rarely", "graded", "skewed"])
def test_equal_policies_are_seldom_told_apart_at_any_look(kind: str):
    d, goal = differences(kind, 150), math.log(2 / DELTA)
    either = [np.array([log_e_of_difference(s * each).max() for each in d]) for s in (1, -1)]
    assert covers(np.maximum(*either) >= goal, DELTA)
    assert covers(either[0] >= goal, DELTA / 2)
    assert covers(either[1] >= goal, DELTA / 2)


def test_a_test_for_one_look_is_caught_at_every_look():
    """|mean| beyond 1.645 standard errors, from the tenth pair on."""
    d, wrong = differences("coins", 150), np.zeros(DATA_SETS, bool)
    for n in range(10, 151):
        part = d[:, :n]
        error = part.std(axis=1, ddof=1) / math.sqrt(n)
        wrong |= np.abs(part.mean(axis=1)) > 1.645 * error
    assert not covers(wrong, DELTA)


def by_stakes(d: Floats, theta: float, most: float) -> NDArray[np.bool_]:
    """Whether the mixture of Π(1 + u(d - θ)), with stakes up to the most, ever reaches 1/δ."""
    stakes = most * STAKES
    factors = 1 + stakes * (d[:, :, None] - theta)
    return np.cumprod(factors, axis=1).mean(axis=2).max(axis=1) >= 1 / DELTA


def test_stakes_beyond_what_can_be_paid_are_caught():
    """At a margin of 0.5 a stake above 1/1.5 may lose more than all there is."""
    rng = np.random.default_rng(3)
    d = np.where(rng.random((DATA_SETS, 150)) < 0.75, 1.0, -1.0)  # of mean 0.5
    assert covers(by_stakes(d, 0.5, 1 / 1.5), DELTA)
    assert not covers(by_stakes(d, 0.5, 1.0), DELTA)
    at_margin = np.array([log_e_of_difference(each, 0.5).max() for each in d])
    assert covers(at_margin >= -math.log(DELTA), DELTA)


# ---- logs that are sorted by task ---------------------------------------------------------------

A_FAILS, B_FAILS = [0.1, 0.2, 0.8, 0.9], [0.9, 0.8, 0.2, 0.1]  # by task; 0.5 on average
TASKS = np.repeat(np.arange(4), 15)


def verdicts(*, in_order: bool = False, declared: bool = False) -> NDArray[np.bool_]:
    """Whether evidence that tells equal policies apart is reached, on trials task by task.

    In both directions it is reached by looks that contradict each other: then nothing is decided.
    """
    rng, found = np.random.default_rng(4), []
    rates = np.column_stack((A_FAILS, B_FAILS))[TASKS]
    for _ in range(WHOLE):
        tasks = TASKS.tolist() if declared else None
        trials = paired(rng.random(rates.shape) < rates, tasks=tasks)
        answer = compare(trials, "act", "pi0", alpha=DELTA, in_order=in_order)
        found.append(answer.log_e >= math.log(answer.needed))
        assert found[-1] or answer.verdict == "undecided"
    return np.array(found)


def test_a_log_that_is_sorted_by_task_decides_nothing_about_equal_policies():
    assert covers(verdicts(), DELTA)


@pytest.mark.parametrize("in_order", [False, True])
def test_nor_does_it_if_the_tasks_are_declared(in_order: bool):
    """Looks on the way are then after rounds of one pair of each task."""
    assert covers(verdicts(in_order=in_order, declared=True), DELTA)


def test_looks_on_the_way_through_a_log_that_is_sorted_by_task_are_caught():
    """Which is why the order counts only if it was random."""
    wrong = verdicts(in_order=True)
    assert wrong.mean() > 0.9
    assert not covers(wrong, DELTA)


def test_unpaired_trials_that_are_sorted_by_task_decide_nothing_either():
    rng, wrong = np.random.default_rng(5), []
    for _ in range(WHOLE):
        a, b = (rng.random(60) < np.array(rates)[TASKS] for rates in (A_FAILS, B_FAILS))
        wrong.append(compare(unpaired(a, b), "act", "pi0", alpha=DELTA).verdict != "undecided")
    assert covers(np.array(wrong), DELTA)


# ---- a policy that is chosen by its trials ------------------------------------------------------


def test_the_certificate_of_the_chosen_policy_holds():
    """Five equal policies, with 12 trials each: of which the one with the smallest bound."""
    rng = np.random.default_rng(6)
    tables = rng.random((WHOLE, 12, 5)) < 0.4
    for stopping in ("fixed", "anytime"):
        bounds = [choose(paired(t), DELTA, stopping=stopping).run.certificate.bound for t in tables]
        assert covers(np.array(bounds) < 0.4, DELTA)


def test_the_best_of_many_policies_is_caught_without_paying_for_the_choice():
    failures = np.random.default_rng(7).binomial(50, 0.4, (DATA_SETS, 20)).min(axis=1)
    free, paid = (clopper_pearson(np.arange(51), 50, d)[failures] for d in (DELTA, DELTA / 20))
    assert not covers(free < 0.4, DELTA)
    assert covers(paid < 0.4, DELTA)


@pytest.mark.parametrize("tasks", [[0.0, 0.5, 1.0], [0.05, 0.1, 0.9]])
def test_the_exact_tail_holds_on_average_over_a_fixed_list_of_tasks(tasks: list[float]):
    rng, n = np.random.default_rng(8), 30
    failures = rng.binomial(10, tasks, (DATA_SETS, 3)).sum(axis=1)
    bounds = exact_tail_of_tasks(np.arange(n + 1), n, DELTA)[failures]
    assert covers(bounds < np.mean(tasks), DELTA)


# ---- several episodes in one environment --------------------------------------------------------


def test_environments_whose_episodes_are_averaged_keep_the_bound():
    """Five episodes in each of 40 environments, which fail with a probability of their own."""
    rng, wrong = np.random.default_rng(9), []
    for _ in range(WHOLE):
        failures = rng.binomial(5, rng.choice([0.1, 0.9], 40))
        wrong.append(highest_cost(failures / 5, DELTA) < 0.5)
    assert covers(np.array(wrong), DELTA)


def test_episodes_counted_as_environments_are_caught():
    failures = np.random.default_rng(9).binomial(50, 0.5, DATA_SETS) * 5  # all five fail, or none
    bounds = clopper_pearson(np.arange(251), 250, DELTA)[failures]
    assert not covers(bounds < 0.5, DELTA)


def test_episodes_that_were_stopped_at_the_first_success_are_caught():
    """Their mean cost in an environment is below the failure rate: they are not averaged."""
    rng, wrong = np.random.default_rng(10), []
    for _ in range(WHOLE):
        before = rng.geometric(0.5, 100) - 1  # failures before the first success
        wrong.append(highest_cost(before / (before + 1), DELTA) < 0.5)
    assert not covers(np.array(wrong), DELTA)
