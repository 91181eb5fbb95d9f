"""A grasp simulated again, step by step, for pictures of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pacbayes_control.robots.grasping.models import LEFT, RIGHT, Body, build, mujoco
from pacbayes_control.robots.grasping.shapes import Floats
from pacbayes_control.robots.grasping.simulator import COLLIDED, MISSED, PHASES, Robot, Simulator


@dataclass(frozen=True, eq=False)
class Playback:
    """A grasp up to the moment that decided it."""

    model: Any
    rest: Floats  # (7,), the object's pose on the table
    states: Floats  # (moments, state); the first is before the motion
    phases: list[tuple[str, int, int]]  # each with its first and its last moment
    ending: int  # of simulator.ENDINGS

    def at(self, moment: int) -> Any:
        """MuJoCo's data at a moment."""
        mj = mujoco()
        data = mj.MjData(self.model)
        mj.mj_setState(self.model, data, self.states[moment], mj.mjtState.mjSTATE_FULLPHYSICS)
        mj.mj_forward(self.model, data)
        return data

    def seconds(self, moment: int) -> float:
        """Time since the motion began."""
        return moment * float(self.model.opt.timestep)

    def place(self, point: ArrayLike) -> Floats:
        """A point over the table, (3,), in the model's frame, which the robot chooses."""
        turn, shift = self._frame
        x, y, z = np.asarray(point, float)
        c, s = np.cos(turn), np.sin(turn)
        return np.array([c * x - s * y + shift[0], s * x + c * y + shift[1], z])

    @cached_property
    def _frame(self) -> tuple[float, Floats]:
        """The turn about z, and then the shift, from the table's frame to the model's."""
        mj = mujoco()
        where = 1 + self.model.joint("object").qposadr[0]
        begun, back, turn = self.states[0, where : where + 7], np.empty(4), np.empty(4)
        mj.mju_negQuat(back, self.rest[3:])
        mj.mju_mulQuat(turn, begun[3:], back)
        angle = 2 * np.arctan2(turn[3], turn[0])
        c, s = np.cos(angle), np.sin(angle)
        return float(angle), begun[:2] - np.array([[c, -s], [s, c]]) @ self.rest[:2]


def play(robot: Robot, body: Body, rest: Floats, top: float, grasp: Floats) -> Playback:
    """The same grasp as in `Simulator.endings`, with all of its states.

    Args:
        robot: to grasp with.
        body: the object.
        rest: (7,), where it lies, as place in m and quaternion.
        top: the height of its highest point that was seen, in m.
        grasp: (3,), as x, y in m and the angle of closing in rad.
    """
    mj = mujoco()
    ending = int(Simulator(robot).endings(body, rest, top, grasp[None])[0])
    model = build(body, robot.world)
    tips = np.array([float(robot.hand.tip_height(np.array(top)))])
    states, phases = robot.start(model, rest, grasp[None], tips), []
    with mj.rollout.Rollout(nthread=0) as pool:
        for phase in PHASES:
            controls = robot.controls(phase, grasp[None], tips)
            rolled, sensed = pool.rollout([model], [mj.MjData(model)], states[-1:], controls)
            first, states = len(states) - 1, np.concatenate([states, rolled[0]])
            phases.append((phase, first, len(states) - 1))
            touching = (sensed[0, -1, [LEFT, RIGHT]] > 0).all()
            if ending == COLLIDED or (phase == "close" and ending == MISSED and not touching):
                break
    return Playback(model, np.asarray(rest), states, phases, ending)
