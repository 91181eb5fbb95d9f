"""Policies that withstand a shift: C_PAC' minimised, by three routes, and the exact optimum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import cvxpy
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint
from toys import Reach, Smooth

from pacbayes_control.bounds import maurer, maurer_xi
from pacbayes_control.bounds.shift import robust_c_pac, robust_maurer, shift_inverse
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs, rescaled_exponential
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.learn import (
    GaussianSearch,
    Plan,
    SearchSettings,
    SearchStopped,
    learn_constrained,
    learn_finite,
    learn_gaussian,
)
from pacbayes_control.learn.objectives import OBJECTIVES
from pacbayes_control.learn.relative_entropy import solve_robust_bound
from pacbayes_control.learn.training import search_posterior
from pacbayes_control.rollouts import Quantity, mean_costs
from pacbayes_control.tasks import Environments
from pacbayes_control.verify import verify
from sizes import sized

E = math.e
DELTA = 0.01
SHIFT = 0.02  # B, where one is needed: the posterior does not depend on it
SIZES = [(60, 5), (400, 8), (5000, 3)]  # environments, policies
BALLS = [
    Ball("kl", 0.08),
    Ball("kl", 0.0),
    Ball("reverse-kl", 0.1),
    Ball("total-variation", 0.05),
    Ball("chi-squared", 0.3),
    Ball("hellinger", 0.02),
    Ball("renyi-2", 0.2),
    Ball("renyi-0.5", 0.05),
    Ball("renyi-inf", 0.4),
]


def graded(n: int, policies: int) -> Costs:
    """Costs between 0 and 1 of policies that differ in their mean and in their spread."""
    rng = np.random.default_rng(n)
    a, b = rng.uniform(0.2, 2, policies), rng.uniform(2, 8, policies)
    return Costs(rng.beta(a, b, size=(n, policies)))


def failures(n: int, policies: int) -> Costs:
    rng = np.random.default_rng(n)
    return Costs(rng.random((n, policies)) < rng.uniform(0.02, 0.3, policies))


def some_prior(policies: int) -> Categorical:
    return Categorical(np.random.default_rng(policies).dirichlet(np.full(policies, 3.0)))


def posteriors(near: Categorical, prior: Categorical, count: int) -> NDArray[np.float64]:
    """Distributions of every kind, (count, policies): anywhere, near one, and near its corners."""
    rng, size = np.random.default_rng(count), len(prior)
    parts = [rng.dirichlet(np.full(size, a), count // 6) for a in (0.05, 0.3, 1.0, 10.0)]
    for spread in (0.001, 0.05):
        moved = near.probabilities * np.exp(spread * rng.standard_normal((count // 6, size)))
        parts.append(moved / moved.sum(axis=1, keepdims=True))
    return np.concatenate([*parts, np.eye(size), prior.probabilities[None]])


def divergences(p: NDArray, prior: Categorical) -> NDArray[np.float64]:
    """KL(p‖prior) by its definition, for each row."""
    ratio = np.where(p > 0, p / prior.probabilities, 1.0)
    return np.maximum((p * np.log(ratio)).sum(axis=1), 0.0)


def mean_exponentials(costs: Costs) -> NDArray[np.float64]:
    """The mean of e^C of each policy, C̄ₑ in the paper; shape (policies,)."""
    return np.exp(np.asarray(costs.values, float)).mean(axis=0)


def c_pac(run: Run[Categorical], shift: float = SHIFT) -> float:
    """C_PAC' of a run's posterior, from its costs alone."""
    mean = float(run.posterior.probabilities @ mean_exponentials(run.costs))
    return robust_c_pac(
        mean, run.posterior.kl(run.prior), run.costs.environments, DELTA, radius=shift
    )


def learn_robust(costs: Costs, prior: Categorical | None = None, **options) -> Run[Categorical]:
    return learn_finite(
        costs, DELTA, method="kl-maurer", objective="robust-pinsker", prior=prior, **options
    )


# ---- C_PAC' over finitely many policies ---------------------------------------------------------


@pytest.mark.parametrize(("n", "policies"), SIZES)
@pytest.mark.parametrize("kind", [graded, failures])
def test_no_posterior_among_thousands_has_a_smaller_c_pac_prime(kind, n: int, policies: int):
    costs, prior = kind(n, policies), some_prior(policies)
    run = learn_robust(costs, prior)
    lowest = c_pac(run)
    others = posteriors(run.posterior, prior, 3000)
    means = np.clip(others @ mean_exponentials(costs), 1, E)
    values = np.array(
        [
            robust_c_pac(float(mean), float(kl), n, DELTA, radius=SHIFT)
            for mean, kl in zip(means, divergences(others, prior), strict=True)
        ]
    )
    assert lowest < 1
    assert lowest <= values.min() + 1e-12
    assert values.min() - lowest < 1e-4  # and some of them come close


@pytest.mark.parametrize(("n", "policies"), SIZES)
def test_c_pac_prime_is_minimised_whatever_the_shift(n: int, policies: int):
    costs = graded(n, policies)
    run = learn_robust(costs)
    for shift in (0.0, 0.05, 0.2):
        assert c_pac(run, shift) == pytest.approx(c_pac(run, 0.0) + shift, rel=1e-12)
    value = OBJECTIVES["robust-pinsker"].bound(
        run.posterior.probabilities @ costs.exponential_means, run.certificate.kl, n, DELTA
    )
    assert float(value) == pytest.approx(c_pac(run, 0.0), rel=1e-11)


@pytest.mark.parametrize(("n", "policies"), SIZES)
def test_the_papers_programmes_come_close_and_are_never_better(n: int, policies: int):
    costs, prior = graded(n, policies), some_prior(policies)
    exact = learn_robust(costs, prior)
    solved = learn_constrained(
        costs, DELTA, method="kl-maurer", prior=prior, objective="robust-pinsker"
    )
    assert c_pac(exact) <= c_pac(solved) + 1e-12
    assert c_pac(solved) - c_pac(exact) < 2e-4  # λ runs over a grid of a hundred values
    assert solved.certificate.objective == exact.certificate.objective == "robust-pinsker"


@pytest.mark.parametrize(("n", "policies"), SIZES)
def test_at_the_best_lambda_the_papers_programme_has_the_same_optimum(n: int, policies: int):
    """The programme of the paper itself (eq. 36), with λ in [0, e - 1], solved once."""
    costs, prior = graded(n, policies), some_prior(policies)
    run = learn_robust(costs, prior)
    log_term = math.log(2 * math.sqrt(n) / DELTA)
    lam = (E - 1) * math.sqrt((run.certificate.kl + log_term) / (2 * n))
    assert 0 < lam < E - 1
    p = cvxpy.Variable(policies, nonneg=True)
    divergence = cvxpy.sum(cvxpy.rel_entr(p, prior.probabilities))
    limits = [cvxpy.sum(p) == 1, divergence <= 2 * n * (lam / (E - 1)) ** 2 - log_term]
    problem = cvxpy.Problem(cvxpy.Minimize(mean_exponentials(costs) @ p), limits)  # type: ignore
    problem.solve(solver="CLARABEL")
    assert p.value is not None
    assert np.abs(p.value - run.posterior.probabilities).max() < 1e-3
    assert problem.value == pytest.approx(
        run.posterior.probabilities @ mean_exponentials(costs), abs=1e-6
    )


def test_for_failures_the_robust_policy_is_the_papers_usual_one(binary_costs: Costs):
    robust = learn_robust(binary_costs)
    usual = learn_finite(binary_costs, DELTA, method="kl-maurer", objective="pinsker")
    assert robust.posterior.to_bytes() == usual.posterior.to_bytes()
    assert robust.certificate.bound == usual.certificate.bound
    assert binary_costs.exponential_means.tolist() == binary_costs.means.tolist()


@pytest.fixture
def gamble() -> Costs:
    """A policy that always costs a half, and one that costs nothing or everything: 0.47 on average.

    The mean of e^C is √e ≈ 1.65 for the first and 1 + 0.47 (e - 1) ≈ 1.81 for the second.
    """
    return Costs(np.stack([np.full(400, 0.5), np.arange(400) % 100 < 47], axis=1))


def test_graded_costs_that_vary_are_worth_more_divergence_where_the_world_may_shift(gamble: Costs):
    robust = learn_robust(gamble)
    usual = learn_finite(gamble, DELTA, method="kl-maurer", objective="pinsker")
    assert robust.posterior.probabilities[0] > 0.9  # the steady one
    assert usual.posterior.probabilities[1] > 0.6  # the one that is cheaper on average
    assert c_pac(robust) < c_pac(usual) - 0.03


@pytest.mark.slow
def test_the_programmes_too_prefer_what_varies_less_where_the_world_may_shift(gamble: Costs):
    robust = learn_constrained(gamble, DELTA, method="kl-maurer", objective="robust-pinsker")
    usual = learn_constrained(gamble, DELTA, method="kl-maurer", objective="pinsker")
    assert robust.posterior.probabilities[0] > 0.9
    assert usual.posterior.probabilities[1] > 0.6
    assert c_pac(robust) - c_pac(learn_robust(gamble)) < 2e-4


def test_the_mean_exponential_of_a_cost_is_rescaled_to_the_unit_interval(gamble: Costs):
    expected = (mean_exponentials(gamble) - 1) / (E - 1)
    assert gamble.exponential_means == pytest.approx(expected, rel=1e-12)
    assert gamble.exponential_means[0] == pytest.approx(math.expm1(0.5) / (E - 1), rel=1e-12)


def test_constraints_are_kept_under_the_robust_objective():
    costs = graded(300, 4)
    free = learn_robust(costs)
    best = int(free.posterior.probabilities.argmax())
    limit = LinearConstraint(np.eye(4)[best], -np.inf, 0.3)
    held = learn_constrained(
        costs, DELTA, method="kl-maurer", constraints=[limit], objective="robust-pinsker"
    )
    assert free.posterior.probabilities[best] > 0.31
    assert held.posterior.probabilities[best] == pytest.approx(0.3, abs=1e-4)
    assert held.posterior.probabilities[best] <= 0.3 + 1e-6
    assert c_pac(free) < c_pac(held)
    (constraint,) = held.certificate.constraints
    assert str(constraint) == f"at most 0.3 on “policy {best}”"
    allowed = posteriors(held.posterior, held.prior, 3000)
    allowed = allowed[allowed[:, best] <= 0.3]
    assert len(allowed) > 500
    means = allowed @ mean_exponentials(costs)
    values = [
        robust_c_pac(float(mean), float(kl), 300, DELTA, radius=SHIFT)
        for mean, kl in zip(means, divergences(allowed, held.prior), strict=True)
    ]
    assert c_pac(held) <= min(values) + 2e-4


def test_unknown_objectives_are_refused(graded_costs: Costs):
    with pytest.raises(ValueError, match=r"objective 'robust' is unknown: .*robust-pinsker"):
        learn_finite(graded_costs, method="kl", objective="robust")
    with pytest.raises(ValueError, match="minimise pinsker or robust-pinsker, not 'kl'"):
        learn_constrained(graded_costs, objective="kl")
    with pytest.raises(ValueError, match=r"objective 'robust' is unknown: .*robust-pinsker"):
        GaussianSearch(PRIOR, 100, DELTA, "robust")


def test_the_robust_objective_is_no_method_to_certify_by(graded_costs: Costs):
    with pytest.raises(ValueError, match="method 'robust-pinsker' is unknown"):
        learn_finite(graded_costs, method="robust-pinsker")
    with pytest.raises(ValueError, match="method 'robust-pinsker' takes no constraints"):
        learn_constrained(graded_costs, method="robust-pinsker")
    with pytest.raises(ValueError, match="method = 'robust-pinsker' must be"):
        learn_gaussian(GRADED, TRAIN, PRIOR, Plan(method="robust-pinsker"))


def test_a_robust_run_is_certified_in_its_ball_and_verified(graded_costs: Costs, tmp_path: Path):
    run = under_shift(learn_robust(graded_costs), Ball("kl", 0.05))
    c = verify(run.save(tmp_path / "run")).certificate
    assert (c.method, c.objective) == ("kl-maurer", "robust-pinsker")
    expected = robust_maurer(c.empirical_cost, c.kl, c.environments, DELTA, radius=0.05)
    assert c.bound == pytest.approx(expected, abs=1e-9)


# ---- the final bound, as a programme of its own -------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shift", [1e-3, 0.0819, 0.4])
@pytest.mark.parametrize("n", [50, 1000, 20_000])
def test_the_solvers_robust_bound_is_that_of_two_inversions(n: int, shift: float):
    for cost, kl in product(sized((0.0, 0.2), full=(0.0, 0.02, 0.2, 0.6)), (0.0, 4.0)):
        solved = solve_robust_bound(cost, kl, n, DELTA, shift=shift)
        safe = robust_maurer(cost, kl, n, DELTA, radius=shift)
        assert solved <= safe + 1e-5
        assert solved == pytest.approx(safe, abs=1e-5)


def test_both_inversions_are_felt_in_the_solvers_bound():
    solved = solve_robust_bound(0.1, 1.0, 500, DELTA, shift=0.05)
    assert solved > float(maurer(0.1, 1.0, 500, DELTA)) + 0.05
    assert solved > float(shift_inverse(0.1, 0.05, "kl")) + 0.02


# ---- the exact optimum --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("ball", BALLS, ids=lambda ball: f"{ball.divergence}:{ball.radius:g}")
@pytest.mark.parametrize("kind", [graded, failures])
def test_no_posterior_has_a_smaller_robust_bound_than_the_smallest_bound_carried_over(
    kind, ball: Ball
):
    for n, policies in SIZES:
        costs, prior = kind(n, policies), some_prior(policies)
        run = learn_finite(costs, DELTA, method="kl", prior=prior)
        others = posteriors(run.posterior, prior, 3000)
        plain = maurer_xi(np.minimum(others @ costs.means, 1), divergences(others, prior), n, DELTA)
        values = shift_inverse(plain, ball.radius, ball.divergence)
        bound = under_shift(run, ball).certificate.bound
        assert bound <= values.min() + 1e-8
        assert values.min() - bound < 1e-3  # and some of them come close


@pytest.mark.slow
@pytest.mark.parametrize("ball", BALLS, ids=lambda ball: f"{ball.divergence}:{ball.radius:g}")
@pytest.mark.parametrize("kind", [graded, failures])
def test_the_papers_robust_method_is_never_better_from_the_same_prior(kind, ball: Ball):
    for seed in range(sized(4, full=12)):
        n, policies = 40 + 37 * seed, 2 + seed
        costs, prior = kind(n, policies), some_prior(policies)
        exact = under_shift(learn_finite(costs, DELTA, method="kl", prior=prior), ball).certificate
        paper = under_shift(learn_robust(costs, prior), ball).certificate
        assert exact.bound <= paper.bound
        assert exact.bound < paper.bound or paper.bound == 1


# ---- slopes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("kl", [0.5, 6.0])
@pytest.mark.parametrize("n", [100, 3000])
def test_the_slopes_are_those_of_c_pac_prime(cost: float, kl: float, n: int):
    def value(cost: float, kl: float) -> float:
        return robust_c_pac(1 + (E - 1) * cost, kl, n, DELTA, radius=SHIFT)

    assert value(cost, kl) < 1
    by_cost, by_kl = OBJECTIVES["robust-pinsker"].slopes(cost, kl, n, DELTA)
    h = 1e-4
    assert by_cost == pytest.approx(
        (value(cost + h * cost, kl) - value(cost - h * cost, kl)) / (2 * h * cost), rel=1e-6
    )
    assert by_kl == pytest.approx((value(cost, kl + h) - value(cost, kl - h)) / (2 * h), rel=1e-6)
    usual = OBJECTIVES["pinsker"].slopes(cost, kl, n, DELTA)
    assert by_cost != pytest.approx(usual[0], rel=1e-3)  # the logarithm is felt


# ---- continuous policies ------------------------------------------------------------------------

PRIOR = DiagonalGaussian([0.0, 0.0], 0.5)
GRADED = Reach(radius=3.0, graded=True)
TRAIN = GRADED.environments(200, stream="train")
QUICK = SearchSettings(steps=40, pairs=8, natural=False)


class Listening(GaussianSearch):
    """A search that keeps what it asked for and what it was told."""

    def __init__(self, objective: str, settings: SearchSettings) -> None:
        super().__init__(PRIOR, len(TRAIN), DELTA, objective, settings)
        self.asked: list[NDArray] = []
        self.told: list[NDArray] = []

    def ask(self) -> NDArray[np.float64]:
        policies = super().ask()
        self.asked.append(policies)
        return policies

    def tell(self, costs: NDArray, gradients: NDArray | None = None, **where: Any) -> None:
        self.told.append(costs)
        super().tell(costs, gradients, **where)


@dataclass(frozen=True)
class Smoothed(Reach):
    """One with a surrogate: half of the cost, which is told from it."""

    graded: bool = True

    def surrogate(self, policies: NDArray, environments: Environments) -> NDArray:
        return self.costs(policies, environments) / 2


def test_a_robust_posterior_is_learnt_certified_in_a_ball_and_verified(tmp_path: Path):
    run = learn_gaussian(
        GRADED, TRAIN, PRIOR, Plan(objective="robust-pinsker", search=QUICK, draws=10)
    )
    assert run.certificate.objective == "robust-pinsker"
    assert not run.certificate.binary
    assert run.certificate.kl > 0.1  # it has learnt something
    before = mean_costs(GRADED, PRIOR.mean[None], TRAIN)[0]
    assert mean_costs(GRADED, run.posterior.mean[None], TRAIN)[0] < before - 0.05
    robust = under_shift(run, Ball("kl", 0.05))
    verification = verify(robust.save(tmp_path / "run"))
    c = verification.certificate
    assert c.bound_without_shift == run.certificate.bound < c.bound < 1
    assert verification.recomputed <= c.bound < verification.recomputed + 1e-9


@pytest.mark.parametrize("estimator", ["evolution", "differences"])
def test_a_robust_search_is_told_the_mean_of_e_to_the_cost(estimator: str):
    search = Listening("robust-pinsker", SearchSettings(estimator=estimator, steps=3, pairs=4))
    search_posterior(GRADED, TRAIN, search)
    assert len(search.told) == 3
    for policies, told in zip(search.asked, search.told, strict=True):
        mean_exponential = np.exp(GRADED.costs(policies, TRAIN)).mean(axis=0)
        assert 1 + (E - 1) * told == pytest.approx(mean_exponential, rel=1e-12)


def test_a_usual_search_is_told_the_mean_cost():
    search = Listening("pinsker", SearchSettings(steps=2, pairs=4))
    search_posterior(GRADED, TRAIN, search)
    for policies, told in zip(search.asked, search.told, strict=True):
        assert told == pytest.approx(GRADED.costs(policies, TRAIN).mean(axis=0), rel=1e-12)


def test_differences_take_the_surrogate_to_the_power_of_e():
    task = Smoothed(radius=3.0)
    search = Listening("robust-pinsker", SearchSettings(estimator="differences", steps=1, pairs=4))
    search_posterior(task, TRAIN, search)
    surrogate = task.costs(search.asked[0], TRAIN) / 2
    assert search.told[0] == pytest.approx(np.expm1(surrogate).mean(axis=0) / (E - 1), rel=1e-12)


def test_the_value_of_a_robust_search_is_c_pac_prime_without_the_shift():
    search = GaussianSearch(PRIOR, len(TRAIN), DELTA, "robust-pinsker", QUICK)
    smooth = 0.0
    for step in range(12):
        m, rho = search.average / (1 - search.SMOOTHING**step) if step else np.zeros((2, 2))
        here = DiagonalGaussian(PRIOR.mean + np.sqrt(0.5) * m, 0.5 * np.exp(rho))
        policies = search.ask()
        costs = GRADED.costs(policies, TRAIN)
        search.tell(rescaled_exponential(costs).mean(axis=0), environments=())
        mean = float(np.exp(costs).mean())
        smooth = mean if step == 0 else search.SMOOTHING * smooth + (1 - search.SMOOTHING) * mean
        expected = robust_c_pac(smooth, here.kl(PRIOR), len(TRAIN), DELTA, radius=SHIFT)
        assert expected < 1
        assert search.value == pytest.approx(expected - SHIFT, rel=1e-9)


def test_a_robust_search_lowers_c_pac_prime_itself():
    """At the posterior that is found, with a training cost estimated anew."""
    search = GaussianSearch(PRIOR, len(TRAIN), DELTA, "robust-pinsker", QUICK)
    search_posterior(GRADED, TRAIN, search)
    values = {}
    for name, gaussian in (("prior", PRIOR), ("found", search.posterior)):
        policies = gaussian.sample(np.random.default_rng(0), 2000)
        mean = mean_costs(GRADED, policies, TRAIN, of=Quantity(function=np.exp)).mean()
        values[name] = robust_c_pac(
            float(mean), gaussian.kl(PRIOR), len(TRAIN), DELTA, radius=SHIFT
        )
    assert values["found"] < values["prior"] - 0.02


def test_derivatives_of_the_cost_are_refused_where_e_to_the_cost_is_averaged():
    task = Smooth(radius=2.0)
    settings = SearchSettings(estimator="gradient", steps=3, pairs=4)
    with pytest.raises(SearchStopped, match=r"robust-pinsker averages e\^C: use evolution or diff"):
        learn_gaussian(
            task, TRAIN, PRIOR, Plan(objective="robust-pinsker", search=settings, draws=2)
        )
    run = learn_gaussian(task, TRAIN, PRIOR, Plan(objective="pinsker", search=settings, draws=2))
    assert run.certificate.objective == "pinsker"  # the same goes through without e^C


# ---- the mean of a function of the cost ---------------------------------------------------------


def test_a_function_of_each_cost_is_averaged_in_its_place():
    policies = np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 2.0]])
    many = GRADED.environments(2500, stream="many")  # more than one chunk
    costs = GRADED.costs(policies, many)
    for of in (np.exp, np.square, rescaled_exponential):
        means = mean_costs(GRADED, policies, many, of=Quantity(function=of))
        assert means == pytest.approx(of(costs).mean(axis=0), rel=1e-12)
        assert np.abs(means - of(costs.mean(axis=0))).min() > 1e-4  # not the function of the mean
    assert mean_costs(GRADED, policies, many) == pytest.approx(costs.mean(axis=0), rel=1e-12)


def test_costs_are_checked_before_a_function_of_them_is_averaged():
    @dataclass(frozen=True)
    class Dear(Reach):
        def costs(self, policies: NDArray, environments: Environments) -> NDArray:
            return super().costs(policies, environments) * 2.0

    with pytest.raises(ValueError, match=r"cost 2 at environment \d+, policy 0 is outside"):
        mean_costs(
            Dear(), np.full((1, 2), 9.0), TRAIN, of=Quantity(function=lambda costs: costs / 2)
        )
