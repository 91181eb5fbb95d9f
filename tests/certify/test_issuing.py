"""Certificates from recorded costs, against the theorems written down once more in mpmath."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import chi2, multivariate_normal, norm

from origins import certifying, single_draw
from pacbayes_control.certify.certificate import Budget, Certificate, Constraint
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.files import sha256
from pacbayes_control.certify.issuing import (
    METHODS,
    PAC_BAYES,
    SAMPLING,
    Basis,
    Provenance,
    check_typical,
    issue,
    issue_sampled,
    issue_single_draw,
)
from pacbayes_control.certify.ranges import EnvironmentRange

mp: Any = mpmath.mp

DELTA, SAMPLING_DELTA = 0.05, 0.01
PRIOR = DiagonalGaussian([0.0, 0.0, 0.0], [1.0, 0.5, 2.0])
POSTERIOR = DiagonalGaussian([0.3, -0.2, 0.6], [0.5, 0.7, 1.2])
POLICY = np.array([0.1, -0.9, 1.3])
NEAR = POSTERIOR.mean + 0.02  # the posterior's mean, as near as a draw may come
LEARNT = Provenance("pinsker")


def kl_inverse(cost: Any, complexity: Any) -> Any:
    """The largest p with kl(cost‖p) ≤ complexity, by bisection with 40 digits."""
    mp.dps = 40
    q, low, high = mp.mpf(cost), mp.mpf(cost), mp.mpf(1)
    for _ in range(130):
        p = (low + high) / 2
        left = q * mp.log(q / p) if q > 0 else mp.mpf(0)
        right = (1 - q) * mp.log((1 - q) / (1 - p)) if q < 1 else mp.mpf(0)
        low, high = (p, high) if left + right <= complexity else (low, p)
    return high


def xi(n: int) -> Any:
    """Maurer's constant as he defines it."""
    mp.dps = 40
    total = mp.mpf(0)
    for k in range(n + 1):
        rate = mp.mpf(k) / n
        total += mp.binomial(n, k) * rate**k * (1 - rate) ** (n - k)
    return total


def integrated_kl(posterior: DiagonalGaussian, prior: DiagonalGaussian) -> float:
    """KL(posterior‖prior) by numerical integration, one parameter after the other."""
    total = 0.0
    for row in zip(posterior.mean, posterior.variance, prior.mean, prior.variance, strict=True):
        mean, variance, prior_mean, prior_variance = map(float, row)
        p: Any = norm(mean, variance**0.5)
        q: Any = norm(prior_mean, prior_variance**0.5)
        reach = 12 * variance**0.5
        total += quad(
            lambda x, p=p, q=q: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)),
            mean - reach,
            mean + reach,
            epsabs=1e-12,
        )[0]
    return total


def budget(**shares: float) -> Budget:
    """Shares by name, with - for _."""
    made = Budget(DELTA)
    for name, share in shares.items():
        made.spend(name.replace("_", "-"), share)
    return made


def sampled(
    values: NDArray,
    method: str = "kl",
    draws: str = "fresh",
    prior: DiagonalGaussian = PRIOR,
    posterior: DiagonalGaussian = POSTERIOR,
    provenance: Provenance = LEARNT,
) -> Certificate:
    shares = budget(sampling=SAMPLING_DELTA, **{method: DELTA - SAMPLING_DELTA})
    return issue_sampled(
        Basis(
            Costs(values, origin=certifying(posterior), draws=draws),
            prior,
            posterior,
            shares,
            provenance,
        ),
        method,
    )


def single(
    values: NDArray,
    policy: NDArray = POLICY,
    prior: DiagonalGaussian = PRIOR,
    posterior: DiagonalGaussian = POSTERIOR,
) -> Certificate:
    costs = Costs(values, origin=single_draw(posterior), parameters=policy[None])
    return issue_single_draw(Basis(costs, prior, posterior, budget(single_draw=DELTA), LEARNT))


@pytest.fixture
def failures() -> NDArray:
    """120 environments × 5 draws, about one failure in ten."""
    return np.random.default_rng(3).random((120, 5)) < 0.1


@pytest.fixture
def grades() -> NDArray:
    """80 environments × 3 draws with costs in [0, 1]."""
    return np.random.default_rng(4).beta(2, 9, size=(80, 3))


def matches(actual: float, exact: Any) -> bool:
    """The same to nine digits, and not below."""
    return bool(actual >= exact) and actual == pytest.approx(float(exact), abs=1e-9)


# ---- a Gaussian posterior, from draws -----------------------------------------------------------


@pytest.fixture(scope="module")
def kl() -> float:
    return integrated_kl(POSTERIOR, PRIOR)


@pytest.mark.parametrize("draws", ["fresh", "shared"])
@pytest.mark.parametrize("kind", ["failures", "grades"])
@pytest.mark.parametrize("method", list(PAC_BAYES))
def test_a_sampled_certificate_is_the_theorem_at_the_bound_on_the_training_cost(
    request: pytest.FixtureRequest, method: str, kind: str, draws: str, kl: float
):
    values = request.getfixturevalue(kind)
    n, columns = values.shape
    c = sampled(values, method, draws)
    independent = n * columns if draws == "fresh" else columns
    cost_bound = kl_inverse(float(values.mean()), -mp.log(mp.mpf(SAMPLING_DELTA)) / independent)
    assert c.training_cost_bound is not None
    assert matches(c.training_cost_bound, cost_bound)
    constant = xi(n) if method == "kl" else 2 * mp.sqrt(mp.mpf(n))
    share = mp.mpf(c.budget[method])
    complexity = (mp.mpf(kl) + mp.log(constant / share)) / n
    if method == "pinsker":
        bound = min(mp.mpf(1), cost_bound + mp.sqrt(complexity / 2))
    else:
        bound = kl_inverse(cost_bound, complexity)
    assert c.bound == pytest.approx(float(bound), abs=1e-9)
    assert c.kl == pytest.approx(kl, abs=1e-10)
    assert c.empirical_cost == pytest.approx(float(values.mean()), rel=1e-12)


def test_costs_of_zero_have_a_bound_in_closed_form():
    n, columns = 100, 4
    c = sampled(np.zeros((n, columns)), draws="fresh")
    # kl⁻¹(0, c) = 1 - e⁻ᶜ
    assert c.training_cost_bound == pytest.approx(1 - SAMPLING_DELTA ** (1 / (n * columns)))
    c = sampled(np.zeros((n, columns)), draws="shared")
    assert c.training_cost_bound == pytest.approx(1 - SAMPLING_DELTA ** (1 / columns))


def test_more_environments_do_not_help_draws_that_they_share():
    few, many = np.zeros((50, 4)), np.zeros((5000, 4))
    assert sampled(few, draws="shared").training_cost_bound == pytest.approx(
        sampled(many, draws="shared").training_cost_bound, rel=1e-10
    )
    assert sampled(many).training_cost_bound < 0.02 * sampled(few).training_cost_bound  # type: ignore[operator]


def test_shared_draws_cost_more_than_fresh_ones(failures: NDArray):
    assert sampled(failures, draws="shared").bound > sampled(failures, draws="fresh").bound


def test_a_sampled_certificate_says_what_it_counted(failures: NDArray):
    limit = Constraint.of({0: 1.0}, 0.5, None, name_of=str)
    told = Provenance("kl", "from a book", [limit])
    c = sampled(failures, "kl-maurer", "shared", provenance=told)
    assert (c.environments, c.draws, c.shared_draws, c.parameters) == (120, 5, True, 3)
    assert (c.policies, c.policy, c.policy_name) == (None, None, None)
    assert (c.method, c.delta, c.binary, c.noise, c.set_aside) == (
        "kl-maurer",
        DELTA,
        True,
        None,
        0,
    )
    assert (c.prior, c.objective, c.constraints) == ("from a book", "kl", (limit,))
    assert c.budget == {SAMPLING: SAMPLING_DELTA, "kl-maurer": DELTA - SAMPLING_DELTA}
    assert c.hashes["prior"] == sha256(PRIOR.to_bytes())
    assert c.hashes["posterior"] == sha256(POSTERIOR.to_bytes())
    assert c.hashes["costs"] == Costs(failures).digests["costs"]


def test_a_posterior_far_from_the_prior_gets_the_bound_one(failures: NDArray, grades: NDArray):
    far = DiagonalGaussian([400.0, 0.0, 0.0], 1.0)
    for values in (failures, grades):
        for method in PAC_BAYES:
            assert sampled(values, method, posterior=far).bound == 1


def test_costs_of_one_get_the_bound_one():
    c = sampled(np.ones((20, 3)))
    assert (c.empirical_cost, c.training_cost_bound, c.bound) == (1, 1, 1)


def test_the_prior_itself_has_no_divergence_to_pay_for(failures: NDArray):
    c = sampled(failures, posterior=PRIOR)
    assert c.kl == 0
    assert c.bound < sampled(failures).bound


def test_a_sampled_certificate_needs_costs_of_draws(failures: NDArray):
    shares = budget(sampling=0.01, kl=0.04)
    with pytest.raises(ValueError, match="certified from draws: use certify_posterior"):
        issue_sampled(Basis(Costs(failures), PRIOR, POSTERIOR, shares, LEARNT), "kl")


def test_gaussians_over_other_parameters_are_refused(failures: NDArray):
    other = DiagonalGaussian([0.0, 0.0], 1.0)
    with pytest.raises(ValueError, match="the posterior has 3 parameters and the prior 2"):
        sampled(failures, prior=other)
    with pytest.raises(ValueError, match="the posterior has 3 parameters and the prior 2"):
        single(failures[:, :1], prior=other)


def test_a_sampled_certificate_survives_json(grades: NDArray):
    c = sampled(grades)
    assert Certificate.from_dict(c.to_dict()) == c


# ---- the one policy that was drawn --------------------------------------------------------------


def log_density(gaussian: DiagonalGaussian, policy: NDArray) -> float:
    covariance: Any = np.diag(gaussian.variance)
    return float(multivariate_normal(gaussian.mean, covariance).logpdf(policy))


def exact_ratio(policy: NDArray) -> float:
    return log_density(POSTERIOR, policy) - log_density(PRIOR, policy)


@pytest.mark.parametrize("kind", ["failures", "grades"])
@pytest.mark.parametrize("policy", [POLICY, NEAR, np.array([-2.0, 1.0, 0.0])])
def test_a_single_draw_is_charged_the_ratio_of_the_densities(
    request: pytest.FixtureRequest, kind: str, policy: NDArray
):
    values = request.getfixturevalue(kind)[:, :1]
    n = len(values)
    c = single(values, policy)
    complexity = (mp.mpf(exact_ratio(policy)) + mp.log(xi(n) / mp.mpf(DELTA))) / n
    assert c.bound == pytest.approx(float(kl_inverse(float(values.mean()), complexity)), abs=1e-9)
    assert c.kl == pytest.approx(exact_ratio(policy), abs=1e-12)


def test_a_single_draw_that_never_failed_has_a_bound_in_closed_form():
    n = 64
    complexity = (exact_ratio(POLICY) + float(mp.log(xi(n) / mp.mpf(DELTA)))) / n
    assert single(np.zeros((n, 1))).bound == pytest.approx(1 - np.exp(-complexity), abs=1e-10)


def test_a_draw_that_the_prior_likes_better_is_charged_less_than_nothing(failures: NDArray):
    unlikely = np.array([-2.0, 1.0, 0.0])
    assert exact_ratio(unlikely) < 0
    assert single(failures[:, :1], unlikely).bound < single(failures[:, :1], NEAR).bound


def test_a_negative_complexity_counts_as_none():
    """An unlikely draw, once in a million, right where the prior is."""
    prior, posterior = DiagonalGaussian([5.0], 1.0), DiagonalGaussian([0.0], 1.0)
    values = np.repeat([[0.0], [1.0]], 50, axis=0)
    c = single(values, prior.mean, prior=prior, posterior=posterior)
    assert c.kl == pytest.approx(-12.5)
    assert c.kl < -float(mp.log(xi(100) / mp.mpf(DELTA)))
    assert c.bound == pytest.approx(0.5)
    assert c.bound >= 0.5


def test_a_single_draw_names_the_one_policy(failures: NDArray):
    c = single(failures[:, :1])
    assert (c.method, c.policy, c.parameters, c.policies) == ("single-draw", 0, 3, None)
    assert (c.draws, c.shared_draws, c.training_cost_bound) == (None, None, None)
    assert c.budget == {"single-draw": DELTA}
    assert (
        c.hashes["policies"] == Costs(failures[:, :1], parameters=POLICY[None]).digests["policies"]
    )


def test_a_single_draw_is_one_policy_of_known_weights(failures: NDArray):
    shares = budget(single_draw=DELTA)
    two = Costs(failures[:, :2], parameters=np.stack([POLICY, POLICY]))
    unknown = Costs(failures[:, :1])
    for costs in (two, unknown):
        with pytest.raises(ValueError, match="the costs of one policy, with its parameters"):
            issue_single_draw(Basis(costs, PRIOR, POSTERIOR, shares, LEARNT))


def test_a_single_draw_has_as_many_parameters_as_the_posterior(failures: NDArray):
    with pytest.raises(ValueError, match="a policy of 3 parameters is needed"):
        single(failures[:, :1], np.zeros(2))


@pytest.mark.parametrize(
    "policy",
    [
        POSTERIOR.mean,
        POSTERIOR.mean + 1e-4,
        POSTERIOR.mean + np.array([0, 0, 10]),
        POSTERIOR.mean + 1e10,
        np.full(3, 1e200),
        np.array([0.1, 1e308, -1e308]),
    ],
    ids=["the mean", "all but the mean", "far", "farther", "the square overflows", "the end"],
)
def test_a_policy_that_no_draw_is_like_is_refused(failures: NDArray, policy: NDArray):
    with pytest.raises(ValueError, match="the policy is not a draw from the posterior"):
        single(failures[:, :1], policy)


@pytest.mark.parametrize("policy", [PRIOR.mean, np.zeros(300)])
def test_the_mean_of_a_prior_that_is_the_posterior_too_is_no_draw(policy: NDArray):
    prior = DiagonalGaussian(policy, 1.0)
    with pytest.raises(ValueError, match="the policy is not a draw from the posterior"):
        single(np.zeros((50, 1)), policy, prior=prior, posterior=prior)


@pytest.mark.parametrize("size", [1, 2, 3, 20, 500, 5000])
def test_draws_from_the_posterior_are_never_taken_for_others(size: int):
    rng = np.random.default_rng(size)
    posterior = DiagonalGaussian(rng.normal(size=size), 10 ** rng.uniform(-6, 3, size))
    for policy in posterior.sample(rng, 300):
        check_typical(posterior, policy)


@pytest.mark.parametrize("size", [1, 3, 40, 1000])
def test_a_thousand_million_draws_have_one_that_is_refused(size: int):
    """Half of it at either side: the χ² is placed just inside of the limits, and just outside."""
    posterior = DiagonalGaussian(np.full(size, 2.0), 0.25)
    for limit, out in ((chi2(size).ppf(5e-10), 1 - 1e-6), (chi2(size).isf(5e-10), 1 + 1e-6)):
        at_limit = 0.5 * np.sqrt(limit / size)
        check_typical(posterior, 2 + np.full(size, at_limit / out))
        with pytest.raises(ValueError, match="the policy is not a draw from the posterior"):
            check_typical(posterior, 2 + np.full(size, at_limit * out))


# ---- what all of them say -----------------------------------------------------------------------


def test_the_sentences_say_who_is_certified(failures: NDArray, grades: NDArray):
    assert sampled(np.zeros((3000, 4))).sentence == (
        "With confidence 95 %, a policy drawn afresh from the posterior over 3 parameters fails in "
        "at most 0.39 % of new environments drawn like the 3000 it was learnt from; it is assumed "
        "that trials only succeed or fail."
    )
    assert "the one policy drawn from the posterior over 3 parameters fails" in (
        single(failures[:, :1]).sentence
    )
    assert "has an expected cost of at most 0." in sampled(grades).sentence
    assert "has an expected cost of at most 0." in single(grades[:, :1]).sentence


def test_environments_set_aside_change_what_the_sentence_claims(failures: NDArray):
    origin = {
        **certifying(POSTERIOR),
        "task": "t",
        "stream": "train",
        "seed": 0,
        "start": 30,
        "stop": 150,
    }
    prior = PRIOR.with_data_used(
        EnvironmentRange("train", 0, 0, 20), EnvironmentRange("train", 0, 150, 160)
    )
    prior = prior.with_data_used(
        EnvironmentRange("train", 1, 0, 7), EnvironmentRange("elsewhere", 0, 0, 9)
    )
    shares = budget(sampling=0.01, kl=0.04)
    c = issue_sampled(
        Basis(Costs(failures, origin=origin, draws="fresh"), prior, POSTERIOR, shares, LEARNT), "kl"
    )
    assert c.set_aside == 30
    assert "drawn like the 120 it was certified on; it is assumed" in c.sentence


def test_noise_of_the_rollouts_is_told(failures: NDArray):
    origin = certifying(POSTERIOR) | {
        "noise": {"stream": "certify noise", "seed": 0, "of": "wheel slip 0.1"}
    }
    costs = Costs(failures, origin=origin, draws="fresh")
    shares = budget(sampling=0.01, kl=0.04)
    c = issue_sampled(Basis(costs, PRIOR, POSTERIOR, shares, LEARNT), "kl")
    assert c.noise == "wheel slip 0.1"
    assert c.sentence.endswith(
        "it was learnt from"
        ", averaged over noise drawn independently of the policy (“wheel slip 0.1”)"
        "; it is assumed that trials only succeed or fail."
    )
    finite = issue(
        Basis(
            Costs(failures, origin=origin),
            Categorical.uniform(5),
            Categorical.uniform(5),
            budget(kl=0.05),
            LEARNT,
        ),
        "kl",
    )
    assert finite.noise == "wheel slip 0.1"


def test_a_finite_posterior_has_no_fields_of_a_gaussian_one(failures: NDArray):
    uniform = Categorical.uniform(5)
    for method in METHODS:
        posterior = Categorical.one(2, 5) if method == "occam" else uniform
        basis = Basis(Costs(failures), uniform, posterior, budget(**{method: 0.05}), LEARNT)
        c = issue(basis, method, stake=1.0 if method == "betting" else None)
        assert (c.policies, c.policy) == (5, 2 if method == "occam" else None)
        assert (c.parameters, c.draws, c.shared_draws, c.training_cost_bound) == (None,) * 4


def test_each_theorem_takes_its_own_share_of_the_budget(failures: NDArray):
    """A smaller share for sampling loosens that step, and no other."""
    costs = Costs(failures, origin=certifying(POSTERIOR), draws="fresh")
    few, much = budget(sampling=0.001, kl=0.04), budget(sampling=0.01, kl=0.04)
    loose = issue_sampled(Basis(costs, PRIOR, POSTERIOR, few, LEARNT), "kl")
    tight = issue_sampled(Basis(costs, PRIOR, POSTERIOR, much, LEARNT), "kl")
    assert loose.training_cost_bound > tight.training_cost_bound  # type: ignore[operator]
    for c in (loose, tight):
        complexity = (mp.mpf(c.kl) + mp.log(xi(120) / mp.mpf("0.04"))) / 120
        assert c.bound == pytest.approx(
            float(kl_inverse(c.training_cost_bound, complexity)), abs=1e-9
        )


def test_a_budget_without_a_share_for_sampling_is_refused(failures: NDArray):
    costs = Costs(failures, origin=certifying(POSTERIOR), draws="fresh")
    with pytest.raises(ValueError, match="a share for sampling and one for the method kl"):
        issue_sampled(Basis(costs, PRIOR, POSTERIOR, budget(kl=0.01), LEARNT), "kl")
    with pytest.raises(ValueError, match="one for the method occam"):
        issue_sampled(
            Basis(costs, PRIOR, POSTERIOR, budget(occam=0.01, sampling=0.01), LEARNT), "occam"
        )


def test_draws_from_a_posterior_are_not_policies(failures: NDArray):
    uniform = Categorical.uniform(failures.shape[1])
    with pytest.raises(ValueError, match="costs of draws from a posterior"):
        issue(
            Basis(Costs(failures, draws="fresh"), uniform, uniform, budget(kl=0.01), LEARNT), "kl"
        )


def test_distributions_beyond_the_range_of_numbers_are_refused(failures: NDArray):
    far = DiagonalGaussian([1e200, 0.0, 0.0], 1.0)
    with pytest.raises(ValueError, match="so far from the prior that their divergence overflows"):
        sampled(failures, posterior=far)
