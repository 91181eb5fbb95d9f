"""The same hand on an arm, a KUKA LBR iiwa 14 R820 that stands beside the objects.

Lengths, and limits of angles and torques, are the published ones. Shapes, masses and drives are
our rough values: they carry the hand, and only the hand touches an object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.gripper import PALM, Hand
from pacbayes_control.robots.grasping.models import states_with, world
from pacbayes_control.robots.grasping.shapes import Floats

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
        drives = f"<actuator>{_drives()}{self.hand.actuators()}</actuator>"
        return world(_bodies(self.hand.body(), self.length), drives)

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


def _poses(grasps: Floats, heights: Floats) -> Floats:
    """Grasps (..., 3) at heights (...): (..., 4)."""
    x, y, angle = np.moveaxis(grasps, -1, 0)
    return np.stack(np.broadcast_arrays(x, y, heights, angle), axis=-1)


def _drives() -> str:
    return "".join(
        f'<position name="joint {k}" joint="joint {k}" '
        f'kp="{rotor * FREQUENCY**2}" kv="{2 * rotor * FREQUENCY}" '
        f'forcerange="{-torque} {torque}"/>'
        for k, (rotor, torque) in enumerate(zip(ROTORS, TORQUES, strict=True), start=1)
    )


def _bodies(hand: str, length: float) -> str:
    """MJCF of the base and of link within link, up to the hand, whose tips are the last frame."""
    links = f"""
    <body name="hand" pos="0 0 {FLANGE + length}" quat="0 1 0 0" gravcomp="1">{hand}</body>"""
    for k in range(len(_LINKS), 0, -1):
        links = _link(k, links)
    base = _tube("base", (0.0, 0.15, 0.09), _DARK, _BASE_MASS)
    return f"""
    <body name="base" pos="{BASE[0]} {BASE[1]} 0">{base}{links}</body>"""


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
