"""The vehicle task: its distribution of environments, its policies, and what they cost."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.planar import ObstacleField, Reshuffled, ray_angles, reactive_gains
from pacbayes_control.robots.vehicle import Arena
from pacbayes_control.rollouts import mean_costs
from pacbayes_control.tasks import Environments, Task
from robots.vehicle.scenes import discs_in, scene
from sizes import sized


@pytest.fixture(scope="module")
def drawn():
    return Vehicle().environments(20_000, stream="distribution").arrays()


# ---- environments -------------------------------------------------------------------------------


def test_the_number_of_obstacles_is_uniform_from_20_to_40(drawn):
    values, times = np.unique(drawn["counts"], return_counts=True)
    assert values.tolist() == list(range(20, 41))
    assert stats.chisquare(times).pvalue > 1e-3


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [(0, -5.0, 5.0), (1, 2.0, 10.0), (2, 0.05, 0.2)],
    ids=["x", "y", "radius"],
)
def test_positions_and_radii_are_uniform_over_the_papers_ranges(drawn, column, low, high):
    values = drawn["obstacles"][..., column].ravel().astype(float)
    rounding = 1e-6  # of single precision
    assert values.min() >= low - rounding
    assert values.max() <= high + rounding
    deviation = (high - low) / np.sqrt(12)
    assert abs(values.mean() - (low + high) / 2) < 4 * deviation / np.sqrt(values.size)
    assert stats.kstest(values[::16], stats.uniform(low, high - low).cdf).pvalue > 1e-3


def test_position_radius_and_number_are_independent(drawn):
    obstacles = drawn["obstacles"]
    first, second = obstacles[:, 0], obstacles[:, 1]
    columns = np.column_stack([first, second, drawn["counts"]])
    correlations = np.corrcoef(columns.T)[np.triu_indices(7, k=1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(len(columns))


def test_environments_are_drawn_for_every_obstacle_that_may_count(drawn):
    assert drawn["obstacles"].shape == (20_000, 40, 3)
    assert drawn["obstacles"].dtype == np.float32
    assert drawn["counts"].shape == (20_000,)


def test_another_field_is_drawn_as_it_is_described():
    field = ObstacleField(fewest=7, most=7, x=(0, 1), y=(3, 4), radius=(0.1, 1.1))
    task = Vehicle(obstacles=field)
    arrays = task.environments(50, stream="field").arrays()
    assert np.all(arrays["counts"] == 7)
    assert arrays["obstacles"].shape == (50, 7, 3)
    low, high = arrays["obstacles"].min(axis=(0, 1)), arrays["obstacles"].max(axis=(0, 1))
    assert np.all(low >= np.array([0, 3, 0.1]) - 1e-6)
    assert np.all(high <= np.array([1, 4, 1.1]) + 1e-6)
    assert np.all(high - low > 0.9)


def test_environments_know_their_stream_and_seed():
    environments = Vehicle().environments(3, stream="train", seed=5)
    assert environments.origin == {
        "task": f"vehicle {ObstacleField()}",
        "stream": "train",
        "seed": 5,
        "start": 0,
        "stop": 3,
    }


@pytest.mark.parametrize("n", [0, -1])
def test_no_environments_is_an_error(n):
    with pytest.raises(ValueError, match="at least one is needed"):
        Vehicle().environments(n, stream="train")


def test_inner_faces_of_the_walls_stand_at_4_9_and_0_1_metres():
    left, right, bottom = Arena().walls
    assert left[1] == pytest.approx(-4.9)
    assert right[0] == pytest.approx(4.9)
    assert bottom[3] == pytest.approx(0.1)


def test_walls_are_boxes_of_a_fifth_of_a_metre_and_open_at_the_top():
    expected = [[-5.1, -4.9, 0, 10], [4.9, 5.1, 0, 10], [-5, 5, -0.1, 0.1]]
    np.testing.assert_allclose(Arena().walls, expected, atol=1e-15)


def test_no_wall_reaches_into_an_open_area():
    for arena in (Arena(), Arena(half_width=3.5, length=18, half_thickness=0.05)):
        for left, right, bottom, top in arena.walls:
            for low_x, high_x, low_y, high_y in arena.open_areas:
                apart_x = right <= low_x or left >= high_x
                apart_y = top <= low_y or bottom >= high_y
                assert apart_x or apart_y


# ---- reshuffled environments --------------------------------------------------------------------

RECORDED = Vehicle().environments(30, stream="recorded", seed=2)[10:16]


def reshuffled(n: int, stream: str = "train", seed: int = 0) -> Environments:
    return Vehicle(obstacles=Reshuffled(RECORDED)).environments(n, stream, seed)


def test_an_environment_is_described_by_its_cylinders_and_the_room_at_the_start():
    told = Vehicle().describe(scene((3, 5, 0.5), (0, 3, 0.1)))
    assert told["cylinders"].tolist() == [2]
    assert told["mean_radius"].tolist() == pytest.approx([0.3])
    assert told["room_at_start"].tolist() == pytest.approx([1.9])  # from y = 1
    none = Vehicle(ObstacleField(fewest=0, most=0))
    told = none.describe(none.environments(1, "empty"))
    assert (told["mean_radius"][0], told["room_at_start"][0]) == (0, none.horizon)


def test_cylinders_that_are_not_used_describe_nothing():
    few = Vehicle(ObstacleField(fewest=1, most=9))
    environments = few.environments(50, "few")
    [first, *_], told = discs_in(environments), few.describe(environments)
    assert told["mean_radius"][0] == pytest.approx(first[:, 2].mean())
    gaps = np.hypot(first[:, 0], first[:, 1] - 1) - first[:, 2]
    assert told["room_at_start"][0] == pytest.approx(min(gaps.min(), few.horizon))
    assert len(first) < 9


def test_reshuffled_obstacles_are_recorded_ones_up_to_a_mirror():
    recorded, drawn = RECORDED.arrays(), reshuffled(500).arrays()
    known = {
        tuple(disc)
        for discs, count in zip(recorded["obstacles"], recorded["counts"], strict=True)
        for disc in discs[:count].tolist()
    }
    assert len(known) == recorded["counts"].sum()
    signs, met = [], set()
    for discs, count in zip(drawn["obstacles"], drawn["counts"], strict=True):
        present = [tuple(disc) for disc in discs[:count].tolist()]
        flipped = [(-x, y, radius) for x, y, radius in present]
        assert set(present) <= known or set(flipped) <= known
        signs.append(set(present) <= known)
        met |= set(present if signs[-1] else flipped)
    assert met == known  # each is drawn at some time
    assert 0.4 < np.mean(signs) < 0.6  # half of the fields are mirrored, each as a whole


def test_reshuffled_fields_mix_obstacles_of_several_recorded_ones():
    recorded, drawn = RECORDED.arrays(), reshuffled(50).arrays()
    origin = {abs(disc[0]): e for e, discs in enumerate(recorded["obstacles"]) for disc in discs}
    for discs, count in zip(drawn["obstacles"], drawn["counts"], strict=True):
        assert len({origin[abs(disc[0])] for disc in discs[:count]}) >= 4


def test_reshuffled_counts_are_recorded_ones_each_as_likely():
    recorded, drawn = RECORDED.arrays(), reshuffled(3000).arrays()
    values, times = np.unique(drawn["counts"], return_counts=True)
    expected, shares = np.unique(recorded["counts"], return_counts=True)
    np.testing.assert_array_equal(values, expected)
    assert stats.chisquare(times, shares * 3000 / 6).pvalue > 1e-3
    assert drawn["obstacles"].shape == (3000, recorded["counts"].max(), 3)
    assert drawn["obstacles"].dtype == np.float32


def test_reshuffled_environments_are_the_same_every_time_and_leave_the_recorded_as_they_were():
    before = RECORDED.digest()
    assert reshuffled(40).digest() == reshuffled(40).digest()
    assert reshuffled(40).digest() != reshuffled(40, seed=1).digest()
    assert reshuffled(40).digest() != reshuffled(40, stream="test").digest()
    field = Reshuffled(RECORDED)
    again = [field.draw(np.random.default_rng(1), 9)["obstacles"] for _ in range(2)]
    np.testing.assert_array_equal(again[0], again[1])
    assert RECORDED.digest() == before


def test_reshuffled_environments_are_told_from_those_of_other_recordings():
    others = [RECORDED[1:], RECORDED[:-1], Vehicle().environments(6, stream="recorded")]
    tasks = [
        str(Vehicle(obstacles=Reshuffled(each)).environments(3, "train").origin["task"])
        for each in (RECORDED, *others)
    ]
    assert len(set(tasks)) == 4
    assert all(str(RECORDED.task) in task for task in tasks)
    other = Vehicle().environments(5, stream="test")
    assert not reshuffled(5).range.overlaps(other.range)


def test_reshuffled_environments_can_be_rolled_out_in():
    task = Vehicle(obstacles=Reshuffled(RECORDED))
    costs = task.costs(task.policies, task.environments(50, stream="train"))
    assert costs.shape == (50, 50)
    assert 0.05 < costs.mean() < 0.95


# ---- policies -----------------------------------------------------------------------------------


def test_there_are_fifty_policies_with_names_of_their_own():
    gains, names = Vehicle().policies, Vehicle().policy_names
    assert gains.shape == (50, 20)
    assert len(set(names)) == len(names) == 50
    assert names[0] == "x0=0.100 y0=0.00"
    assert names[-1] == "x0=5.000 y0=10.00"


def test_gains_are_those_of_the_papers_equation():
    gains, names = Vehicle().policies, Vehicle().policy_names
    angles = [-np.pi / 3 + i * 2 * np.pi / 3 / 19 for i in range(20)]
    expected = []
    for x0 in (0.1, 1.325, 2.55, 3.775, 5.0):
        for y0 in [10 * j / 9 for j in range(10)]:
            expected.append([y0 / x0 * (x0 - a) if a >= 0 else y0 / x0 * (-x0 - a) for a in angles])
            assert f"x0={x0:.3f} y0={y0:.2f}" in names
    np.testing.assert_allclose(gains, expected, rtol=1e-12, atol=1e-12)


def test_a_ray_straight_ahead_belongs_to_the_right():
    assert reactive_gains(2.0, 10.0, np.zeros(1))[0] == 10.0


def test_gains_are_antisymmetric():
    gains = Vehicle().policies
    np.testing.assert_allclose(gains, -gains[:, ::-1], atol=1e-12)


def test_rays_are_twenty_evenly_spaced_within_sixty_degrees():
    angles = ray_angles()
    assert len(angles) == 20
    assert angles[0] == pytest.approx(-np.pi / 3)
    assert angles[-1] == pytest.approx(np.pi / 3)
    np.testing.assert_allclose(np.diff(angles), 2 * np.pi / 3 / 19)
    np.testing.assert_allclose(Vehicle().rays, [angles, np.sin(angles), np.cos(angles)])


# ---- the task -----------------------------------------------------------------------------------


def test_the_model_holds_the_papers_numbers():
    """v0·Δt, 2(r/L)Δt, u0/2 and the slip."""
    np.testing.assert_allclose(Vehicle(wheel_slip=0.1).constants, [0.125, 0.02, 12.5, 0.1])


def test_a_turn_too_large_for_the_kernel_is_an_error():
    with pytest.raises(ValueError, match=r"0\.5 rad in one step is beyond"):
        Vehicle(time_step=0.1).costs(np.zeros((1, 20)), Vehicle().environments(1, stream="train"))


def test_the_vehicle_is_a_task_that_cannot_be_changed():
    task: Task = Vehicle()
    assert task.name == "vehicle"
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.speed = 3.0  # pyright: ignore[reportAttributeAccessIssue]


def test_costs_are_zeros_and_ones_by_environment_and_policy():
    task = Vehicle()
    gains = task.policies
    costs = task.costs(gains, task.environments(30, stream="train"))
    assert costs.shape == (30, 50)
    assert costs.dtype == np.uint8
    assert set(np.unique(costs)) == {0, 1}


def test_policies_that_never_turn_all_cost_the_same():
    task = Vehicle()
    gains, names = task.policies, task.policy_names
    never = [i for i, name in enumerate(names) if name.endswith("y0=0.00")]
    assert len(never) == 5
    costs = task.costs(gains[never], task.environments(200, stream="train"))
    assert np.all(costs == costs[:, :1])


def test_a_smaller_robot_collides_less():
    small, large = Vehicle(robot_radius=0.1), Vehicle(robot_radius=0.4)
    gains = np.zeros((1, 20))
    environments = small.environments(500, stream="train")
    hit_small, hit_large = small.costs(gains, environments), large.costs(gains, environments)
    assert np.all(hit_small <= hit_large)
    assert hit_small.sum() < hit_large.sum()


def test_more_steps_only_add_collisions():
    gains = Vehicle().policies
    environments = Vehicle().environments(100, stream="train")
    few = Vehicle(steps=30).costs(gains, environments)
    many = Vehicle(steps=60).costs(gains, environments)
    assert np.all(few <= many)
    assert few.sum() < many.sum()


def test_a_gain_that_is_nan_is_an_error():
    task = Vehicle()
    gains = task.policies.copy()
    gains[3, 7] = np.nan
    with pytest.raises(ValueError, match=r"policy 3"):
        task.costs(gains, task.environments(4, stream="train"))


@pytest.mark.parametrize("rays", [19, 21])
def test_policies_with_another_number_of_gains_than_rays_are_an_error(rays):
    task = Vehicle()
    with pytest.raises(ValueError, match="20"):
        task.costs(np.zeros((3, rays)), task.environments(4, stream="train"))


@pytest.mark.slow
def test_the_best_policy_costs_what_the_paper_says():
    """0.083 to 0.088 in the paper's Table, for the posteriors that it learnt."""
    task = Vehicle()
    gains, names = task.policies, task.policy_names
    environments: Environments = task.environments(sized(3000, full=20_000), stream="truth")
    costs = mean_costs(task, gains, environments)
    assert 0.075 < costs.min() < 0.09
    assert names[int(costs.argmin())].split()[0] != "x0=0.100"
    assert costs.max() > 0.5
