"""Objects dropped on a table, and grasps of them, in MuJoCo."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.cache import digest_of
from pacbayes_control.robots.grasping.gripper import Gripper, Hand
from pacbayes_control.robots.grasping.models import (
    DRAG,
    HEIGHT,
    LEFT,
    PALM,
    RIGHT,
    STEP,
    TABLE,
    Body,
    build,
    mujoco,
    world,
)
from pacbayes_control.robots.grasping.objects import corners, rotation

Floats = NDArray[np.float64]

PHASES = ("approach", "close", "lift")
REACH = 0.5  # m from the middle of the table: farther off, there is nothing to grasp
RISE = 0.02  # m, that an object must have been lifted (paper: Section 7.2)
SLOW = 0.05  # m/s, that a held object may move at most: one that was flung moves faster

# How a grasp ended.
LIFTED, COLLIDED, MISSED, DROPPED, FLUNG = range(5)
ENDINGS = {
    LIFTED: "lifted",
    COLLIDED: "the hand met the object on its way down",
    MISSED: "the fingers did not both touch the object",
    DROPPED: "the object was lost, or not held clear of the table",
    FLUNG: "the object was still moving",
}


class Robot(Protocol):
    """A hand, and what moves it. Its `repr` must tell it from every other."""

    @property
    def hand(self) -> Hand:
        """Fingers and palm."""
        ...

    @property
    def name(self) -> str:
        """A word for records."""
        ...

    @property
    def world(self) -> str:
        """MJCF of the robot and the table, to which an object is added."""
        ...

    def start(self, model: Any, rest: Floats, grasps: Floats, tips: Floats) -> Floats:
        """States to begin with, (grasps, state).

        rest: (7,), where the object lies, as place and quaternion; grasps: (grasps, 3) as x, y in m
        and the angle of closing; tips: (grasps,), how high above the table the fingers' tips go.
        """
        ...

    def controls(self, phase: str, grasps: Floats, tips: Floats) -> Floats:
        """What the drives are told in a phase, (grasps, steps, drives)."""
        ...


def physics(robot: Robot | None = None) -> str:
    """Words that tell one simulator from another: MuJoCo's version, and a digest of our numbers."""
    worlds = [world(), robot.world if robot else ""]
    return f"MuJoCo {mujoco().__version__}, physics {digest_of([*worlds, DRAG, RISE, SLOW])[:8]}"


class Rest(NamedTuple):
    """Where an object has come to lie."""

    pose: Floats  # (7,), as place in m and quaternion
    seconds: float  # since it was dropped


@dataclass(frozen=True)
class Drop:
    """How objects are dropped, and when they have settled."""

    yaw: float = 0.5  # rad, standard deviations
    roll: float = 0.5  # rad
    pitch: float = 0.01  # rad
    height: float = 0.02  # m, of the lowest point
    seconds: float = 4.0  # after which an object that still moves is another draw
    speed: float = 2e-3  # m/s, below which it is still
    turning: float = 2e-2  # rad/s

    def turn(self, rng: np.random.Generator) -> Floats:
        """A quaternion: yaw after pitch after roll."""
        mj = mujoco()
        turn = np.empty(4)
        mj.mju_euler2Quat(turn, rng.normal(0, [self.yaw, self.pitch, self.roll]), "zyx")
        return turn

    def settle(self, model: Any, body: Body, turn: Floats) -> Rest | None:
        """Let the object fall and lie still; None if it does not, or falls off."""
        mj = mujoco()
        data = mj.MjData(model)
        joint = model.joint("object").id
        place, moving = model.jnt_qposadr[joint], model.jnt_dofadr[joint]
        points = np.concatenate([corners(part) for part in body.parts]) @ rotation(turn).T
        data.qpos[place : place + 7] = [0, 0, self.height - points[:, 2].min(), *turn]
        still, every = 0, 25  # steps between looks
        for _ in range(int(self.seconds / STEP / every)):
            mj.mj_step(model, data, every)
            velocity = data.qvel[moving : moving + 6]
            slow = np.linalg.norm(velocity[:3]) < self.speed
            still = still + 1 if slow and np.linalg.norm(velocity[3:]) < self.turning else 0
            pose = data.qpos[place : place + 7]
            if not np.all(np.isfinite(pose)) or pose[2] < 0:
                return None
            if still == 2:
                return Rest(pose.copy(), float(data.time))
        return None


@dataclass(frozen=True)
class Simulator:
    """Grasps of one object at a time, as many as there are; deterministic."""

    robot: Robot = field(default_factory=Gripper)

    def endings(self, body: Body, rest: Floats, top: float, grasps: Floats) -> NDArray[np.uint8]:
        """How each grasp ends; (grasps,).

        rest: (7,), where the object lies; top: the height of its highest point that was seen, in m;
        grasps: (grasps, 3) as x, y in m and the angle of closing in rad.
        """
        mj = mujoco()
        model = build(body, self.robot.world)
        data = mj.MjData(model)
        tips = np.full(len(grasps), float(self.robot.hand.tip_height(np.array(top))))
        velocity = 1 + model.nq + model.jnt_dofadr[model.joint("object").id]
        ends = np.full(len(grasps), MISSED, np.uint8)
        left = np.flatnonzero(
            (np.abs(grasps[:, :2]) < REACH).all(axis=1) & np.isfinite(grasps[:, 2])
        )
        if len(left) == 0:
            return ends
        ends[left] = DROPPED
        states = self.robot.start(model, rest, grasps[left], tips[left])
        elapsed = 0.0
        before = np.zeros(len(grasps))  # heights of the object
        with mj.rollout.Rollout(nthread=0) as pool:
            for phase in PHASES:
                controls = self.robot.controls(phase, grasps[left], tips[left])
                states, sensed = pool.rollout([model], [data], states, controls)
                last = sensed[:, -1]
                elapsed += STEP * controls.shape[1]
                # MuJoCo begins again, at time 0, where numbers overflow: that is no success.
                sound = np.abs(states[:, -1, 0] - elapsed) < STEP / 2
                touching = sound & (last[:, LEFT] > 0) & (last[:, RIGHT] > 0)
                if phase == "approach":
                    before[left] = sensed[:, 0, HEIGHT]
                    met = (sensed[..., [LEFT, RIGHT, PALM]] > 0).any(axis=(1, 2))
                    ends[left[met]] = COLLIDED
                    going = sound & ~met
                else:
                    going = touching
                if phase == "close":
                    ends[left[~going]] = MISSED
                if phase == "lift":
                    speed = np.linalg.norm(states[:, -1, velocity : velocity + 3], axis=1)
                    held = (last[:, HEIGHT] - before[left] > RISE) & (last[:, TABLE] == 0)
                    ends[left[going & held]] = FLUNG
                    ends[left[going & held & (speed < SLOW)]] = LIFTED
                left, states = left[going], states[going, -1]
                if len(left) == 0:
                    break
        return ends
