"""The robots: one hand, on a vertical rail or on an arm; it comes straight down, closes and lifts.

`Gripper` floats. A table is the same everywhere and in every direction, so it does not move in the
plane and the object is placed in the gripper's frame: fewer joints, and the same physics.

`Arm` is a KUKA LBR iiwa 14 R820 that stands beside the objects. Lengths, and limits of angles and
torques, are the published ones. Shapes, masses and drives are our rough values: they carry the
hand, and only the hand touches an object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.models import STEP, Floats, states_with, world

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

        Args:
            model: MuJoCo's model of the robot and the object.
            rest: (7,), where the object lies, as place in m and quaternion.
            grasps: (grasps, 3), as x, y in m and the angle of closing in rad.
            tips: (grasps,), the height above the table of the fingers' tips, in m.
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
    poses = np.empty((len(grasps), 7))
    poses[:, 0], poses[:, 1], poses[:, 2] = c * dx + s * dy, -s * dx + c * dy, rest[2]
    poses[:, 3], poses[:, 4] = half_c * w - half_s * k, half_c * i - half_s * j
    poses[:, 5], poses[:, 6] = half_c * j + half_s * i, half_c * k + half_s * w
    return poses


# ---- the arm -------------------------------------------------------------------------------------

# From the base to the shoulder, the elbow, the wrist and the flange, in m.
SHOULDER, ELBOW, WRIST, FLANGE = 0.36, 0.42, 0.40, 0.126
LIMITS = np.radians([170, 120, 170, 120, 170, 120, 175])  # rad, to either side
TORQUES = (320, 320, 176, 176, 110, 40, 40)  # N m, at most
BASE = (-0.6, 0.0)  # m, where the arm stands on the table, looking along x

# The drives: joints of equal frequency lag equally, so that the hand stays on its way.
FREQUENCY = 150.0  # rad/s, critically damped
ROTORS = (6.0, 6.0, 4.0, 4.0, 1.0, 1.0, 1.0)  # kg m², behind the gears

_MIDDLE = -0.1  # rad, of the last joint's half turn: no common grasp lies where it jumps

_GREY, _ORANGE, _DARK = "0.74 0.75 0.77 1", "0.96 0.42 0.08 1", "0.2 0.2 0.22 1"

# For each link: the height of its joint above the joint before it, in m, the joint's axis, the
# link's mass in kg (about 30 with the base's), and its look: a tube along z as bottom, top and
# radius in m, and whether the housing of a joint lies across it.
_LINKS = (
    (0.0, "0 0 1", 5.5, (0.15, SHOULDER, 0.07), False),
    (SHOULDER, "0 1 0", 5.5, (0.0, 0.20, 0.07), True),
    (0.0, "0 0 1", 3.6, (0.22, ELBOW, 0.065), False),
    (ELBOW, "0 -1 0", 3.6, (0.0, 0.18, 0.065), True),
    (0.0, "0 0 1", 3.0, (0.20, WRIST, 0.055), False),
    (WRIST, "0 1 0", 2.0, (-0.01, 0.03, 0.055), True),
    (0.0, "0 0 1", 1.2, (0.07, FLANGE - 0.004, 0.045), False),
)
_BASE_MASS = 5.5


@dataclass(frozen=True)
class Arm:
    """The hand on the arm, which comes straight down, closes and lifts.

    >>> arm = Arm()
    >>> arm.joints(np.array([0.0, 0.0, 0.02, 0.5])).round(2)
    array([ 0.  ,  1.08,  0.  , -1.45,  0.  ,  0.61, -0.5 ])
    """

    hand: Hand = field(default_factory=Hand)

    @property
    def world(self) -> str:
        """MJCF of the table, the arm and the hand."""
        links = f"""
    <body name="hand" pos="0 0 {FLANGE + self.length}" quat="0 1 0 0" gravcomp="1">\
{self.hand.body()}</body>"""
        for k in range(len(_LINKS), 0, -1):
            links = _link(k, links)
        base = _tube("base", (0.0, 0.15, 0.09), _DARK, _BASE_MASS)
        arm = f"""
    <body name="base" pos="{BASE[0]} {BASE[1]} 0">{base}{links}</body>"""
        drives = "".join(
            f'<position name="joint {k}" joint="joint {k}" '
            f'kp="{rotor * FREQUENCY**2}" kv="{2 * rotor * FREQUENCY}" '
            f'forcerange="{-torque} {torque}"/>'
            for k, (rotor, torque) in enumerate(zip(ROTORS, TORQUES, strict=True), start=1)
        )
        return world(arm, f"<actuator>{drives}{self.hand.actuators()}</actuator>")

    @property
    def length(self) -> float:
        """From the flange, to which the palm is bolted, to the fingers' tips, in m."""
        return self.hand.length + PALM

    def joints(self, poses: NDArray) -> Floats:
        """The angles of the joints for a hand that points straight down; (..., 7) in rad.

        poses: (..., 4), as x, y and height of the point between the tips in m, and the angle of
        closing in rad. With the third and the fifth joint at 0 the arm lies in a vertical plane,
        the elbow up: a triangle of shoulder, elbow and wrist. A hand that is turned by half a turn
        is the same hand, so the last joint stays within about a quarter turn.
        """
        poses = np.asarray(poses, float)
        x, y, height, angle = np.moveaxis(poses, -1, 0)
        ahead, aside = x - BASE[0], y - BASE[1]
        out, up = np.hypot(ahead, aside), height + self.length + FLANGE - SHOULDER
        yaw, low = np.arctan2(aside, ahead), _MIDDLE - np.pi / 2
        with np.errstate(invalid="ignore"):  # NaN where the triangle does not close
            bend = np.arccos((out**2 + up**2 - ELBOW**2 - WRIST**2) / (2 * ELBOW * WRIST))
            beyond = np.arctan2(WRIST * np.sin(bend), ELBOW + WRIST * np.cos(bend))
            pitch = np.arctan2(out, up) - beyond
            turn = (yaw - angle - low) % np.pi + low
        zero = np.zeros_like(yaw)
        joints = np.stack([yaw, pitch, zero, -bend, zero, np.pi - pitch - bend, turn], axis=-1)
        within = (np.abs(joints) <= LIMITS).all(axis=-1)
        if not within.all():
            x, y, height, angle = poses[~within][0]
            raise ValueError(
                f"the arm does not reach x {x:.3f} m, y {y:.3f} m, height {height:.3f} m, angle "
                f"{angle:.3f} rad with the hand pointing down: choose a grasp nearer to the origin"
            )
        return joints

    def start(self, model: Any, rest: Floats, grasps: Floats, tips: Floats) -> Floats:
        """States with the hand open and above the object, (grasps, state)."""
        states = states_with(model, np.tile(rest, (len(grasps), 1)))
        first = 1 + model.joint("joint 1").qposadr[0]
        states[:, first : first + 7] = self.joints(_poses(grasps, tips + self.hand.lift))
        return states

    def controls(self, phase: str, grasps: Floats, tips: Floats) -> Floats:
        """Set points of the seven joints and the two fingers, (grasps, steps, 9)."""
        rise, fingers = self.hand.motion(phase)
        controls = np.empty((len(grasps), len(rise), 9))
        controls[..., :7] = self.joints(_poses(grasps[:, None], tips[:, None] + rise))
        controls[..., 7:] = fingers[:, None]
        return controls


Robot = Gripper | Arm  # a hand and its machine, whose `repr` tells it from every other


def _poses(grasps: Floats, heights: Floats) -> Floats:
    """Grasps (..., 3) at heights (...): (..., 4)."""
    x, y, angle = np.moveaxis(grasps, -1, 0)
    return np.stack(np.broadcast_arrays(x, y, heights, angle), axis=-1)


def _link(k: int, rest: str) -> str:
    """MJCF of the link behind joint k, with the rest of the arm on it."""
    above, axis, mass, tube, across = _LINKS[k - 1]
    limit = LIMITS[k - 1]
    looks = _tube(f"link {k}", tube, _GREY, mass)
    if across:
        looks += f"""
      <geom name="housing {k}" type="cylinder" size="{tube[2] + 0.005} {tube[2] + 0.02}"
            euler="{np.pi / 2} 0 0" mass="0" contype="0" conaffinity="0" rgba="{_ORANGE}"/>"""
    return f"""
    <body name="link {k}" pos="0 0 {above}" gravcomp="1">
      <joint name="joint {k}" axis="{axis}" limited="true" range="{-limit} {limit}"
             armature="{ROTORS[k - 1]}"/>{looks}{rest}
    </body>"""


def _tube(name: str, tube: tuple[float, float, float], colour: str, mass: float) -> str:
    low, high, radius = tube
    return f"""
      <geom name="{name}" type="cylinder" fromto="0 0 {low} 0 0 {high}" size="{radius}"
            mass="{mass}" contype="0" conaffinity="0" rgba="{colour}"/>"""
