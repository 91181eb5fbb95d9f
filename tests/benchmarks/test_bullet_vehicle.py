"""The kernel against PyBullet, which the paper used."""

import sys

import numpy as np
import pytest

from loading import load
from pacbayes_control.robots import Vehicle
from sizes import sized

bullet_costs = load("bullet_vehicle").bullet_costs

ENVIRONMENTS, POLICIES = sized((30, 6), full=(100, 12))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.version_info >= (3, 12), reason="PyBullet has no wheels beyond Python 3.11"
    ),
]


@pytest.fixture(scope="module")
def both():
    """Costs by PyBullet and by the kernel, (environments, policies) each."""
    task = Vehicle()
    grid = task.policies
    gains = grid[np.linspace(0, 49, POLICIES).round().astype(int)]
    environments = task.environments(ENVIRONMENTS, stream="bullet")
    return bullet_costs(task, gains, environments), task.costs(gains, environments)


def test_bullet_gives_zeros_and_ones_by_environment_and_policy(both):
    theirs, ours = both
    assert theirs.shape == ours.shape == (ENVIRONMENTS, POLICIES)
    assert theirs.dtype == np.uint8
    assert set(np.unique(theirs)) == {0, 1}


def test_bullet_agrees_on_nearly_every_rollout(both):
    theirs, ours = both
    assert np.mean(theirs == ours) >= 0.96


def test_bullet_agrees_on_every_rollout_that_never_turns(both):
    """Without feedback from the sensor nothing can grow: contacts alone are compared."""
    theirs, ours = both
    assert 0 < ours[:, 0].sum() < ENVIRONMENTS
    np.testing.assert_array_equal(theirs[:, 0], ours[:, 0])


def test_bullet_agrees_on_mean_costs(both):
    """Disagreements go both ways, so the means are closer than the rollouts."""
    theirs, ours = both
    assert abs(theirs.mean() - ours.mean()) < 0.02


def test_bullet_does_not_depend_on_what_ran_before():
    task = Vehicle()
    gains = task.policies[[9, 29, 49]]
    environments = task.environments(4, stream="bullet")
    together = bullet_costs(task, gains, environments)
    alone = [
        bullet_costs(task, gains[p : p + 1], environments[e : e + 1])
        for e in range(4)
        for p in range(3)
    ]
    np.testing.assert_array_equal(np.ravel(alone), together.ravel())


def test_without_pybullet_the_line_to_install_it_is_given(monkeypatch):
    monkeypatch.setattr("bullet.find_spec", lambda _: None)
    task = Vehicle()
    environments = task.environments(1, stream="bullet")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'pacbayes-control\[pybullet\]'"):
        bullet_costs(task, np.zeros((1, 20)), environments)
