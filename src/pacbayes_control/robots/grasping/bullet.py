"""The same grasps in PyBullet, which the paper used: a reference to compare with.

One grasp at a time in one process. Shapes, masses, forces, times and the judgement are ours; the
solver, its contacts and its motors are PyBullet's, so what barely holds in one may slip in the
other. The step is ours too, 4 ms: PyBullet's own is 1/240 s. Needs the extra `pybullet`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.bullet import pybullet
from pacbayes_control.robots.grasping.environments import Tabletop
from pacbayes_control.robots.grasping.gripper import Hand, seen_from
from pacbayes_control.robots.grasping.models import DRAG, STEP, Body, build
from pacbayes_control.robots.grasping.objects import (
    BOX,
    CYLINDER,
    KIND,
    PLACE,
    SIZE,
    TURN,
    Floats,
    Hull,
    Part,
    corners,
    rotation,
)
from pacbayes_control.robots.grasping.simulator import (
    COLLIDED,
    DROPPED,
    FLUNG,
    LIFTED,
    MISSED,
    RISE,
    SLOW,
)
from pacbayes_control.tasks.environments import Arrays

HEIGHT, LEFT, RIGHT = 0, 1, 2  # the hand's joints, and the links that they move
FRICTION, SPINNING = 0.4, 0.005  # of table and palm; of everything, in m, against turning in place
UPRIGHT = [0.0, 0.0, 0.0, 1.0]
THINGS, SURROUNDINGS = 1, 2  # groups: neither table nor hand meets itself or the other


def bullet_endings(
    tabletop: Tabletop,
    arrays: Arrays,
    rows: Sequence[int],
    grasps: Floats,
    hand: Hand | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.uint8]:
    """How each grasp ends, (rows, grasps), in the numbers of `simulator.ENDINGS`.

    arrays: of environments from the tabletop; rows: those to grasp; grasps: (rows, grasps, 3) as
    x, y in m and the angle of closing in rad.
    """
    grasps = np.asarray(grasps, float)
    if grasps.ndim != 3 or (grasps.shape[0], grasps.shape[2]) != (len(rows), 3):
        raise ValueError(f"grasps of shape {grasps.shape}: give ({len(rows)}, grasps, 3), by row")
    hand = hand or Hand()
    ends = np.empty((len(rows), grasps.shape[1]), np.uint8)
    with _client() as bullet:
        world = _World(bullet, _table(bullet), _hand(bullet, hand), hand)
        for n, row in enumerate(rows):
            rest, top = arrays["rest"][row], float(arrays["top"][row])
            ends[n] = world.endings(tabletop.body(arrays, row), rest, top, grasps[n])
            if progress:
                progress((n + 1) * grasps.shape[1], ends.size)
    return ends


@contextmanager
def _client() -> Iterator[Any]:
    """PyBullet's functions, bound to a world of their own."""
    library = pybullet()
    client = {"physicsClientId": library.connect(library.DIRECT)}
    bullet = SimpleNamespace(
        **{
            name: partial(value, **client) if callable(value) else value
            for name, value in vars(library).items()
        }
    )
    try:
        bullet.setPhysicsEngineParameter(
            fixedTimeStep=STEP, enableFileCaching=0, deterministicOverlappingPairs=1
        )
        bullet.setGravity(0, 0, -9.81)
        yield bullet
    finally:
        bullet.disconnect()


@dataclass(frozen=True)
class _Thing:
    """An object in PyBullet, which places bodies by their centres of mass and principal axes."""

    number: int
    centre: Floats  # (3,), in the object's frame
    axes: list[float]  # quaternion (x, y, z, w)


@dataclass(frozen=True)
class _World:
    """A table and a hand above its middle, both the same for every object."""

    bullet: Any
    table: int
    robot: int
    hand: Hand

    def endings(self, body: Body, rest: Floats, top: float, grasps: Floats) -> list[int]:
        """As `Simulator.endings`."""
        bullet = self.bullet
        tip = float(self.hand.tip_height(np.array(top)))
        with tempfile.TemporaryDirectory() as folder:
            shape = _shape(bullet, body.parts, Path(folder) / "hulls.obj")
            thing = _thing(bullet, shape, body)
        self._rub(body.friction)
        fresh = bullet.saveState()  # or what is left of a grasp's contacts would touch the next
        ends = []
        for pose in seen_from(grasps, rest):
            bullet.restoreState(fresh)
            ends.append(self._grasp(thing, pose, tip))
        bullet.removeState(fresh)
        bullet.removeBody(thing.number)
        return ends

    def _rub(self, friction: float) -> None:
        """PyBullet multiplies the frictions of two bodies, MuJoCo takes the larger: objects have 1.

        Against spinning it adds each one's times the other's friction: objects have 0.
        """
        others = {(self.table, -1): FRICTION, (self.robot, HEIGHT): FRICTION}
        others |= {(self.robot, finger): self.hand.friction for finger in (LEFT, RIGHT)}
        for other, own in others.items():
            self.bullet.changeDynamics(
                *other, lateralFriction=max(own, friction), spinningFriction=SPINNING
            )

    def _grasp(self, thing: _Thing, pose: Floats, tip: float) -> int:
        bullet, number = self.bullet, thing.number
        w, *xyz = pose[3:]
        place = pose[:3] + rotation(pose[3:]) @ thing.centre
        _, turn = bullet.multiplyTransforms([0, 0, 0], [*xyz, w], [0, 0, 0], thing.axes)
        bullet.resetBasePositionAndOrientation(number, place, turn)
        bullet.resetBaseVelocity(number, [0, 0, 0], [0, 0, 0])
        for joint, value in ((HEIGHT, tip), (LEFT, 0.0), (RIGHT, 0.0)):
            bullet.resetJointState(self.robot, joint, value, 0.0)
        if bullet.getClosestPoints(self.robot, number, 0.0):
            return COLLIDED
        for phase in ("close", "lift"):
            self._move(phase, tip)
            if not all(self._touching(number, self.robot, link) for link in (LEFT, RIGHT)):
                return MISSED
        height = bullet.getBasePositionAndOrientation(number)[0][2]
        if height - place[2] <= RISE or self._touching(number, self.table, -1):
            return DROPPED
        speed = np.linalg.norm(bullet.getBaseVelocity(number)[0])
        return LIFTED if speed < SLOW else FLUNG

    def _move(self, phase: str, tip: float) -> None:
        bullet = self.bullet
        for rise, fingers in zip(*(path.tolist() for path in self.hand.motion(phase)), strict=True):
            bullet.setJointMotorControlArray(
                self.robot,
                [HEIGHT, LEFT, RIGHT],
                bullet.POSITION_CONTROL,
                targetPositions=[tip + rise, fingers, fingers],
                forces=[1000.0, self.hand.force, self.hand.force],
                positionGains=[0.25, 0.6, 0.6],  # they lag behind as ours do: 16 and 7 ms
            )
            bullet.stepSimulation()

    def _touching(self, thing: int, other: int, link: int) -> bool:
        """PyBullet also lists what is merely near."""
        points = self.bullet.getContactPoints(thing, other, -1, link)
        return any(distance <= 0 or force > 0 for *_, distance, force, _, _, _, _ in points)


def _table(bullet: Any) -> int:
    table = bullet.createMultiBody(0, bullet.createCollisionShape(bullet.GEOM_PLANE))
    bullet.setCollisionFilterGroupMask(table, -1, SURROUNDINGS, THINGS)
    return table


def _hand(bullet: Any, hand: Hand) -> int:
    """Palm and fingers on a vertical rail, as in `Hand.body`; armatures are added to masses."""
    out = hand.opening / 2 + hand.thickness / 2
    palm = [hand.opening / 2 + hand.thickness, hand.width / 2 + 0.005, 0.012]
    finger = [hand.thickness / 2, hand.width / 2, hand.length / 2]
    above = [0, 0, hand.length + 0.012]
    shapes = [
        bullet.createCollisionShape(
            bullet.GEOM_BOX, halfExtents=palm, collisionFramePosition=above
        ),
        *(bullet.createCollisionShape(bullet.GEOM_BOX, halfExtents=finger) for _ in range(2)),
    ]
    robot = bullet.createMultiBody(
        baseMass=0,
        linkMasses=[0.5, 0.1, 0.1],
        linkCollisionShapeIndices=shapes,
        linkVisualShapeIndices=[-1] * 3,
        linkPositions=[[0, 0, 0], [-out, 0, hand.length / 2], [out, 0, hand.length / 2]],
        linkOrientations=[UPRIGHT] * 3,
        linkInertialFramePositions=[above, [0, 0, 0], [0, 0, 0]],
        linkInertialFrameOrientations=[UPRIGHT] * 3,
        linkParentIndices=[0, 1, 1],
        linkJointTypes=[bullet.JOINT_PRISMATIC] * 3,
        linkJointAxis=[[0, 0, 1], [1, 0, 0], [-1, 0, 0]],
    )
    for link in (HEIGHT, LEFT, RIGHT):
        bullet.setCollisionFilterGroupMask(robot, link, SURROUNDINGS, THINGS)
    for link in (LEFT, RIGHT):
        bullet.changeDynamics(
            robot, link, jointLowerLimit=0.0, jointUpperLimit=hand.opening / 2 - 0.0005
        )
    return robot


def _thing(bullet: Any, shape: int, body: Body) -> _Thing:
    model = build(body)
    inertial = model.body("object")
    w, *xyz = inertial.iquat.tolist()
    centre, axes = inertial.ipos.copy(), [*xyz, w]
    number = bullet.createMultiBody(
        body.mass,
        shape,
        baseInertialFramePosition=centre.tolist(),
        baseInertialFrameOrientation=axes,
    )
    bullet.changeDynamics(
        number,
        -1,
        localInertiaDiagonal=inertial.inertia.tolist(),
        lateralFriction=1.0,
        spinningFriction=0.0,
        linearDamping=0.0,
        angularDamping=DRAG / float(inertial.inertia.mean()),
        collisionMargin=0.0,  # hulls would be 1 mm larger
    )
    bullet.setCollisionFilterGroupMask(number, -1, THINGS, THINGS | SURROUNDINGS)
    return _Thing(number, centre, axes)


def _shape(bullet: Any, parts: list[Part], file: Path) -> int:
    """A compound of boxes and cylinders, and of hulls, which PyBullet reads from a file only."""
    plain = [part for part in parts if not isinstance(part, Hull) and part[KIND] in (BOX, CYLINDER)]
    hulls = [part for part in parts if isinstance(part, Hull) or part[KIND] not in (BOX, CYLINDER)]
    kinds = [bullet.GEOM_BOX if part[KIND] == BOX else bullet.GEOM_CYLINDER for part in plain]
    sizes, places, turns = ([part[what] for part in plain] for what in (SIZE, PLACE, TURN))
    if hulls:
        _write_hulls([corners(part) for part in hulls], file)
        kinds.append(bullet.GEOM_MESH)
        sizes.append(np.ones(3))
        places.append(np.zeros(3))
        turns.append(np.array([1.0, 0.0, 0.0, 0.0]))
    shape = bullet.createCollisionShapeArray(
        shapeTypes=kinds,
        halfExtents=[size.tolist() for size in sizes],
        radii=[float(size[0]) for size in sizes],
        lengths=[2 * float(size[1]) for size in sizes],
        fileNames=[str(file)] * len(kinds),
        meshScales=[[1, 1, 1]] * len(kinds),
        collisionFramePositions=[place.tolist() for place in places],
        collisionFrameOrientations=[[*turn[1:].tolist(), float(turn[0])] for turn in turns],
    )
    if shape < 0:
        raise ValueError(f"PyBullet cannot make an object of {len(parts)} parts")
    return shape


def _write_hulls(hulls: list[Floats], file: Path) -> None:
    """An OBJ file of which PyBullet takes each group's hull: any faces will do, over all points."""
    lines, first = [], 1
    for number, points in enumerate(hulls):
        lines.append(f"o hull{number}")
        lines += [f"v {x:.9g} {y:.9g} {z:.9g}" for x, y, z in points]
        lines += [f"f {k} {k + 1} {k + 2}" for k in range(first, first + len(points) - 2)]
        first += len(points)
    file.write_text("\n".join(lines) + "\n")
