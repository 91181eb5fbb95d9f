"""Whether the certificates of continuous policies keep their promise, where the truth is known.

The problem: a policy w has one number for each of d lanes. An environment is a lane j, a side
s = ±1 that is 1 with probability `lean`, and a threshold t ~ N(0, τ²); a policy fails if s·wⱼ < t.
For w ~ N(μ, diag(v)), both what the posterior costs in given environments and what it costs in a
new one are normal distribution functions:

    C_S(P) = mean over i of Φ((tᵢ - sᵢ μⱼ)/√vⱼ),
    C_D(P) = mean over j of lean·Φ(-μⱼ/√(vⱼ+τ²)) + (1-lean)·Φ(μⱼ/√(vⱼ+τ²)).

With as many lanes as environments, whoever votes for the side seen most often in each lane learns
the data by heart. Where thresholds are noise of the rollouts, not of the environments, C_D is the
same. As in test_coverage.py, violations are counted, and bounds that are wrong must be caught.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from covering import CERTIFICATES, covers
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pacbayes_control.bounds import (
    clopper_pearson,
    fresh_draws,
    maurer,
    maurer_xi,
    mcallester_pinsker,
    shared_draws,
    single_draw,
)
from pacbayes_control.bounds.betting import betting_draws, betting_holdout
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn import Plan, certify_draw, learn_family, learn_finite, learn_gaussian
from pacbayes_control.learn.gaussian import certify_posterior, split_budget
from pacbayes_control.learn.priors import GaussianPrior, scaled, set_aside
from pacbayes_control.learn.search import SearchSettings
from pacbayes_control.rollouts import evaluate, sample_costs
from pacbayes_control.tasks import Environments, Noise
from sizes import sized

Floats = NDArray[np.float64]

pytestmark = pytest.mark.slow

DATA_SETS = sized(1000, full=2000)
SEARCHES = sized(60, full=300)  # data sets where each needs a search
TELLING = 300  # and those where mistakes hardly more likely than 0.4 must show
DELTA = 0.2


# ---- the problem --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lanes:
    """The problem as a task; `noisy` moves the thresholds from environments to rollouts."""

    lanes: int = 30
    lean: float = 0.6
    spread: float = 0.5  # τ
    noisy: bool = False

    @property
    def name(self) -> str:
        return "lanes"

    @property
    def noise_kind(self) -> str:
        return "the thresholds" if self.noisy else ""

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        return Environments(self._draw, repr(self), stream, seed, 0, n)

    def costs(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray:
        drawn = environments.arrays()
        lane, side = drawn["lane"], drawn["side"]
        if policies.ndim == 2:
            chosen = policies[:, lane].T
        else:
            chosen = policies[np.arange(len(lane)), :, lane]
        if noise is None:
            return side[:, None] * chosen < drawn["threshold"][:, None]
        keys = noise.keys(environments, policies.shape[-2])
        return side[:, None] * chosen < self.spread * ndtri((keys >> 11) * 2.0**-53 + 2.0**-54)

    def truth(self, mean: NDArray, variance: NDArray | float = 0.0) -> Any:
        """C_D of posteriors, or of single policies where the variance is 0; (…, lanes) to (…)."""
        fails = ndtr(-np.asarray(mean) / np.sqrt(variance + self.spread**2))
        return np.mean(self.lean * fails + (1 - self.lean) * (1 - fails), axis=-1)

    def data_sets(self, seed: int, n: int, count: int = DATA_SETS) -> dict[str, NDArray]:
        """Many sets of n environments at once; shape (data sets, n) each."""
        drawn = self._draw(np.random.default_rng(seed), count * n)
        return {name: array.reshape(count, n) for name, array in drawn.items()}

    def _draw(self, rng: np.random.Generator, size: int) -> dict[str, NDArray]:
        lane = rng.integers(self.lanes, size=size)
        side = np.where(rng.random(size) < self.lean, 1, -1)
        return {"lane": lane, "side": side, "threshold": self.spread * rng.standard_normal(size)}


def training_costs(data: dict[str, NDArray], mean: Floats, variance: float) -> Floats:
    """E_{w∼P} C(w, Eᵢ) for each environment; means (data sets, lanes) to (data sets, n)."""
    aimed = data["side"] * np.take_along_axis(mean, data["lane"], axis=1)
    return ndtr((data["threshold"] - aimed) / np.sqrt(variance))


def votes(data: dict[str, NDArray], lanes: int) -> Floats:
    """The side seen more often in each lane, 0 where there is none; shape (data sets, lanes)."""
    count = len(data["lane"])
    totals = np.zeros((count, lanes))
    np.add.at(totals, (np.arange(count)[:, None], data["lane"]), data["side"])
    return np.sign(totals)


def divergence(
    mean: Floats, variance: float, prior_mean: Floats | float = 0.0, prior_variance: float = 1.0
) -> Floats:
    """KL between Gaussians of equal variances in all lanes; shape (data sets,)."""
    ratio, away = variance / prior_variance, np.sum((mean - prior_mean) ** 2, axis=1)
    return (mean.shape[1] * (ratio - 1 - np.log(ratio)) + away / prior_variance) / 2


def test_the_truth_is_what_it_is_said_to_be():
    rng = np.random.default_rng(400)
    for noisy in (False, True):
        task = Lanes(lanes=4, lean=0.7, noisy=noisy)
        posterior = DiagonalGaussian([1.0, -0.5, 0.2, 0.0], [0.3, 1.0, 0.1, 2.0])
        fresh = sample_costs(task, posterior, task.environments(10_000, "truth"), 4)
        # Costs in [0, 1] of 10,000 environments: their mean has a deviation of 0.005 at most.
        truth = float(task.truth(posterior.mean, posterior.variance))
        assert abs(float(fresh.means.mean()) - truth) < 0.02
        policies = rng.normal(size=(6, 4))
        means = evaluate(task, policies, task.environments(10_000, "truth")).means
        assert np.all(np.abs(means - task.truth(policies)) < 0.025)


def test_the_training_cost_is_what_it_is_said_to_be():
    task = Lanes(lanes=4)
    environments = task.environments(50, "train")
    mean, variance = np.array([1.0, -0.5, 0.2, 0.0]), 0.7
    arrays = {name: array[None] for name, array in environments.arrays().items()}
    exact = training_costs(arrays, mean[None], variance)[0]
    drawn = sample_costs(task, DiagonalGaussian(mean, variance), environments, 4000)
    assert np.all(np.abs(drawn.values.mean(axis=1) - exact) < 0.05)
    assert abs(float(drawn.means.mean()) - exact.mean()) < 6 * np.sqrt(0.25 / drawn.values.size)


def test_divergences_are_the_library_s():
    mean = np.random.default_rng(401).normal(size=(3, 5))
    prior = DiagonalGaussian(np.full(5, 0.3), 0.8)
    expected = [DiagonalGaussian(row, 0.2).kl(prior) for row in mean]
    np.testing.assert_allclose(divergence(mean, 0.2, 0.3, 0.8), expected)


# ---- what sampling misses -----------------------------------------------------------------------


def uneven_training(n: int) -> Floats:
    """Expected costs of a posterior in n environments that are anything but alike."""
    return np.sort(np.random.default_rng(402).beta(0.3, 0.6, n))


@pytest.mark.parametrize("draws", [1, 3, 20])
@pytest.mark.parametrize("graded", [False, True])
def test_fresh_draws_in_environments_that_differ_are_covered(draws, graded):
    expected = uneven_training(30)
    rng = np.random.default_rng(403)
    if graded:  # a Beta distribution of the same mean in each environment
        values = rng.beta(expected, 1 - expected, (DATA_SETS, draws, 30)).mean(axis=(1, 2))
    else:
        values = rng.binomial(draws, expected, (DATA_SETS, 30)).mean(axis=1) / draws
    bounds = fresh_draws(values, 30 * draws, DELTA)
    assert covers(bounds < expected.mean(), DELTA)
    assert np.mean(bounds) < 0.9


def graded_draws(draws: int) -> tuple[Floats, float]:
    """Costs between 0 and 1 of fresh draws, (data sets, environments, draws); and their mean."""
    expected = uneven_training(30)
    rng, shape = np.random.default_rng(407), (DATA_SETS, 30, draws)
    return rng.beta(4 * expected[:, None], 4 * (1 - expected)[:, None], shape), expected.mean()


@pytest.mark.parametrize("draws", [1, 3, 20])
def test_bets_on_graded_draws_in_environments_that_differ_are_covered(draws):
    tables, expected = graded_draws(draws)
    bounds = np.array([betting_draws(costs, DELTA) for costs in tables])
    assert covers(bounds < expected, DELTA)
    assert np.mean(bounds) < np.mean(fresh_draws(tables.mean(axis=(1, 2)), 30 * draws, DELTA))


def bets_from_environment_to_environment() -> Any:
    tables, expected = graded_draws(20)
    return (
        np.array([betting_holdout(costs.ravel(), DELTA) for costs in tables[:TELLING]]) < expected
    )


def stakes_that_learn_within_a_draw() -> Any:
    tables, expected = graded_draws(3)
    return (
        np.array([betting_holdout(costs.T.ravel(), DELTA) for costs in tables[:TELLING]]) < expected
    )


def shared_estimates(policies: int, threshold_spread: float = 0.5) -> tuple[Floats, float]:
    """Estimates by policies shared among 50 environments with one lane, and what they estimate."""
    rng = np.random.default_rng(404)
    thresholds = threshold_spread * rng.standard_normal(50)
    drawn = 0.5 + rng.standard_normal((DATA_SETS, policies))
    estimates = np.mean(drawn[..., None] < thresholds, axis=(1, 2))
    return estimates, float(ndtr(thresholds - 0.5).mean())


@pytest.mark.parametrize("policies", [2, 10, 40])
@pytest.mark.parametrize("threshold_spread", [0.0, 0.5, 3.0])
def test_shared_draws_are_covered(policies, threshold_spread):
    estimates, expected = shared_estimates(policies, threshold_spread)
    assert covers(shared_draws(estimates, policies, DELTA) < expected, DELTA)


def shared_draws_counted_as_independent() -> Any:
    estimates, expected = shared_estimates(10)
    return fresh_draws(estimates, 10 * 50, DELTA) < expected


def estimate_used_as_the_training_cost() -> Any:
    expected = uneven_training(30)
    rng = np.random.default_rng(405)
    return rng.binomial(10, expected, (DATA_SETS, 30)).mean(axis=1) / 10 < expected.mean()


def posterior_chosen_by_its_certifying_draws() -> Any:
    """The best of 50 posteriors that cost the same, by estimates from the certifying draws."""
    expected = np.linspace(0.2, 0.6, 30)
    rng = np.random.default_rng(406)
    best = np.full(DATA_SETS, np.inf)
    for _ in range(50):
        best = np.minimum(best, rng.binomial(4, expected, (DATA_SETS, 30)).mean(axis=1) / 4)
    return fresh_draws(best, 30 * 4, DELTA) < expected.mean()


# ---- a Gaussian posterior, learnt and sampled ---------------------------------------------------

N, TASK = 40, Lanes(lanes=40, lean=0.5, spread=0.3)
POSTERIORS = [(0.0, 1.0), (0.5, 0.6), (1.0, 0.4), (1.0, 0.1), (2.0, 0.1), (2.0, 0.02)]
SAMPLING_DELTA = 0.1 * DELTA
BOUNDS = [maurer_xi, maurer, mcallester_pinsker]


@cache
def learnt() -> tuple[Floats, Floats, Floats, Floats]:
    """For posteriors from the prior to the votes by heart: costs in each training environment,
    KL, C_D and C_S; shapes (posteriors, data sets, n) and (posteriors, data sets)."""
    data = TASK.data_sets(407, N)
    voted = votes(data, TASK.lanes)
    rows = [(training_costs(data, a * voted, v), divergence(a * voted, v)) for a, v in POSTERIORS]
    costs, kl = (np.stack(part) for part in zip(*rows, strict=True))
    truth = np.stack([TASK.truth(a * voted, v) for a, v in POSTERIORS])
    return costs, kl, truth, costs.mean(axis=2)


def chosen_and_sampled(choose: Callable[..., Floats], draws: int = 3) -> tuple[Floats, ...]:
    """The posterior with the lowest score in each data set, and then its costs in fresh draws.

    The estimate, KL and C_D; shape (data sets,) each.
    """
    costs, kl, truth, training = learnt()
    best, every = np.argmin(choose(training, kl, truth), axis=0), np.arange(DATA_SETS)
    rng = np.random.default_rng(408)
    estimate = rng.binomial(draws, costs[best, every]).mean(axis=1) / draws
    return estimate, kl[best, every], truth[best, every]


def final_bound(bound: Callable[..., Floats], estimate: Floats, kl: Floats, draws: int = 3) -> Any:
    """The paper's eq. 24, with fresh draws."""
    training = fresh_draws(estimate, N * draws, SAMPLING_DELTA)
    return bound(training, kl, N, DELTA - SAMPLING_DELTA)


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_certificate_of_the_posterior_that_minimises_the_bound_holds(bound):
    def score(training: Floats, kl: Floats, _: Floats) -> Floats:
        return bound(training, kl, N, DELTA - SAMPLING_DELTA)

    estimate, kl, truth = chosen_and_sampled(score)
    assert covers(final_bound(bound, estimate, kl) < truth, DELTA)


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_certificate_of_an_adversary_who_knows_the_truth_holds(bound):
    def score(training: Floats, kl: Floats, truth: Floats) -> Floats:
        return bound(training, kl, N, DELTA - SAMPLING_DELTA) - truth

    estimate, kl, truth = chosen_and_sampled(score)
    assert covers(final_bound(bound, estimate, kl) < truth, DELTA)


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_theorem_holds_for_all_posteriors_at_once_where_nothing_is_sampled(bound):
    _, kl, truth, training = learnt()
    assert covers(np.any(bound(training, kl, N, DELTA) < truth, axis=0), DELTA)


def divergence_dropped() -> Any:
    """The posterior that looks best, certified as if it had been the prior."""
    estimate, kl, truth = chosen_and_sampled(lambda training, _, __: training)
    return final_bound(maurer_xi, estimate, np.zeros_like(kl)) < truth


def variance_multiplied_in_place_of_divided() -> Any:
    """A wrong divergence: (μ-μ₀)²·s₀ in place of (μ-μ₀)²/s₀, with a prior of variance 0.1."""
    task, prior_variance = Lanes(lanes=40, lean=0.5, spread=0.1), 0.1
    data = task.data_sets(409, N)
    mean = votes(data, task.lanes)
    costs = training_costs(data, mean, prior_variance).mean(axis=1)
    wrong = np.sum(mean**2, axis=1) * prior_variance / 2
    return maurer_xi(costs, wrong, N, DELTA) < task.truth(mean, prior_variance)


# ---- from environments to a certificate ---------------------------------------------------------


def voted_posterior(
    environments: Environments, lanes: int, size: float = 1.0, variance: float = 0.3
) -> DiagonalGaussian:
    """A posterior that looks at the environments."""
    data = {name: array[None] for name, array in environments.arrays().items()}
    return DiagonalGaussian(size * votes(data, lanes)[0], variance)


def violations(
    task: Lanes,
    certify: Callable[[Environments, int], tuple[float, Any]],
    n: int = 30,
    data_sets: int = CERTIFICATES,
) -> NDArray[np.bool_]:
    """Where bounds on sets of n environments, each with a seed of its own, are wrong.

    `certify` returns the bound and what it is for: a posterior, or a policy.
    """
    wrong = []
    for seed in range(data_sets):
        bound, what = certify(task.environments(n, "train", seed), seed)
        if isinstance(what, DiagonalGaussian):
            truth = task.truth(what.mean, what.variance)
        else:
            truth = task.truth(what)
        wrong.append(bound < truth)
    return np.array(wrong)


def standard(lanes: int) -> GaussianPrior:
    return GaussianPrior(DiagonalGaussian(np.zeros(lanes), 1.0))


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_the_certificate_of_a_posterior_that_votes_holds(noisy, shared):
    task = Lanes(noisy=noisy)
    prior, methods = standard(task.lanes), ("kl", "kl-maurer", "pinsker")

    def certify(environments: Environments, seed: int) -> tuple[float, Any]:
        posterior = voted_posterior(environments, task.lanes, *((1.0, 0.3), (0.3, 0.9))[seed % 2])
        method = methods[seed % 3]
        budget = split_budget(DELTA, method)
        draws = 8 if shared else 2
        run = certify_posterior(
            task,
            environments,
            prior,
            posterior,
            budget=budget,
            plan=Plan(method=method, objective="kl", draws=draws, shared_draws=shared, seed=seed),
        )
        assert run.certificate.noise == ("the thresholds" if noisy else None)
        return run.certificate.bound, posterior

    assert covers(violations(task, certify), DELTA)


@dataclass(frozen=True)
class GradedLanes(Lanes):
    """The same task, which declares that costs between 0 and 1 may occur."""

    graded: bool = True


def test_the_certificate_of_draws_that_are_declared_as_graded_holds():
    task = GradedLanes(lanes=40, lean=0.5, spread=0.3)
    prior, budget = standard(task.lanes), split_budget(DELTA, "kl")

    def certify(environments: Environments, seed: int) -> tuple[float, Any]:
        posterior = voted_posterior(environments, task.lanes, 2.0, 0.02)
        plan = Plan(draws=5, seed=seed)
        run = certify_posterior(task, environments, prior, posterior, budget=budget, plan=plan)
        assert run.certificate.grid is not None
        return run.certificate.bound, posterior

    assert covers(violations(task, certify, N), DELTA)


@pytest.mark.parametrize("noisy", [False, True])
def test_the_certificate_of_a_search_holds(noisy):
    task = Lanes(lanes=6, lean=0.8, noisy=noisy)
    settings = SearchSettings(pairs=6, steps=5, step_size=0.4)

    def certify(environments: Environments, seed: int) -> tuple[float, Any]:
        run = learn_gaussian(
            task, environments, standard(6), Plan(delta=DELTA, search=settings, draws=2, seed=seed)
        )
        return run.certificate.bound, run.posterior

    assert covers(violations(task, certify, data_sets=SEARCHES), DELTA, SEARCHES)


def learnt_by_heart() -> NDArray[np.bool_]:
    """Certificates of a posterior that is sure of its votes, where there is nothing to learn."""

    def certify(environments: Environments, seed: int) -> tuple[float, Any]:
        posterior = voted_posterior(environments, TASK.lanes, 2.0, 0.02)
        budget, prior = split_budget(DELTA, "kl"), standard(TASK.lanes)
        run = certify_posterior(
            TASK, environments, prior, posterior, budget=budget, plan=Plan(draws=10, seed=seed)
        )
        return run.certificate.bound, posterior

    return violations(TASK, certify, N)


def one_shared_policy() -> NDArray[np.bool_]:
    """Certificates of a prior half of whose policies are good, from one draw for all environments.

    If the draw is good, the estimate is 0.05 in place of 0.5, however many the environments.
    """
    task, prior = Lanes(lanes=1, lean=0.95, spread=0.1), standard(1)

    def certify(environments: Environments, seed: int) -> tuple[float, Any]:
        budget, posterior = split_budget(DELTA, "kl"), prior.distribution
        run = certify_posterior(
            task,
            environments,
            prior,
            posterior,
            budget=budget,
            plan=Plan(draws=1, shared_draws=True, seed=seed),
        )
        return run.certificate.bound, posterior

    return violations(task, certify, 100, TELLING)


@pytest.mark.parametrize("hard", [learnt_by_heart, one_shared_policy])
def test_certificates_hold_where_a_mistake_would_show(hard):
    assert covers(hard(), DELTA)


def with_a_mistake(certificates: Callable[[], Any], what: str, mistake: Callable) -> Any:
    """The same certificates, issued with a part of the library replaced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(what, mistake)
        return certificates()


def certificates_without_divergence() -> Any:
    kl = "pacbayes_control.certify.distributions.DiagonalGaussian.kl"
    return with_a_mistake(learnt_by_heart, kl, lambda *_: 0.0)


def certificates_that_count_shared_draws_as_fresh() -> Any:
    def mistake(estimate: float, policies: int, delta: float) -> Floats:
        return fresh_draws(estimate, 100 * policies, delta)

    return with_a_mistake(one_shared_policy, "pacbayes_control.bounds.shared_draws", mistake)


def certificates_that_take_the_estimate_as_exact() -> Any:
    draws = "pacbayes_control.bounds.shared_draws"
    return with_a_mistake(one_shared_policy, draws, lambda estimate, *_: estimate)


# ---- priors from a part of the data -------------------------------------------------------------

PART = 32  # of the N environments, which the prior has seen


def halves(data: dict[str, NDArray]) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """What the prior has seen, and the rest."""
    return (
        {name: array[:, :PART] for name, array in data.items()},
        {name: array[:, PART:] for name, array in data.items()},
    )


@pytest.mark.parametrize("towards_the_rest", [0.0, 0.3, 1.0])
def test_a_prior_from_a_part_of_the_data_is_free_where_the_rest_is_counted(towards_the_rest):
    """The posterior may look at all of the data; r̂ and N are those of the rest."""
    data = TASK.data_sets(412, N)
    seen, rest = halves(data)
    prior = votes(seen, TASK.lanes)
    posterior = (1 - towards_the_rest) * prior + towards_the_rest * votes(data, TASK.lanes)
    kl = divergence(posterior, 0.2, prior, 0.2)
    costs = training_costs(rest, posterior, 0.2).mean(axis=1)
    violated = maurer_xi(costs, kl, N - PART, DELTA) < TASK.truth(posterior, 0.2)
    assert covers(violated, DELTA)


def part_that_the_prior_has_seen_counted_again() -> Any:
    data = TASK.data_sets(412, N)
    prior = votes(halves(data)[0], TASK.lanes)
    costs = training_costs(data, prior, 0.1).mean(axis=1)
    return maurer_xi(costs, 0.0, N, DELTA) < TASK.truth(prior, 0.1)


def rest_counted_with_the_size_of_the_whole() -> Any:
    """r̂ of the rest, but N of all: the part that was set aside has not gone away."""
    task = Lanes(lanes=1, lean=0.5, spread=0.1)
    data = task.data_sets(413, 1000)
    rest = {name: array[:, 990:] for name, array in data.items()}
    prior = votes({name: array[:, :990] for name, array in data.items()}, 1)
    costs = training_costs(rest, prior, 0.01).mean(axis=1)
    return maurer_xi(costs, 0.0, 1000, DELTA) < task.truth(prior, 0.01)


def test_the_certificate_with_a_prior_from_a_part_holds_and_the_rest_is_all_it_may_count():
    task = Lanes(lanes=20)

    def certify(environments: Environments, seed: int) -> tuple[float, Any]:
        part, rest = set_aside(environments, 0.6)
        prior = GaussianPrior(voted_posterior(part, task.lanes).with_data_used(part.range), "votes")
        posterior = voted_posterior(rest, task.lanes, 0.3) if seed % 2 else prior.distribution
        budget = split_budget(DELTA, "kl")
        with pytest.raises(ValueError, match="prior has seen some"):
            certify_posterior(
                task, environments, prior, posterior, budget=budget, plan=Plan(draws=1)
            )
        run = certify_posterior(
            task, rest, prior, posterior, budget=budget, plan=Plan(draws=1, seed=seed)
        )
        assert (run.certificate.environments, run.certificate.set_aside) == (16, 24)
        return run.certificate.bound, posterior

    assert covers(violations(task, certify, 40), DELTA)


# ---- one of several priors ----------------------------------------------------------------------
# One narrow prior for each way to choose a side in each of 20 lanes, a million in all. Posteriors
# are priors, so KL = 0; the best of the family is the one that votes.

CORNERS = Lanes(lanes=20, lean=0.5, spread=0.05)


@cache
def best_corner() -> tuple[Floats, Floats]:
    """C_S and C_D of the best of the family in each data set."""
    data = CORNERS.data_sets(414, N)
    voted = votes(data, CORNERS.lanes)
    corner = np.where(voted == 0, 1.0, voted)
    return training_costs(data, corner, 0.01).mean(axis=1), CORNERS.truth(corner, 0.01)


def test_the_best_of_a_family_of_priors_is_covered_at_its_share():
    costs, truth = best_corner()
    share = split_budget(DELTA, "kl", priors=2**20).spent["kl"]
    assert share <= DELTA / 2**20
    bounds = maurer_xi(costs, 0.0, N, share)
    assert covers(bounds < truth, DELTA)
    assert np.mean(bounds) < 0.9


def best_of_a_family_at_the_full_delta() -> Any:
    costs, truth = best_corner()
    return maurer_xi(costs, 0.0, N, DELTA) < truth


def test_the_certificate_of_the_best_of_several_variances_holds():
    task = Lanes(lanes=6, lean=0.8)
    family = scaled(standard(6), (0.04, 0.25, 1.0))
    settings = SearchSettings(pairs=4, steps=3, step_size=0.5)

    def certify(environments: Environments, seed: int) -> tuple[float, Any]:
        run = learn_family(
            task, environments, family, Plan(delta=DELTA, search=settings, draws=2, seed=seed)
        )
        assert sum(run.certificate.budget.values()) <= DELTA * (1 + 1e-9)
        return run.certificate.bound, run.posterior

    assert covers(violations(task, certify, data_sets=SEARCHES), DELTA, SEARCHES)


# ---- one policy drawn from a posterior ----------------------------------------------------------


def log_ratio(policy: Floats, mean: Floats, variance: float) -> Floats:
    """ln of the density of N(mean, variance) over that of N(0, 1); shape (data sets,)."""
    here = (policy - mean) ** 2 / variance + np.log(variance)
    return np.sum(policy**2 - here, axis=1) / 2


@pytest.mark.parametrize(("size", "variance"), POSTERIORS)
def test_a_single_draw_is_covered(size, variance):
    data = TASK.data_sets(415, N)
    mean = size * votes(data, TASK.lanes)
    noise = np.random.default_rng(416).standard_normal(mean.shape)
    policy = mean + np.sqrt(variance) * noise
    aimed = data["side"] * np.take_along_axis(policy, data["lane"], axis=1)
    costs = np.mean(aimed < data["threshold"], axis=1)
    bounds = single_draw(costs, log_ratio(policy, mean, variance), N, DELTA)
    assert covers(bounds < TASK.truth(policy), DELTA)


@pytest.mark.parametrize("noisy", [False, True])
def test_the_certificate_of_a_single_draw_holds(noisy):
    task = Lanes(noisy=noisy)
    prior = standard(task.lanes)

    def certify(environments: Environments, seed: int) -> tuple[float, Any]:
        posterior = voted_posterior(environments, task.lanes, *((1.0, 0.3), (0.2, 0.9))[seed % 2])
        run = certify_draw(task, environments, prior, posterior, plan=Plan(delta=DELTA, seed=seed))
        assert run.costs.parameters is not None
        return run.certificate.bound, run.costs.parameters[0]

    assert covers(violations(task, certify), DELTA)


def best_of_many_draws() -> Any:
    """The best of 2000 draws from the prior, where every policy fails every other time.

    Only the signs of a policy matter where the thresholds are 0; the ratio of densities is 1.
    """
    n, lanes, count = 20, 20, 400
    data = Lanes(lanes, 0.5, 0.0).data_sets(417, n, count)
    totals = np.zeros((count, lanes))
    np.add.at(totals, (np.arange(count)[:, None], data["lane"]), data["side"])
    signs = np.sign(np.random.default_rng(418).standard_normal((lanes, 2000)))
    best = np.min((1 - totals @ signs / n) / 2, axis=1)
    return single_draw(best, 0.0, n, DELTA) < 0.5


def draw_certified_without_the_ratio() -> Any:
    data = TASK.data_sets(415, N)
    policy = 2 * votes(data, TASK.lanes)
    policy += 0.1 * np.random.default_rng(419).standard_normal(policy.shape)
    aimed = data["side"] * np.take_along_axis(policy, data["lane"], axis=1)
    costs = np.mean(aimed < data["threshold"], axis=1)
    return single_draw(costs, 0.0, N, DELTA) < TASK.truth(policy)


# ---- rollouts with noise of their own -----------------------------------------------------------


@pytest.mark.parametrize("method", ["kl", "kl-maurer", "pinsker", "occam"])
def test_noisy_costs_of_finitely_many_policies_are_counted_as_they_are(method):
    """The bound is on the mean over environments and noise."""
    task = Lanes(lanes=8, lean=0.55, noisy=True)
    policies = np.random.default_rng(420).normal(size=(60, 8))
    truths, wrong = task.truth(policies), []
    for seed in range(CERTIFICATES):
        costs = evaluate(task, policies, task.environments(40, "train", seed))
        assert costs.noise == "the thresholds"
        run = learn_finite(costs, DELTA, method=method)
        wrong.append(run.certificate.bound < run.posterior.probabilities @ truths)
    assert covers(np.array(wrong), DELTA)


def noise_drawn_again_until_it_looks_good() -> Any:
    """One policy, certified with the best of 30 draws of the noise in the same environments."""
    task = Lanes(lanes=8, lean=0.55, noisy=True)
    policy, n = np.full((1, 8), 0.2), 40
    wrong = []
    for seed in range(CERTIFICATES):
        environments = task.environments(n, "train", seed)
        repeated = np.tile(policy, (30, 1))  # a draw of the noise for each column
        failures = int(evaluate(task, repeated, environments).failures.min())
        wrong.append(float(clopper_pearson(failures, n, DELTA)) < task.truth(policy)[0])
    return np.array(wrong)


def draws_of_the_noise_counted_as_environments() -> Any:
    """20 environments with 50 draws of the noise in each, counted as 1000."""
    task = Lanes(lanes=8, lean=0.5, spread=0.1, noisy=True)
    policy = np.full((50, 8), 0.5)
    wrong = []
    for seed in range(TELLING):
        costs = evaluate(task, policy, task.environments(20, "train", seed))
        bound = clopper_pearson(costs.failures.sum(), costs.values.size, DELTA)
        wrong.append(float(bound) < task.truth(policy[0]))
    return np.array(wrong)


# ---- bounds that are wrong, and must be caught --------------------------------------------------

BROKEN: dict[str, Callable[[], Any]] = {
    "shared draws counted as independent": shared_draws_counted_as_independent,
    "bets from environment to environment": bets_from_environment_to_environment,
    "stakes that learn within a draw": stakes_that_learn_within_a_draw,
    "an estimate used as the training cost": estimate_used_as_the_training_cost,
    "a posterior chosen by its certifying draws": posterior_chosen_by_its_certifying_draws,
    "certificates without divergence": certificates_without_divergence,
    "certificates that count shared draws as fresh": certificates_that_count_shared_draws_as_fresh,
    "certificates that take the estimate as exact": certificates_that_take_the_estimate_as_exact,
    "the divergence dropped": divergence_dropped,
    "the variance multiplied in place of divided": variance_multiplied_in_place_of_divided,
    "the part that the prior has seen counted again": part_that_the_prior_has_seen_counted_again,
    "the rest counted with the size of the whole": rest_counted_with_the_size_of_the_whole,
    "the best of a family at the full δ": best_of_a_family_at_the_full_delta,
    "the best of many draws": best_of_many_draws,
    "a draw certified without the ratio": draw_certified_without_the_ratio,
    "noise drawn again until it looks good": noise_drawn_again_until_it_looks_good,
    "draws of the noise counted as environments": draws_of_the_noise_counted_as_environments,
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_bound_is_caught(mistake):
    assert not covers(BROKEN[mistake](), DELTA)
