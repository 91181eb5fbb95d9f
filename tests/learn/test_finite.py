from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import rel_entr, softmax

from pacbayes_control.bounds import maurer_xi, mcallester_pinsker
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.learn import learn_best, learn_finite
from pacbayes_control.learn.gibbs import GibbsPath, minimise
from pacbayes_control.learn.objectives import OBJECTIVES
from sizes import sized


def values(p: np.ndarray, means: np.ndarray, prior: Categorical, n: int, delta: float, name: str):
    """The objective at each of many distributions; (…, policies) to (…)."""
    cost = np.minimum(p @ means, 1.0)
    kl = np.maximum(rel_entr(p, prior.probabilities).sum(axis=-1), 0)
    return OBJECTIVES[name].bound(cost, kl, n, delta)


def value(p: Categorical, means: np.ndarray, prior: Categorical, n: int, delta: float, name: str):
    cost = min(1.0, float(p.probabilities @ means))
    return float(OBJECTIVES[name].bound(np.array(cost), np.array(p.kl(prior)), n, delta))


def by_descent(means: np.ndarray, prior: Categorical, n: int, delta: float, name: str) -> float:
    """The same minimum by a general optimiser over a softmax, from several starts."""
    steps = 1e-8 * np.vstack([np.zeros(len(means)), np.eye(len(means))])

    def objective(logits: np.ndarray) -> tuple[float, np.ndarray]:
        found = values(softmax(logits + steps, axis=1), means, prior, n, delta, name)
        return found[0], (found[1:] - found[0]) / 1e-8

    starts = [np.log(prior.probabilities), -10 * means, -100 * means, -1000 * means]
    return min(minimize(objective, s, jac=True, method="L-BFGS-B").fun for s in starts)


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("n", [20, 300, 10_000])
def test_no_other_distribution_does_better(name: str, n: int):
    rng = np.random.default_rng(n)
    for _ in range(sized(1, full=3)):
        means = rng.beta(1, 4, 8)
        prior = Categorical(rng.dirichlet(np.ones(8)))
        best = minimise(means, n, prior, delta=0.05, objective=name)
        found = value(best, means, prior, n, 0.05, name)
        descended = by_descent(means, prior, n, 0.05, name)
        assert descended - 1e-4 < found <= descended + 1e-9
        nearby = np.maximum(best.probabilities + 0.01 * rng.normal(size=(200, 8)), 0)
        nearby /= nearby.sum(axis=1, keepdims=True)  # and neither does any distribution near it
        assert np.all(found <= values(nearby, means, prior, n, 0.05, name) + 1e-12)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.integers(2, 10**6),
    st.sampled_from(list(OBJECTIVES)),
    st.floats(1e-6, 0.5),
)
def test_the_minimum_is_never_above_the_prior_or_any_single_policy(
    means: list[float], n: int, name: str, delta: float
):
    c = np.array(means)
    prior = Categorical.uniform(len(c))
    found = value(minimise(c, n, prior, delta=delta, objective=name), c, prior, n, delta, name)
    for other in [prior, *(Categorical.one(j, len(c)) for j in range(len(c)))]:
        assert found <= value(other, c, prior, n, delta, name) * (1 + 1e-9)


def test_the_pinsker_minimum_is_stationary_at_beta_four_n_lambda():
    means, prior, n = np.array([0.1, 0.12, 0.3, 0.5]), Categorical.uniform(4), 200
    p = minimise(means, n, prior, delta=0.01, objective="pinsker")
    lam = np.sqrt((p.kl(prior) + np.log(2 * np.sqrt(n) / 0.01)) / (2 * n))
    ratios = np.log(p.probabilities[1:] / p.probabilities[0]) / (means[0] - means[1:])
    assert np.allclose(ratios, 4 * n * lam, rtol=1e-8)


def test_the_kl_minimum_is_stationary_at_the_difference_of_log_odds():
    means, prior, n = np.array([0.1, 0.12, 0.3, 0.5]), Categorical.uniform(4), 200
    p = minimise(means, n, prior, delta=0.01, objective="kl")
    cost = p.probabilities @ means
    bound = float(maurer_xi(cost, p.kl(prior), n, 0.01))
    beta = n * (np.log(bound / (1 - bound)) - np.log(cost / (1 - cost)))
    assert np.isclose(np.log(p.probabilities[0] / p.probabilities[3]) / 0.4, beta, rtol=1e-6)


def test_the_global_minimum_is_found_where_there_are_two():
    # Thousands of fair policies and one good one: the prior is one minimum, the good one another.
    means = np.append(np.full(2000, 0.30), 0.02)
    prior = Categorical.uniform(len(means))
    path = GibbsPath(means, prior)
    betas = np.geomspace(1, 1e4, 4000)
    values = mcallester_pinsker(*path.at(betas), 100, 0.01)
    minima = np.sum((values[1:-1] < values[:-2]) & (values[1:-1] < values[2:]))
    p = minimise(means, 100, prior, delta=0.01, objective="pinsker")
    assert minima >= 1
    assert value(p, means, prior, 100, 0.01, "pinsker") <= values.min() + 1e-12


def test_equal_policies_keep_the_proportions_of_the_prior():
    prior = Categorical([0.1, 0.3, 0.6])
    p = minimise(np.array([0.1, 0.1, 0.9]), 1000, prior, delta=0.01, objective="kl").probabilities
    assert np.isclose(p[1] / p[0], 3, rtol=1e-12)


def test_policies_outside_the_prior_get_no_mass():
    prior = Categorical([0.5, 0.5, 0.0])
    p = minimise(np.array([0.5, 0.4, 0.0]), 1000, prior, delta=0.01, objective="kl").probabilities
    assert p[2] == 0


@pytest.mark.parametrize("method", ["kl", "kl-maurer", "pinsker", "occam"])
def test_a_single_policy_can_be_certified(method: str):
    costs = Costs(np.arange(50).reshape(-1, 1) % 10 == 0)
    certificate = learn_finite(costs, method=method).certificate
    assert 0.1 < certificate.bound < 0.5
    assert certificate.kl == 0


def test_costs_that_are_all_zero_or_all_one_are_certified():
    assert learn_finite(Costs(np.zeros((1000, 3)))).certificate.bound < 0.02
    assert learn_finite(Costs(np.ones((1000, 3)))).certificate.bound == 1
    assert learn_finite(Costs(np.ones((1000, 3))), method="occam").certificate.bound == 1


def test_the_methods_are_ordered_as_the_theory_says(binary_costs: Costs):
    bounds = {
        method: learn_finite(binary_costs, method=method).certificate.bound
        for method in ("kl", "kl-maurer", "pinsker")
    }
    paper = learn_finite(binary_costs, method="kl-maurer", objective="pinsker").certificate.bound
    assert bounds["kl"] < bounds["kl-maurer"] <= paper <= bounds["pinsker"]


def test_a_better_prior_gives_a_better_bound(binary_costs: Costs):
    good = [0.05, 0.05, 0.75, 0.05, 0.05, 0.05]
    for method in ("kl", "occam"):
        with_good = learn_finite(binary_costs, method=method, prior=good).certificate
        assert with_good.bound < learn_finite(binary_costs, method=method).certificate.bound


@pytest.mark.parametrize("method", ["kl", "occam"])
def test_policies_that_are_equal_are_paid_for_once(binary_costs: Costs, method: str):
    # The third policy is the best; four of the others are one and the same.
    rows = np.array([[0.0], [0.0], [1.0], [0.0], [0.0], [2.0]])
    uniform = learn_finite(binary_costs, method=method).certificate
    values = binary_costs.values[:, [0, 0, 2, 0, 0, 5]]
    distinct = learn_finite(Costs(values, parameters=rows), method=method).certificate
    assert distinct.bound < uniform.bound
    alone = [1 / 12, 1 / 12, 1 / 3, 1 / 12, 1 / 12, 1 / 3]
    weighed = learn_finite(Costs(values), method=method, prior=alone).certificate
    assert distinct.bound == pytest.approx(weighed.bound, rel=1e-12)


def test_parameters_must_match_the_policies(binary_costs: Costs):
    with pytest.raises(ValueError, match="5 rows of parameters for 6 policies"):
        Costs(binary_costs.values, parameters=np.zeros((5, 1)))


def test_the_best_of_several_pays_for_the_choice(binary_costs: Costs):
    best = learn_best(binary_costs, delta=0.02).certificate
    assert best.delta == 0.02
    assert best.budget == {"kl": 0.01, "occam": 0.01}
    alone = learn_finite(binary_costs, delta=0.01, method=best.method).certificate
    assert best.bound == alone.bound


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "strictly between 0 and 1"),
        ({"delta": 1.0}, "strictly between 0 and 1"),
        ({"delta": float("nan")}, "strictly between 0 and 1"),
        ({"method": "magic"}, "unknown: choose from occam, kl, kl-maurer, pinsker, betting"),
        ({"method": "kl", "objective": "magic"}, "objective 'magic' is unknown"),
        ({"method": "occam", "objective": "kl"}, "no other objective"),
        ({"prior": [0.5, 0.5]}, "2 entries for 6 policies"),
        ({"prior": [0.5] * 6}, "sums to 3"),
    ],
)
def test_bad_options_get_a_clear_error(binary_costs: Costs, options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        learn_finite(binary_costs, **options)


@pytest.mark.parametrize("weight", [1e-27, 1e-40, 1e-100])
def test_a_policy_that_the_prior_all_but_excludes_is_still_found(weight: float):
    means = np.append(0.01, np.full(20, 0.5))
    prior = Categorical(np.append(weight, np.full(20, (1 - weight) / 20)))
    p = minimise(means, 2000, prior, delta=0.01, objective="kl")
    point = Categorical.one(0, 21)
    found = value(p, means, prior, 2000, 0.01, "kl")
    assert found <= value(point, means, prior, 2000, 0.01, "kl") + 1e-9


def test_a_prior_that_falls_to_nothing_gives_a_bound_all_the_same():
    prior = 0.5 ** np.arange(1, 701)
    costs = Costs(np.random.default_rng(0).random((20, 700)) < 0.3)
    certificate = learn_finite(costs, method="occam", prior=prior / prior.sum()).certificate
    assert 0 < certificate.bound <= 1


def test_a_policy_outside_the_prior_is_never_the_chosen_one():
    certificate = learn_finite(Costs([[1, 1], [1, 1]]), method="occam", prior=[0, 1]).certificate
    assert (certificate.policy, certificate.bound) == (1, 1)
