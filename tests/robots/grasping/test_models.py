"""Models have the masses, moments and frictions that were given, and touch only what they may."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import numpy as np
import pytest
from hand_made import at, body, part, pose
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from pacbayes_control.robots.grasping.models import (
    BOX,
    CYLINDER,
    ELLIPSOID,
    STEP,
    SUPERQUADRIC,
    Body,
    Hull,
    build,
    mujoco,
    superquadric,
    world,
)
from pacbayes_control.robots.grasping.objects import Procedural
from pacbayes_control.robots.grasping.robots import Gripper, Hand
from pacbayes_control.robots.grasping.simulator import Simulator

mj = mujoco()
SIDES = np.array(list(product((-1.0, 1.0), repeat=3)))
AROUND = pose(z=0.019)  # a brick, a little in the table


def moments_of(one: Body, scene: str | None = None) -> NDArray[np.float64]:
    return np.array(build(one, scene).body("object").inertia)


def contacts(model: Any, data: Any) -> dict[frozenset[str], float]:
    """Friction of each pair of bodies that touch, by the names of geoms or of the object."""

    def name(geom: int) -> str:
        return model.geom(geom).name or model.body(model.geom_bodyid[geom]).name

    touching = data.contact[: data.ncon]
    return {frozenset(map(name, c.geom)): float(c.friction[0]) for c in touching}


# ---- masses and moments -------------------------------------------------------------------------


@pytest.mark.parametrize("mass", [0.05, 0.1, 0.15, 5.0])
def test_the_object_weighs_what_was_given_however_many_parts_it_has(mass: float):
    rng = np.random.default_rng(0)
    for _ in range(8):
        parts = Procedural().parts(Procedural().draw(rng))
        model = build(Body(parts, mass, np.ones(3), 0.5), Gripper().world)
        at_ = model.body("object").id
        assert model.body_mass[at_] == mass
        assert model.body_subtreemass[at_] == pytest.approx(mass, rel=1e-12)


def test_an_objects_weight_presses_on_the_table():
    model = build(body(mass=0.137))
    data = at(model, pose())
    mj.mj_step(model, data, 500)
    force, total = np.zeros(6), 0.0
    for contact in range(data.ncon):
        mj.mj_contactForce(model, data, contact, force)
        total += force[0]
    assert total == pytest.approx(0.137 * 9.81, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "size", "moments"),
    [
        (BOX, (0.04, 0.03, 0.02), lambda a, b, c: np.array([b**2 + c**2, a**2 + c**2, a**2 + b**2])
         / 3),
        (CYLINDER, (0.03, 0.04, 0), lambda r, h, _: np.array([3 * r**2 + 4 * h**2] * 2 + [6 * r**2])
         / 12),
        (ELLIPSOID, (0.04, 0.03, 0.02), lambda a, b, c: np.array([b**2 + c**2, a**2 + c**2,
                                                                  a**2 + b**2]) / 5),
    ],
    ids=["box", "cylinder", "ellipsoid"],
)  # fmt: skip
def test_moments_are_those_of_the_shape_times_the_factors(kind: int, size: Any, moments: Any):
    exact = 0.12 * moments(*size)
    found = moments_of(body(part(kind, size), mass=0.12))
    np.testing.assert_allclose(np.sort(found), np.sort(exact), rtol=1e-6)
    factors = np.array([0.8, 1.1, 0.9])
    scaled = moments_of(body(part(kind, size), mass=0.12, inertia=factors))
    np.testing.assert_allclose(scaled, found * factors, rtol=1e-12)


@pytest.mark.slow
@given(st.integers(0, 10_000), st.tuples(*[st.floats(0.75, 1.25)] * 3))
def test_moments_are_scaled_by_the_factors_as_far_as_a_rigid_body_can_have_them(seed, factors):
    parts = Procedural().parts(Procedural().draw(np.random.default_rng(seed)))
    own = moments_of(Body(parts, 0.1, np.ones(3), 0.5))
    found = moments_of(Body(parts, 0.1, np.array(factors), 0.5))
    wanted = own * factors
    assert (found > 0).all()
    assert found.max() <= found.sum() - found.max()  # none exceeds the sum of the other two
    largest = int(np.argmax(wanted))
    others = [i for i in range(3) if i != largest]
    np.testing.assert_allclose(found[others], wanted[others], rtol=1e-12)
    if wanted[largest] < 0.999 * wanted[others].sum():
        np.testing.assert_allclose(found[largest], wanted[largest], rtol=1e-12)
    else:
        assert found[largest] == pytest.approx(0.999 * wanted[others].sum(), rel=1e-12)


def test_a_compounds_middle_and_moments_are_by_volume():
    """Two boxes apart from each other, the second twice as large."""
    one, two = part(size=(0.01, 0.01, 0.01)), part(size=(0.02, 0.01, 0.01), place=(0.06, 0, 0))
    model = build(body(one, two, mass=0.3))
    np.testing.assert_allclose(model.body("object").ipos, [0.04, 0, 0], atol=1e-9)
    x = 0.3 * 2 * 0.01**2 / 3
    z = 0.1 * (2 * 0.01**2 / 3 + 0.04**2) + 0.2 * ((0.02**2 + 0.01**2) / 3 + 0.02**2)
    np.testing.assert_allclose(np.sort(model.body("object").inertia), np.sort([x, z, z]), rtol=1e-6)


@pytest.mark.slow
@given(st.integers(0, 1000))
def test_a_hull_has_the_mass_middle_and_moments_of_its_convex_hull(seed: int):
    points = np.random.default_rng(seed).uniform(-0.04, 0.04, (12, 3))
    model = build(body(Hull(points), mass=0.1))
    hull = ConvexHull(points)
    inside = points.mean(axis=0)
    volumes, centres = [], []
    for face in hull.simplices:
        a, b, c = points[face] - inside
        volumes.append(abs(np.dot(a, np.cross(b, c))) / 6)
        centres.append(inside + (a + b + c) / 4)
    assert sum(volumes) == pytest.approx(hull.volume)
    middle = np.average(centres, axis=0, weights=volumes)
    np.testing.assert_allclose(model.body("object").ipos, middle, atol=1e-7)
    assert model.ngeom == 2


def test_a_hull_of_a_boxs_corners_is_that_box():
    size = np.array([0.03, 0.02, 0.01])
    found = moments_of(body(Hull(SIDES * size)))
    np.testing.assert_allclose(np.sort(found), np.sort(moments_of(body(part(size=size)))), 1e-5)


def test_a_superquadric_lies_where_its_row_says():
    size, exponents = np.array([0.04, 0.03, 0.02]), np.array([0.5, 1.2])
    turn, place = (np.cos(0.4), 0, 0, np.sin(0.4)), (0.01, -0.02, 0.03)
    row = part(SUPERQUADRIC, size, place, turn, exponents)
    model = build(body(row))
    data = at(model, pose(z=0.0))
    np.testing.assert_allclose(data.geom_xpos[1], place, atol=1e-6)  # symmetric: middle and origin
    vertices = model.mesh_vert @ data.geom_xmat[1].reshape(3, 3).T + data.geom_xpos[1]
    c, s = np.cos(0.8), np.sin(0.8)
    wanted = superquadric(size, exponents) @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]) + place
    apart = np.linalg.norm(vertices[:, None] - wanted, axis=2)
    assert apart.min(axis=0).max() < 1e-6
    assert apart.min(axis=1).max() < 1e-6


# ---- contacts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "larger"), [(0.1, 0.4), (0.4, 0.4), (0.55, 0.55), (0.8, 0.8)])
def test_friction_on_the_table_is_the_larger_of_the_objects_and_the_tables(own, larger):
    model = build(body(friction=own))
    assert contacts(model, at(model, AROUND)) == {frozenset({"table", "object"}): larger}


@pytest.mark.parametrize(
    ("finger", "own", "larger"), [(0.9, 0.4, 0.9), (0.9, 0.8, 0.9), (0.3, 0.5, 0.5)]
)
def test_friction_at_a_finger_is_the_fingers_unless_the_objects_is_larger(finger, own, larger):
    model = build(body(friction=own), Gripper(Hand(friction=finger)).world)
    data = at(model, pose(x=0.02, z=0.03))  # in the right finger, above the table
    assert contacts(model, data) == {frozenset({"right", "object"}): larger}


def test_the_robot_touches_neither_the_table_nor_itself():
    model = build(body(), Gripper().world)
    data = at(model, pose(x=0.5, z=0.5))
    data.qpos[model.joint("height").qposadr] = -0.05  # deep in the table, with closed fingers
    for finger in ("left", "right"):
        data.qpos[model.joint(finger).qposadr] = 0.05
    mj.mj_forward(model, data)
    assert data.ncon == 0


def test_the_hand_touches_the_object_by_its_palm_and_both_fingers():
    model = build(body(part(size=(0.1, 0.1, 0.1))), Gripper().world)
    touching = contacts(model, at(model, pose(z=0.15)))
    assert set(touching) == {frozenset({n, "object"}) for n in ("left", "right", "palm")}


def test_parts_of_one_object_do_not_touch_each_other():
    model = build(body(part(), part(place=(0.01, 0, 0))))
    assert at(model, pose(z=0.2)).ncon == 0


def test_time_passes_in_steps_and_the_solver_looks_long_enough():
    options = build(body()).opt
    assert options.timestep == STEP == 0.004
    assert options.ls_iterations >= 50
    assert options.cone == mj.mjtCone.mjCONE_ELLIPTIC


def test_a_world_without_a_robot_has_no_sensors_of_a_hand():
    assert build(body(), world()).nsensor == 2
    assert build(body(), Gripper().world).nsensor == 5


# ---- the library --------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["mujoco", "mujoco.rollout"])
def test_without_mujoco_the_error_says_how_to_install_it(missing: str, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    line = r'^grasping needs mujoco, .*: pip install "pacbayes-control\[grasping\]"$'
    with pytest.raises(ImportError, match=line):
        build(body())
    with pytest.raises(ImportError, match=line):
        Simulator().endings(body(), pose(), 0.04, np.zeros((1, 3)))
