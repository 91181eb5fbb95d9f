"""A grasp that is played again is the grasp that was judged, wherever the robot has its frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hand_made import ACROSS, ALONG, BRICK, body, pose
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.models import HEIGHT, TABLE, build, mujoco
from pacbayes_control.robots.grasping.robots import Arm, Gripper
from pacbayes_control.robots.grasping.simulator import (
    COLLIDED,
    LIFTED,
    MISSED,
    PHASES,
    RISE,
    Simulator,
    play,
)

mj = mujoco()
TOP = 2 * BRICK[2]
WHERE = pose(0.02, -0.03, yaw=0.5)
ROBOTS = [Gripper(), Arm()]


def grasp_at(angle: float, aside: float = 0.0) -> NDArray[np.float64]:
    """Of the brick's middle, or beside it; the angle is from its long side."""
    return np.array([0.02 + aside, -0.03, 0.5 + angle])


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda robot: type(robot).__name__)
def test_it_passes_through_the_states_of_the_rollouts_to_the_bit(robot: Any):
    grasp = grasp_at(ACROSS)
    playback = play(robot, body(), WHERE, TOP, grasp)
    model = build(body(), robot.world)
    tips = np.array([float(robot.hand.tip_height(np.array(TOP)))])
    states = robot.start(model, WHERE, grasp[None], tips)
    assert np.array_equal(playback.states[0], states[0])
    with mj.rollout.Rollout(nthread=0) as pool:
        for phase, first, last in playback.phases:
            controls = robot.controls(phase, grasp[None], tips)
            rolled, _ = pool.rollout([model], [mj.MjData(model)], states, controls)
            assert np.array_equal(rolled[0], playback.states[first + 1 : last + 1])
            states = rolled[:, -1]
    assert [phase for phase, *_ in playback.phases] == list(PHASES)
    assert playback.phases[-1][2] == len(playback.states) - 1
    assert playback.seconds(len(playback.states) - 1) == pytest.approx(playback.states[-1, 0])


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda robot: type(robot).__name__)
def test_what_was_lifted_is_in_the_air_at_the_end(robot: Any):
    playback = play(robot, body(), WHERE, TOP, grasp_at(ACROSS))
    assert playback.ending == LIFTED
    begin, end = playback.at(0).sensordata, playback.at(len(playback.states) - 1).sensordata
    assert end[HEIGHT] - begin[HEIGHT] > RISE
    assert end[TABLE] == 0


def test_it_ends_where_the_grasp_was_decided():
    met = play(Gripper(), body(), WHERE, TOP, grasp_at(ALONG))
    missed = play(Gripper(), body(), WHERE, TOP, grasp_at(ACROSS, 0.2))
    assert (met.ending, missed.ending) == (COLLIDED, MISSED)
    assert [phase for phase, *_ in met.phases] == ["approach"]
    assert [phase for phase, *_ in missed.phases] == ["approach", "close"]
    for playback, grasp in ((met, grasp_at(ALONG)), (missed, grasp_at(ACROSS, 0.2))):
        ending = Simulator().endings(body(), WHERE, TOP, grasp[None])
        assert playback.ending == ending[0]


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda robot: type(robot).__name__)
def test_points_over_the_table_are_found_in_the_frame_of_the_robot(robot: Any):
    grasp = grasp_at(ACROSS + 0.2, 0.004)
    playback = play(robot, body(), WHERE, TOP, grasp)
    data = playback.at(playback.phases[0][2])
    centre = data.xpos[playback.model.body("object").id]
    np.testing.assert_allclose(playback.place(WHERE[:3]), centre, atol=3e-4)
    fingers = [data.geom_xpos[playback.model.geom(name).id] for name in ("left", "right")]
    between = playback.place([*grasp[:2], 0])
    np.testing.assert_allclose(np.mean(fingers, axis=0)[:2], between[:2], atol=5e-4)
    along = playback.place([grasp[0] + np.cos(grasp[2]), grasp[1] + np.sin(grasp[2]), 0]) - between
    apart = fingers[1] - fingers[0]
    assert abs(along @ apart) == pytest.approx(np.linalg.norm(apart), rel=1e-4)
