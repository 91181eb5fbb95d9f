"""What is deployed is what was certified: a draw an episode, or one policy for good."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from origins import certifying, single_draw
from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.issuing import (
    Basis,
    Provenance,
    issue,
    issue_sampled,
    issue_single_draw,
)
from pacbayes_control.certify.priors import with_costs_used
from pacbayes_control.certify.run import Run
from pacbayes_control.deploy.policy import DeployedPolicy
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.vehicle import Linear, paper_prior
from pacbayes_control.rollouts import Draws, certifying_draws, evaluate

NOTHING = np.zeros(1)
GAUSSIAN = DiagonalGaussian([2.0, -1.0], [0.25, 4.0])
PRIOR = DiagonalGaussian([0.0, 0.0], 4.0)
DRAWN = np.array([[1.5, 0.5]])


@dataclass
class Parrot:
    """A robot whose action is its policy."""

    policy_class: str = "words"

    def act(self, policy: NDArray, observation: NDArray) -> NDArray:  # noqa: ARG002
        return policy


def finite_run(probabilities: list[float]) -> Run[Categorical]:
    """A certificate for a posterior over policies whose parameters are their numbers."""
    size = len(probabilities)
    values = np.random.default_rng(0).random((50, size)) < 0.2
    costs = Costs(values, parameters=np.arange(float(size))[:, None])
    budget = Budget(0.05)
    budget.spend("kl")
    prior = Categorical.uniform(size)
    posterior = with_costs_used(Categorical(probabilities), prior, costs)
    certificate = issue(Basis(costs, prior, posterior, budget, Provenance("kl")), "kl")
    return Run(certificate, costs, prior, posterior)


def gaussian_run() -> Run[DiagonalGaussian]:
    costs = Costs(np.eye(50, 4), origin=certifying(GAUSSIAN), draws="fresh")
    budget = Budget(0.05)
    budget.spend("sampling", 0.01)
    budget.spend("kl")
    certificate = issue_sampled(Basis(costs, PRIOR, GAUSSIAN, budget, Provenance("kl")), "kl")
    return Run(certificate, costs, PRIOR, GAUSSIAN)


def single_draw_run() -> Run[DiagonalGaussian]:
    costs = Costs(np.eye(50, 1), origin=single_draw(GAUSSIAN), parameters=DRAWN)
    budget = Budget(0.05)
    budget.spend("single-draw")
    certificate = issue_single_draw(Basis(costs, PRIOR, GAUSSIAN, budget, Provenance("kl")))
    return Run(certificate, costs, PRIOR, GAUSSIAN)


def occam_run() -> Run[Categorical]:
    values = np.random.default_rng(0).random((80, 4)) < [0.5, 0.4, 0.1, 0.6]
    return learn_finite(Costs(values, parameters=np.arange(4.0)[:, None]), method="occam")


def episodes(robot: DeployedPolicy, n: int) -> NDArray:
    """The policy of each of n episodes; shape (n, parameters)."""
    return np.array([robot.predict(NOTHING, episode_start=True)[0] for _ in range(n)])


# ---- a posterior: one draw an episode -----------------------------------------------------------

POSTERIORS = pytest.mark.parametrize("make", [lambda: finite_run([0.1] * 10), gaussian_run])


@POSTERIORS
def test_a_policy_is_kept_for_the_episode(make: Any):
    robot = DeployedPolicy(make(), Parrot(), seed=0)
    robot.reset()
    first = robot.policy
    for _ in range(20):
        action, state = robot.predict(NOTHING)
        assert np.array_equal(action, first)
        assert state is None
    assert np.array_equal(robot.policy, first)


@POSTERIORS
def test_a_policy_is_drawn_when_an_episode_begins(make: Any):
    robot = DeployedPolicy(make(), Parrot(), seed=0)
    assert len(np.unique(episodes(robot, 100), axis=0)) >= 10
    before = []
    for _ in range(100):
        robot.reset()
        before.append(robot.policy)
    assert len(np.unique(before, axis=0)) >= 10


@POSTERIORS
def test_nothing_is_done_before_an_episode_begins(make: Any):
    robot = DeployedPolicy(make(), Parrot(), seed=3)
    with pytest.raises(ValueError, match="no episode has begun"):
        robot.predict(NOTHING)
    with pytest.raises(ValueError, match="no episode has begun"):
        _ = robot.policy
    action, _ = robot.predict(NOTHING, episode_start=True)
    assert np.array_equal(robot.predict(NOTHING)[0], action)
    other = DeployedPolicy(make(), Parrot(), seed=3)
    other.reset()
    assert np.array_equal(other.predict(NOTHING)[0], action)


@POSTERIORS
def test_a_seed_repeats_the_draws_and_none_does_not(make: Any):
    run = make()
    first, again, other, chance = (
        episodes(DeployedPolicy(run, Parrot(), seed=seed), 30) for seed in (1, 1, 2, None)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, chance)


@POSTERIORS
def test_without_a_seed_one_is_drawn_from_the_system_and_kept(make: Any):
    run = make()
    robots = [DeployedPolicy(run, Parrot()) for _ in range(2)]
    assert robots[0].seed != robots[1].seed
    assert DeployedPolicy(run, Parrot(), seed=7).seed == 7
    drawn, other = (episodes(robot, 30) for robot in robots)
    assert not np.array_equal(drawn, other)
    assert np.array_equal(drawn, episodes(DeployedPolicy(run, Parrot(), robots[0].seed), 30))


def test_the_draws_follow_the_categorical_posterior():
    probabilities = [0.05, 0.6, 0.0, 0.35]
    drawn = episodes(DeployedPolicy(finite_run(probabilities), Parrot(), seed=0), 4000)
    shares = np.bincount(drawn[:, 0].astype(int), minlength=4) / 4000
    np.testing.assert_allclose(shares, probabilities, atol=0.025)
    assert shares[2] == 0


def test_the_draws_follow_the_gaussian_posterior():
    drawn = episodes(DeployedPolicy(gaussian_run(), Parrot(), seed=0), 4000)
    for i in range(2):
        exact = norm(GAUSSIAN.mean[i], np.sqrt(GAUSSIAN.variance[i]))
        assert kstest(drawn[:, i], exact.cdf).pvalue > 0.01
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.05


def test_the_mean_of_the_posterior_is_never_deployed():
    drawn = episodes(DeployedPolicy(gaussian_run(), Parrot(), seed=0), 200)
    assert not np.any(drawn == GAUSSIAN.mean)


@POSTERIORS
def test_nobody_may_act_without_chance_under_a_certificate_for_a_posterior(make: Any):
    robot = DeployedPolicy(make(), Parrot(), seed=0)
    assert not robot.deterministic
    with pytest.raises(ValueError, match="for policies drawn from the posterior, not for one"):
        robot.predict(NOTHING, deterministic=True)
    robot.predict(NOTHING, episode_start=True, deterministic=False)


def test_a_posterior_with_all_mass_on_one_policy_is_still_a_posterior():
    robot = DeployedPolicy(finite_run([0.0, 1.0, 0.0]), Parrot(), seed=0)
    assert np.all(episodes(robot, 20) == 1)
    with pytest.raises(ValueError, match="not for one of them"):
        robot.predict(NOTHING, deterministic=True)


# ---- one policy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "policy"), [(occam_run, [2.0]), (single_draw_run, [1.5, 0.5])])
def test_one_certified_policy_is_the_same_in_every_episode(make: Any, policy: list[float]):
    for seed in (0, 1, None):
        robot = DeployedPolicy(make(), Parrot(), seed=seed)
        assert robot.deterministic
        assert np.array_equal(robot.policy, policy)  # at once: there is nothing to draw
        assert np.array_equal(robot.predict(NOTHING)[0], policy)
        assert np.all(episodes(robot, 30) == policy)
        for deterministic in (False, True):
            action, _ = robot.predict(NOTHING, deterministic=deterministic)
            assert np.array_equal(action, policy)


# ---- what cannot be deployed --------------------------------------------------------------------


def test_a_run_without_parameters_cannot_be_deployed(binary_costs: Costs):
    for method in ("kl", "occam"):
        with pytest.raises(ValueError, match="the run has no parameters of its policies"):
            DeployedPolicy(learn_finite(binary_costs, method=method), Parrot())


def test_policies_of_another_class_cannot_be_deployed():
    task = Vehicle()
    environments = task.environments(20, stream="train")
    run = learn_finite(evaluate(task, task.policies[:5], environments))
    with pytest.raises(ValueError, match="is about gains policies, and the task has linear ones"):
        DeployedPolicy(run, Vehicle(controller=Linear()))
    with pytest.raises(ValueError, match="is about gains policies, and the task has words ones"):
        DeployedPolicy(run, Parrot())


def test_a_folder_that_is_no_run_cannot_be_deployed(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no run"):
        DeployedPolicy(tmp_path / "none", Parrot())


# ---- from a folder, on the vehicle --------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda: finite_run([0.3, 0.7]), gaussian_run, occam_run, single_draw_run]
)
def test_a_run_in_a_folder_is_deployed_like_the_run_itself(tmp_path: Path, make: Any):
    run = make()
    folder = run.save(tmp_path / "run")
    expected = episodes(DeployedPolicy(run, Parrot(), seed=4), 20)
    for place in (folder, str(folder)):
        assert np.array_equal(episodes(DeployedPolicy(place, Parrot(), seed=4), 20), expected)


def test_an_altered_folder_is_not_deployed(tmp_path: Path):
    folder = gaussian_run().save(tmp_path / "run")
    (folder / "posterior.json").write_bytes(PRIOR.to_bytes())
    with pytest.raises(ValueError, match=r"posterior.json was altered"):
        DeployedPolicy(folder, Parrot())


def test_the_action_is_that_of_the_task():
    task = Vehicle()
    environments = task.environments(40, stream="train")
    depths = np.random.default_rng(0).uniform(0.5, 5, (30, 20))
    finite = learn_finite(evaluate(task, task.policies[::7], environments))
    robot = DeployedPolicy(finite, task, seed=0)
    for observation in depths:
        action, _ = robot.predict(observation, episode_start=True)
        assert action == task.act(robot.policy, observation)
        assert np.any(np.all(task.policies[::7] == robot.policy, axis=1))


def test_the_action_of_a_gaussian_posterior_is_that_of_the_task():
    task = Vehicle(controller=Linear())
    prior = paper_prior()
    costs = certifying_draws(task, prior, task.environments(40, stream="train"), Draws(2))
    budget = Budget(0.05)
    budget.spend("sampling", 0.01)
    budget.spend("kl")
    certificate = issue_sampled(Basis(costs, prior, prior, budget, Provenance("none")), "kl")
    robot = DeployedPolicy(Run(certificate, costs, prior, prior), task, seed=0)
    depths = np.random.default_rng(0).uniform(0.5, 5, (30, 20))
    actions = []
    for observation in depths:
        action, _ = robot.predict(observation.tolist(), episode_start=True)  # type: ignore[arg-type]
        assert action == task.act(robot.policy, observation)
        actions.append(float(action))
    assert len(set(actions)) > 10


def test_an_observation_that_is_none_is_an_error():
    task = Vehicle()
    run = learn_finite(evaluate(task, task.policies[:3], task.environments(20, stream="train")))
    robot = DeployedPolicy(run, task, seed=0)
    robot.reset()
    with pytest.raises(ValueError, match="an observation is 20 depths"):
        robot.predict(np.ones(3))
    with pytest.raises(ValueError, match="depths lie between 0 and 5 m"):
        robot.predict(np.full(20, np.nan))


def test_no_page_deploys_the_same_draws_in_every_process():
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *root.glob("docs/*.md"), *root.glob("examples/*.py")]
    for page in [*pages, *root.glob("src/**/*.py")]:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"DeployedPolicy\([^\n]*seed=\d", text), page
