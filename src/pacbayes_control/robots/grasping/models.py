"""MuJoCo models: a table, an object on it, and a robot's hand above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.objects import (
    BOX,
    CYLINDER,
    ELLIPSOID,
    EXPONENTS,
    KIND,
    PLACE,
    SIZE,
    SUPERQUADRIC,
    TURN,
    Hull,
    Part,
    superquadric,
)

STEP = 0.004  # s

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
    """MJCF of a table, and of a robot with a hand on it where there is one."""
    hand = ("left", "right", "palm") if bodies else ()
    sensors = "".join(f'<contact geom1="{n}" body2="object" data="found"/>' for n in hand)
    return _WORLD.format(step=STEP, bodies=bodies, drives=drives, sensors=sensors)


@dataclass(frozen=True)
class Body:
    """An object's parts, and what decides how it moves."""

    parts: list[Part]
    mass: float  # kg
    inertia: NDArray[np.float64]  # (3,), factors of the moments about the principal axes
    friction: float


def mujoco() -> Any:
    """The library; an error that says how to get it."""
    needed("mujoco.rollout", "grasping")
    return needed("mujoco", "grasping")


def build(body: Body, scene: str | None = None) -> Any:
    """A model of an object on a table, or in the world of a robot."""
    mj = mujoco()
    spec = mj.MjSpec.from_string(scene or world())
    target = spec.body("object")
    for number, part in enumerate(body.parts):
        settings = _shape(mj, spec, part, number)
        target.add_geom(
            friction=[body.friction, 0.005, 0.0001], contype=1, conaffinity=1, **settings
        )
    model = spec.compile()
    at = model.body("object").id
    model.body_inertia[at] *= body.mass / model.body_mass[at]
    model.body_inertia[at] = _balanced(model.body_inertia[at] * body.inertia)
    model.body_mass[at] = body.mass
    address = model.jnt_dofadr[model.joint("object").id]
    model.dof_damping[address + 3 : address + 6] = DRAG
    mj.mj_setConst(model, mj.MjData(model))
    return model


def states_with(model: Any, poses: NDArray[np.float64]) -> NDArray[np.float64]:
    """States at rest, and zero but for the object's pose: (poses, state), from (poses, 7)."""
    mj = mujoco()
    states = np.zeros((len(poses), mj.mj_stateSize(model, mj.mjtState.mjSTATE_FULLPHYSICS)))
    where = 1 + model.jnt_qposadr[model.joint("object").id]
    states[:, where : where + 7] = poses
    return states


def cast(
    model: Any,
    data: Any,
    origin: NDArray[np.float64],
    rays: NDArray[np.float64],
    normals: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The geom that each ray from a point meets, or -1, and how far away, both (rays,).

    rays: (rays, 3), of length 1. normals: (rays, 3) to be filled with those of what is met.
    """
    geoms, distances = np.empty(len(rays), np.int32), np.empty(len(rays))
    flat = None if normals is None else normals.reshape(-1)
    towards = np.ascontiguousarray(rays).ravel()
    mujoco().mj_multiRay(
        model, data, origin, towards, None, True, -1, geoms, distances, flat, len(rays), FAR
    )
    return geoms, distances


FAR = 10.0  # m, beyond which a ray meets nothing
DRAG = 2e-4  # N m s, against rolling: the friction of condim 4 does not stop a ball


def _shape(mj: Any, spec: Any, part: Part, number: int) -> dict[str, Any]:
    """What MuJoCo is told of a convex part."""
    kinds = mj.mjtGeom
    if isinstance(part, Hull) or int(part[KIND]) == SUPERQUADRIC:
        points = (
            part.corners if isinstance(part, Hull) else superquadric(part[SIZE], part[EXPONENTS])
        )
        name = f"hull {number}"
        mesh = spec.add_mesh(name=name, uservert=points.ravel().tolist())
        mesh.inertia = mj.mjtMeshInertia.mjMESH_INERTIA_CONVEX
        placed = {} if isinstance(part, Hull) else {"pos": part[PLACE], "quat": part[TURN]}
        return {"type": kinds.mjGEOM_MESH, "meshname": name, **placed}
    kind = {
        BOX: kinds.mjGEOM_BOX,
        CYLINDER: kinds.mjGEOM_CYLINDER,
        ELLIPSOID: kinds.mjGEOM_ELLIPSOID,
    }
    return {
        "type": kind[int(part[KIND])],
        "size": part[SIZE],
        "pos": part[PLACE],
        "quat": part[TURN],
    }


def _balanced(moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest moments that a rigid body can have: none exceeds the sum of the other two."""
    largest = int(np.argmax(moments))
    moments = moments.copy()
    moments[largest] = min(moments[largest], 0.999 * (moments.sum() - moments[largest]))
    return moments
