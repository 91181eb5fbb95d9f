"""A floating parallel gripper: it comes straight down, closes and lifts.

A table is the same everywhere and in every direction, so the gripper does not move in the plane and
the object is placed in the gripper's frame: fewer joints, and the same physics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.models import STEP, states_with, world
from pacbayes_control.robots.grasping.shapes import Floats

PALM = 0.024  # m, the palm's thickness


@dataclass(frozen=True)
class Hand:
    """The hand that every robot here has; lengths in m."""

    opening: float = 0.07  # between the fingers
    length: float = 0.06  # of a finger, from its tip to the palm
    width: float = 0.02  # of a finger, across the direction of closing
    thickness: float = 0.01  # of a finger, along it
    force: float = 10.0  # N, of a finger at most
    friction: float = 0.9  # of the fingers; the larger of this and the object's counts
    clearance: float = 0.006  # of the tips above the table, at least
    depth: float = 0.4  # of the tips above the table at least, as a share of the object's height
    lift: float = 0.08  # how far the hand rises with the object

    approach_time: float = 0.4  # s, from the height that it lifts to
    closing_time: float = 0.35  # s
    pressing_time: float = 0.10  # s, between closing and lifting
    lifting_time: float = 0.30  # s
    holding_time: float = 0.15  # s, after which the grasp is judged

    def tip_height(self, top: NDArray) -> Floats:
        """The height of the tips above the table for objects of these heights, in m.

        Low enough for round objects, above the bottom of a bowl, and the palm stays clear.
        """
        low = np.maximum(self.clearance, self.depth * top)
        return np.maximum(low, top - self.length + 0.002)

    def body(self) -> str:
        """MJCF of palm and fingers; the tips are at z = 0 and close along x."""
        out = self.opening / 2 + self.thickness / 2
        size = f"{self.thickness / 2} {self.width / 2} {self.length / 2}"
        travel = self.opening / 2 - 0.0005
        friction = f"{self.friction} 0.005 0.0001"
        fingers = "".join(
            f"""
      <body name="{name}" pos="{sign * out} 0 {self.length / 2}" gravcomp="1">
        <joint name="{name}" type="slide" axis="{-sign} 0 0" limited="true" range="0 {travel}"
               damping="10" armature="0.05"/>
        <geom name="{name}" class="robot" type="box" size="{size}" mass="0.05"
              friction="{friction}" rgba="0.25 0.27 0.3 1"/>
      </body>"""
            for name, sign in (("left", -1), ("right", 1))
        )
        half = self.opening / 2 + self.thickness
        return f"""
      <geom name="palm" class="robot" type="box" size="{half} {self.width / 2 + 0.005} {PALM / 2}"
            pos="0 0 {self.length + PALM / 2}" mass="0.4" rgba="0.35 0.37 0.4 1"/>{fingers}"""

    def actuators(self) -> str:
        """MJCF of the fingers' drives: a position to go to, with a limited force."""
        return "".join(
            f'<position name="{name}" joint="{name}" kp="1500" '
            f'forcerange="{-self.force} {self.force}"/>'
            for name in ("left", "right")
        )

    def motion(self, phase: str) -> tuple[Floats, Floats]:
        """The hand's height above the grasp, and the fingers' set point, in m; (steps,) each.

        The set point of closed fingers is beyond where they would touch, so that they press.
        """
        if phase == "approach":
            down = self.lift * (1 - _smooth(self.approach_time))
            return down, np.zeros(len(down))
        pressing = _steps(self.pressing_time)
        if phase == "close":
            ramp = np.linspace(0, 1, _steps(self.closing_time) + 1)[1:]
            fingers = np.concatenate([ramp, np.ones(pressing)]) * self.opening
            return np.zeros(len(fingers)), fingers
        up = np.concatenate([_smooth(self.lifting_time), np.ones(_steps(self.holding_time))])
        return up * self.lift, np.full(len(up), self.opening)


def _smooth(seconds: float) -> Floats:
    """From 0 to 1 with zero speed at both ends, one number a step."""
    share = np.linspace(0, 1, _steps(seconds) + 1)[1:]
    return share**2 * (3 - 2 * share)


def _steps(seconds: float) -> int:
    return max(1, round(seconds / STEP))


@dataclass(frozen=True)
class Gripper:
    """The hand on a vertical rail, held stiffly in the plane."""

    hand: Hand = Hand()

    @property
    def world(self) -> str:
        """MJCF of the table and the hand."""
        robot = f"""
    <body name="hand" gravcomp="1">
      <joint name="height" type="slide" axis="0 0 1" damping="50" armature="0.1"/>
      {self.hand.body()}
    </body>"""
        drives = f"""<actuator>
      <position name="height" joint="height" kp="8000" dampratio="1"/>
      {self.hand.actuators()}</actuator>"""
        return world(robot, drives)

    def start(self, model: Any, rest: Floats, grasps: Floats, tips: Floats) -> Floats:
        """States with the hand down and open around the object, (grasps, state).

        The fingers are prisms that end above the object: they meet it on their way straight down
        if they overlap it at the end, so the way itself need not be simulated.
        """
        states = states_with(model, seen_from(grasps, rest))
        states[:, 1 + model.joint("height").qposadr[0]] = tips
        return states

    def controls(self, phase: str, grasps: Floats, tips: Floats) -> Floats:
        """Set points of the height and the two fingers, (grasps, steps, 3)."""
        rise, fingers = self.hand.motion(phase)
        if phase == "approach":  # it is down already: one step shows what it touches
            rise, fingers = np.zeros(1), np.zeros(1)
        controls = np.empty((len(grasps), len(rise), 3))
        controls[..., 0] = tips[:, None] + rise
        controls[..., 1:] = fingers[:, None]
        return controls


def seen_from(grasps: Floats, rest: Floats) -> Floats:
    """The object's pose in the frame of each grasp, (grasps, 7)."""
    x, y, angle = grasps.T
    c, s = np.cos(angle), np.sin(angle)
    dx, dy = rest[0] - x, rest[1] - y
    half_c, half_s = np.cos(angle / 2), -np.sin(angle / 2)
    w, i, j, k = rest[3:]
    return np.stack(
        [
            c * dx + s * dy,
            -s * dx + c * dy,
            np.full(len(grasps), rest[2]),
            half_c * w - half_s * k,
            half_c * i - half_s * j,
            half_c * j + half_s * i,
            half_c * k + half_s * w,
        ],
        axis=1,
    )
