"""An object's convex parts, and MuJoCo models: a table, an object on it, a robot's hand above.

A part is a hull, given by its corners, or a row of thirteen numbers: its kind, three half sizes,
two exponents, the place of its centre and the quaternion (w, x, y, z) of its turn. Lengths are in
m, in a frame of the object's own.

    box            half sizes along x, y, z
    cylinder       radius, half length along z, and an unused number
    ellipsoid      half axes along x, y, z
    superquadric   the same, with two exponents: (1, 1) is an ellipsoid, towards 0 it becomes a box
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.extras import needed

Floats = NDArray[np.float64]

# ---- parts --------------------------------------------------------------------------------------

BOX, CYLINDER, ELLIPSOID, SUPERQUADRIC = range(4)
KIND, SIZE, EXPONENTS, PLACE, TURN = 0, slice(1, 4), slice(4, 6), slice(6, 9), slice(9, 13)
WIDTH = 13  # numbers in a row
UPRIGHT = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Hull:
    """A convex part given by its corners, (corners, 3), in the object's frame."""

    corners: Floats


Part = Floats | Hull  # a row of thirteen numbers, or a hull


def primitive(
    kind: int,
    size: Sequence[float],
    place: Sequence[float] = (0.0, 0.0, 0.0),
    turn: Sequence[float] | Floats = UPRIGHT,
    exponents: Sequence[float] = (1.0, 1.0),
) -> Floats:
    """A convex part as a row of thirteen numbers."""
    return np.array([kind, *size, *exponents, *place, *turn])


def rotation(turn: NDArray) -> Floats:
    """The matrix of a quaternion (w, x, y, z) of length 1."""
    w, x, y, z = turn
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def superquadric(size: NDArray, exponents: NDArray) -> Floats:
    """Points on a superquadric, (corners, 3), whose hull is nearly it; convex up to exponent 2."""
    points = 12  # from pole to pole
    up = np.linspace(-np.pi / 2, np.pi / 2, points)[1:-1, None]
    round_ = np.linspace(-np.pi, np.pi, 2 * points, endpoint=False)[None, :]

    def power(wave: NDArray, exponent: float) -> NDArray:
        return np.sign(wave) * np.abs(wave) ** exponent

    first, second = exponents
    ring = power(np.cos(up), first)
    x, y = (ring * power(wave(round_), second) for wave in (np.cos, np.sin))
    z = np.broadcast_to(power(np.sin(up), first), x.shape)
    side = np.stack([x, y, z], axis=-1).reshape(-1, 3)
    return np.concatenate([side, [[0, 0, -1], [0, 0, 1]]]) * size


def corners(part: Part) -> Floats:
    """Points on a part's surface, (corners, 3); the hull of a round part is up to 2 % smaller."""
    if isinstance(part, Hull):
        return part.corners
    size, kind = part[SIZE], int(part[KIND])
    if kind in (SUPERQUADRIC, ELLIPSOID):
        local = superquadric(size, part[EXPONENTS])
    elif kind == CYLINDER:
        angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        rim = np.stack([np.cos(angles) * size[0], np.sin(angles) * size[0]], axis=1)
        local = np.concatenate([np.insert(rim, 2, z, axis=1) for z in (-size[1], size[1])])
    else:
        local = size * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    return local @ rotation(part[TURN]).T + part[PLACE]


def bounding_box(parts: list[Part]) -> tuple[Floats, Floats]:
    """The lowest and highest coordinates of a compound."""
    points = np.concatenate([corners(part) for part in parts])
    return points.min(axis=0), points.max(axis=0)


# ---- models -------------------------------------------------------------------------------------

STEP = 0.004  # s
DRAG = 2e-4  # N m s, against rolling: the friction of condim 4 does not stop a ball

# Solver and contacts. Fewer than 50 iterations of the line search fling objects about.
_WORLD = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="{step}" integrator="implicitfast" solver="Newton" cone="elliptic"
          iterations="50" ls_iterations="50" tolerance="1e-9" impratio="10"/>
  <size memory="8M"/>
  <default>
    <geom solref="0.008 1" solimp="0.99 0.999 0.001" condim="4" friction="0.4 0.005 0.0001"/>
    <default class="robot"><geom contype="0" conaffinity="1"/></default>
  </default>
  <worldbody>
    <geom name="table" type="plane" size="1 1 0.1" contype="0" conaffinity="1"/>
    {bodies}
    <body name="object"><freejoint name="object"/></body>
  </worldbody>
  {drives}
  <sensor>
    <subtreecom body="object"/>
    <contact geom1="table" body2="object" data="found"/>
    {sensors}
  </sensor>
</mujoco>
"""
HEIGHT, TABLE, LEFT, RIGHT, PALM = 2, 3, 4, 5, 6  # in the sensors' data


def world(bodies: str = "", drives: str = "") -> str:
    """MJCF of a table, and of a robot with a hand where its bodies and drives are given."""
    hand = ("left", "right", "palm") if bodies else ()
    sensors = "".join(f'<contact geom1="{n}" body2="object" data="found"/>' for n in hand)
    return _WORLD.format(step=STEP, bodies=bodies, drives=drives, sensors=sensors)


@dataclass(frozen=True)
class Body:
    """An object: its parts, and the numbers that its motion depends on."""

    parts: list[Part]
    mass: float  # kg
    inertia: Floats  # (3,), factors of the moments about the principal axes
    friction: float


def mujoco() -> Any:
    """The library, or an error that says how to install it."""
    needed("mujoco.rollout", "grasping")
    return needed("mujoco", "grasping")


def build(body: Body, scene: str | None = None) -> Any:
    """A compiled model of an object on a table, or in the MJCF of a robot's world."""
    mj = mujoco()
    spec = mj.MjSpec.from_string(scene or world())
    target = spec.body("object")
    for number, part in enumerate(body.parts):
        geom = _geom(mj, spec, part, f"hull {number}")
        target.add_geom(friction=[body.friction, 0.005, 0.0001], contype=1, conaffinity=1, **geom)
    model = spec.compile()
    at = model.body("object").id
    model.body_inertia[at] *= body.mass / model.body_mass[at]
    model.body_inertia[at] = _balanced(model.body_inertia[at] * body.inertia)
    model.body_mass[at] = body.mass
    address = model.joint("object").dofadr[0]
    model.dof_damping[address + 3 : address + 6] = DRAG
    mj.mj_setConst(model, mj.MjData(model))
    return model


def data_at(model: Any, pose: Floats) -> Any:
    """MuJoCo's data of a model with its object at a pose, (7,), and joints at zero."""
    mj = mujoco()
    data = mj.MjData(model)
    data.joint("object").qpos = pose
    mj.mj_forward(model, data)
    return data


def states_with(model: Any, poses: Floats) -> Floats:
    """States at rest, zero except for the object's pose: (poses, state), from (poses, 7)."""
    mj = mujoco()
    states = np.zeros((len(poses), mj.mj_stateSize(model, mj.mjtState.mjSTATE_FULLPHYSICS)))
    where = 1 + model.joint("object").qposadr[0]
    states[:, where : where + 7] = poses
    return states


def _geom(mj: Any, spec: Any, part: Part, name: str) -> dict[str, Any]:
    """Arguments of MuJoCo's `add_geom` for a convex part."""
    if isinstance(part, Hull):
        return _mesh(mj, spec, part.corners, name)
    placed = {"pos": part[PLACE], "quat": part[TURN]}
    size, kind = part[SIZE], int(part[KIND])
    if kind == SUPERQUADRIC:
        points = superquadric(size, part[EXPONENTS])
        return _mesh(mj, spec, points, name) | placed
    types = {
        BOX: mj.mjtGeom.mjGEOM_BOX,
        CYLINDER: mj.mjtGeom.mjGEOM_CYLINDER,
        ELLIPSOID: mj.mjtGeom.mjGEOM_ELLIPSOID,
    }
    return {"type": types[kind], "size": size, **placed}


def _mesh(mj: Any, spec: Any, points: Floats, name: str) -> dict[str, Any]:
    """The hull of points as a mesh of a model."""
    mesh = spec.add_mesh(name=name, uservert=points.ravel().tolist())
    mesh.inertia = mj.mjtMeshInertia.mjMESH_INERTIA_CONVEX
    return {"type": mj.mjtGeom.mjGEOM_MESH, "meshname": name}


def _balanced(moments: Floats) -> Floats:
    """The nearest moments of a rigid body: the largest is at most the sum of the other two."""
    largest = int(np.argmax(moments))
    moments = moments.copy()
    moments[largest] = min(moments[largest], 0.999 * (moments.sum() - moments[largest]))
    return moments
