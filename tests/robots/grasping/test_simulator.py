"""Grasps end as physics has it, wherever and however the object lies, and to the bit the same."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
import pytest
from hand_made import ACROSS, ALONG, BRICK, body, part, points_at, pose
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from pacbayes_control.robots.grasping import simulator
from pacbayes_control.robots.grasping.environments import Tabletop
from pacbayes_control.robots.grasping.models import CYLINDER, ELLIPSOID, Body, build, mujoco
from pacbayes_control.robots.grasping.robots import Gripper, Hand, seen_from
from pacbayes_control.robots.grasping.simulator import (
    COLLIDED,
    DROPPED,
    ENDINGS,
    FLUNG,
    LIFTED,
    MISSED,
    Drop,
    Simulator,
)
from pacbayes_control.tasks.environments import Arrays

mj = mujoco()
TOP = 2 * BRICK[2]
MIDDLE = (0.0, 0.0, ACROSS)
# Grasps of a brick at the origin, each clear of the border between two endings.
CLEAR = {
    "across the middle": (MIDDLE, LIFTED),
    "across, off the middle": ((0.01, 0.004, ACROSS + 0.1), LIFTED),
    "along": ((0.0, 0.0, ALONG), COLLIDED),
    "a finger on it": ((0.0, 0.035, ACROSS), COLLIDED),
    "in the air": ((0.12, 0.1, 0.7), MISSED),
    "beside it": ((0.0, 0.065, ALONG), MISSED),
}
CLEARLY = pytest.mark.parametrize(("grasp", "ending"), CLEAR.values(), ids=CLEAR)


def ending(
    grasp: Any, one: Body | None = None, hand: Hand | None = None, rest: Any = None, top=TOP
) -> int:
    robot = Gripper(hand or Hand())
    rest = pose() if rest is None else rest
    grasps = np.array([grasp], float)
    return int(Simulator(robot).endings(one or body(), rest, top, grasps)[0])


@pytest.fixture(scope="module")
def objects() -> tuple[Tabletop, Arrays]:
    tabletop = Tabletop()
    return tabletop, tabletop.draw(np.random.default_rng(5), 6)


# ---- physics ------------------------------------------------------------------------------------


@CLEARLY
def test_a_grasp_ends_as_it_should(grasp: Any, ending: int):
    found = Simulator().endings(body(), pose(), TOP, np.array([grasp]))
    assert found.dtype == np.uint8
    assert [ENDINGS[int(e)] for e in found] == [ENDINGS[ending]]


@pytest.mark.parametrize(
    ("one", "rest", "top"),
    [
        (body(part(ELLIPSOID, (0.025, 0.025, 0.025))), pose(z=0.025), 0.05),
        (body(part(CYLINDER, (0.02, 0.04, 0))), pose(z=0.04), 0.08),
        (body(part(size=(0.045, 0.012, 0.006))), pose(z=0.006), 0.012),
    ],
    ids=["ball", "standing cylinder", "thin bar"],
)
def test_what_fits_between_the_fingers_is_lifted(one: Body, rest: Any, top: float):
    assert ending(MIDDLE, one, rest=rest, top=top) == LIFTED


def test_what_is_wider_than_the_opening_is_not_and_a_wider_hand_takes_it():
    one, rest = body(part(size=(0.04, 0.04, 0.02))), pose()
    assert ending(MIDDLE, one, rest=rest) == COLLIDED
    assert ending(MIDDLE, one, Hand(opening=0.1), rest) == LIFTED


@pytest.mark.parametrize("mass", [0.05, 0.15, 1.0])
def test_what_the_fingers_can_hold_is_lifted(mass: float):
    assert ending(MIDDLE, body(mass=mass)) == LIFTED


@pytest.mark.parametrize("mass", [2.0, 5.0])
def test_what_is_too_heavy_for_the_fingers_friction_is_not_lifted(mass: float):
    """Two fingers hold 2 · 0.9 · 10 N = 18 N, less than 2 kg weigh."""
    assert ending(MIDDLE, body(mass=mass)) == DROPPED


def test_a_stronger_hand_lifts_what_is_too_heavy_for_another():
    heavy = body(mass=2.5)
    assert ending(MIDDLE, heavy) != LIFTED
    assert ending(MIDDLE, heavy, Hand(force=30.0)) == LIFTED


def test_what_is_too_slippery_is_not_lifted_and_one_rough_side_is_enough():
    smooth, rough = body(friction=0.01), body(friction=0.5)
    assert ending(MIDDLE, smooth, Hand(friction=0.01)) == DROPPED
    assert ending(MIDDLE, smooth, Hand(friction=0.9)) == LIFTED
    assert ending(MIDDLE, rough, Hand(friction=0.01)) == LIFTED


def test_what_is_lifted_less_than_2_cm_is_not_lifted():
    assert ending(MIDDLE, hand=Hand(lift=0.015)) == DROPPED
    assert ending(MIDDLE, hand=Hand(lift=0.03)) == LIFTED


def test_what_still_hangs_on_the_table_is_not_lifted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(simulator, "RISE", -1.0)  # any height would do
    assert ending(MIDDLE, hand=Hand(lift=0.0)) == DROPPED


def test_what_still_moves_at_the_end_does_not_count_as_lifted():
    """A lift as fast as a throw, judged at once; after some rest the same object is held."""
    assert ending(MIDDLE, hand=Hand(lifting_time=0.1, holding_time=0.0)) == FLUNG
    assert ending(MIDDLE, hand=Hand(lifting_time=0.1, holding_time=0.15)) == LIFTED


def test_the_speed_is_the_objects(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(simulator, "SLOW", 0.0)
    assert ending(MIDDLE) == FLUNG
    monkeypatch.setattr(simulator, "SLOW", 0.005)
    assert ending(MIDDLE) == LIFTED


def test_the_tips_stay_above_the_table_and_the_palm_above_the_object():
    tops = np.linspace(0.001, 0.12, 100)
    heights = Hand().tip_height(tops)
    assert (heights >= 0.006).all()
    assert (heights + Hand().length >= tops + 0.002 - 1e-12).all()
    assert (np.diff(heights) >= 0).all()


def test_a_tall_object_is_taken_without_touching_the_palm():
    one, rest = body(part(size=(0.02, 0.02, 0.05))), pose(z=0.05)
    assert ending(MIDDLE, one, rest=rest, top=0.1) == LIFTED
    assert ending(MIDDLE, one, rest=rest, top=0.02) == COLLIDED  # it seemed to be lower


# ---- everywhere and in every direction ----------------------------------------------------------


@settings(max_examples=10)
@given(st.floats(-0.3, 0.3), st.floats(-0.3, 0.3), st.floats(-np.pi, np.pi))
def test_turning_and_moving_object_and_grasp_together_changes_nothing(x, y, yaw):
    c, s = np.cos(yaw), np.sin(yaw)
    grasps = np.array([grasp for grasp, _ in CLEAR.values()])
    turned = np.stack(
        [
            x + c * grasps[:, 0] - s * grasps[:, 1],
            y + s * grasps[:, 0] + c * grasps[:, 1],
            grasps[:, 2] + yaw,
        ],
        axis=1,
    )
    found = Simulator().endings(body(), pose(x, y, yaw=yaw), TOP, turned)
    assert found.tolist() == [wanted for _, wanted in CLEAR.values()]


def test_half_a_turn_of_the_hand_changes_nothing():
    grasps = np.array([grasp for grasp, _ in CLEAR.values()])
    for turns in (-3, -1, 1, 2):
        turned = grasps + np.array([0, 0, turns * np.pi])
        found = Simulator().endings(body(), pose(), TOP, turned)
        assert found.tolist() == [wanted for _, wanted in CLEAR.values()]


@pytest.mark.slow
def test_drawn_objects_are_taken_alike_by_a_hand_that_is_turned_half_around(objects):
    tabletop, arrays = objects
    alike = []
    for row in range(4):
        centroid = arrays["centroid"][row]
        angles = np.linspace(0, np.pi, 8, endpoint=False)
        grasps = np.column_stack([np.tile(centroid, (8, 1)), angles])
        both = np.concatenate([grasps, grasps + np.array([0, 0, np.pi])])
        found = Simulator().endings(*of(tabletop, arrays, row), both)
        alike.append((found[:8] == LIFTED) == (found[8:] == LIFTED))
    assert np.mean(alike) > 0.95  # a borderline case may go either way


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.floats(-7, 7)), min_size=1),
    st.tuples(*[st.floats(-1, 1)] * 7).filter(lambda p: np.linalg.norm(p[3:]) > 0.1),
)
def test_the_objects_pose_is_seen_from_the_grasp_by_rotation_matrices(grasps, rest):
    rest = np.array(rest)
    rest[3:] /= np.linalg.norm(rest[3:])
    lying = Rotation.from_quat(rest[3:], scalar_first=True)
    found = seen_from(np.array(grasps), rest)
    assert found.shape == (len(grasps), 7)
    for (x, y, angle), seen in zip(grasps, found, strict=True):
        hand = Rotation.from_euler("z", angle)
        np.testing.assert_allclose(seen[:3], hand.inv().apply(rest[:3] - [x, y, 0]), atol=1e-12)
        turn = Rotation.from_quat(seen[3:], scalar_first=True)
        np.testing.assert_allclose(turn.as_matrix(), (hand.inv() * lying).as_matrix(), atol=1e-12)


# ---- to the bit ---------------------------------------------------------------------------------


def of(tabletop: Tabletop, arrays: Arrays, row: int) -> tuple[Body, NDArray, float]:
    return tabletop.body(arrays, row), arrays["rest"][row], float(arrays["top"][row])


def some_grasps(centroid: NDArray, n: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(3)
    return np.column_stack([centroid + rng.normal(0, 0.01, (n, 2)), rng.uniform(0, np.pi, n)])


@pytest.fixture
def last_states(monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[bytes]]:
    """All numbers of the state in which each lifted grasp ended: endings hide a last bit."""
    rollout, mine = mj.rollout.Rollout.rollout, local()

    def spied(*args: Any) -> Any:
        mine.states, sensed = rollout(*args)
        return mine.states, sensed

    def run(one: Body, rest: NDArray, top: float, grasps: NDArray) -> set[bytes]:
        found = Simulator().endings(one, rest, top, grasps)
        last = mine.states[:, -1]
        assert np.isfinite(last).all()
        assert len(last) >= np.sum(found == LIFTED) > 0
        return {row.tobytes() for row in last}

    monkeypatch.setattr(mj.rollout.Rollout, "rollout", spied)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("row", [0, 1])
def test_a_grasp_ends_the_same_alone_in_a_batch_and_in_another_order(objects, row: int):
    tabletop, arrays = objects
    known = of(tabletop, arrays, row)
    grasps = some_grasps(arrays["centroid"][row], 50)
    batch = Simulator().endings(*known, grasps)
    assert len(set(batch.tolist())) > 1
    for i in range(0, 50, 7):
        assert Simulator().endings(*known, grasps[i : i + 1])[0] == batch[i]
    order = np.random.default_rng(0).permutation(50)
    assert np.array_equal(Simulator().endings(*known, grasps[order]), batch[order])
    assert np.array_equal(Simulator().endings(*known, grasps), batch)


def test_the_whole_state_is_the_same_to_the_bit_alone_and_in_a_batch(objects, last_states):
    tabletop, arrays = objects
    known = of(tabletop, arrays, 0)
    grasps = some_grasps(arrays["centroid"][0], 24)
    lifted = np.flatnonzero(Simulator().endings(*known, grasps) == LIFTED)
    batch = last_states(*known, grasps)
    assert len(batch) >= len(lifted) >= 4
    assert last_states(*known, grasps[::-1]) == batch
    for i in lifted[:4]:
        assert last_states(*known, grasps[i : i + 1]) <= batch


@pytest.mark.slow
def test_grasps_in_several_threads_at_once_end_as_in_one_to_the_bit(objects, last_states):
    tabletop, arrays = objects

    def run(row: int) -> set[bytes]:
        return last_states(*of(tabletop, arrays, row), some_grasps(arrays["centroid"][row], 16))

    rows = [0, 1, 2, 3, 0, 1, 2, 3]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(run, rows))
    assert together == [run(row) for row in rows]


def test_grasps_leave_the_arrays_they_were_given_alone():
    rest, grasps = pose(), np.array([MIDDLE])
    for array in (rest, grasps):
        array.setflags(write=False)
    assert Simulator().endings(body(), rest, TOP, grasps).tolist() == [LIFTED]


# ---- falling ------------------------------------------------------------------------------------


def test_a_brick_that_is_dropped_flat_comes_to_rest_where_it_fell():
    one = body()
    rest = Drop().settle(build(one), one, np.array([1.0, 0, 0, 0]))
    assert rest is not None
    np.testing.assert_allclose(rest, pose(), atol=2e-4)


def test_a_brick_that_is_dropped_on_its_edge_falls_over():
    one = body(part(size=(0.04, 0.02, 0.01)))
    turn = Rotation.from_euler("x", 60, degrees=True).as_quat(scalar_first=True)
    rest = Drop().settle(build(one), one, turn)
    assert rest is not None
    points = points_at(one, rest)
    assert points[:, 2].min() > -1e-4
    assert points[:, 2].max() < 0.0205 or points[:, 2].max() == pytest.approx(0.04, abs=5e-4)


def test_what_is_not_still_in_time_has_not_settled():
    one = body()
    model = build(one)
    level = np.array([1.0, 0, 0, 0])
    assert Drop(seconds=0.1).settle(model, one, level) is None
    assert replace(Drop(), speed=0.0).settle(model, one, level) is None
    assert replace(Drop(), turning=0.0).settle(model, one, level) is None


# ---- NaN, infinity and overflow -----------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e10, 0.6])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_grasp_that_is_nowhere_is_no_success_and_harms_no_other(value: float, place: int):
    if place == 2 and np.isfinite(value):
        value = np.nan
    good, wanted = next(iter(CLEAR.values()))
    wrong = np.array(good, float)
    wrong[place] = value
    found = Simulator().endings(body(), pose(), TOP, np.array([wrong, good]))
    assert found.tolist() == [MISSED, wanted]
    assert Simulator().endings(body(), pose(), TOP, wrong[None]).tolist() == [MISSED]


def test_a_rollout_that_mujoco_began_again_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log
    good, wanted = next(iter(CLEAR.values()))
    assert wanted == LIFTED
    start = Gripper.start

    def explode(self: Gripper, *where: Any) -> NDArray:
        states = start(self, *where)
        states[:, -1] = 1e12  # a speed
        return states

    monkeypatch.setattr(Gripper, "start", explode)
    assert Simulator().endings(body(), pose(), TOP, np.array([good])).tolist() != [LIFTED]
