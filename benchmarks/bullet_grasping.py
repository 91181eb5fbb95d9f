"""The same grasps in PyBullet, which the paper used: a reference to compare with.

One grasp at a time in one process. Shapes, masses, forces, times, the time step and the rule of
success are those of `simulator`; the solver, its contacts and its motors are PyBullet's, so an
object that barely holds in one may slip in the other. Needs the extra `pybullet`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping import models, simulator
from pacbayes_control.robots.grasping.environments import Tabletop
from pacbayes_control.robots.grasping.models import DRAG, STEP, Body, Floats, Part, build
from pacbayes_control.robots.grasping.robots import PALM, Hand, seen_from
from pacbayes_control.robots.vehicle.bullet import bullet_client
from pacbayes_control.tasks.environments import Arrays

HEIGHT, LEFT, RIGHT = 0, 1, 2  # the hand's joints, and the links that they move
FRICTION, SPINNING = 0.4, 0.005  # of table and palm; of everything, in m, against turning in place
OBJECTS, SURROUNDINGS = 1, 2  # groups: neither table nor hand meets itself or the other


def bullet_endings(
    tabletop: Tabletop,
    arrays: Arrays,
    rows: Sequence[int],
    grasps: Floats,
    hand: Hand | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.uint8]:
    """The ending of each grasp, (rows, grasps), as in `simulator.ENDINGS`.

    Args:
        tabletop: that the objects are from.
        arrays: of the objects at rest.
        rows: of the objects to grasp.
        grasps: (rows, grasps, 3), as x, y in m and the angle of closing in rad.
        hand: of the robot.
        progress: called with the grasps that are done, and their total.
    """
    grasps = np.asarray(grasps, float)
    if grasps.ndim != 3 or (grasps.shape[0], grasps.shape[2]) != (len(rows), 3):
        raise ValueError(f"grasps of shape {grasps.shape}: give ({len(rows)}, grasps, 3), by row")
    hand = hand or Hand()
    ends = np.empty((len(rows), grasps.shape[1]), np.uint8)
    with _client() as bullet:
        world = _World(bullet, _table(bullet), _hand(bullet, hand), hand)
        for n, row in enumerate(rows):
            ends[n] = world.endings(*tabletop.at_rest(arrays, row), grasps[n])
            if progress:
                progress((n + 1) * grasps.shape[1], ends.size)
    return ends


@contextmanager
def _client() -> Iterator[Any]:
    """A world of PyBullet with our time step and gravity."""
    with bullet_client() as bullet:
        bullet.setPhysicsEngineParameter(
            fixedTimeStep=STEP, enableFileCaching=0, deterministicOverlappingPairs=1
        )
        bullet.setGravity(0, 0, -9.81)
        yield bullet


@dataclass(frozen=True)
class _Object:
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
            placed = _place(bullet, shape, body)
        self._set_friction(body.friction)
        fresh = bullet.saveState()  # else contacts that one grasp leaves would act on the next
        ends = []
        for pose in seen_from(grasps, rest):
            bullet.restoreState(fresh)
            ends.append(self._grasp(placed, pose, tip))
        bullet.removeState(fresh)
        bullet.removeBody(placed.number)
        return ends

    def _set_friction(self, friction: float) -> None:
        """Give table and hand the larger of their own friction and the object's, as in MuJoCo.

        PyBullet multiplies the frictions of two bodies, so objects have 1. Against spinning it adds
        each body's value times the other's friction, so objects have 0.
        """
        others = {(self.table, -1): FRICTION, (self.robot, HEIGHT): FRICTION}
        others |= {(self.robot, finger): self.hand.friction for finger in (LEFT, RIGHT)}
        for other, own in others.items():
            self.bullet.changeDynamics(
                *other, lateralFriction=max(own, friction), spinningFriction=SPINNING
            )

    def _grasp(self, placed: _Object, pose: Floats, tip: float) -> int:
        bullet, number = self.bullet, placed.number
        place = pose[:3] + models.rotation(pose[3:]) @ placed.centre
        zero = [0, 0, 0]
        _, turn = bullet.multiplyTransforms(zero, _w_last(pose[3:]), zero, placed.axes)
        bullet.resetBasePositionAndOrientation(number, place, turn)
        bullet.resetBaseVelocity(number, zero, zero)
        for joint, value in ((HEIGHT, tip), (LEFT, 0.0), (RIGHT, 0.0)):
            bullet.resetJointState(self.robot, joint, value, 0.0)
        if bullet.getClosestPoints(self.robot, number, 0.0):
            return simulator.COLLIDED
        for phase in ("close", "lift"):
            self._move(phase, tip)
            if not all(self._touching(number, self.robot, link) for link in (LEFT, RIGHT)):
                return simulator.MISSED
        height = bullet.getBasePositionAndOrientation(number)[0][2]
        if height - place[2] <= simulator.RISE or self._touching(number, self.table, -1):
            return simulator.DROPPED
        speed = np.linalg.norm(bullet.getBaseVelocity(number)[0])
        return simulator.LIFTED if speed < simulator.SLOW else simulator.FLUNG

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

    def _touching(self, number: int, other: int, link: int) -> bool:
        """Whether the object touches a link; PyBullet also lists points that are only near."""
        points = self.bullet.getContactPoints(number, other, -1, link)
        return any(distance <= 0 or force > 0 for *_, distance, force, _, _, _, _ in points)


def _table(bullet: Any) -> int:
    table = bullet.createMultiBody(0, bullet.createCollisionShape(bullet.GEOM_PLANE))
    bullet.setCollisionFilterGroupMask(table, -1, SURROUNDINGS, OBJECTS)
    return table


def _hand(bullet: Any, hand: Hand) -> int:
    """Palm and fingers on a vertical rail, as in `Hand.body`; armatures are added to masses."""
    out, upright = hand.opening / 2 + hand.thickness / 2, [0.0, 0.0, 0.0, 1.0]
    palm = [hand.opening / 2 + hand.thickness, hand.width / 2 + 0.005, PALM / 2]
    finger = [hand.thickness / 2, hand.width / 2, hand.length / 2]
    above, zero = [0, 0, hand.length + PALM / 2], [0, 0, 0]
    robot = bullet.createMultiBody(
        baseMass=0,
        linkMasses=[0.5, 0.1, 0.1],
        linkCollisionShapeIndices=[
            bullet.createCollisionShape(
                bullet.GEOM_BOX, halfExtents=size, collisionFramePosition=place
            )
            for size, place in ((palm, above), (finger, zero), (finger, zero))
        ],
        linkVisualShapeIndices=[-1] * 3,
        linkPositions=[zero, [-out, 0, hand.length / 2], [out, 0, hand.length / 2]],
        linkOrientations=[upright] * 3,
        linkInertialFramePositions=[above, zero, zero],
        linkInertialFrameOrientations=[upright] * 3,
        linkParentIndices=[0, 1, 1],
        linkJointTypes=[bullet.JOINT_PRISMATIC] * 3,
        linkJointAxis=[[0, 0, 1], [1, 0, 0], [-1, 0, 0]],
    )
    for link in (HEIGHT, LEFT, RIGHT):
        bullet.setCollisionFilterGroupMask(robot, link, SURROUNDINGS, OBJECTS)
    for link in (LEFT, RIGHT):
        bullet.changeDynamics(
            robot, link, jointLowerLimit=0.0, jointUpperLimit=hand.opening / 2 - 0.0005
        )
    return robot


def _place(bullet: Any, shape: int, body: Body) -> _Object:
    """Add an object of a shape, with the mass and moments that MuJoCo's model has."""
    model = build(body)
    inertial = model.body("object")
    centre, axes = inertial.ipos.copy(), _w_last(inertial.iquat)
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
    bullet.setCollisionFilterGroupMask(number, -1, OBJECTS, OBJECTS | SURROUNDINGS)
    return _Object(number, centre, axes)


def _w_last(turn: Floats) -> list[float]:
    """A quaternion (w, x, y, z) in PyBullet's order."""
    w, x, y, z = turn.tolist()
    return [x, y, z, w]


def _shape(bullet: Any, parts: list[Part], file: Path) -> int:
    """A compound of boxes and cylinders, and of hulls, which PyBullet reads from a file only."""
    types = {models.BOX: bullet.GEOM_BOX, models.CYLINDER: bullet.GEOM_CYLINDER}
    rows: list[Floats] = []
    hulls: list[Floats] = []
    for part in parts:
        if isinstance(part, models.Hull) or part[models.KIND] not in types:
            hulls.append(models.corners(part))
        else:
            rows.append(part)
    kinds = [types[int(row[models.KIND])] for row in rows]
    if hulls:
        _write_hulls(hulls, file)
        kinds.append(bullet.GEOM_MESH)
        rows.append(models.primitive(models.BOX, (1.0, 1.0, 1.0)))  # for place and turn
    shape = bullet.createCollisionShapeArray(
        shapeTypes=kinds,
        halfExtents=[row[models.SIZE].tolist() for row in rows],
        radii=[float(row[models.SIZE][0]) for row in rows],
        lengths=[2 * float(row[models.SIZE][1]) for row in rows],
        fileNames=[str(file)] * len(kinds),
        meshScales=[[1, 1, 1]] * len(kinds),
        collisionFramePositions=[row[models.PLACE].tolist() for row in rows],
        collisionFrameOrientations=[_w_last(row[models.TURN]) for row in rows],
    )
    if shape < 0:
        raise ValueError(f"PyBullet cannot make an object of {len(parts)} parts: give fewer")
    return shape


def _write_hulls(hulls: list[Floats], file: Path) -> None:
    """Write an OBJ file, of which PyBullet takes each group's hull: its faces name all points."""
    lines, first = [], 1
    for number, points in enumerate(hulls):
        lines.append(f"o hull{number}")
        lines += [f"v {x:.9g} {y:.9g} {z:.9g}" for x, y, z in points]
        lines += [f"f {k} {k + 1} {k + 2}" for k in range(first, first + len(points) - 2)]
        first += len(points)
    file.write_text("\n".join(lines) + "\n")
