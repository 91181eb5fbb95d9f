"""Whether the bounds keep their promise, on problems whose true costs are known in closed form.

Many data sets are drawn, a posterior or a policy is chosen by looking at each, and the data sets on
which the bound is below the true cost are counted. A bound that is wrong with probability δ at most
exceeds `most_violations` with probability LEVEL at most. The same count is applied to bounds that
repeat mistakes found in published code: it must reject every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from covering import CERTIFICATES, LEVEL, covers, most_violations
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from pacbayes_control.bounds import (
    chernoff_kl_holdout,
    clopper_pearson,
    kl_inverse,
    kl_inverse_lower,
    log_xi,
    maurer,
    maurer_xi,
    mcallester_pinsker,
    occam_exact_tail,
    occam_kl,
    quadratic,
    thiemann,
)
from pacbayes_control.certify.costs import Costs
from pacbayes_control.learn.finite import learn_best, learn_finite
from sizes import sized

Floats = NDArray[np.float64]

pytestmark = pytest.mark.slow

DATA_SETS = sized(2000, full=4000)
DELTA = 0.1


# ---- problems with a known truth ----------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Mean costs on data sets of n environments each, and what they estimate."""

    n: int
    truth: Floats  # (policies,)
    means: Floats  # (data sets, policies)
    binary: bool

    @property
    def policies(self) -> int:
        return self.truth.size

    @property
    def failures(self) -> NDArray[np.int64]:
        assert self.binary
        return np.rint(self.means * self.n).astype(np.int64)


def many_alike() -> Problem:
    """300 policies that fail independently with probability 0.3: the best looks far too good."""
    rng, n, truth = np.random.default_rng(101), 60, np.full(300, 0.3)
    return Problem(n, truth, rng.binomial(n, truth, (DATA_SETS, 300)) / n, True)


def rare_failures() -> Problem:
    """100 policies that fail independently, from once in a hundred environments to every other."""
    rng, n, truth = np.random.default_rng(102), 100, np.geomspace(0.01, 0.5, 100)
    return Problem(n, truth, rng.binomial(n, truth, (DATA_SETS, 100)) / n, True)


def thresholds() -> Problem:
    """40 policies that fail where an environment is harder than they can bear, and so together."""
    rng, n, truth = np.random.default_rng(103), 80, np.linspace(0.2, 0.6, 40)
    hardness = np.sort(rng.random((DATA_SETS, n)))
    counts = np.stack([np.searchsorted(row, truth) for row in hardness])
    return Problem(n, truth, counts / n, True)


def graded() -> Problem:
    """25 policies with costs half from the environment and half their own.

    The cost is (U^a + V)/2, with U uniform and shared by all, and V ~ Beta(α, β) independent: its
    mean is (1/(1+a) + α/(α+β))/2.
    """
    rng, n, policies = np.random.default_rng(104), 100, 25
    a, alpha = np.linspace(1, 3, policies), np.linspace(0.3, 0.7, policies)
    beta = 1 - alpha / 2
    means = np.zeros((DATA_SETS, policies))
    for _ in range(n):  # one environment of every data set at a time
        shared = rng.random((DATA_SETS, 1)) ** a
        means += (shared + rng.beta(alpha, beta, (DATA_SETS, policies))) / 2
    return Problem(n, (1 / (1 + a) + alpha / (alpha + beta)) / 2, means / n, False)


PROBLEMS = {make.__name__: cache(make) for make in (many_alike, rare_failures, thresholds, graded)}
BINARY = ("many_alike", "rare_failures", "thresholds")


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_truth_of_each_problem_is_what_it_is_said_to_be(name):
    problem = PROBLEMS[name]()
    error = problem.means.mean(axis=0) - problem.truth
    # A mean of n costs in [0, 1] has a variance of at most 1/(4n).
    assert np.all(np.abs(error) < 6 * np.sqrt(0.25 / problem.n / DATA_SETS))


def test_the_policies_of_two_problems_are_correlated():
    for name in ("thresholds", "graded"):
        means = PROBLEMS[name]().means
        assert np.corrcoef(means[:, 10], means[:, 15])[0, 1] > 0.3


# ---- posteriors chosen by looking at the data ---------------------------------------------------


@cache
def gibbs_path(name: str, knows_truth: bool) -> tuple[Floats, Floats, Floats]:
    """r̂, KL and the true cost along p ∝ p₀ exp(-β s), p₀ uniform; each (betas, data sets).

    The scores s are the mean costs; or, of somebody who knows the truth and wants the bound to
    fail, the mean costs less the true ones, so that mass goes where the data mislead most.
    """
    problem = PROBLEMS[name]()
    scores = problem.means - problem.truth if knows_truth else problem.means
    scores = scores - scores.min(axis=1, keepdims=True)
    rows = []
    for beta in [0.0, *np.geomspace(1, 1e4, sized(14, full=24))]:
        log_p = -beta * scores
        log_p -= logsumexp(log_p, axis=1, keepdims=True)
        p = np.exp(log_p)
        kl = np.maximum(np.sum(p * log_p, axis=1) + np.log(problem.policies), 0)
        rows.append((np.minimum(np.sum(p * problem.means, axis=1), 1), kl, p @ problem.truth))
    cost, kl, truth = np.array(rows).transpose(1, 0, 2)
    return cost, kl, truth


def violated_by_learner(bound: Callable[..., Floats], name: str, delta: float = DELTA) -> Any:
    """Where the bound is below the true cost of the posterior that minimises it."""
    cost, kl, truth = gibbs_path(name, knows_truth=False)
    values = bound(cost, kl, PROBLEMS[name]().n, delta)
    best, every = np.argmin(values, axis=0), np.arange(values.shape[1])
    return values[best, every] < truth[best, every]


def violated_by_adversary(bound: Callable[..., Floats], name: str, delta: float = DELTA) -> Any:
    """Where it is below the true cost of any posterior on the path of who knows the truth."""
    cost, kl, truth = gibbs_path(name, knows_truth=True)
    return np.any(bound(cost, kl, PROBLEMS[name]().n, delta) < truth, axis=0)


def thiemann_at_one(cost: Any, kl: Any, n: int, delta: float) -> Floats:
    return thiemann(cost, kl, n, delta, lam=1.0)


PAC_BAYES = [maurer, maurer_xi, mcallester_pinsker, quadratic, thiemann, thiemann_at_one]


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("bound", PAC_BAYES)
def test_the_bound_holds_for_the_posterior_that_minimises_it(bound, name):
    assert covers(violated_by_learner(bound, name), DELTA)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("bound", PAC_BAYES)
def test_the_bound_holds_for_every_posterior_even_of_an_adversary(bound, name):
    assert covers(violated_by_adversary(bound, name), DELTA)


@pytest.mark.parametrize("name", ["many_alike", "graded"])
def test_the_bounds_say_something_where_they_hold(name):
    cost, kl, _ = gibbs_path(name, knows_truth=False)
    for bound in PAC_BAYES:
        lowest = np.min(bound(cost, kl, PROBLEMS[name]().n, DELTA), axis=0)
        assert np.mean(lowest) < 0.9


# ---- single policies ----------------------------------------------------------------------------


def tail_bounds(failures: NDArray, n: int, delta: float) -> Floats:
    """Clopper and Pearson's bound for an array of counts, by a table of all n + 1."""
    return clopper_pearson(np.arange(n + 1), n, delta)[failures]


def every_count(n: int, policies: int) -> NDArray[np.int64]:
    """0 … n failures, down each policy's column; shape (n + 1, policies)."""
    return np.tile(np.arange(n + 1)[:, None], policies)


def occam_bounds(problem: Problem, weights: Floats, delta: float = DELTA) -> Floats:
    """Occam's bound with the exact tail; shape (data sets, policies)."""
    table = occam_exact_tail(every_count(problem.n, weights.size), problem.n, weights, delta)
    return np.take_along_axis(table, problem.failures, axis=0)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("policy", [0, 20, -1])
def test_clopper_pearson_holds_for_a_policy_fixed_in_advance(name, policy):
    problem = PROBLEMS[name]()
    bounds = tail_bounds(problem.failures[:, policy], problem.n, DELTA)
    assert covers(bounds < problem.truth[policy], DELTA)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("policy", [0, 20, -1])
def test_the_kl_holdout_bound_holds_for_a_policy_fixed_in_advance(name, policy):
    problem = PROBLEMS[name]()
    bounds = chernoff_kl_holdout(problem.means[:, policy], problem.n, DELTA)
    assert covers(bounds < problem.truth[policy], DELTA)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_policy_chosen_on_some_environments_is_certified_on_others(name):
    """Half of the data sets choose, the other half certify."""
    problem = PROBLEMS[name]()
    chosen = np.argmin(problem.means[: DATA_SETS // 2], axis=1)
    held_out, every = problem.means[DATA_SETS // 2 :], np.arange(DATA_SETS // 2)
    costs, truth = held_out[every, chosen], problem.truth[chosen]
    assert covers(chernoff_kl_holdout(costs, problem.n, DELTA) < truth, DELTA)
    if problem.binary:
        failures = np.rint(costs * problem.n).astype(int)
        assert covers(tail_bounds(failures, problem.n, DELTA) < truth, DELTA)


def uneven(policies: int) -> Floats:
    weights = 1 / np.arange(1, policies + 1)
    return weights / weights.sum() * (1 - 1e-12)


WEIGHTS = {"even": lambda policies: np.full(policies, 1 / policies), "uneven": uneven}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_occam_s_exact_tail_holds_for_all_policies_at_once(name, weights):
    problem = PROBLEMS[name]()
    bounds = occam_bounds(problem, WEIGHTS[weights](problem.policies))
    assert covers(np.any(bounds < problem.truth, axis=1), DELTA)
    chosen, every = np.argmin(bounds, axis=1), np.arange(DATA_SETS)
    assert covers(bounds[every, chosen] < problem.truth[chosen], DELTA)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_occam_s_kl_bound_holds_for_all_policies_at_once(name, weights):
    problem = PROBLEMS[name]()
    bounds = occam_kl(problem.means, problem.n, WEIGHTS[weights](problem.policies), DELTA)
    assert covers(np.any(bounds < problem.truth, axis=1), DELTA)
    chosen, every = np.argmin(bounds, axis=1), np.arange(DATA_SETS)
    assert covers(bounds[every, chosen] < problem.truth[chosen], DELTA)


# ---- coverage without sampling ------------------------------------------------------------------
# For 0/1 costs of one policy the bound is one of N + 1 numbers, growing with the failures k. It is
# below p exactly if k is at most some number; the worst p is just above the bound at a k, and there
# the probability of a violation is P(Bin(N, p) ≤ k).


def worst_violation(bounds: Floats, n: int) -> float:
    """The largest probability, over all p, that a bound for k = 0 … N failures is below p."""
    assert np.all(np.diff(bounds) > 0)
    return float(np.max(stats.binom.cdf(np.arange(n), n, bounds[:-1])))


@pytest.mark.parametrize("n", [1, 2, 8, 50, 200])
@pytest.mark.parametrize("delta", [0.01, 0.2, 0.5])
def test_no_failure_probability_whatever_violates_a_bound_more_often_than_delta(n, delta):
    k, pairs = np.arange(n + 1), every_count(n, 2)
    for bounds in (
        clopper_pearson(k, n, delta),
        chernoff_kl_holdout(k / n, n, delta),
        maurer(k / n, 0.0, n, delta),
        maurer_xi(k / n, 0.0, n, delta),
        occam_exact_tail(pairs, n, [0.4, 0.6], delta)[:, 0],
        occam_kl(pairs / n, n, [0.4, 0.6], delta)[:, 0],
    ):
        assert worst_violation(bounds, n) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("n", [1, 8, 200])
def test_clopper_pearson_and_occam_s_exact_tail_waste_nothing(n):
    k = np.arange(n + 1)
    assert worst_violation(clopper_pearson(k, n, 0.2), n) == pytest.approx(0.2, rel=1e-9)
    bounds = occam_exact_tail(every_count(n, 2), n, [0.4, 0.6], 0.2)
    assert worst_violation(bounds[:, 0], n) == pytest.approx(0.08, rel=1e-9)
    assert worst_violation(bounds[:, 1], n) == pytest.approx(0.12, rel=1e-9)


def test_occam_s_exact_tail_spends_all_of_delta_on_independent_policies():
    """The probability that any policy violates is 1 - Π(1 - πδ) at the worst truth: nearly δ."""
    n, delta, weights = 100, 0.2, uneven(50)
    bounds = occam_exact_tail(every_count(n, 50), n, weights, delta)
    truth = bounds[12] + 1e-9
    each = stats.binom.cdf(12, n, truth)
    assert 0.18 < 1 - np.prod(1 - each) <= delta


@pytest.mark.parametrize("delta", [0.05, 0.1, 0.2])
def test_clopper_pearson_is_violated_just_as_often_as_delta_allows(delta):
    """At the worst truth the count of violations is Bin(data sets, δ): neither more nor less."""
    rng, n = np.random.default_rng(105), 80
    truth = float(clopper_pearson(11, n, delta)) + 1e-9
    violated = tail_bounds(rng.binomial(n, truth, DATA_SETS), n, delta) < truth
    assert covers(violated, delta)
    assert violated.sum() >= stats.binom.ppf(LEVEL, DATA_SETS, delta)


# ---- the whole way, from costs to a certificate -------------------------------------------------


def recorded_costs(rng: np.random.Generator, binary: bool) -> tuple[Costs, Floats]:
    """Costs of 30 policies in 40 environments, and their true means.

    A graded cost is half the environment's and half the policy's own; a 0/1 cost is 1 with the
    probability that the graded one would be, and so has the same mean.
    """
    a = np.linspace(1, 3, 30)
    values = rng.random((40, 1)) ** a / 2 + rng.random((40, 30)) ** a / 2
    return Costs(rng.random((40, 30)) < values if binary else values), 1 / (1 + a)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("method", ["kl", "kl-maurer", "pinsker", "occam"])
def test_the_certificate_of_what_was_learnt_holds(method, binary):
    rng, delta = np.random.default_rng(106), 0.2
    violated = []
    for _ in range(CERTIFICATES):
        costs, truth = recorded_costs(rng, binary)
        run = learn_finite(costs, delta, method=method)
        violated.append(run.certificate.bound < run.posterior.probabilities @ truth)
    assert covers(np.array(violated), delta)


@pytest.mark.parametrize("binary", [True, False])
def test_the_best_of_two_certificates_holds(binary):
    rng, delta = np.random.default_rng(107), 0.2
    violated = []
    for _ in range(CERTIFICATES):
        costs, truth = recorded_costs(rng, binary)
        run = learn_best(costs, delta)
        violated.append(run.certificate.bound < run.posterior.probabilities @ truth)
    assert covers(np.array(violated), delta)


# ---- bounds that are wrong, and must be caught --------------------------------------------------


def best_policy(problem: Problem) -> tuple[Floats, Floats]:
    """The mean cost of the policy that looks best in each data set, and its true cost."""
    chosen = np.argmin(problem.means, axis=1)
    return problem.means[np.arange(DATA_SETS), chosen], problem.truth[chosen]


def tail_of_the_best_policy() -> Any:
    problem = PROBLEMS["many_alike"]()
    costs, truth = best_policy(problem)
    return tail_bounds(np.rint(costs * problem.n).astype(int), problem.n, DELTA) < truth


def kl_tail_of_the_best_policy() -> Any:
    problem = PROBLEMS["many_alike"]()
    costs, truth = best_policy(problem)
    return chernoff_kl_holdout(costs, problem.n, DELTA) < truth


def prior_moved_after_the_fact() -> Any:
    problem = PROBLEMS["many_alike"]()
    costs, truth = best_policy(problem)
    # All weight goes to the policy that was chosen: its weight of 1 costs nothing.
    return np.ravel(occam_kl(costs[:, None], problem.n, [1.0], DELTA)) < truth


def no_divergence(cost: Any, kl: Any, n: int, delta: float) -> Floats:
    return maurer_xi(cost, np.zeros_like(kl), n, delta)


def no_confidence(cost: Any, kl: Any, n: int, _: float) -> Floats:
    return kl_inverse(cost, kl / n)


def no_complexity(cost: Any, kl: Any, _: int, __: float) -> Floats:
    return kl_inverse(cost, np.zeros_like(kl))


def the_lower_inverse(cost: Any, kl: Any, n: int, delta: float) -> Floats:
    return kl_inverse_lower(cost, (kl + log_xi(n) - np.log(delta)) / n)


def rollouts_counted_as_environments(cost: Any, kl: Any, n: int, delta: float) -> Floats:
    return maurer_xi(cost, kl, n * PROBLEMS["thresholds"]().policies, delta)


def divergence_divided_by_n_twice(cost: Any, kl: Any, n: int, delta: float) -> Floats:
    return maurer_xi(cost, kl / n, n, delta)


def normal_approximation() -> Any:
    problem = PROBLEMS["rare_failures"]()
    mean = problem.means[:, 0]
    width = stats.norm.isf(DELTA) * np.sqrt(mean * (1 - mean) / problem.n)
    return mean + width < problem.truth[0]


def pmf_in_place_of_the_tail() -> Any:
    problem = PROBLEMS["many_alike"]()
    n, grid = problem.n, np.linspace(0, 1, 10_001)
    likely = stats.binom.pmf(np.arange(n + 1)[:, None], n, grid) >= DELTA
    table = np.where(likely.any(axis=1), np.max(np.where(likely, grid, 0), axis=1), 0)
    table = np.maximum(table, np.arange(n + 1) / n)
    return table[problem.failures[:, 0]] < problem.truth[0]


def one_failure_not_counted() -> Any:
    problem = PROBLEMS["many_alike"]()
    failures = np.maximum(problem.failures[:, 0] - 1, 0)
    return tail_bounds(failures, problem.n, DELTA) < problem.truth[0]


def delta_spent_twice() -> Any:
    rng, n = np.random.default_rng(108), 80
    truth = float(clopper_pearson(11, n, 2 * DELTA)) + 1e-9
    return tail_bounds(rng.binomial(n, truth, DATA_SETS), n, 2 * DELTA) < truth


BROKEN: dict[str, Callable[[], Any]] = {
    "the exact tail of the policy that looks best": tail_of_the_best_policy,
    "the kl tail of the policy that looks best": kl_tail_of_the_best_policy,
    "a prior moved onto the policy that looks best": prior_moved_after_the_fact,
    "a kl bound without the divergence": lambda: violated_by_learner(no_divergence, "many_alike"),
    "a kl bound without the confidence": lambda: violated_by_adversary(no_confidence, "thresholds"),
    "a kl bound without either": lambda: violated_by_learner(no_complexity, "graded"),
    "the lower inverse": lambda: violated_by_learner(the_lower_inverse, "graded"),
    "rollouts counted as environments": lambda: violated_by_adversary(
        rollouts_counted_as_environments, "thresholds"
    ),
    "the divergence divided by N twice": lambda: violated_by_adversary(
        divergence_divided_by_n_twice, "many_alike"
    ),
    "the normal approximation for rare failures": normal_approximation,
    "the pmf in place of the tail": pmf_in_place_of_the_tail,
    "one failure not counted": one_failure_not_counted,
    "δ spent twice": delta_spent_twice,
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_bound_is_caught(mistake):
    assert not covers(BROKEN[mistake](), DELTA)


def test_the_count_without_sampling_catches_a_bound_that_is_slightly_too_low():
    n, k = 50, np.arange(51)
    assert worst_violation(clopper_pearson(k, n, 0.2) - 1e-6, n) > 0.2 * (1 + 1e-9)
    assert worst_violation(k / n, n) > 0.9


def test_the_limit_on_violations_is_the_binomial_one():
    limit = most_violations(DATA_SETS, DELTA)
    assert (
        stats.binom.sf(limit, DATA_SETS, DELTA)
        <= LEVEL
        < stats.binom.sf(limit - 1, DATA_SETS, DELTA)
    )
    assert DELTA < limit / DATA_SETS < 1.4 * DELTA
    counts = np.arange(DATA_SETS)
    assert covers(counts < limit, DELTA)
    assert not covers(counts < limit + 1, DELTA)
