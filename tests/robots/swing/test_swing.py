"""The Swing against its oracle, closed forms, and scenes worked out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import oracle_swing
import pytest
from numpy.typing import NDArray
from oracle_swing import Drone

from pacbayes_control.robots import Swing
from pacbayes_control.robots.planar import Gains, Trajectory, ray_angles, reactive_gains
from pacbayes_control.robots.swing import Net
from pacbayes_control.tasks import Environments
from robots.vehicle.scenes import difference, discs_in, mirrored, scene
from sizes import sized

DOUBLE = pytest.param(np.float64, marks=pytest.mark.slow)  # compiled for it alone
PRECISIONS = pytest.mark.parametrize("dtype", [np.float32, DOUBLE])
STRAIGHT = np.zeros((1, 40))  # gains that never turn
DRONES = {
    "the paper's": Drone(),
    "quick and nimble": Drone(k_u=6.0, k_p=2.5, speed=1.5, largest_yaw=0.9),
}


def swing(drone: Drone) -> Swing:
    return Swing(k_u=drone.k_u, k_p=drone.k_p, speed=drone.speed, largest_yaw=drone.largest_yaw)


# ---- the oracle ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """The 100 policies in a few environments, by the oracle and by the kernel.

    Many of the paper's gains ask for all or nothing, so that some flights grow the error of a
    rounding a hundredfold each second. What the oracle does if it starts a little aside tells
    which: `steady` paths stay together, and `certain` outcomes are the same.
    """

    drone: Drone
    environments: Environments
    discs: list[NDArray]  # by environment, (discs, 3)
    poses: NDArray  # (environments, 61, policies, 3), the oracle's
    contact: NDArray  # (environments, policies), the step of first contact or 0, the oracle's
    steady: NDArray  # (environments, policies)
    certain: NDArray  # (environments, policies)
    taken: list[list[Trajectory]]  # by policy and environment, the kernel's


def flown(gains: NDArray, discs: list[NDArray], drone: Drone, aside: float = 0.0):
    found = [oracle_swing.rollouts(gains, field, drone, aside) for field in discs]
    return np.array([poses for poses, _ in found]), np.array([contact for _, contact in found])


@pytest.fixture(scope="module", params=DRONES)
def reference(request: pytest.FixtureRequest) -> Reference:
    drone = DRONES[request.param]
    task = swing(drone)
    gains = task.policies
    environments = task.environments(8, stream="oracle")
    discs = discs_in(environments)
    poses, contact = flown(gains, discs, drone)
    until = np.arange(61)[:, None] <= np.where(contact > 0, contact, 60)[:, None]
    near = [flown(gains, discs, drone, aside)[0] for aside in (-1e-10, 1e-10)]
    apart = [np.abs(each - poses).max(axis=3, where=until[..., None], initial=0) for each in near]
    further = [flown(gains, discs, drone, aside)[1] for aside in (-1e-5, 1e-5)]
    return Reference(
        drone,
        environments,
        discs,
        poses,
        contact,
        np.max(apart, axis=(0, 2)) < 1e-5,
        np.all([each == contact for each in further], axis=0),
        [task.trajectories(policy, environments) for policy in gains],
    )


@pytest.mark.slow
def test_every_step_of_every_trajectory_is_the_oracles_step(reference):
    gains = Swing().policies
    some = slice(None, None, sized(7, full=1))
    for policy, by_environment in zip(gains[some], reference.taken[some], strict=True):
        for one, discs in zip(by_environment, reference.discs, strict=True):
            before, after = one.poses[:-1], one.poses[1:]
            control = (policy / oracle_swing.depths(before, discs)).sum(axis=1)
            for taken in range(len(before)):
                at = slice(taken, taken + 1)
                expected = oracle_swing.fly(before[at], control[at], taken, reference.drone)
                assert difference(after[at], expected).max() < 1e-9


@pytest.mark.slow
def test_every_trajectory_ends_at_the_first_contact(reference):
    for by_environment in reference.taken:
        for one, discs in zip(by_environment, reference.discs, strict=True):
            gaps = oracle_swing.clearance(one.poses[1:, :2], discs)
            assert len(gaps) == 60 or one.collided
            assert one.collided == (gaps[-1] <= 0.2)
            assert np.all(gaps[:-1] > 0.2)


@pytest.mark.slow
def test_steady_trajectories_are_the_oracles_to_a_micrometre(reference):
    assert reference.steady.mean() > 0.4
    for p, by_environment in enumerate(reference.taken):
        for e, one in enumerate(by_environment):
            if reference.steady[e, p]:
                assert one.collided == (reference.contact[e, p] > 0)
                expected = reference.poses[e, : len(one.poses), p]
                assert difference(one.poses, expected).max() < 1e-6


@pytest.mark.slow
@PRECISIONS
def test_every_outcome_that_a_rounding_does_not_decide_is_the_oracles(reference, dtype):
    task = swing(reference.drone)
    costs = task.costs(task.policies, reference.environments, dtype=dtype)
    assert 0.1 < costs.mean() < 0.9
    assert reference.certain.mean() > 0.85
    expected = reference.contact > 0
    np.testing.assert_array_equal(costs[reference.certain], expected[reference.certain])


@pytest.mark.slow
def test_costs_in_double_precision_are_those_of_the_trajectories(reference):
    task = swing(reference.drone)
    costs = task.costs(task.policies, reference.environments, dtype=np.float64)
    ends = np.array([[one.collided for one in row] for row in reference.taken]).T
    assert np.mean(costs != ends) < 0.01  # lanes side by side may be rounded otherwise


@pytest.mark.slow
def test_precision_decides_one_flight_in_fifty_at_most():
    task = Swing()
    environments = task.environments(300, stream="precision")
    single = task.costs(task.policies, environments)
    double = task.costs(task.policies, environments, dtype=np.float64)
    assert np.mean(single != double) < 0.02
    best = double.mean(axis=0).argmin()
    assert np.mean(single[:, best] != double[:, best]) < 0.005


@pytest.mark.slow
def test_what_a_trajectory_saw_is_what_the_oracle_sees_there(reference):
    for by_environment in reference.taken[::9]:
        for one, discs in zip(by_environment, reference.discs, strict=True):
            seen = oracle_swing.depths(one.poses[:-1], discs)
            assert one.depths.shape == (len(one.poses) - 1, 40)
            np.testing.assert_allclose(one.depths, seen, atol=1e-9)


@pytest.mark.slow
def test_the_surrogate_is_one_less_the_smallest_distance_on_the_way(reference):
    task = swing(reference.drone)
    found = task.surrogate(task.policies, reference.environments)
    assert np.all((found >= 0) & (found <= 1))
    expected = np.empty_like(found)
    for e, discs in enumerate(reference.discs):
        for p, contact in enumerate(reference.contact[e]):
            way = reference.poses[e, 1 : (contact or 60) + 1, p, :2]
            expected[e, p] = 1 - np.clip(oracle_swing.clearance(way, discs).min(), 0, 1)
    apart = np.abs(found - expected)[reference.steady & reference.certain]
    assert np.median(apart) < 1e-5
    assert np.quantile(apart, 0.8) < 1e-2  # in single precision, steady or not


def test_mirrored_environments_cost_the_same():
    """The gains are odd but for a ray straight ahead, of which 40 have none."""
    task = Swing()
    environments, gains = task.environments(100, stream="mirror"), task.policies[20:30]
    np.testing.assert_array_equal(
        task.costs(gains, mirrored(environments)), task.costs(gains, environments)
    )


# ---- how it turns -------------------------------------------------------------------------------


def constant(u: float, task: Swing) -> NDArray:
    """Gains that ask for a constant u where no ray meets anything within 5 m."""
    return np.full(task.controller.rays, u * task.horizon / task.controller.rays)


WIDE = Swing(arena=Net(half_width=200.0, length=400.0), start=(0.0, 100.0, 0.0))  # nothing near


@pytest.mark.parametrize("u", [-0.2, 0.1, 0.26])
def test_a_constant_command_leads_to_its_yaw_exponentially(u: float):
    task = replace(WIDE, steps=300)
    taken = task.trajectory(constant(u, task), scene(), 0)
    yaw, steps = taken.poses[:301, 2], np.arange(301)
    settled = task.k_u * u
    assert yaw[-1] == pytest.approx(settled, abs=1e-4)
    exact = settled * (1 - np.exp(-task.k_p * task.time_step * steps))
    np.testing.assert_allclose(yaw, exact, atol=1e-9)


def test_shorter_steps_end_at_the_same_place():
    """Yaw is exact, and places by the trapezoidal rule: their error falls with the square."""
    places = []
    for shorter in (1, 4, 64):
        task = replace(WIDE, time_step=0.1 / shorter, steps=50 * shorter)
        poses = task.trajectory(constant(0.2, task), scene(), 0).poses
        assert poses[50 * shorter, 2] == pytest.approx(0.6 * (1 - math.exp(-0.4 * 5)), abs=1e-9)
        places.append(poses[50 * shorter, :2])
    errors = [np.linalg.norm(place - places[-1]) for place in places[:-1]]
    assert errors[0] < 1e-3
    assert errors[1] < errors[0] / 15


@pytest.mark.parametrize("u", [-10.0, -0.3, 0.27, 1e6])
def test_the_yaw_that_is_asked_for_stays_within_45_degrees(u: float):
    task = replace(WIDE, steps=300)
    yaw = task.trajectory(constant(u, task), scene(), 0).poses[:, 2]
    limit = math.copysign(0.78, u)  # of 26 %, the largest whole percent below π/4
    assert yaw[300] == pytest.approx(limit, abs=1e-4)
    assert np.abs(yaw).max() <= math.pi / 4


def test_the_first_step_moves_between_the_old_heading_and_the_new():
    poses = WIDE.trajectory(constant(10.0, WIDE), scene(), 0).poses
    yaw = 0.78 * (1 - math.exp(-0.04))
    place = [-0.1 * math.sin(yaw), 100.1 + 0.1 * math.cos(yaw), yaw]
    np.testing.assert_allclose(poses[1], place, atol=1e-10)


@pytest.mark.parametrize("heading", [-0.5, 0.3])
def test_a_drone_that_starts_with_a_yaw_turns_on_from_there(heading: float):
    task = replace(WIDE, start=(0.0, 100.0, heading))
    yaw = task.trajectory(STRAIGHT[0], scene(), 0).poses[:51, 2]
    np.testing.assert_allclose(yaw, heading * np.exp(-0.04 * np.arange(51)), atol=1e-9)


def test_no_more_than_the_full_command_is_asked_for():
    assert Swing(k_u=0.5).largest_control == 1.0


@pytest.mark.parametrize("command", [0.0, 0.004, 0.006, -0.1234, 0.155])
def test_commands_are_whole_percents_in_the_model_as_on_the_radio(command: float):
    task = replace(WIDE, steps=300)
    settled = task.trajectory(constant(command, task), scene(), 0).poses[300, 2] / 3
    assert 100 * settled == pytest.approx(math.floor(100 * command + 0.5), abs=0.01)


def test_it_turns_left_when_an_obstacle_is_nearer_on_the_right():
    gains = reactive_gains(2.55, 30.0, ray_angles(40))
    poses = Swing().trajectory(gains, scene((1.0, 3.0, 0.4)), 0).poses
    assert poses[2, 2] > 0  # left is ψ > 0
    assert poses[3, 0] < 0


# ---- where it ends ------------------------------------------------------------------------------


def test_straight_flight_ends_where_it_must():
    taken = Swing().trajectory(STRAIGHT[0], scene(), 0)
    assert not taken.collided
    assert len(taken.poses) == 61
    np.testing.assert_allclose(taken.poses[50], [0, 1 + 50 * 0.2, 0], atol=1e-9)
    np.testing.assert_allclose(taken.poses[60], [0, 12, 0], atol=1e-9)


@pytest.mark.parametrize(
    ("speed", "landing_steps", "time_step"), [(2.0, 10, 0.1), (1.5, 1, 0.1), (2.0, 25, 0.05)]
)
def test_landing_takes_half_the_way_of_flying_on(speed, landing_steps, time_step):
    task = Swing(steps=3, speed=speed, landing_steps=landing_steps, time_step=time_step)
    taken = task.trajectory(np.full(40, 0.01), scene(), 0)
    landing = taken.poses[3:]
    assert len(landing) == landing_steps + 1
    way = np.linalg.norm(np.diff(landing[:, :2], axis=0), axis=1)
    assert way.sum() == pytest.approx(speed * landing_steps * time_step / 2)
    np.testing.assert_allclose(np.diff(way), -speed * time_step / landing_steps, atol=1e-9)
    assert np.ptp(landing[:, 2]) == 0  # straight on
    assert landing[0, 2] != 0


@PRECISIONS
def test_a_cylinder_that_only_the_landing_meets_costs_1(dtype):
    met, missed = scene((0.0, 12.45, 0.3)), scene((0.0, 12.55, 0.3))  # it stops at 12 + 0.2
    task = Swing()
    assert task.costs(STRAIGHT, met, dtype=dtype)[0, 0] == 1
    assert task.costs(STRAIGHT, missed, dtype=dtype)[0, 0] == 0
    taken = task.trajectory(STRAIGHT[0], met, 0)
    assert taken.collided
    assert 50 < len(taken.poses) - 1 < 60
    shorter = replace(task, landing_steps=1)
    assert shorter.costs(STRAIGHT, met, dtype=dtype)[0, 0] == 0


@PRECISIONS
@pytest.mark.parametrize("side", [-1, 1])
def test_a_cylinder_is_touched_just_within_reach_and_not_just_beyond(side: int, dtype):
    for across, cost in ((0.2 + 0.3 - 1e-3, 1), (0.2 + 0.3 + 1e-3, 0)):
        there = scene((side * across, 1 + 20 * 0.2, 0.3))
        assert Swing().costs(STRAIGHT, there, dtype=dtype)[0, 0] == cost


NETS = {  # where the net is touched first: the start, gains, and which coordinate is at the net
    "left": ((-3.25, 1.0, 0.0), 10.0, (0, -3.3)),
    "right": ((3.25, 1.0, 0.0), -10.0, (0, 3.3)),
    "far": ((0.0, 8.0, 0.0), 0.0, (1, 17.8)),
    "near": ((0.0, 0.0, 0.0), 0.0, (1, 0.2)),
}


@PRECISIONS
@pytest.mark.parametrize("side", NETS)
def test_the_net_costs_1_on_each_side(side: str, dtype):
    start, u, (coordinate, edge) = NETS[side]
    task = Swing(start=start)
    gains = constant(u, task)
    assert task.costs(gains[None], scene(), dtype=dtype)[0, 0] == 1
    taken = task.trajectory(gains, scene(), 0)
    assert taken.collided
    outwards = -1 if side in ("left", "near") else 1
    assert outwards * (taken.poses[-1, coordinate] - edge) >= -1e-9
    assert abs(taken.poses[-1, coordinate] - edge) < 0.21  # no further than a step


@pytest.mark.parametrize("start", [(-3.28, 5.0), (3.28, 5.0), (0.0, 6.75), (0.0, 0.22)])
def test_beside_the_net_there_is_room(start: tuple[float, float]):
    """2 cm from touching, on each side, and 5 cm at the far end of a straight flight."""
    task = Swing(start=(*start, 0.0))
    assert task.costs(STRAIGHT, scene())[0, 0] == 0


def test_the_net_is_seen_on_all_four_sides():
    task, rng = Swing(), np.random.default_rng(1)
    for pose in rng.uniform([-3.4, 0.1, -np.pi], [3.4, 17.9, np.pi], (300, 3)):
        expected = oracle_swing.net_depths(pose[None])[0]
        np.testing.assert_allclose(task.depths(pose, []), expected, atol=1e-9)


def test_clearance_is_that_of_the_oracle_within_the_net():
    points = np.random.default_rng(2).uniform([-3.5, 0], [3.5, 18], (300, 2))
    discs = np.array([[0.0, 8.0, 0.5], [2.0, 12.0, 0.3]])
    expected = np.maximum(oracle_swing.clearance(points, discs), 0)
    np.testing.assert_allclose(Swing().clearance(points, discs), expected, atol=1e-12)


# ---- the policies -------------------------------------------------------------------------------


def test_the_grid_is_the_papers_5_by_20():
    task = Swing()
    assert task.controller == Gains(40)
    assert task.policies.shape == (100, 40)
    angles = np.linspace(-np.pi / 3, np.pi / 3, 40)
    expected = [
        [y0 / x0 * ((x0 if angle >= 0 else -x0) - angle) for angle in angles]
        for x0 in np.linspace(0.1, 5, 5)
        for y0 in np.linspace(0, 60, 20)
    ]
    np.testing.assert_allclose(task.policies, expected, atol=1e-12)


def test_the_policies_have_names_of_their_own():
    names = Swing().policy_names
    assert len(set(names)) == 100
    assert (names[0], names[21], names[-1]) == (
        "x0=0.100 y0=0.00",
        "x0=1.325 y0=3.16",
        "x0=5.000 y0=60.00",
    )


def test_a_policy_acts_within_the_drones_limits():
    task = Swing()
    near = np.full(40, 5.0)
    near[25:] = 1.0
    assert task.act(task.policies[-1], near) == pytest.approx(0.26)
    assert task.act(task.policies[-1], near[::-1]) == pytest.approx(-0.26)
    fine = replace(task, resolution=0.0)
    assert fine.act(task.policies[-1], near) == pytest.approx(math.pi / 4 / 3)
    assert task.act(STRAIGHT[0], near) == 0


# ---- what is none -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["speed", "k_u", "k_p", "largest_yaw", "time_step"])
def test_a_drone_needs_positive_numbers(name: str, value: float):
    with pytest.raises(ValueError, match=f"^{name} = {value} must be a number from "):
        replace(Swing(), **{name: value})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"largest_yaw": 1.6}, "largest_yaw = 1.6 must be a number from 1e-06 to 1.5"),
        ({"resolution": 0.2}, "resolution = 0.2 must be a number from 0 to 0.1"),
        ({"largest_command": 1.1}, "largest_command = 1.1 must be a number from 1e-06 to 1"),
        ({"steps": 0}, "steps = 0 must be a whole number from 1"),
        ({"landing_steps": 0}, "landing_steps = 0 must be a whole number from 1"),
        ({"range_noise": 0.3}, "range_noise = 0.3 must be a number from 0 to 0.25"),
        ({"controller": Gains(63)}, "rays = 63 must be a whole number from 2 to 62"),
        ({"start": (0.0, 1.0, 1.6)}, "the heading at the start = 1.6 must be"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_drones_beyond_the_model_are_an_error(fields: dict, words: str):
    with pytest.raises(ValueError, match=words):
        Swing(**fields)


def test_the_grid_of_another_fan_is_for_that_fan_or_refused():
    """The gains are a line over the rays' angles, and these are other angles."""
    task = Swing(fan=0.5)
    try:
        grid = task.policies
    except ValueError:
        return
    np.testing.assert_allclose(grid[-1], reactive_gains(5, 60, task.rays[0]))
