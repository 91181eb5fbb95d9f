"""The compiled kernel against the oracle, closed forms, and scenes worked out by hand."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np
import oracle
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scenes import difference, discs_in, mirrored, scene

from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.planar import (
    ObstacleField,
    Trajectory,
    kernel,
    ray_angles,
    reactive_gains,
)
from pacbayes_control.tasks import Environments
from sizes import sized

PRECISIONS = pytest.mark.parametrize("dtype", [np.float32, np.float64])
STRAIGHT = np.zeros((1, 20))  # gains that never turn
LARGE_DISCS = ObstacleField(fewest=7, most=7, radius=(0.1, 1.1))


def cost(task: Vehicle, gains: NDArray, environments: Environments, dtype: type) -> int:
    return int(task.costs(gains, environments, dtype=dtype)[0, 0])


# ---- the oracle ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """The paper's 50 policies in some environments, by the oracle and by the kernel in float64."""

    discs: list[NDArray]  # by environment, (discs, 3)
    poses: NDArray  # (environments, steps + 1, policies, 3), the oracle's
    contact: NDArray  # (environments, policies), the step of first contact or 0, the oracle's
    costs: NDArray  # (environments, policies), the kernel's
    trajectories: list[list[Trajectory]]  # by environment and policy, the kernel's


@pytest.fixture(scope="module")
def reference() -> Reference:
    task = Vehicle()
    gains = task.policies
    environments = task.environments(sized(15, full=40), stream="oracle")
    discs = discs_in(environments)
    poses, contact = zip(*(oracle.rollouts(gains, field) for field in discs), strict=True)
    return Reference(
        discs,
        np.array(poses),
        np.array(contact),
        task.costs(gains, environments, dtype=np.float64),
        [
            [task.trajectory(policy, environments[e : e + 1], 0) for policy in gains]
            for e in range(len(environments))
        ],
    )


def drifts(reference: Reference) -> NDArray:
    """How far each of the kernel's trajectories is from the oracle's at most, (rollouts,)."""
    return np.array(
        [
            difference(one.poses, reference.poses[e, : len(one.poses), p]).max()
            for e, taken in enumerate(reference.trajectories)
            for p, one in enumerate(taken)
        ]
    )


@pytest.mark.slow
def test_every_outcome_in_double_precision_is_the_oracles(reference):
    assert 0.1 < reference.costs.mean() < 0.6
    np.testing.assert_array_equal(reference.costs, reference.contact > 0)


@pytest.mark.slow
def test_trajectories_end_at_the_oracles_first_contact(reference):
    for taken, contact in zip(reference.trajectories, reference.contact, strict=True):
        for one, step in zip(taken, contact, strict=True):
            assert one.collided == (step > 0)
            assert len(one.poses) - 1 == (step if one.collided else oracle.STEPS)


@pytest.mark.slow
def test_each_step_of_every_trajectory_is_the_oracles_step(reference):
    gains = Vehicle().policies
    for discs, taken in zip(reference.discs, reference.trajectories, strict=True):
        for policy, one in zip(gains, taken, strict=True):
            expected = oracle.step(one.poses[:-1], policy, discs)
            assert difference(one.poses[1:], expected).max() < 1e-12


@pytest.mark.slow
def test_what_a_trajectory_saw_before_each_step_is_what_the_oracle_sees_there(reference):
    for discs, taken in zip(reference.discs, reference.trajectories, strict=True):
        for one in taken[::7]:
            assert one.depths.shape == (len(one.poses) - 1, len(oracle.ANGLES))
            np.testing.assert_allclose(one.depths, oracle.depths(one.poses[:-1], discs), atol=1e-9)


@pytest.mark.slow
def test_whole_trajectories_follow_the_oracles_to_a_billionth(reference):
    assert drifts(reference).max() < 1e-9


@pytest.mark.slow
def test_single_precision_hardly_ever_changes_an_outcome():
    task = Vehicle()
    gains = task.policies
    environments = task.environments(sized(500, full=1500), stream="precision")
    single = task.costs(gains, environments)
    double = task.costs(gains, environments, dtype=np.float64)
    assert np.mean(single == double) >= 0.9995
    assert abs(single.mean() - double.mean()) < 1e-4


# ---- the sensor ---------------------------------------------------------------------------------


def discs_of(field: ObstacleField, seed: int) -> NDArray[np.float64]:
    drawn = field.draw(np.random.default_rng(seed), 1)
    return drawn["obstacles"][0, : drawn["counts"][0]].astype(float)


def poses_among(discs: NDArray, rng: np.random.Generator, n: int) -> NDArray:
    """Poses of every kind, (n, 3), none with its centre in a disc or a wall.

    In the arena, above it (most of them looking back), left and right of the walls and below them,
    and as close as 1 mm to a disc.
    """
    fifth = n // 5
    arena = rng.uniform((-4.9, 0.1), (4.9, 10), (fifth, 2))
    above = rng.uniform((-8, 10), (8, 15), (fifth, 2))
    beside = rng.uniform((5.1, -3), (9, 13), (fifth, 2)) * rng.choice([(-1, 1), (1, 1)], fifth)
    below = rng.uniform((-9, -4), (9, -0.1), (fifth, 2))
    disc = rng.choice(discs, n - 4 * fifth)
    gap = 10 ** rng.uniform(-3, 0, len(disc))
    around = rng.uniform(-np.pi, np.pi, len(disc))
    reach = (disc[:, 2] + gap)[:, None]
    close = disc[:, :2] + reach * np.stack([np.sin(around), np.cos(around)], axis=1)
    heading = rng.uniform(-np.pi, np.pi, n)
    heading[fifth : 2 * fifth] = rng.uniform(np.pi / 2, 3 * np.pi / 2, fifth)
    poses = np.column_stack([np.concatenate([arena, above, beside, below, close]), heading])
    x, y, _ = poses.T
    return poses[(oracle.disc_gaps(x, y, discs) > 5e-4) & (oracle.wall_gaps(x, y) > 5e-4)]


def sensed(
    poses: NDArray,
    discs: NDArray,
    dtype: type = np.float64,
    lanes: int = 1,
    angles: NDArray = oracle.ANGLES,
) -> NDArray:
    """The kernel's depths, (poses, rays), with so many poses side by side.

    One at a time is the hardest on culling: no other lane widens the span of rays that are tried.
    """
    task = Vehicle()
    walls, open_areas = task.arena.walls.astype(dtype), task.arena.open_areas.astype(dtype)
    rays = np.array([angles, np.sin(angles), np.cos(angles)], dtype)
    horizon, obstacles = dtype(task.horizon), discs.astype(dtype)
    x, y, psi = poses.T
    state = np.array([x, y, np.sin(psi), np.cos(psi)], dtype)
    depths = np.empty((len(poses), len(angles)), dtype)
    for first in range(0, len(poses), lanes):
        lane_state = np.ascontiguousarray(state[:, first : first + lanes])
        group = np.empty((len(angles), lane_state.shape[1]), dtype)
        scratch = np.empty((2, lane_state.shape[1]), dtype)
        x, y, sin, cos = lane_state
        kernel.sense_discs(x, y, sin, cos, obstacles, rays, horizon, group, scratch)
        kernel.sense_walls(x, y, sin, cos, walls, open_areas, rays, horizon, group, scratch)
        depths[first : first + lanes] = group.T
    return depths


FIELDS = pytest.mark.parametrize(
    "field", [ObstacleField(), LARGE_DISCS], ids=["small discs", "large discs"]
)


@FIELDS
@pytest.mark.slow
def test_depths_are_those_of_trying_every_ray_on_every_disc_and_wall(field):
    rng = np.random.default_rng(1)
    for seed in range(8):
        discs = discs_of(field, seed)
        poses = poses_among(discs, rng, 500)
        expected = oracle.depths(poses, discs)
        assert 0.2 < np.mean(expected < oracle.HORIZON) < 0.95
        np.testing.assert_allclose(sensed(poses, discs), expected, rtol=0, atol=1e-9)


@pytest.mark.slow
@FIELDS
def test_depths_in_single_precision_miss_nothing_that_is_not_grazed(field):
    """Each lies between those of slightly wider and slightly narrower discs and walls."""
    rng = np.random.default_rng(2)
    grown = np.array([0, 0, 1e-5])
    grown_walls = np.array([-1e-5, 1e-5, -1e-5, 1e-5])
    for seed in range(8):
        discs = discs_of(field, seed)
        poses = poses_among(discs, rng, 500).astype(np.float32).astype(float)
        depths = sensed(poses, discs, np.float32)
        nearest = oracle.depths(poses, discs + grown, oracle.WALLS + grown_walls)
        farthest = oracle.depths(poses, discs - grown, oracle.WALLS - grown_walls)
        assert np.all(depths >= nearest - 1e-5)
        assert np.all(depths <= farthest + 1e-5)
        assert np.mean(farthest - nearest > 1e-3) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("rays", [2, 7, 40])
def test_depths_are_exact_for_fans_of_other_sizes(rays):
    rng = np.random.default_rng(3)
    angles = ray_angles(rays)
    for seed, field in enumerate([ObstacleField(), LARGE_DISCS]):
        discs = discs_of(field, seed)
        poses = poses_among(discs, rng, 300)
        expected = oracle.depths(poses, discs, angles=angles)
        np.testing.assert_allclose(sensed(poses, discs, angles=angles), expected, atol=1e-9)


@PRECISIONS
@pytest.mark.slow
def test_depths_do_not_depend_on_the_poses_alongside(dtype):
    rng = np.random.default_rng(4)
    discs = discs_of(ObstacleField(), 0)
    poses = rng.permutation(poses_among(discs, rng, 640))
    alone = sensed(poses, discs, dtype)
    np.testing.assert_array_equal(sensed(poses, discs, dtype, lanes=64), alone)


@pytest.mark.slow
def test_a_robot_that_faces_a_wall_reads_its_distance_over_the_cosine():
    depths = sensed(np.array([[-3.9, 5.0, np.pi / 2]]), np.empty((0, 3)))
    np.testing.assert_allclose(depths[0], 1 / np.cos(oracle.ANGLES), atol=1e-12)


def test_rays_to_the_right_of_the_heading_are_the_positive_ones():
    right = sensed(np.array([[0.0, 5.0, 0.0]]), np.array([[1.0, 6.0, 0.3]]))[0]
    assert np.all(right[:10] == oracle.HORIZON)
    assert right[10:].min() < 1.5


# ---- scalar functions ---------------------------------------------------------------------------

coordinates = st.floats(-6, 6)
radii = st.floats(0.05, 1.1)
fan = st.floats(-np.pi / 3, np.pi / 3)


@given(coordinates, coordinates, radii, fan)
def test_ray_disc_ends_on_the_first_point_of_the_disc(side, front, radius, angle):
    sin, cos = math.sin(angle), math.cos(angle)
    depth = kernel.ray_disc(side, front, radius, sin, cos, 5.0)
    along = np.linspace(0, depth, 200)
    gaps = np.hypot(along * sin - side, along * cos - front) - radius
    if depth < 5.0:
        assert abs(gaps[-1]) < 1e-9
    if gaps[0] > 0:  # from outside
        assert gaps.min() > -1e-9


def test_ray_disc_reads_distance_less_radius_straight_ahead():
    assert kernel.ray_disc(0.0, 3.0, 0.5, 0.0, 1.0, 5.0) == 2.5
    assert kernel.ray_disc(0.3, 3.0, 0.5, 0.0, 1.0, 5.0) == pytest.approx(2.6, abs=1e-15)


@pytest.mark.parametrize(("side", "front"), [(0.51, 3.0), (-0.51, 3.0), (0.0, -3.0), (0.0, 5.5)])
def test_ray_disc_reads_the_horizon_beside_behind_and_beyond(side, front):
    assert kernel.ray_disc(side, front, 0.5, 0.0, 1.0, 5.0) == 5.0


def test_ray_disc_in_single_precision_keeps_its_accuracy_far_away():
    """b² - c would be off by 2e-4 at the edge of a small disc; its offset from the line is not."""
    sin, cos = np.sin(0.3), np.cos(0.3)
    for offset in np.linspace(0, 0.0499, 100):
        side, front = 4.9 * sin + offset * cos, 4.9 * cos - offset * sin
        depth = kernel.ray_disc(*np.array([side, front, 0.05, sin, cos, 5.0], np.float32))
        assert depth == pytest.approx(4.9 - math.sqrt(0.05**2 - offset**2), abs=2e-5)


def test_ray_box_meets_the_nearest_side():
    diagonal = math.sqrt(2)
    assert kernel.ray_box(-1.0, 1.0, 2.0, 3.0, np.inf, 1.0, 5.0) == 2.0
    assert kernel.ray_box(2.0, 3.0, -1.0, 1.0, 1.0, np.inf, 5.0) == 2.0
    assert kernel.ray_box(-3.0, -2.0, -1.0, 1.0, -1.0, np.inf, 5.0) == 2.0
    assert kernel.ray_box(1.0, 2.0, 0.5, 3.0, diagonal, diagonal, 5.0) == pytest.approx(diagonal)


@pytest.mark.parametrize(
    "sides",
    [(1.0, 2.0, 2.0, 3.0), (-1.0, 1.0, -3.0, -2.0), (-1.0, 1.0, 5.0, 6.0)],
    ids=["beside", "behind", "beyond"],
)
def test_ray_box_reads_the_horizon_where_it_misses(sides):
    left, right, bottom, top = sides
    assert kernel.ray_box(left, right, bottom, top, np.inf, 1.0, 5.0) == 5.0


@given(coordinates, coordinates, st.floats(0.1, 3), st.floats(0.1, 3), st.floats(-3.14, 3.14))
def test_ray_box_ends_on_the_first_point_of_the_box(left, bottom, width, height, angle):
    right, top = left + width, bottom + height
    box = np.array([[left, right, bottom, top]])
    origin, angles = np.zeros((1, 3)), np.array([angle])
    # A ray from within a wall is nobody's, and one along an axis has its own test.
    assume(oracle.wall_gaps(origin[:, 0], origin[:, 1], box)[0] > 1e-9)
    assume(min(abs(math.sin(angle)), abs(math.cos(angle))) > 1e-9)
    depth = kernel.ray_box(left, right, bottom, top, 1 / math.sin(angle), 1 / math.cos(angle), 5.0)
    grown = 1e-9 * np.array([-1, 1, -1, 1])
    assert depth >= oracle.wall_depths(origin, box + grown, angles)[0, 0] - 1e-7
    assert depth <= oracle.wall_depths(origin, box - grown, angles)[0, 0] + 1e-7


@given(coordinates, coordinates, st.floats(0, 3), st.floats(0, 3))
@pytest.mark.slow
def test_box_gap_squared_is_the_distance_to_the_nearest_point(left, bottom, width, height):
    box = np.array([[left, left + width, bottom, bottom + height]])
    expected = oracle.wall_gaps(np.zeros(1), np.zeros(1), box)[0] ** 2
    assert kernel.box_gap_squared(*box[0]) == pytest.approx(expected, abs=1e-12)


def test_box_gap_squared_by_hand():
    assert kernel.box_gap_squared(3.0, 5.0, 4.0, 6.0) == 25.0
    assert kernel.box_gap_squared(-5.0, -3.0, -1.0, 1.0) == 9.0
    assert kernel.box_gap_squared(-1.0, 1.0, -6.0, -2.0) == 4.0
    assert kernel.box_gap_squared(-1.0, 1.0, -1.0, 1.0) == 0.0


def test_the_sine_and_cosine_of_a_turn_are_exact_to_1e_10():
    for angle in np.linspace(-0.3, 0.3, 1001):
        assert kernel.turn_sin(angle) == pytest.approx(math.sin(angle), rel=0, abs=1e-10)
        assert kernel.turn_cos(angle) == pytest.approx(math.cos(angle), rel=0, abs=1e-10)


@pytest.mark.parametrize(("control", "angle"), [(5.0, 0.1), (1e6, 0.25), (-1e6, -0.25)])
def test_a_turn_is_clipped_on_both_sides(control: float, angle: float):
    state, model = (0.0, 0.0, 0.0, 1.0, 0.0), Vehicle().constants
    *_, sin, cos, _ = Vehicle.move(state, control, (0.0, 0.0), 0, model)
    assert math.atan2(sin, cos) == pytest.approx(angle)


@PRECISIONS
def test_bearings_are_good_to_4_milliradians_and_held_within_a_right_angle(dtype):
    for distance in (0.3, 1.0, 6.1):
        for angle in np.linspace(-3.1, 3.1, 997):
            side, front = dtype(distance * math.sin(angle)), dtype(distance * math.cos(angle))
            inverse = dtype(1 / (distance * (distance + float(front))))
            bearing = kernel.bearing(side, dtype(distance), inverse)
            expected = min(max(angle, -math.pi / 2), math.pi / 2)
            assert abs(bearing - expected) < 0.004


@PRECISIONS
def test_half_widths_leave_room_for_the_error_of_a_bearing(dtype):
    for radius in (0.05, 0.2, 1.1):
        for distance in radius * np.linspace(1.0001, 20, 500):
            for angle in (0.0, 0.7, -1.5, 2.0):
                front = distance * math.cos(angle)
                inverse = 1 / (distance * (distance + front))
                half = kernel.half_width(*np.array([radius, distance, front, inverse], dtype))
                assert half >= math.asin(radius / distance) + 0.004


def test_no_disc_that_a_ray_meets_is_unseen():
    rng = np.random.default_rng(5)
    edge = oracle.ANGLES[-1]
    origin = np.zeros((1, 3))
    unseen = 0
    for _ in range(5000):
        side, front, radius = rng.uniform((-6, -2, 0.05), (6, 6, 1.1))
        squared = side * side + front * front
        seen = kernel.sees(side, front, squared, radius, math.sin(edge), math.cos(edge), 5.0)
        unseen += not seen
        meets = oracle.disc_depths(origin, np.array([[side, front, radius]])) < 5
        assert seen or not meets.any()
    assert unseen > 1000


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (kernel.across, 4),
        (kernel.ahead, 4),
        (kernel.ray_disc, 6),
        (kernel.ray_box, 7),
        (kernel.box_gap_squared, 4),
        (kernel.turn_sin, 1),
        (kernel.turn_cos, 1),
        (kernel.turned, 3),
        (kernel.bearing, 3),
        (kernel.half_width, 4),
        (kernel.squash, 1),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_scalar_functions_keep_the_precision_of_their_arguments(function, arguments):
    for dtype, expected in ((np.float32, numba.float32), (np.float64, numba.float64)):
        function(*np.full(arguments, 0.25, dtype))
        signature = (expected,) * arguments
        returned = function.overloads[signature].signature.return_type
        assert getattr(returned, "dtype", returned) == expected  # of each, where there are two


# ---- what must not matter -----------------------------------------------------------------------


def many_policies() -> NDArray:
    """130 of them: the paper's, and as many again with noise."""
    gains = Vehicle().policies
    noise = np.random.default_rng(6).normal(size=(80, 20))
    return np.concatenate([gains, np.resize(gains, noise.shape) + noise])


@pytest.mark.slow
@PRECISIONS
def test_the_number_of_policies_evaluated_together_does_not_matter(dtype):
    task, gains = Vehicle(), many_policies()
    environments = task.environments(sized(15, full=60), stream="groups")
    together = task.costs(gains, environments, dtype=dtype)
    for size in (1, 3, 64, 65):
        parts = [
            task.costs(gains[first : first + size], environments, dtype=dtype)
            for first in range(0, len(gains), size)
        ]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), together)


def test_the_order_of_policies_does_not_matter():
    task, gains = Vehicle(), many_policies()
    environments = task.environments(60, stream="groups")
    order = np.random.default_rng(7).permutation(len(gains))
    shuffled = task.costs(gains[order], environments)
    np.testing.assert_array_equal(shuffled, task.costs(gains, environments)[:, order])


@pytest.mark.slow
def test_chunks_of_environments_do_not_matter():
    task, gains = Vehicle(), many_policies()
    environments = task.environments(1100, stream="chunks")[900:]
    cuts = [0, 1, 100, 124, 125, 200]
    parts = [task.costs(gains, environments[a:b]) for a, b in pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(parts), task.costs(gains, environments))


@pytest.mark.slow
def test_the_number_of_threads_does_not_matter():
    task, gains = Vehicle(), many_policies()
    environments = task.environments(200, stream="threads")
    threads = numba.get_num_threads()
    together = task.costs(gains, environments)
    try:
        numba.set_num_threads(1)
        np.testing.assert_array_equal(task.costs(gains, environments), together)
    finally:
        numba.set_num_threads(threads)


@pytest.mark.slow
def test_mirrored_environments_cost_the_same():
    """K is antisymmetric, so a reflection about x = 0 only reflects the trajectory."""
    task = Vehicle()
    gains = task.policies
    environments = task.environments(200, stream="mirror")
    reflection = mirrored(environments)
    np.testing.assert_array_equal(
        task.costs(gains, reflection, dtype=np.float64),
        task.costs(gains, environments, dtype=np.float64),
    )


@PRECISIONS
def test_discs_beyond_the_count_are_not_there(dtype):
    def draw(_: np.random.Generator, n: int) -> dict[str, NDArray]:
        return {
            "obstacles": np.tile([[2.0, 3.0, 0.1], [0.0, 3.0, 0.5]], (n, 1, 1)),
            "counts": np.ones(n, int),
        }

    padded = Environments(draw, "vehicle", "scene", seed=0, start=0, stop=1)
    assert cost(Vehicle(), STRAIGHT, padded, dtype) == 0
    assert not Vehicle().trajectory(STRAIGHT[0], padded, 0).collided


# ---- scenes worked out by hand ------------------------------------------------------------------


@PRECISIONS
def test_an_empty_arena_costs_nothing_to_drive_straight_through(dtype):
    assert cost(Vehicle(), STRAIGHT, scene(), dtype) == 0
    taken = Vehicle().trajectory(STRAIGHT[0], scene(), 0)
    assert not taken.collided
    np.testing.assert_allclose(taken.poses[-1], [0, 1 + 100 * 0.125, 0])


@PRECISIONS
def test_a_disc_straight_ahead_is_hit(dtype):
    ahead = scene((0.0, 4.0, 0.1))
    assert cost(Vehicle(), STRAIGHT, ahead, dtype) == 1
    taken = Vehicle().trajectory(STRAIGHT[0], ahead, 0)
    assert taken.collided
    assert (
        len(taken.poses) - 1 == 22
    )  # the first y = 1 + k/8 that is at least 4 - 0.1 - 0.27 = 3.63


@PRECISIONS
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("radius", [0.05, 0.2, 1.1])
def test_a_disc_is_touched_just_within_reach_and_not_just_beyond(side, radius, dtype):
    at_a_step = 1 + 40 * 0.125
    within, beyond = 0.27 + radius - 1e-3, 0.27 + radius + 1e-3
    assert cost(Vehicle(), STRAIGHT, scene((side * within, at_a_step, radius)), dtype) == 1
    assert cost(Vehicle(), STRAIGHT, scene((side * beyond, at_a_step, radius)), dtype) == 0


@PRECISIONS
def test_contact_is_tested_after_steps_and_not_between_them(dtype):
    between_steps = 1 + 16.5 * 0.125
    grazed = scene((0.27 + 0.1 - 1e-3, between_steps, 0.1))
    assert cost(Vehicle(), STRAIGHT, grazed, dtype) == 0


@pytest.mark.parametrize(
    ("start", "steps"),
    [
        ((0.0, 5.0, np.pi / 2), 38),  # left wall: the first k/8 that is at least 4.9 - 0.27
        ((0.0, 5.0, -np.pi / 2), 38),  # right wall
        ((0.0, 5.0, np.pi), 38),  # bottom: the first 5 - k/8 that is at most 0.1 + 0.27
        ((-5.0, 12.0, np.pi), 14),  # left wall's upper end: the first 12 - k/8 within 10.27
        ((9.0, 5.0, np.pi / 2), 30),  # right wall from outside: the first 9 - k/8 within 5.37
    ],
)
def test_walls_are_met_where_they_stand(start, steps):
    task = Vehicle(start=start)
    taken = task.trajectory(STRAIGHT[0], scene(), 0)
    assert taken.collided
    assert len(taken.poses) - 1 == steps
    for dtype in (np.float32, np.float64):
        assert cost(task, STRAIGHT, scene(), dtype) == 1


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_turn_at_the_limit_is_a_quarter_radian_a_step(sign):
    gains = np.full((1, 20), sign * 1e4)
    taken = Vehicle().trajectory(gains[0], scene(), 0)
    assert not taken.collided
    turned = np.arange(101) * sign * 0.25
    expected = np.zeros((101, 3))
    expected[1:, 0] = -np.cumsum(0.125 * np.sin(turned[:-1]))
    expected[1:, 1] = np.cumsum(0.125 * np.cos(turned[:-1]))
    expected[:, 1] += 1
    expected[:, 2] = turned
    assert difference(taken.poses, expected).max() < 1e-8
    assert cost(Vehicle(), gains, scene(), np.float32) == 0


def test_the_robot_turns_left_when_an_obstacle_is_nearer_on_the_right():
    """The paper's example: 4 m away along -π/4 and 1 m away along π/4."""
    gains = reactive_gains(2.5, 10.0, ray_angles())
    diagonal = math.sqrt(0.5)
    near_right = scene(
        (-4.2 * diagonal, 1 + 4.2 * diagonal, 0.2), (1.2 * diagonal, 1 + 1.2 * diagonal, 0.2)
    )
    poses = Vehicle().trajectory(gains, near_right, 0).poses
    assert poses[1, 2] > 0  # left is ψ > 0
    assert poses[2, 0] < 0
    near_left = scene(
        (4.2 * diagonal, 1 + 4.2 * diagonal, 0.2), (-1.2 * diagonal, 1 + 1.2 * diagonal, 0.2)
    )
    mirrored = Vehicle().trajectory(gains, near_left, 0).poses
    assert mirrored[1, 2] == pytest.approx(-poses[1, 2])


def test_the_first_step_moves_along_the_old_heading():
    poses = Vehicle().trajectory(np.full(20, 1e4), scene(), 0).poses
    np.testing.assert_allclose(poses[1], [0, 1.125, 0.25], atol=1e-10)
