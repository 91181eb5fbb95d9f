"""Objects dropped on a table, and grasps of them, in MuJoCo."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.robots.grasping import models
from pacbayes_control.robots.grasping.extras import digest_of
from pacbayes_control.robots.grasping.models import STEP, Body, Floats, build, mujoco
from pacbayes_control.robots.grasping.robots import Gripper, Robot, seen_from

PHASES = ("approach", "close", "lift")
REACH = 0.5  # m from the middle of the table: farther off, there is nothing to grasp
RISE = 0.02  # m, the least height that an object must be lifted by (paper: Section 7.2)
SLOW = 0.05  # m/s, the largest speed of an object that is held: one that was flung moves faster

Seen = list[tuple[str, Floats]]  # phases of grasps, each with its states, (grasps, steps, state)

# Endings of a grasp.
LIFTED, COLLIDED, MISSED, DROPPED, FLUNG = range(5)
ENDINGS = {
    LIFTED: "lifted",
    COLLIDED: "the hand met the object on its way down",
    MISSED: "the fingers did not both touch the object",
    DROPPED: "the object was lost, or not held clear of the table",
    FLUNG: "the object was still moving",
}


def physics(robot: Robot | None = None) -> str:
    """A line that tells one simulator from another: MuJoCo's version, and a digest of our numbers.

    >>> physics().startswith("MuJoCo ")
    True
    """
    numbers = [models.world(), robot.world if robot else "", models.DRAG, RISE, SLOW]
    return f"MuJoCo {mujoco().__version__}, physics {digest_of(numbers)[:8]}"


@dataclass(frozen=True)
class Drop:
    """How objects are dropped, and when they have settled."""

    yaw: float = 0.5  # rad, standard deviations
    roll: float = 0.5  # rad
    pitch: float = 0.01  # rad
    height: float = 0.02  # m, of the lowest point
    seconds: float = 4.0  # after which an object that still moves is drawn anew
    speed: float = 2e-3  # m/s, below which it is at rest, if it also turns slowly
    turning: float = 2e-2  # rad/s

    def turn(self, rng: np.random.Generator) -> Floats:
        """A random quaternion: yaw after pitch after roll."""
        turn = np.empty(4)
        mujoco().mju_euler2Quat(turn, rng.normal(0, [self.yaw, self.pitch, self.roll]), "zyx")
        return turn

    def settle(self, model: Any, body: Body, turn: Floats) -> Floats | None:
        """Let the object fall; its pose at rest, (7,) as place in m and quaternion.

        None if it does not come to rest, or falls off the table.
        """
        mj = mujoco()
        data = mj.MjData(model)
        joint = data.joint("object")
        points = np.concatenate([models.corners(p) for p in body.parts]) @ models.rotation(turn).T
        joint.qpos[:] = [0, 0, self.height - points[:, 2].min(), *turn]
        still, every = 0, 25  # steps between looks
        for _ in range(int(self.seconds / STEP / every)):
            mj.mj_step(model, data, every)
            slow = np.linalg.norm(joint.qvel[:3]) < self.speed
            still = still + 1 if slow and np.linalg.norm(joint.qvel[3:]) < self.turning else 0
            if not np.all(np.isfinite(joint.qpos)) or joint.qpos[2] < 0:
                return None
            if still == 2:
                return joint.qpos.copy()
        return None


@dataclass(frozen=True)
class Simulator:
    """Deterministic simulation of many grasps of one object."""

    robot: Robot = field(default_factory=Gripper)

    def endings(self, body: Body, rest: Floats, top: float, grasps: Floats) -> NDArray[np.uint8]:
        """The ending of each grasp, as in ENDINGS; (grasps,).

        Args:
            body: the object.
            rest: (7,), where it lies, as place in m and quaternion.
            top: the height of its highest point that was seen, in m.
            grasps: (grasps, 3), as x, y in m and the angle of closing in rad.
        """
        ends = np.full(len(grasps), MISSED, np.uint8)
        near = (np.abs(grasps[:, :2]) < REACH).all(axis=1) & np.isfinite(grasps[:, 2])
        if near.any():
            ends[near] = self.run(build(body, self.robot.world), rest, top, grasps[near])
        return ends

    def run(
        self, model: Any, rest: Floats, top: float, grasps: Floats, seen: Seen | None = None
    ) -> NDArray[np.uint8]:
        """The endings of grasps in a model of the robot and the object.

        seen: where it is given, filled with the states of each phase, after a first entry of those
        before the motion.
        """
        mj = mujoco()
        data, velocity = mj.MjData(model), 1 + model.nq + model.joint("object").dofadr[0]
        tips = np.full(len(grasps), float(self.robot.hand.tip_height(np.array(top))))
        left, ends = np.arange(len(grasps)), np.full(len(grasps), DROPPED, np.uint8)
        states, elapsed = self.robot.start(model, rest, grasps, tips), 0.0
        before = np.zeros(len(grasps))  # heights of the object
        if seen is not None:
            seen.append(("start", states[:, None]))
        with mj.rollout.Rollout(nthread=0) as pool:
            for phase in PHASES:
                controls = self.robot.controls(phase, grasps[left], tips[left])
                states, sensed = pool.rollout([model], [data], states, controls)
                if seen is not None:
                    seen.append((phase, states))
                last = sensed[:, -1]
                elapsed += STEP * controls.shape[1]
                # Where numbers overflow MuJoCo begins again, at time 0: that is no success.
                sound = np.abs(states[:, -1, 0] - elapsed) < STEP / 2
                going = sound & (last[:, models.LEFT] > 0) & (last[:, models.RIGHT] > 0)
                if phase == "approach":
                    before[left] = sensed[:, 0, models.HEIGHT]
                    hand = [models.LEFT, models.RIGHT, models.PALM]
                    met = (sensed[..., hand] > 0).any(axis=(1, 2))
                    ends[left[met]] = COLLIDED
                    going = sound & ~met
                elif phase == "close":
                    ends[left[~going]] = MISSED
                else:
                    speed = np.linalg.norm(states[:, -1, velocity : velocity + 3], axis=1)
                    high = last[:, models.HEIGHT] - before[left] > RISE
                    held = high & (last[:, models.TABLE] == 0)
                    ends[left[going & held]] = FLUNG
                    ends[left[going & held & (speed < SLOW)]] = LIFTED
                left, states = left[going], states[going, -1]
                if len(left) == 0:
                    break
        return ends


# ---- one grasp again, with all of its states, for pictures of it --------------------------------


@dataclass(frozen=True, eq=False)
class Playback:
    """A grasp up to the moment that decided it."""

    model: Any
    frame: Floats  # (3,), the model's on the table: x, y in m, and its angle
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
        return seen_from(self.frame[None], np.append(point, models.UPRIGHT))[0, :3]


def play(robot: Robot, body: Body, rest: Floats, top: float, grasp: Floats) -> Playback:
    """The same grasp as in `Simulator.endings`, with all of its states.

    Args:
        robot: to grasp with.
        body: the object.
        rest: (7,), where it lies, as place in m and quaternion.
        top: the height of its highest point that was seen, in m.
        grasp: (3,), as x, y in m and the angle of closing in rad.
    """
    model, seen = build(body, robot.world), []
    ending = int(Simulator(robot).run(model, rest, top, grasp[None], seen)[0])
    names, parts = [phase for phase, _ in seen[1:]], [states[0] for _, states in seen]
    ends = (np.cumsum([len(part) for part in parts]) - 1).tolist()
    phases = list(zip(names, ends[:-1], ends[1:], strict=True))
    frame = grasp if isinstance(robot, Gripper) else np.zeros(3)  # the gripper stands still
    return Playback(model, frame, np.concatenate(parts), phases, ending)
