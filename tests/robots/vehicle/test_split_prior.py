"""The vehicle's prior that is learnt on a share of the environments, at its declared settings."""

from __future__ import annotations

import numpy as np
import pytest

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn import GaussianPrior, Plan, Pretraining
from pacbayes_control.learn.planned import learn_on, prior_for
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.planar import Reshuffled
from pacbayes_control.robots.vehicle import Linear, network_start, priors
from pacbayes_control.robots.vehicle.pretrained import ELSEWHERE, NETWORK
from pacbayes_control.rollouts import Execution

Given = tuple[Vehicle, DiagonalGaussian, Pretraining]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Given]:
    """What the search for a prior is given; it is not carried out."""
    calls: list[Given] = []

    def record(task: Vehicle, start: DiagonalGaussian, how: Pretraining, _: Execution):
        calls.append((task, start, how))
        return GaussianPrior(start)

    monkeypatch.setattr(priors, "pretrain_prior", record)
    return calls


def test_a_share_and_a_number_of_steps_are_declared_in_advance(given: list[Given]):
    task = Vehicle(controller=NETWORK)
    train = task.environments(1000, stream="train")
    _, counted = prior_for(task, train, Plan(prior="split", seed=3), Execution())
    [(searched, start, how)] = given
    assert (counted.start, counted.stop) == (50, 1000)
    assert isinstance(searched.obstacles, Reshuffled)
    assert searched.obstacles.recorded.range == train[:50].range
    assert (how.search, how.per_step, how.seed) == (priors.SPLIT.search, priors.SPLIT.per_step, 3)
    usual = network_start(NETWORK, 3)
    np.testing.assert_array_equal(start.mean, usual.mean)
    np.testing.assert_allclose(start.variance, priors.SPLIT_WIDTH**2 * usual.variance)
    # the prior is as wide as one that was learnt elsewhere
    np.testing.assert_allclose(how.width**2 * start.variance, priors.WIDTH**2 * usual.variance)


def test_a_plan_may_declare_another_share_and_another_length(given: list[Given]):
    task = Vehicle(controller=NETWORK)
    train = task.environments(1000, stream="train")
    plan = Plan(prior="split", share=0.2, prior_steps=7)
    _, counted = prior_for(task, train, plan, Execution())
    assert len(counted) == 800
    assert given[0][2].search.steps == 7


def test_a_search_elsewhere_keeps_its_own_length(given: list[Given]):
    task = Vehicle(controller=Linear())
    train = task.environments(100, stream="train")
    for steps, expected in ((None, 400), (7, 7)):
        plan = Plan(prior="elsewhere", prior_steps=steps)
        _, counted = prior_for(task, train, plan, Execution())
        searched, _, how = given.pop()
        assert counted is train
        assert searched.obstacles == ELSEWHERE
        assert (how.search.steps, how.search.step_size, how.per_step) == (expected, 0.25, 256)


def test_the_learnt_network_is_certified_on_the_environments_that_it_never_saw():
    task = Vehicle(controller=NETWORK)
    train = task.environments(100, stream="train")
    plan = Plan(prior="split", certify="one", prior_steps=1)
    c = learn_on(task, train, plan).certificate
    assert (c.environments, c.set_aside, c.policies) == (95, 5, 1)
    assert c.prior is not None
    assert "learnt on 5 of the environments, which the bound does not count" in c.prior
