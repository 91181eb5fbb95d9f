"""Classes of policies: the oracle's formulas, symmetry, and what must not matter to a cost."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import oracle
import pytest
from numpy.typing import NDArray
from scenes import difference, discs_in, mirrored, scene

from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.planar import Trajectory, kernel, ray_angles
from pacbayes_control.robots.planar.policies import Controller
from pacbayes_control.robots.vehicle import (
    Gains,
    Linear,
    Network,
    network_start,
    paper_prior,
    reactive_gains,
)
from pacbayes_control.tasks import Environments, Noise
from sizes import sized

PRECISIONS = pytest.mark.parametrize("dtype", [np.float32, np.float64])
NETWORK = Network(3)


def policies_of(controller: Controller, n: int, seed: int = 0) -> NDArray[np.float64]:
    """Policies that steer by all of their parameters, (n, parameters)."""
    rng = np.random.default_rng(seed)
    if isinstance(controller, Network):
        start = network_start(controller, seed)
        policies = start.sample(rng, n)
        for last in range(31, controller.parameters, 22):
            policies[:, last] = rng.normal(0, 4, n)
        return policies
    linear = paper_prior().sample(rng, n) * rng.uniform(0.2, 1.2, (n, 1))
    if isinstance(controller, Linear):
        return linear
    return Linear().weights(linear) + rng.normal(0, 0.5, (n, 20))


CONTROLS = {"gains": oracle.gains_control, "linear": oracle.linear_control}
CONTROLLERS = pytest.mark.parametrize("controller", [Gains(), Linear(), NETWORK], ids=str)


# ---- the oracle ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """Policies of one class in a few environments, by the oracle and by the kernel in float64."""

    task: Vehicle
    control: oracle.Control
    policies: NDArray  # (policies, parameters)
    environments: Environments
    discs: list[NDArray]  # by environment, (discs, 3)
    poses: NDArray  # (environments, steps + 1, policies, 3), the oracle's
    contact: NDArray  # (environments, policies), the step of first contact or 0, the oracle's

    def trajectories(self) -> list[tuple[int, int, Trajectory]]:
        """The kernel's, with environment and policy."""
        return [
            (e, p, self.task.trajectory(policy, self.environments, e))
            for e in range(len(self.environments))
            for p, policy in enumerate(self.policies)
        ]


@pytest.fixture(scope="module", params=[Gains(), Linear(), Network(1), NETWORK], ids=str)
def reference(request) -> Reference:
    controller: Controller = request.param
    task = Vehicle(controller=controller)
    control = CONTROLS.get(controller.name, oracle.network_control)
    policies = policies_of(controller, 10)
    environments = task.environments(12, stream="controllers")
    discs = discs_in(environments)
    taken = [oracle.rollouts(policies, field, control) for field in discs]
    poses, contact = (np.array(each) for each in zip(*taken, strict=True))
    return Reference(task, control, policies, environments, discs, poses, contact)


@pytest.mark.slow
def test_every_outcome_of_every_class_is_the_oracles(reference):
    costs = reference.task.costs(reference.policies, reference.environments, dtype=np.float64)
    assert 0.05 < costs.mean() < 0.9
    np.testing.assert_array_equal(costs, reference.contact > 0)


@pytest.mark.slow
def test_trajectories_of_every_class_follow_the_oracles_until_contact(reference):
    for e, p, taken in reference.trajectories():
        contact = reference.contact[e, p]
        assert taken.collided == (contact > 0)
        assert len(taken.poses) - 1 == (contact or oracle.STEPS)
        assert len(taken.depths) == len(taken.poses) - 1
        expected = reference.poses[e, : len(taken.poses), p]
        assert difference(taken.poses, expected).max() < 1e-8


@pytest.mark.slow
def test_each_step_of_every_class_is_the_oracles(reference):
    for e, p, taken in reference.trajectories():
        before = taken.poses[:-1]
        expected = oracle.step(before, reference.policies[p], reference.discs[e], reference.control)
        assert difference(taken.poses[1:], expected).max() < 1e-12


@pytest.mark.slow
def test_act_is_what_the_kernel_does_along_a_trajectory(reference):
    """Depths in, u_diff out: each step turns by 2(r/L)Δt of it."""
    task, held, free = reference.task, 0, 0
    for _, p, taken in reference.trajectories()[::5]:
        controls = np.array([task.act(reference.policies[p], seen) for seen in taken.depths])
        turned = np.zeros((len(controls), 3))
        turned[:, 2] = np.diff(taken.poses[:, 2]) - 0.02 * controls
        assert difference(turned, np.zeros_like(turned)).max() < 1e-12
        held += np.sum(np.abs(controls) == 12.5)
        free += np.sum(np.abs(controls) < 12.5)
    assert min(held, free) > 10


def test_act_is_the_oracles_control_within_the_limits_of_the_wheels(reference):
    rng = np.random.default_rng(1)
    depths = rng.uniform(0.1, 5, (50, 20))
    for policy in reference.policies:
        expected = np.clip(reference.control(policy[None], depths), -12.5, 12.5)
        actual = [reference.task.act(policy, row) for row in depths]
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-9)


def test_recordings_hold_what_was_seen_and_done_in_every_environment(reference):
    for policy in reference.policies[:3]:
        seen, done = reference.task.recordings(policy, reference.environments)
        taken = [
            reference.task.trajectory(policy, reference.environments, e)
            for e in range(len(reference.environments))
        ]
        np.testing.assert_array_equal(seen, np.concatenate([one.depths for one in taken]))
        expected = [reference.task.act(policy, row) for row in seen]
        np.testing.assert_allclose(done, expected, atol=1e-12)


def test_the_hidden_units_have_a_say():
    """Or nothing above would test them."""
    task = Vehicle(controller=NETWORK)
    policies = policies_of(NETWORK, 20)
    silenced = policies.copy()
    silenced[:, 31::22] = 0
    environments = task.environments(50, stream="controllers")
    changed = task.costs(policies, environments) != task.costs(silenced, environments)
    assert changed.mean() > 0.05


def test_a_unit_is_squashed_to_between_minus_one_and_one():
    for x in (-1e6, -3.0, -0.1, 0.0, 0.5, 2.0, 1e6):
        assert kernel.squash(x) == pytest.approx(np.tanh(np.arcsinh(x)), abs=1e-15)


@PRECISIONS
def test_depths_are_inverted_less_the_offset_and_never_beyond_sixteen(dtype):
    depths = np.array([[5.0, 0.7], [0.27, 0.2], [0.0, 0.24]], dtype)
    kernel.invert(depths, 2, dtype(0.2))
    np.testing.assert_allclose(depths, [[1 / 4.8, 2], [1 / 0.07, 16], [16, 16]], rtol=1e-5)
    assert depths.max() <= 16


@PRECISIONS
def test_only_lanes_in_use_are_inverted(dtype):
    depths = np.full((3, 4), 2, dtype)
    kernel.invert(depths, 2, dtype(0))
    np.testing.assert_array_equal(depths, [[0.5, 0.5, 2, 2]] * 3)


# ---- symmetry -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("controller", [Linear(), NETWORK], ids=str)
def test_a_mirrored_scene_mirrors_the_trajectory(controller):
    task = Vehicle(controller=controller)
    environments = task.environments(12, stream="mirror")
    reflection = mirrored(environments)
    wandered = 0.0
    for policy in policies_of(controller, 6, seed=1):
        for e in range(len(environments)):
            there = task.trajectory(policy, environments, e)
            here = task.trajectory(policy, reflection, e)
            assert here.collided == there.collided
            assert len(here.poses) == len(there.poses)
            assert difference(here.poses * [-1, 1, -1], there.poses).max() < 1e-8
            np.testing.assert_allclose(here.depths[:, ::-1], there.depths, atol=1e-8)
            wandered = max(wandered, np.abs(there.poses[:, 0]).max())
    assert wandered > 1  # not straight ahead, where all is its own mirror image


@pytest.mark.parametrize("controller", [Linear(), NETWORK], ids=str)
def test_a_mirrored_scene_costs_odd_policies_the_same(controller):
    task = Vehicle(controller=controller)
    policies = policies_of(controller, 40, seed=2)
    environments = task.environments(100, stream="mirror")
    costs = task.costs(policies, environments, dtype=np.float64)
    reflected = task.costs(policies, mirrored(environments), dtype=np.float64)
    assert 0.05 < costs.mean() < 0.95
    np.testing.assert_array_equal(reflected, costs)


def test_a_mirrored_scene_costs_policies_that_are_not_odd_something_else():
    task = Vehicle()
    policies = policies_of(Gains(), 40, seed=2)
    environments = task.environments(100, stream="mirror")
    changed = task.costs(policies, environments) != task.costs(policies, mirrored(environments))
    assert changed.mean() > 0.02


def test_a_network_drives_straight_through_an_empty_arena():
    """No weights at all make it circle, as a constant would."""
    task = Vehicle(controller=NETWORK)
    for policy in policies_of(NETWORK, 5):
        taken = task.trajectory(policy, scene(), 0)
        assert not taken.collided
        assert np.abs(taken.poses[:, [0, 2]]).max() < 1e-6


@pytest.mark.slow
@PRECISIONS
def test_linear_policies_are_odd_gains_bit_for_bit(dtype):
    right = policies_of(Linear(), 70)
    gains = np.empty((70, 20))
    for i in range(10):
        gains[:, 10 + i], gains[:, 9 - i] = right[:, i], -right[:, i]
    linear, task = Vehicle(controller=Linear()), Vehicle(controller=Gains())
    environments = task.environments(60, stream="linear")
    np.testing.assert_array_equal(
        linear.costs(right, environments, dtype=dtype), task.costs(gains, environments, dtype=dtype)
    )
    np.testing.assert_array_equal(
        linear.surrogate(right, environments), task.surrogate(gains, environments)
    )
    for p in range(3):
        ours = linear.trajectory(right[p], environments, p)
        theirs = task.trajectory(gains[p], environments, p)
        np.testing.assert_array_equal(ours.poses, theirs.poses)
        np.testing.assert_array_equal(ours.depths, theirs.depths)


def test_the_papers_grid_is_linear():
    task, linear = Vehicle(), Vehicle(controller=Linear())
    environments = task.environments(50, stream="linear")
    np.testing.assert_array_equal(
        linear.costs(task.policies[:, 10:], environments, dtype=np.float64),
        task.costs(task.policies, environments, dtype=np.float64),
    )


# ---- what must not matter -----------------------------------------------------------------------

WORLDS = pytest.mark.parametrize(
    "task",
    [
        Vehicle(wheel_slip=0.1, range_noise=0.05),
        Vehicle(controller=NETWORK),
        Vehicle(controller=NETWORK, wheel_slip=0.1, range_noise=0.05),
    ],
    ids=["gains, noise", "network, no noise", "network, noise"],
)


@pytest.mark.slow
@WORLDS
def test_the_number_of_policies_rolled_out_together_does_not_matter(task):
    """Where the world has noise, a part of the table has that of its own columns."""
    policies, noise = policies_of(task.controller, 130), Noise("world", 3)
    environments = task.environments(40, stream="groups")
    costs = task.costs(policies, environments, noise)
    surrogate = task.surrogate(policies, environments, noise)
    assert 0.05 < costs.mean() < 0.95
    cuts = [0, 1, 2, 5, 70, 129, 130]
    parts = [(policies[a:b], environments, noise.shifted(a)) for a, b in pairwise(cuts)]
    apart = np.concatenate([task.costs(*part) for part in parts], axis=1)
    np.testing.assert_array_equal(apart, costs)
    apart = np.concatenate([task.surrogate(*part) for part in parts], axis=1)
    np.testing.assert_array_equal(apart, surrogate)


@pytest.mark.slow
@WORLDS
@PRECISIONS
def test_policies_given_to_each_environment_cost_what_they_do_in_all(task, dtype):
    policies = policies_of(task.controller, 70)
    environments = task.environments(30, stream="own")
    everywhere = np.tile(policies, (30, 1, 1))
    costs = task.costs(policies, environments, dtype=dtype)
    np.testing.assert_array_equal(task.costs(everywhere, environments, dtype=dtype), costs)
    np.testing.assert_array_equal(
        task.surrogate(everywhere, environments), task.surrogate(policies, environments)
    )


@pytest.mark.slow
@WORLDS
def test_an_environments_own_policies_cost_what_they_do_there_alone(task):
    own = policies_of(task.controller, 12 * 7).reshape(12, 7, -1)
    environments = task.environments(12, stream="own")
    costs, surrogate = task.costs(own, environments), task.surrogate(own, environments)
    assert len(np.unique(surrogate, axis=0)) == 12
    assert costs.any()
    for e in range(12):
        there = environments[e : e + 1]
        np.testing.assert_array_equal(task.costs(own[e], there)[0], costs[e])
        np.testing.assert_array_equal(task.costs(own[e : e + 1], there)[0], costs[e])
        np.testing.assert_array_equal(task.surrogate(own[e], there)[0], surrogate[e])


@pytest.mark.slow
@WORLDS
def test_slices_of_environments_do_not_matter(task):
    """Across the border of two blocks, and with noise: it belongs to an environment's index."""
    policies = policies_of(task.controller, 30)
    environments = task.environments(1080, stream="chunks")[980:]
    costs = task.costs(policies, environments)
    cuts = [0, 1, 40, 44, 45, 100]
    parts = [task.costs(policies, environments[a:b]) for a, b in pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(parts), costs)
    parts = [task.costs(policies, chunk) for chunk in environments.chunks(1)]
    assert len(parts) == 2
    np.testing.assert_array_equal(np.concatenate(parts), costs)


# ---- surrogates ---------------------------------------------------------------------------------


def test_a_surrogate_is_one_less_the_oracles_smallest_distance(reference):
    """In single precision a trajectory drifts: nearly all stay within a tenth of a millimetre."""
    surrogate = reference.task.surrogate(reference.policies, reference.environments)
    assert surrogate.shape == reference.contact.shape
    expected = np.array(
        [
            1 - np.minimum(oracle.closest(poses, contact, discs), 1)
            for poses, contact, discs in zip(
                reference.poses, reference.contact, reference.discs, strict=True
            )
        ]
    )
    errors = np.abs(surrogate - expected)
    assert np.mean(errors < 1e-4) > 0.97
    assert np.median(errors) < 1e-6
    assert expected.std() > 0.1


@pytest.mark.slow
@WORLDS
def test_a_surrogate_is_beyond_one_less_the_robots_radius_exactly_where_it_collides(task):
    """Contact is tested on squares, in single precision: a micrometre about 0.73 is either's."""
    policies = policies_of(task.controller, 60)
    environments = task.environments(200, stream="surrogate")
    surrogate, costs = task.surrogate(policies, environments), task.costs(policies, environments)
    assert surrogate.dtype == np.float64
    assert np.all((surrogate >= 0) & (surrogate <= 1))
    assert 0.05 < costs.mean() < 0.95
    clear = np.abs(surrogate - (1 - 0.27)) > 1e-6
    assert np.mean(~clear) < 1e-3
    np.testing.assert_array_equal(surrogate[clear] > 1 - 0.27, costs[clear] == 1)


def test_surrogates_of_scenes_worked_out_by_hand():
    straight, task = np.zeros((1, 20)), Vehicle()
    # Alone, the nearest surface is the bottom wall, 1.025 m behind after the first step.
    assert task.surrogate(straight, scene())[0, 0] == 0
    # The middle passes a disc of 0.2 m at 0.8 m, level with its own middle after 40 steps.
    beside = scene((0.8, 1 + 40 * 0.125, 0.2))
    assert task.surrogate(straight, beside)[0, 0] == pytest.approx(1 - 0.6, abs=1e-6)
    # Contact after 22 steps, at y = 3.75; the rollout goes no nearer.
    before = scene((0.0, 4.0, 0.1))
    assert task.surrogate(straight, before)[0, 0] == pytest.approx(1 - 0.15, abs=1e-6)
    # The middle enters a disc in its first step: no distance is below 0.
    within = scene((0.0, 2.0, 0.95))
    assert task.surrogate(straight, within)[0, 0] == 1
    # A wall 0.5 m to the side.
    along = Vehicle(start=(4.4, 1.0, 0.0))
    assert along.surrogate(straight, scene())[0, 0] == pytest.approx(1 - 0.5, abs=1e-6)


def test_a_surrogate_varies_where_costs_are_flat():
    task = Vehicle(controller=Linear())
    policies = paper_prior().mean + np.linspace(0, 0.02, 9)[:, None]
    environments = task.environments(100, stream="surrogate")
    flat = np.all(task.costs(policies, environments) == 0, axis=1)
    surrogate = task.surrogate(policies, environments)[flat]
    assert np.mean(surrogate.std(axis=1) > 0) > 0.5


# ---- where learning starts ----------------------------------------------------------------------


def test_the_papers_prior_is_around_its_policy_of_2_5_and_10():
    prior = paper_prior()
    angles = np.pi / 3 * np.arange(1, 20, 2) / 19  # of the rays to the right
    np.testing.assert_allclose(prior.mean, 10 - 4 * angles)
    np.testing.assert_array_equal(prior.variance, np.full(10, 0.01))
    full = Linear().weights(prior.mean)
    np.testing.assert_allclose(full, reactive_gains(2.5, 10.0, ray_angles()), atol=1e-12)


@pytest.mark.parametrize("hidden", [1, 4])
def test_a_networks_start_has_a_mean_and_variance_for_each_parameter(hidden):
    network = Network(hidden)
    start = network_start(network)
    assert len(start) == network.parameters == 10 + 22 * hidden
    np.testing.assert_allclose(start.mean[:10], 0.8 * paper_prior().mean)
    np.testing.assert_allclose(start.variance[:10], 0.2**2)
    units, spread = start.mean[10:].reshape(hidden, 22), start.variance[10:].reshape(hidden, 22)
    assert np.all(units[:, :21] != 0)
    assert np.all(units[:, 21] == 0)
    np.testing.assert_allclose(spread, [[*[0.06**2] * 20, 0.1**2, 0.4**2]] * hidden)


def test_a_networks_start_is_named_by_its_seed():
    first, again = network_start(NETWORK, 1), network_start(NETWORK, 1)
    other = network_start(NETWORK, 2)
    np.testing.assert_array_equal(first.mean, again.mean)
    assert np.all(first.mean[10:31] != other.mean[10:31])


def test_hidden_units_have_no_say_at_the_start():
    task = Vehicle(controller=NETWORK)
    start = network_start(NETWORK).mean
    alone = np.concatenate([start[:10], np.zeros(66)])
    environments = task.environments(5, stream="start")
    for e in range(5):
        np.testing.assert_array_equal(
            task.trajectory(start, environments, e).poses,
            task.trajectory(alone, environments, e).poses,
        )


def test_classes_of_policies_have_names_of_their_own():
    controllers = [Gains(), Linear(), Network(3), Network(4)]
    assert [Vehicle(controller=each).policy_class for each in controllers] == [
        "gains",
        "linear",
        "network-3",
        "network-4",
    ]


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [Vehicle.costs, Vehicle.surrogate], ids=["costs", "surrogate"])
@pytest.mark.parametrize(
    ("controller", "needed"), [(Gains(), 20), (Linear(), 10), (NETWORK, 76)], ids=str
)
def test_policies_of_another_shape_are_an_error(run, controller, needed):
    task = Vehicle(controller=controller)
    environments = task.environments(4, stream="train")
    for shape in [
        (needed,),
        (3, needed - 1),
        (3, needed + 1),
        (4, 3, needed + 1),
        (1, 4, 3, needed),
    ]:
        with pytest.raises(ValueError, match=rf"{controller.name} policies need {needed} param"):
            run(task, np.zeros(shape), environments)


@pytest.mark.parametrize("given", [1, 3, 5])
def test_policies_for_another_number_of_environments_are_an_error(given):
    task = Vehicle()
    with pytest.raises(ValueError, match=f"policies for {given} environments were given, and .* 4"):
        task.costs(np.zeros((given, 3, 20)), task.environments(4, stream="train"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@CONTROLLERS
def test_a_parameter_that_is_not_finite_is_an_error_that_says_where(controller, bad):
    task = Vehicle(controller=controller)
    environments = task.environments(4, stream="train")
    own = np.zeros((4, 3, controller.parameters))
    own[2, 1, -1] = bad
    with pytest.raises(ValueError, match="policy 1 of environment 2 has a NaN, an infinite"):
        task.costs(own, environments)
    with pytest.raises(ValueError, match="policy 1 has a NaN, an infinite"):
        task.surrogate(own[2], environments)
    with pytest.raises(ValueError, match="policy 0 has a NaN, an infinite"):
        task.trajectory(own[2, 1], environments, 0)


@pytest.mark.parametrize("index", [-1, 4])
def test_a_trajectory_in_an_environment_that_is_not_there_is_an_error(index):
    task = Vehicle()
    with pytest.raises(ValueError, match=f"environment {index} is not one of the 4"):
        task.trajectory(np.zeros(20), task.environments(4, stream="train"), index)


@pytest.mark.parametrize("shape", [(), (19,), (21,), (1, 20)])
def test_acting_on_another_number_of_depths_is_an_error(shape):
    with pytest.raises(ValueError, match="an observation is 20 depths"):
        Vehicle().act(np.zeros(20), np.ones(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_acting_on_depths_that_are_not_finite_is_an_error(bad):
    depths = np.full(20, 3.0)
    depths[7] = bad
    with pytest.raises(ValueError, match="depths lie between 0 and 5 m"):
        Vehicle().act(np.zeros(20), depths)


@pytest.mark.parametrize("huge", [3e38, 1e39, -1e10])
def test_a_parameter_that_single_precision_might_lose_is_an_error(huge):
    task = Vehicle()
    gains = np.where(np.arange(20) % 2, huge, -huge)
    with pytest.raises(ValueError, match="policy 0 has a NaN, an infinite or a huge parameter"):
        task.costs(gains[None], task.environments(4, stream="huge"))


def test_acting_checks_the_policy_too():
    with pytest.raises(ValueError, match="need 20 parameters"):
        Vehicle().act(np.zeros(42), np.full(20, 5.0))
    with pytest.raises(ValueError, match="policy 0 has a NaN"):
        Vehicle().act(np.full(20, np.nan), np.full(20, 5.0))


def test_networks_that_differ_in_their_offset_have_different_names():
    assert Network(4).name != Network(4, offset=0.1).name


def test_a_network_without_hidden_units_is_an_error():
    with pytest.raises(ValueError, match="at least one is needed"):
        Network(0)


@pytest.mark.slow
def test_the_cost_alone_is_won_by_driving_in_circles():
    """Why the classes that are certified are odd: docs/continuous.md says so."""
    task = Vehicle()
    environments = task.environments(sized(4000, full=20_000), stream="circles")
    assert task.costs(np.full((1, 20), 100.0), environments).mean() < 0.001
    path = task.trajectory(np.full(20, 100.0), environments, 0).poses
    assert np.abs(path[:, 0]).max() < 1.1
    assert path[:, 1].max() < 1.7
