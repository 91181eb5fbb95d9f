"""One policy from a continuous class, certified as it is."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta, norm
from toys import Reach, Slippery

from pacbayes_control.bounds import kl_inverse, log_xi
from pacbayes_control.bounds.betting import betting_holdout
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.learn import (
    GaussianPrior,
    Plan,
    SearchSettings,
    certify_draw,
    learn_finite,
    learn_gaussian,
    learn_one,
)
from pacbayes_control.tasks import Environments, Noise
from pacbayes_control.verify import verify

TASK = Reach(radius=1.5)
TRAIN = TASK.environments(200, stream="train")
GRADED = Reach(radius=4.0, graded=True)
PRIOR = GaussianPrior(DiagonalGaussian([0.1, 0.0], 0.25), "for a reason")
POSTERIOR = DiagonalGaussian([0.8, 0.9], [0.1, 0.2])


def upper_limit(failures: int, n: int, delta: float) -> float:
    """Clopper and Pearson's, from SciPy."""
    return float(beta.ppf(1 - delta, failures + 1, n - failures))


# ---- the best of a few --------------------------------------------------------------------------


def test_a_policy_chosen_in_advance_has_clopper_and_pearsons_limit_at_all_of_delta(tmp_path: Path):
    run = learn_one(TASK, TRAIN, PRIOR, Plan(delta=0.02))
    failures = int(TASK.costs(PRIOR.distribution.mean[None], TRAIN).sum())
    c = verify(run.save(tmp_path / "run")).certificate
    assert 0 < failures < 200
    assert c.bound == pytest.approx(upper_limit(failures, 200, 0.02), rel=1e-9)
    assert (c.method, c.policy, c.policies, c.kl) == ("occam", 0, 1, 0)
    assert c.policy_name == "mean of the prior"
    assert c.budget == {"occam": 0.02}
    assert c.prior == "its mean: for a reason"


@pytest.mark.parametrize("candidates", [2, 8])
def test_several_candidates_share_delta_half_of_it_for_the_mean(tmp_path: Path, candidates: int):
    run = learn_one(TASK, TRAIN, PRIOR, Plan(candidates=candidates))
    c = verify(run.save(tmp_path / "run")).certificate
    shares = [0.5] + [0.5 / (candidates - 1)] * (candidates - 1)
    np.testing.assert_allclose(run.prior.probabilities, shares, rtol=1e-12)
    limits = [
        upper_limit(failures, 200, 0.01 * share)
        for failures, share in zip(run.costs.failures, shares, strict=True)
    ]
    assert c.bound == pytest.approx(min(limits), rel=1e-9)
    assert c.policy == int(np.nanargmin(limits))
    assert run.posterior.single() == c.policy
    assert run.costs.names[:2] == ("mean of the prior", "draw 1 from the prior")
    assert run.costs.parameters is not None
    assert np.array_equal(run.costs.parameters[0], PRIOR.distribution.mean)


def test_candidates_are_draws_from_the_prior_the_first_ones_the_same_whatever_their_number():
    few, many = (
        learn_one(TASK, TRAIN, PRIOR, Plan(candidates=candidates)).costs.parameters
        for candidates in (5, 2001)
    )
    assert few is not None
    assert many is not None
    assert np.array_equal(few, many[:5])
    standard = (many[1:] - PRIOR.distribution.mean) / np.sqrt(PRIOR.distribution.variance)
    assert np.all(np.abs(standard.mean(axis=0)) < 4 / np.sqrt(2000))
    assert np.all(np.abs(standard.std(axis=0) - 1) < 0.08)


def test_a_better_candidate_than_the_mean_is_found():
    run = learn_one(TASK, TRAIN, PRIOR, Plan(candidates=50))
    assert run.certificate.policy != 0
    assert run.certificate.bound < learn_one(TASK, TRAIN, PRIOR).certificate.bound


@pytest.mark.parametrize("method", ["kl", "kl-maurer", "pinsker"])
def test_a_posterior_over_the_candidates_may_be_certified_instead(tmp_path: Path, method: str):
    run = learn_one(TASK, TRAIN, PRIOR, Plan(candidates=20, method=method))
    c = verify(run.save(tmp_path / "run")).certificate
    assert (c.method, c.policy, c.policies) == (method, None, 20)
    weights = Categorical([0.5] + [0.5 / 19] * 19)
    same = learn_finite(run.costs.values, 0.01, method=method, prior=weights).certificate
    assert c.bound == same.bound


def test_graded_costs_are_certified_by_bets(tmp_path: Path):
    environments = GRADED.environments(100, stream="train")
    run = learn_one(GRADED, environments, PRIOR, Plan(delta=0.03))
    c = verify(run.save(tmp_path / "run")).certificate
    assert not c.binary
    assert c.bound == betting_holdout(run.costs.values[:, 0], 0.03)
    assert c.bound < 0.9 * float(kl_inverse(c.empirical_cost, -math.log(0.03) / 100))  # Chernoff's


def test_the_same_seed_gives_the_same_candidates_and_another_seed_others():
    first, again, other = (
        learn_one(TASK, TRAIN, PRIOR, Plan(candidates=4, seed=seed)) for seed in (0, 0, 1)
    )
    assert first.certificate == again.certificate
    assert first.certificate.hashes["policies"] != other.certificate.hashes["policies"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": 0}, "candidates = 0: at least 1 is needed"),
        ({"candidates": -3}, "candidates = -3: at least 1 is needed"),
        ({"method": "magic"}, "method = 'magic' must be kl | kl-maurer"),
        ({"delta": 1.5}, "delta = 1.5 must lie strictly between 0 and 1"),
    ],
)
def test_bad_options_get_a_clear_error(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        learn_one(TASK, TRAIN, PRIOR, Plan(**options))


def test_a_prior_that_has_seen_the_environments_is_refused():
    prior = GaussianPrior(PRIOR.distribution.with_data_used(TRAIN[:20].range))
    with pytest.raises(ValueError, match="has seen some of these environments"):
        learn_one(TASK, TRAIN, prior)
    with pytest.raises(ValueError, match="has seen some of these environments"):
        certify_draw(TASK, TRAIN, prior, POSTERIOR)
    assert learn_one(TASK, TRAIN[20:], prior).certificate.set_aside == 20
    assert certify_draw(TASK, TRAIN[20:], prior, POSTERIOR).certificate.set_aside == 20


# ---- the one that was drawn ---------------------------------------------------------------------


@pytest.mark.parametrize("task", [TASK, GRADED], ids=["0/1", "graded"])
def test_the_bound_on_a_draw_is_the_disintegrated_one(tmp_path: Path, task: Reach):
    environments = task.environments(150, stream="train")
    run = certify_draw(task, environments, PRIOR, POSTERIOR, plan=Plan(delta=0.02, seed=5))
    c = verify(run.save(tmp_path / "run")).certificate
    assert run.costs.parameters is not None
    policy = run.costs.parameters[0]
    log_ratio = sum(
        norm.logpdf(policy, gaussian.mean, np.sqrt(gaussian.variance)).sum() * sign
        for gaussian, sign in ((POSTERIOR, 1), (PRIOR.distribution, -1))
    )
    assert c.kl == pytest.approx(log_ratio, rel=1e-9)
    cost = task.costs(policy[None], environments).mean()
    assert c.empirical_cost == pytest.approx(cost, rel=1e-12)
    allowed = (log_ratio + log_xi(150) - math.log(0.02)) / 150
    assert c.bound == pytest.approx(float(kl_inverse(cost, allowed)), rel=1e-9)
    assert c.budget == {"single-draw": 0.02}
    assert (c.method, c.policy, c.parameters, c.draws) == ("single-draw", 0, 2, None)
    assert c.prior == "for a reason"
    assert "the one policy drawn from the posterior over 2 parameters" in c.sentence


def test_the_same_seed_draws_the_same_policy_for_good():
    first, again, other = (
        certify_draw(TASK, TRAIN, PRIOR, POSTERIOR, plan=Plan(seed=seed)) for seed in (0, 0, 1)
    )
    assert first.certificate == again.certificate
    assert first.costs.parameters is not None
    assert other.costs.parameters is not None
    assert first.costs.parameters.shape == (1, 2)
    assert not np.any(first.costs.parameters == other.costs.parameters)


@pytest.mark.slow
def test_draws_follow_the_posterior():
    policies = [
        certify_draw(TASK, TRAIN[:2], PRIOR, POSTERIOR, plan=Plan(seed=seed)).costs.parameters
        for seed in range(300)
    ]
    standard = (np.concatenate(policies) - POSTERIOR.mean) / np.sqrt(POSTERIOR.variance)  # type: ignore[arg-type]
    assert np.all(np.abs(standard.mean(axis=0)) < 4 / np.sqrt(300))
    assert np.all(np.abs(standard.std(axis=0) - 1) < 0.2)


def test_a_draw_from_the_prior_itself_pays_for_no_divergence():
    c = certify_draw(TASK, TRAIN, PRIOR, PRIOR.distribution).certificate
    assert c.kl == pytest.approx(0, abs=1e-12)
    allowed = (log_xi(200) - math.log(0.01)) / 200
    assert c.bound == pytest.approx(float(kl_inverse(c.empirical_cost, allowed)), rel=1e-9)


def test_the_noise_of_a_draw_is_a_stream_of_its_own(tmp_path: Path):
    task = Slippery(radius=2.0)
    environments = task.environments(80, stream="train")
    run = certify_draw(task, environments, PRIOR, POSTERIOR, plan=Plan(seed=2))
    assert run.costs.parameters is not None
    expected = task.costs(run.costs.parameters, environments, Noise("single draw noise", 2))
    assert np.array_equal(run.costs.values, expected)
    assert verify(run.save(tmp_path / "run")).certificate.noise == "ice"


def test_a_learnt_posterior_can_be_certified_by_its_one_draw(tmp_path: Path):
    settings = SearchSettings(steps=40, pairs=8, natural=False)
    learnt = learn_gaussian(TASK, TRAIN, PRIOR, Plan(search=settings, draws=5)).posterior
    run = certify_draw(TASK, TRAIN, PRIOR, learnt)
    assert run.posterior.to_bytes() == learnt.to_bytes()
    assert verify(run.save(tmp_path / "run")).certificate.bound < 0.5


def test_a_draw_remembers_what_its_posterior_and_its_prior_have_seen(tmp_path: Path):
    part, rest = TRAIN[:50], TRAIN[50:]
    run = certify_draw(TASK, rest, PRIOR.distribution.with_data_used(part.range), POSTERIOR)
    assert run.posterior.seen == (TRAIN.range,)
    c = verify(run.save(tmp_path / "run")).certificate
    assert (c.set_aside, c.prior) == (50, "given in advance")


def test_a_distribution_alone_is_a_prior_that_was_given_in_advance():
    run = learn_one(TASK, TRAIN, PRIOR.distribution)
    assert run.certificate.prior == "its mean: given in advance"
    assert run.certificate.bound == learn_one(TASK, TRAIN, PRIOR).certificate.bound


def test_a_posterior_over_other_policies_than_the_prior_is_refused():
    prior = GaussianPrior(DiagonalGaussian(np.zeros(3), 1.0))
    with pytest.raises(ValueError, match="the posterior has 2 parameters and the prior 3"):
        certify_draw(TASK, TRAIN, prior, POSTERIOR)


class Clipping(Reach):
    """A task that writes to what it is given."""

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        np.clip(policies, 0.9, 1.1, out=policies)
        return super().costs(policies, environments)


def test_a_task_cannot_change_the_policy_that_was_drawn():
    task = Clipping()
    train = task.environments(50, stream="train")
    with pytest.raises(ValueError, match="read-only"):
        certify_draw(task, train, PRIOR, POSTERIOR)
    with pytest.raises(ValueError, match="read-only"):
        learn_one(task, train, PRIOR)
