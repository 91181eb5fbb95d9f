"""A grasp played again, step by step, for pictures of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.robots.grasping.models import LEFT, RIGHT, Body, build, mujoco
from pacbayes_control.robots.grasping.simulator import COLLIDED, MISSED, PHASES, Robot, Simulator

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Playback:
    """A grasp up to where it was decided."""

    model: Any
    rest: Floats  # (7,), where the object lay
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
        """Since the motion began."""
        return moment * float(self.model.opt.timestep)

    def place(self, point: ArrayLike) -> Floats:
        """Where a point over the table, (3,), is in the model: a robot may have its own frame."""
        turn, shift = self._frame
        x, y, z = np.asarray(point, float)
        c, s = np.cos(turn), np.sin(turn)
        return np.array([c * x - s * y + shift[0], s * x + c * y + shift[1], z])

    @cached_property
    def _frame(self) -> tuple[float, Floats]:
        """By what turn about z, and then what shift, the object at rest was put where it began."""
        mj = mujoco()
        where = 1 + self.model.jnt_qposadr[self.model.joint("object").id]
        begun, back, turn = self.states[0, where : where + 7], np.empty(4), np.empty(4)
        mj.mju_negQuat(back, self.rest[3:])
        mj.mju_mulQuat(turn, begun[3:], back)
        angle = 2 * np.arctan2(turn[3], turn[0])
        c, s = np.cos(angle), np.sin(angle)
        return float(angle), begun[:2] - np.array([[c, -s], [s, c]]) @ self.rest[:2]


def play(robot: Robot, body: Body, rest: Floats, top: float, grasp: Floats) -> Playback:
    """The same grasp as in `Simulator.endings`, with all that it passes through. grasp: (3,)."""
    mj = mujoco()
    ending = int(Simulator(robot).endings(body, rest, top, grasp[None])[0])
    model = build(body, robot.world)
    data = mj.MjData(model)
    tips = np.array([float(robot.hand.tip_height(np.array(top)))])
    states = [robot.start(model, rest, grasp[None], tips)[0]]
    phases = []
    for phase in PHASES:
        first = len(states) - 1
        mj.mj_setState(model, data, states[-1], mj.mjtState.mjSTATE_FULLPHYSICS)
        data.qacc_warmstart[:] = 0  # as a rollout begins
        for control in robot.controls(phase, grasp[None], tips)[0]:
            data.ctrl[:] = control
            mj.mj_step(model, data)
            states.append(np.empty_like(states[0]))
            mj.mj_getState(model, data, states[-1], mj.mjtState.mjSTATE_FULLPHYSICS)
        phases.append((phase, first, len(states) - 1))
        touching = data.sensordata[LEFT] > 0 and data.sensordata[RIGHT] > 0
        if ending == COLLIDED or (phase == "close" and ending == MISSED and not touching):
            break
    return Playback(model, np.asarray(rest), np.array(states), phases, ending)
