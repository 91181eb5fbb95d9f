"""The vehicle in PyBullet, which the paper used, against the kernel."""

import sys
from pathlib import Path

import numpy as np
import pytest

from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.vehicle import Network
from pacbayes_control.robots.vehicle.bullet import BulletVehicle
from pacbayes_control.rollouts import Execution, evaluate
from pacbayes_control.rollouts.processes import Processes
from sizes import sized

ENVIRONMENTS, POLICIES = sized((30, 6), full=(100, 12))

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="PyBullet has no wheels beyond Python 3.11"
)


@pytest.fixture(scope="module", params=[pytest.param(0, marks=pytest.mark.slow, id="once")])
def both():
    """Costs by PyBullet and by the kernel, (environments, policies) each."""
    task = Vehicle()
    grid = task.policies
    gains = grid[np.linspace(0, 49, POLICIES).round().astype(int)]
    environments = task.environments(ENVIRONMENTS, stream="bullet")
    return BulletVehicle().costs(gains, environments), task.costs(gains, environments)


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
    task = BulletVehicle()
    gains = task.policies[[9, 29, 49]]
    environments = task.environments(4, stream="bullet")
    together = task.costs(gains, environments)
    alone = [
        task.costs(gains[p : p + 1], environments[e : e + 1]) for e in range(4) for p in range(3)
    ]
    np.testing.assert_array_equal(np.ravel(alone), together.ravel())
    own = np.broadcast_to(gains, (4, *gains.shape))
    np.testing.assert_array_equal(task.costs(own, environments), together)


def test_it_draws_the_environments_of_the_vehicle():
    ours, theirs = (task.environments(3, "bullet") for task in (Vehicle(), BulletVehicle()))
    assert ours.range == theirs.range
    assert ours.digest() == theirs.digest()


def test_rollouts_run_on_several_processes_and_are_kept(
    tmp_path: Path, two_processes: Processes, monkeypatch: pytest.MonkeyPatch
):
    task = BulletVehicle()
    gains, where = task.policies[[9, 49]], task.environments(12, stream="bullet")
    how = Execution(two_processes, store=tmp_path / "kept")
    costs = evaluate(task, gains, where, execution=how)
    np.testing.assert_array_equal(costs.values, task.costs(gains, where))
    assert "in PyBullet" in str(costs.origin["cost_rule"])
    assert costs.origin["settings"] == Vehicle().settings
    assert "pybullet" in costs.origin["versions"]  # type: ignore[operator]
    monkeypatch.setattr(BulletVehicle, "costs", None)  # nothing is rolled out again
    again = Execution(store=tmp_path / "kept", repeats_checked=True)
    kept = evaluate(task, gains, where, execution=again)
    np.testing.assert_array_equal(kept.values, costs.values)


def test_the_rollouts_that_are_done_are_told():
    task, told = BulletVehicle(), []
    task.costs(task.policies[:2], task.environments(2, "x"), progress=lambda *now: told.append(now))
    assert told == [(2, 4), (4, 4)]


@pytest.mark.parametrize("other", [{"controller": Network()}, {"wheel_slip": 0.1}], ids=str)
def test_networks_and_noise_are_refused(other: dict):
    with pytest.raises(ValueError, match="linear policies in a world without noise"):
        BulletVehicle(**other)


def test_without_pybullet_the_line_to_install_it_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pacbayes_control.robots.vehicle.bullet.find_spec", lambda _: None)
    task = BulletVehicle()
    environments = task.environments(1, stream="bullet")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'pacbayes-control\[pybullet\]'"):
        task.costs(np.zeros((1, 20)), environments)
