"""MuJoCo models: a table, an object on it, and a robot's hand above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pacbayes_control.robots.grasping import shapes
from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.shapes import Floats, Part

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
    if isinstance(part, shapes.Hull):
        return _mesh(mj, spec, part.corners, name)
    placed = {"pos": part[shapes.PLACE], "quat": part[shapes.TURN]}
    size, kind = part[shapes.SIZE], int(part[shapes.KIND])
    if kind == shapes.SUPERQUADRIC:
        points = shapes.superquadric(size, part[shapes.EXPONENTS])
        return _mesh(mj, spec, points, name) | placed
    types = {
        shapes.BOX: mj.mjtGeom.mjGEOM_BOX,
        shapes.CYLINDER: mj.mjtGeom.mjGEOM_CYLINDER,
        shapes.ELLIPSOID: mj.mjtGeom.mjGEOM_ELLIPSOID,
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
