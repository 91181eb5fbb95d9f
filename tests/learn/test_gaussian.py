"""Learning over continuous policies, from the prior to the certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from toys import Reach, Slippery

from pacbayes_control.bounds import fresh_draws, maurer_xi, shared_draws
from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.files import json_bytes
from pacbayes_control.certify.issuing import PAC_BAYES
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import (
    GaussianPrior,
    Plan,
    SearchSettings,
    SearchStopped,
    learn_family,
    learn_gaussian,
    set_aside,
)
from pacbayes_control.learn.gaussian import ROLLOUTS, certify_posterior, split_budget
from pacbayes_control.learn.priors import scaled
from pacbayes_control.rollouts import Execution
from pacbayes_control.tasks import Environments
from pacbayes_control.tasks.environments import generator
from pacbayes_control.verify import verify

PRIOR = DiagonalGaussian([0.0, 0.0], 0.5)
QUICK = SearchSettings(steps=40, pairs=8, natural=False)
TASK = Reach(radius=1.5)
TRAIN = TASK.environments(200, stream="train")


@pytest.fixture(scope="module")
def run() -> Run[DiagonalGaussian]:
    return learn_gaussian(TASK, TRAIN, PRIOR, Plan(search=QUICK, draws=10))


# ---- certificates -------------------------------------------------------------------------------


def test_learning_lowers_the_bound_and_the_true_cost(run: Run[DiagonalGaussian]):
    prior, budget = GaussianPrior(PRIOR), split_budget(0.01, "kl")
    before = certify_posterior(
        TASK, TRAIN, prior, PRIOR, budget=budget, plan=Plan(draws=10)
    ).certificate
    after = run.certificate
    assert before.kl == 0
    assert after.bound < before.bound - 0.1
    assert after.empirical_cost < before.empirical_cost - 0.1
    assert 0 < after.kl == pytest.approx(run.posterior.kl(PRIOR), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("natural", [False, True])
def test_learning_with_its_usual_settings_lowers_the_bound(natural: bool):
    settings = SearchSettings(steps=60, natural=natural)
    certificate = learn_gaussian(TASK, TRAIN, PRIOR, Plan(search=settings)).certificate
    budget = split_budget(0.01, "kl")
    prior = certify_posterior(TASK, TRAIN, GaussianPrior(PRIOR), PRIOR, budget=budget).certificate
    assert certificate.bound < prior.bound - 0.1
    assert certificate.draws == ROLLOUTS // len(TRAIN)


def test_a_certificate_states_what_was_done(run: Run[DiagonalGaussian]):
    c = run.certificate
    assert (c.method, c.objective, c.delta) == ("kl", "kl", 0.01)
    assert (c.environments, c.set_aside) == (200, 0)
    assert (c.draws, c.shared_draws, c.parameters, c.policies, c.policy) == (
        10,
        False,
        2,
        None,
        None,
    )
    assert c.prior == "given in advance"
    assert c.binary
    assert c.noise is None
    assert "a policy drawn afresh from the posterior over 2 parameters" in c.sentence
    assert run.costs.values.shape == (200, 10)
    assert run.prior is PRIOR


def test_the_budget_is_spent_on_sampling_and_the_theorem_and_on_nothing_else(
    run: Run[DiagonalGaussian],
):
    c = run.certificate
    assert set(c.budget) == {"sampling", "kl"}
    assert c.budget["sampling"] == pytest.approx(0.001, rel=1e-12)
    assert math.fsum(c.budget.values()) == pytest.approx(0.01, rel=1e-14)


@pytest.mark.parametrize("method", PAC_BAYES)
@pytest.mark.parametrize("shared", [False, True])
def test_the_bound_is_the_theorem_applied_to_the_bound_on_the_training_cost(
    method: str, shared: bool
):
    run = learn_gaussian(
        TASK,
        TRAIN,
        PRIOR,
        Plan(
            delta=0.05,
            method=method,
            search=QUICK,
            sampling_delta=0.02,
            draws=20,
            shared_draws=shared,
        ),
    )
    c = run.certificate
    assert c.empirical_cost == pytest.approx(run.costs.values.mean(), rel=1e-12)
    assert c.shared_draws is shared
    cost = shared_draws(c.empirical_cost, 20, 0.02)
    if not shared:
        cost = fresh_draws(c.empirical_cost, 20 * 200, 0.02)
    assert c.empirical_cost < float(cost)
    assert c.training_cost_bound == pytest.approx(float(cost), rel=1e-9)
    bound = PAC_BAYES[method](cost, run.posterior.kl(PRIOR), 200, 0.03)
    assert c.bound == pytest.approx(float(bound), rel=1e-9)


def test_shared_draws_leave_more_room_for_error_than_fresh_ones():
    budget, prior = split_budget(0.05, "kl"), GaussianPrior(PRIOR)
    slack = {}
    for shared in (False, True):
        c = certify_posterior(
            TASK, TRAIN, prior, PRIOR, budget=budget, plan=Plan(draws=50, shared_draws=shared)
        ).certificate
        assert c.training_cost_bound is not None
        slack[shared] = c.training_cost_bound - c.empirical_cost
    assert slack[True] > 5 * slack[False] > 0


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "task",
    [TASK, Reach(radius=2.0, graded=True), Slippery(radius=2.0)],
    ids=["0/1", "graded", "noisy"],
)
def test_saved_runs_are_verified(tmp_path: Path, task: Reach, shared: bool):
    environments = task.environments(100, stream="train")
    run = learn_gaussian(
        task, environments, PRIOR, Plan(search=QUICK, draws=7, shared_draws=shared)
    )
    verification = verify(run.save(tmp_path / "run"))
    c = verification.certificate
    assert verification.recomputed <= c.bound < 1
    assert c.bound - verification.recomputed < 1e-9
    assert c.noise == ("ice" if isinstance(task, Slippery) else None)


@pytest.mark.parametrize("method", ["kl-maurer", "pinsker"])
def test_runs_of_the_other_methods_are_verified(tmp_path: Path, method: str):
    run = learn_gaussian(TASK, TRAIN, PRIOR, Plan(method=method, search=QUICK, draws=5))
    assert verify(run.save(tmp_path / "run")).certificate.method == method


def test_the_paper_minimises_one_bound_and_certifies_by_another(tmp_path: Path):
    run = learn_gaussian(
        TASK,
        TRAIN,
        PRIOR,
        Plan(delta=0.01, method="kl-maurer", objective="pinsker", search=QUICK, draws=5),
    )
    c = verify(run.save(tmp_path / "run")).certificate
    assert (c.method, c.objective) == ("kl-maurer", "pinsker")
    own = learn_gaussian(
        TASK,
        TRAIN,
        PRIOR,
        Plan(delta=0.01, method="kl-maurer", objective=None, search=QUICK, draws=5),
    )
    assert own.posterior.to_bytes() != run.posterior.to_bytes()


def test_the_same_inputs_give_the_same_bytes_and_another_seed_others(run: Run[DiagonalGaussian]):
    def record(seed: int) -> bytes:
        again = learn_gaussian(TASK, TRAIN, PRIOR, Plan(search=QUICK, draws=10, seed=seed))
        return json_bytes(again.certificate.to_dict())

    assert record(0) == json_bytes(run.certificate.to_dict())
    assert record(1) != record(0)


def test_a_checkpoint_changes_nothing(tmp_path: Path, run: Run[DiagonalGaussian]):
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):  # the second time, all is there already
        again = learn_gaussian(
            TASK, TRAIN, PRIOR, Plan(search=QUICK, draws=10), Execution(store=checkpoint)
        )
        assert again.certificate == run.certificate


# ---- draws --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorder(Reach):
    """Keeps every policy that it was given: rows for training, tables for certifying."""

    radius: float = 1.5
    given: list[NDArray] = field(default_factory=list, repr=False)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        self.given.append(np.array(policies))
        return super().costs(policies, environments)


def test_the_certifying_draws_are_new_ones_from_a_posterior_that_is_fixed_by_then():
    task = Recorder()
    run = learn_gaussian(task, TRAIN, PRIOR, Plan(search=QUICK, draws=10))
    training, certifying = task.given[:-1], task.given[-1]
    assert [part.shape for part in training] == [(16, 2)] * QUICK.steps
    assert certifying.shape == (200, 10, 2)
    spread = np.sqrt(run.posterior.variance)
    standard = ((certifying - run.posterior.mean) / spread).reshape(-1, 2)
    assert np.all(np.abs(standard.mean(axis=0)) < 4 / np.sqrt(2000))
    assert np.all(np.abs(standard.std(axis=0) - 1) < 0.08)
    # None of its random numbers was ever used by the search.
    used = [generator(0, "search", step).standard_normal((8, 2)) for step in range(QUICK.steps)]
    gaps = standard.ravel()[:, None] - np.concatenate(used).ravel()
    assert np.abs(gaps).min() > 1e-9
    assert len(np.unique(certifying)) == certifying.size  # and each policy is another


def test_shared_draws_are_the_same_in_every_environment():
    task = Recorder()
    run = learn_gaussian(task, TRAIN, PRIOR, Plan(search=QUICK, draws=10, shared_draws=True))
    assert task.given[-1].shape == (10, 2)
    assert np.array_equal(run.costs.values, TASK.costs(task.given[-1], TRAIN))


@pytest.mark.parametrize("stream", ["certify", "search"])
def test_environments_share_no_randomness_with_draws_from_a_stream_of_the_same_name(stream: str):
    environments, policies = (
        generator(0, stream, of=kind).random(8) for kind in ("environments", "policies")
    )
    assert not np.any(np.isin(environments, policies))
    run = learn_gaussian(TASK, TASK.environments(200, stream), PRIOR, Plan(search=QUICK, draws=20))
    usual = learn_gaussian(
        TASK, TASK.environments(200, "train"), PRIOR, Plan(search=QUICK, draws=20)
    )
    assert run.certificate.empirical_cost == pytest.approx(
        usual.certificate.empirical_cost, abs=0.1
    )


# ---- priors -------------------------------------------------------------------------------------


def test_a_prior_that_has_seen_the_environments_is_refused_before_any_rollout():
    task = Recorder()
    prior = GaussianPrior(PRIOR.with_data_used(TRAIN[:50].range), "learnt on a part")
    message = r"has seen some of these environments \(stream 'train', 0 to 50\)"
    with pytest.raises(ValueError, match=message):
        learn_gaussian(task, TRAIN, prior, Plan(search=QUICK))
    with pytest.raises(ValueError, match=message):
        learn_gaussian(task, TRAIN[49:], prior, Plan(search=QUICK))
    with pytest.raises(ValueError, match=message):
        learn_family(task, TRAIN, [prior, GaussianPrior(PRIOR)], Plan(search=QUICK))
    with pytest.raises(ValueError, match=message):
        certify_posterior(task, TRAIN, prior, PRIOR, budget=split_budget(0.01, "kl"))
    assert task.given == []


def test_a_prior_that_has_seen_others_is_allowed_and_they_are_counted_as_set_aside(tmp_path: Path):
    part, rest = set_aside(TRAIN, 0.25)
    elsewhere = TASK.environments(1000, stream="elsewhere")
    prior = GaussianPrior(PRIOR.with_data_used(part.range, elsewhere.range), "learnt on a part")
    run = learn_gaussian(TASK, rest, prior, Plan(search=QUICK, draws=5))
    c = verify(run.save(tmp_path / "run")).certificate
    assert (c.environments, c.set_aside, c.prior) == (150, 50, "learnt on a part")
    assert "certified on" in c.sentence
    assert run.costs.origin["start"] == 50


@pytest.mark.parametrize(
    ("mean", "variance", "message"),
    [
        ([0.0, 0.0], [1.0, 0.0], "variance 0 at parameter 1: it must be positive"),
        ([0.0, 0.0], [1.0, -2.0], "variance -2 at parameter 1: it must be positive"),
        ([0.0, 0.0], [np.nan, 1.0], "is NaN or infinite at parameter 0"),
        ([0.0, 0.0], np.inf, "is NaN or infinite at parameter 0"),
        ([0.0, np.inf], 1.0, "is NaN or infinite at parameter 1"),
        ([0.0, 0.0], [1.0, 1.0, 1.0], "2 means and 3 variances: give one each"),
    ],
)
def test_a_prior_that_is_none_gets_a_clear_error(mean: list, variance: list, message: str):
    with pytest.raises(ValueError, match=message):
        DiagonalGaussian(mean, variance)


def test_a_prior_over_other_policies_than_the_tasks_gets_a_clear_error():
    with pytest.raises(SearchStopped, match=r"policies of 3 parameters were given .* have 2"):
        learn_gaussian(TASK, TRAIN, DiagonalGaussian(np.zeros(3), 1.0), Plan(search=QUICK))


def test_a_posterior_over_other_policies_than_the_prior_gets_a_clear_error():
    prior, task = GaussianPrior(DiagonalGaussian(np.zeros(3), 1.0)), TASK
    with pytest.raises(ValueError, match="the posterior has 2 parameters and the prior 3"):
        certify_posterior(
            task, TRAIN, prior, PRIOR, budget=split_budget(0.01, "kl"), plan=Plan(draws=2)
        )


# ---- bad options --------------------------------------------------------------------------------

OVERSPENDS = "overspends: it must be positive, and leave some of delta = 0.01"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling_delta": 0.01}, f"sampling_delta = 0.01 {OVERSPENDS}"),
        ({"sampling_delta": 0.02}, f"sampling_delta = 0.02 {OVERSPENDS}"),
        ({"sampling_delta": 0.0}, f"sampling_delta = 0 {OVERSPENDS}"),
        ({"sampling_delta": -0.1}, f"sampling_delta = -0.1 {OVERSPENDS}"),
        ({"sampling_delta": np.nan}, "sampling_delta = nan must be a finite number"),
        ({"delta": 0.0}, "delta = 0.0 must lie strictly between 0 and 1"),
        ({"delta": 1.0}, "delta = 1.0 must lie strictly between 0 and 1"),
        ({"method": "magic"}, "method = 'magic' must be occam"),
        ({"method": "occam"}, "method 'occam' is unknown for a Gaussian posterior"),
        ({"objective": "magic"}, "objective = 'magic' must be kl"),
    ],
)
@pytest.mark.parametrize("family", [False, True])
def test_bad_options_get_a_clear_error_before_any_rollout(
    options: dict, message: str, family: bool
):
    task = Recorder()
    learn = partial(learn_gaussian, task, TRAIN, PRIOR)
    if family:
        learn = partial(learn_family, task, TRAIN, [GaussianPrior(PRIOR)])
    with pytest.raises(ValueError, match=message):
        learn(Plan(search=QUICK, **options))
    assert task.given == []


@pytest.mark.parametrize(
    "draws",
    [0, -1],
)
def test_too_few_draws_get_a_clear_error(draws: int):
    with pytest.raises(ValueError, match=f"draws = {draws}: at least 1 is needed"):
        learn_gaussian(TASK, TRAIN, PRIOR, Plan(search=QUICK, draws=draws))


# ---- families -----------------------------------------------------------------------------------


@pytest.mark.parametrize("priors", [1, 2, 5])
def test_a_family_pays_for_all_of_its_priors(priors: int):
    budget = split_budget(0.01, "kl", priors=priors)
    assert isinstance(budget, Budget)
    assert math.fsum(budget.spent.values()) == pytest.approx(0.01, rel=1e-12)
    assert math.fsum(budget.spent.values()) <= 0.01 * (1 + 1e-12)
    assert budget.spent["kl"] == pytest.approx(0.009 / priors, rel=1e-12)
    others = budget.spent.get(f"kl of the other {priors - 1} priors", 0.0)
    assert others == pytest.approx(0.009 * (priors - 1) / priors, rel=1e-12)


@pytest.mark.slow
def test_a_family_chooses_the_variance_that_suits_the_problem(tmp_path: Path):
    # The goals are at (1, 1), a radius of 1 around them: a prior must be neither too narrow to get
    # there nor so wide that it loses its way.
    task = Reach(radius=1.0)
    environments = task.environments(300, stream="train")
    family = scaled(GaussianPrior(DiagonalGaussian([0.0, 0.0], 1.0)), (1e-4, 1.0, 1e4))
    settings = SearchSettings(steps=120, pairs=32, natural=False)
    run = learn_family(
        task, environments, family, Plan(method="pinsker", search=settings, draws=20)
    )
    c = verify(run.save(tmp_path / "run")).certificate
    assert run.prior is family[1].distribution
    assert c.prior == "given in advance, variances × 1; one of 3 declared in advance"
    assert c.budget["pinsker"] == pytest.approx(0.003, rel=1e-12)
    assert c.bound < 0.5
    for prior in (family[0], family[2]):
        other = learn_gaussian(
            task, environments, prior, Plan(method="pinsker", search=settings, draws=20)
        )
        assert other.certificate.bound > c.bound


def test_a_family_of_one_costs_no_more_than_the_prior_alone():
    run = learn_family(TASK, TRAIN, [GaussianPrior(PRIOR)], Plan(search=QUICK, draws=5))
    assert run.certificate.budget == pytest.approx({"sampling": 0.001, "kl": 0.009})
    c = run.certificate
    assert c.training_cost_bound is not None
    bound = maurer_xi(c.training_cost_bound, c.kl, 200, 0.009)
    assert c.bound == pytest.approx(float(bound), rel=1e-9)


def test_a_family_may_share_its_draws(tmp_path: Path):
    run = learn_family(
        TASK, TRAIN, [GaussianPrior(PRIOR)], Plan(search=QUICK, draws=5, shared_draws=True)
    )
    assert run.costs.draws == "shared"
    assert verify(run.save(tmp_path / "run")).certificate.shared_draws is True


def test_a_family_without_priors_is_refused():
    with pytest.raises(ValueError, match="a family of priors needs at least one"):
        learn_family(TASK, TRAIN, [])
