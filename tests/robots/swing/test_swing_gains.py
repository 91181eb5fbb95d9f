"""What is not known about the Swing's gains: drawn anew for each rollout, or the worst of a set."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import pacbayes_control as pbc
from pacbayes_control.robots import Swing
from pacbayes_control.robots.swing import DrawnGains, Net, WorstGains
from pacbayes_control.tasks import Noise
from robots.vehicle.scenes import scene

DRAWN = DrawnGains(k_u_sd=0.3, k_p_sd=0.05, correlation=-0.7, speed_sd=0.1)
WORST = WorstGains(k_u=(2.4, 3.6), k_p=(0.3, 0.5), speed=(1.8, 2.3))
MEANS = (3.0, 0.4, 2.0)  # k_u, k_p and speed
GRID = Swing().policies
FEW = GRID[[0, 5, 22, 33, 47, 61, 80, 99]]
SOME = Swing().environments(40, stream="gains")


# ---- drawn --------------------------------------------------------------------------------------


def test_gains_are_drawn_with_the_means_deviations_and_correlation_of_the_fit():
    keys = Noise("statistics").keys(Swing().environments(1000, "statistics"), 100)
    drawn = np.array([each.ravel() for each in DRAWN.draw(MEANS, keys)])
    deviations, n = np.array([0.3, 0.05, 0.1]), keys.size
    error = (drawn.mean(axis=1) - MEANS) / (deviations / math.sqrt(n))
    assert np.abs(error).max() < 4
    np.testing.assert_allclose(drawn.std(axis=1), deviations, rtol=4 / math.sqrt(2 * n))
    correlation = np.atleast_2d(np.corrcoef(drawn))
    assert correlation[0, 1] == pytest.approx(-0.7, abs=4 * 0.51 / math.sqrt(n))
    assert abs(correlation[0, 2]) < 4 / math.sqrt(n)
    assert abs(correlation[1, 2]) < 4 / math.sqrt(n)


def test_the_draws_are_normal_and_those_of_neighbours_are_independent():
    keys = Noise("statistics").keys(Swing().environments(400, "statistics"), 250)
    k_u = (DRAWN.draw(MEANS, keys)[0] - 3.0) / 0.3
    for within, share in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
        assert np.mean(np.abs(k_u) < within) == pytest.approx(share, abs=0.006)
    for one, other in ((k_u[1:], k_u[:-1]), (k_u[:, 1:], k_u[:, :-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.013


def test_gains_stay_above_a_tenth_of_their_means():
    keys = Noise("wide").keys(SOME, 500)
    k_u, k_p, speed = DrawnGains(9.0, 9.0, 0.0, 9.0).draw(MEANS, keys)
    assert (k_u.min(), k_p.min(), speed.min()) == pytest.approx((0.3, 0.04, 0.2))


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_full_correlation_puts_both_gains_on_a_line(sign: float):
    keys = Noise("line").keys(SOME, 10)
    k_u, k_p, speed = DrawnGains(0.3, 0.05, sign).draw(MEANS, keys)
    np.testing.assert_allclose((k_p - 0.4) / 0.05, sign * (k_u - 3) / 0.3, atol=1e-9)
    assert np.all(speed == 2.0)


def test_a_rollouts_gains_depend_on_its_key_alone():
    task, noise = Swing(uncertainty=DRAWN), Noise("own")
    whole = task.models(SOME, 8, noise)
    assert whole.shape == (40, 7, 8)
    assert len(np.unique(whole[:, 2])) == 320
    part = task.models(SOME[10:13], 3, noise.shifted(4))
    np.testing.assert_array_equal(part, whole[10:13, :, 4:7])
    np.testing.assert_array_equal(whole[:, 3:], Swing().models(SOME, 8, None)[:, 3:].repeat(40, 0))
    other = task.models(SOME, 8, Noise("other"))
    assert not np.any(other[:, :3] == whole[:, :3])


@pytest.mark.slow
def test_each_rollout_is_that_of_a_drone_with_its_gains():
    task, noise = Swing(uncertainty=DRAWN), Noise("own")
    costs = task.costs(FEW, SOME[:12], noise)
    length, share, k_u = np.moveaxis(task.models(SOME[:12], len(FEW), noise)[:, :3], 1, 0)
    speed, k_p = length / 0.1, -np.log1p(-share) / 0.1
    for e in range(len(SOME[:12])):
        for p, policy in enumerate(FEW):
            drone = Swing(k_u=k_u[e, p], k_p=k_p[e, p], speed=speed[e, p], largest_command=0.26)
            assert drone.costs(policy[None], SOME[e : e + 1])[0, 0] == costs[e, p]
    assert np.any(costs != Swing().costs(FEW, SOME[:12]))


def test_the_same_stream_gives_the_same_costs_whole_or_in_parts():
    task, noise = Swing(uncertainty=DRAWN, range_noise=0.02), Noise("own")
    whole = task.costs(GRID, SOME, noise)
    np.testing.assert_array_equal(task.costs(GRID, SOME, noise), whole)
    np.testing.assert_array_equal(task.costs(GRID, SOME[7:20], noise), whole[7:20])
    shifted = noise.shifted(70)
    np.testing.assert_array_equal(task.costs(GRID[70:], SOME, shifted), whole[:, 70:])
    assert np.any(task.costs(GRID, SOME, Noise("another")) != whole)
    assert np.any(task.costs(GRID, SOME, Noise("own", seed=1)) != whole)


def test_deviations_towards_0_lead_to_the_fixed_drone():
    fixed = Swing().costs(GRID, SOME)
    apart = [
        np.mean(Swing(uncertainty=replace(DRAWN, k_u_sd=d, k_p_sd=d, speed_sd=d)).costs(GRID, SOME)
                != fixed)
        for d in (0.1, 1e-3, 1e-12)
    ]  # fmt: skip
    assert apart[0] > apart[1] > apart[2]
    assert apart[2] == 0


def test_trajectories_of_drawn_drones_end_as_their_costs_say():
    task, noise = Swing(uncertainty=DRAWN), Noise("own")
    costs = task.costs(FEW, SOME, noise, dtype=np.float64)
    ends = [
        [one.collided for one in task.trajectories(policy, SOME, noise.shifted(column))]
        for column, policy in enumerate(FEW)
    ]
    assert np.mean(costs != np.array(ends).T) < 0.01
    paths = task.paths(FEW, SOME[:3], noise)
    expected = task.trajectories(FEW[2], SOME[:3], noise.shifted(2))[1].poses
    np.testing.assert_array_equal(paths[1][2], expected)


def test_drawn_gains_are_told_in_words_and_fixed_ones_are_not():
    assert Swing().noise_kind == ""
    assert Swing(uncertainty=WORST).noise_kind == ""
    words = Swing(uncertainty=DRAWN, range_noise=0.1).noise_kind
    assert words == (
        "range noise 0.1, gains of s.d. 0.3 and 0.05, correlation -0.7, speed of s.d. 0.1"
    )
    costs = pbc.evaluate(Swing(uncertainty=DRAWN), FEW, SOME[:3])
    assert costs.noise is not None
    assert costs.noise.startswith("gains of s.d. 0.3")


def test_a_drawn_drone_turns_as_far_as_its_own_gain_takes_the_tasks_command():
    """Whoever flies limits the command by the gain that was fitted, and knows no other."""
    task = Swing(uncertainty=DrawnGains(0.3, 20.0), arena=Net(200.0, 400.0), steps=200)
    away = replace(task, start=(0.0, 100.0, 0.0))
    reached = []
    for e in range(30):
        there = replace(scene(), start=e, stop=e + 1)
        noise = Noise("fast")
        k_u = away.models(there, 1, noise)[0, 2, 0]
        poses = away.trajectory(np.full(40, 1.0), there, 0, noise).poses
        reached.append(np.abs(poses[:, 2]).max() / (0.26 * k_u))
    np.testing.assert_allclose(np.median(reached), 1, atol=1e-6)
    assert max(reached) <= 1 + 1e-9


def test_the_worst_drones_are_flown_with_the_tasks_commands():
    """A member whose gain is smaller cannot ask for more: that would be another pilot."""
    task = Swing(uncertainty=WorstGains((2.4, 2.4), (0.4, 0.4)), arena=Net(200.0, 400.0), steps=300)
    weak = replace(task, uncertainty=None, k_u=2.4)
    flown, alone = (
        replace(each, start=(0.0, 100.0, 0.0)).costs(np.full((1, 40), 1.0), scene())
        for each in (task, replace(weak, largest_command=0.26))
    )
    np.testing.assert_array_equal(flown, alone)
    path = replace(weak, largest_command=0.26, start=(0.0, 100.0, 0.0)).trajectory(
        np.full(40, 1.0), scene(), 0
    )
    assert path.poses[300, 2] == pytest.approx(0.26 * 2.4, abs=1e-4)


@pytest.mark.parametrize(
    "fields",
    [
        {"k_u_sd": -0.1},
        {"k_u_sd": math.nan},
        {"k_p_sd": math.inf},
        {"speed_sd": -1e-9},
        {"correlation": 1.01},
        {"correlation": math.nan},
        {"k_u_sd": 0.0, "k_p_sd": 0.0, "speed_sd": 0.0},
    ],
    ids=str,
)
def test_deviations_that_are_none_are_an_error(fields: dict):
    with pytest.raises(ValueError, match=r"_sd = .* must be|standard deviation|correlation"):
        replace(DRAWN, **fields)


# ---- the worst ----------------------------------------------------------------------------------


def test_members_are_the_nominal_drone_and_every_corner():
    members = WORST.members(MEANS)
    assert members[0] == MEANS
    assert set(members) == {MEANS, *product(WORST.k_u, WORST.k_p, (1.8, 2.3))}
    assert len(members) == 9


def test_members_have_the_drones_own_speed_where_no_interval_is_given():
    members = replace(WORST, speed=None).members(MEANS)
    assert set(members) == {MEANS, *product(WORST.k_u, WORST.k_p, (2.0,))}
    assert len(members) == 5


def test_more_points_lie_between_the_corners_and_none_is_there_twice():
    members = replace(WORST, points=3, speed=None).members(MEANS)
    assert len(members) == len(set(members)) == 9  # the middle of the grid is the nominal drone
    assert members[0] == MEANS
    assert {k_u for k_u, _, _ in members} == {2.4, 3.0, 3.6}
    assert set(WorstGains((2.4, 3.6), (0.3, 0.5), points=2).members(MEANS)) <= set(members)
    narrow = WorstGains((3.0, 3.0), (0.4, 0.4))
    assert narrow.members(MEANS) == [MEANS]


@pytest.mark.slow
@pytest.mark.parametrize("points", [2, 3])
def test_the_cost_is_the_worst_of_the_members(points: int):
    uncertainty = replace(WORST, points=points)
    task = Swing(uncertainty=uncertainty)
    each = [
        Swing(k_u=k_u, k_p=k_p, speed=speed, largest_command=0.26).costs(FEW, SOME)
        for k_u, k_p, speed in uncertainty.members(MEANS)
    ]
    worst = task.costs(FEW, SOME)
    np.testing.assert_array_equal(worst, np.max(each, axis=0))
    assert all(np.all(worst >= one) for one in each)
    assert worst.mean() > each[0].mean()


def test_the_surrogate_is_the_worst_of_the_members_too():
    task = Swing(uncertainty=WORST)
    each = [
        Swing(k_u=k_u, k_p=k_p, speed=speed, largest_command=0.26).surrogate(FEW, SOME)
        for k_u, k_p, speed in WORST.members(MEANS)
    ]
    np.testing.assert_array_equal(task.surrogate(FEW, SOME), np.max(each, axis=0))


@pytest.mark.slow
def test_trajectories_of_the_worst_end_as_its_costs_say():
    task = Swing(uncertainty=WORST)
    costs = task.costs(FEW, SOME, dtype=np.float64)
    ends = np.array([[t.collided for t in task.trajectories(each, SOME)] for each in FEW]).T
    assert np.mean(ends != costs) < 0.02
    nominal = Swing().trajectories(FEW[2], SOME)
    for one, own in zip(task.trajectories(FEW[2], SOME), nominal, strict=True):
        if not one.collided or own.collided:
            np.testing.assert_array_equal(one.poses, own.poses)


def test_every_member_meets_the_same_noise():
    task, noise = Swing(uncertainty=WORST, range_noise=0.05), Noise("shared")
    each = [
        Swing(k_u=k_u, k_p=k_p, speed=speed, largest_command=0.26, range_noise=0.05).costs(
            FEW, SOME, noise
        )
        for k_u, k_p, speed in WORST.members(MEANS)
    ]
    np.testing.assert_array_equal(task.costs(FEW, SOME, noise), np.max(each, axis=0))


@pytest.mark.parametrize(
    "fields",
    [
        {"k_u": (3.0, 2.0)},
        {"k_u": (0.0, 2.0)},
        {"k_p": (-0.1, 0.5)},
        {"k_p": (math.nan, 0.5)},
        {"speed": (1.0, math.inf)},
        {"points": 1},
        {"points": 0},
        {"k_u": (1.0,)},
        {"k_u": (1.0, 2.0, 3.0)},
        {"k_u": None},
        {"points": 2.5},
    ],
    ids=str,
)
def test_sets_that_are_none_are_an_error(fields: dict):
    with pytest.raises(ValueError, match=r"interval|points|end of"):
        replace(WORST, **fields)
