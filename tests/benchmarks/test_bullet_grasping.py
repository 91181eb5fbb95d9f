"""Grasps in MuJoCo against the same in PyBullet, which the paper used."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest

from loading import load
from pacbayes_control.robots.grasping.environments import Tabletop
from pacbayes_control.robots.grasping.models import (
    BOX,
    CYLINDER,
    ELLIPSOID,
    SUPERQUADRIC,
    Hull,
    Part,
    corners,
)
from pacbayes_control.robots.grasping.robots import Hand
from pacbayes_control.robots.grasping.simulator import COLLIDED, LIFTED, MISSED, RISE, Simulator
from pacbayes_control.tasks.environments import Arrays

bullet_endings = load("bullet_grasping").bullet_endings

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="PyBullet has no wheels beyond Python 3.11"
)

HALF = (0.04, 0.015, 0.02)  # m, of every object here: 8 cm along x, 3 cm across, 4 cm high


@dataclass(frozen=True)
class OneShape:
    """A part of one kind, or the hull of a box."""

    kind: int | str = BOX

    def draw(self, rng: np.random.Generator) -> Arrays:
        return {"nothing": np.array(rng.random())}

    def parts(self, shape: Arrays) -> list[Part]:
        assert shape
        kind = self.kind if isinstance(self.kind, int) else BOX
        size = (0.018, 0.02, 0.0) if kind == CYLINDER else HALF
        part = np.array([kind, *size, 0.3, 0.3, 0, 0, 0, 1, 0, 0, 0])
        return [Hull(corners(part))] if self.kind == "hull" else [part]


def at_rest(kind: int | str) -> tuple[Tabletop, Arrays]:
    """The shape as if it had been dropped: in the middle of the table, its long side along x."""
    return Tabletop(OneShape(kind)), {
        "nothing": np.zeros(1),
        "mass": np.array([0.1]),
        "inertia": np.ones((1, 3)),
        "friction": np.array([0.6]),
        "rest": np.array([[0.0, 0.0, HALF[2], 1.0, 0.0, 0.0, 0.0]]),
        "top": np.array([2 * HALF[2]]),
    }


ACROSS, BESIDE, ALONG = [0, 0, np.pi / 2], [0, 0.1, np.pi / 2], [0, 0, 0]
EASY = np.array([ACROSS, BESIDE, [0.0, 0.035, np.pi / 2], [0.01, 0.003, np.pi / 2 + 0.2]])


@pytest.mark.parametrize("kind", [BOX, CYLINDER, ELLIPSOID, SUPERQUADRIC, "hull"])
def test_both_lift_what_is_held_across_miss_what_is_elsewhere_and_collide_with_what_is_below(kind):
    tabletop, arrays = at_rest(kind)
    theirs = bullet_endings(tabletop, arrays, [0], EASY[None])[0]
    ours = Simulator().endings(tabletop.body(arrays, 0), arrays["rest"][0], 2 * HALF[2], EASY)
    assert theirs.tolist() == [LIFTED, MISSED, COLLIDED, LIFTED]
    np.testing.assert_array_equal(ours, theirs)


def test_a_box_that_is_longer_than_the_hand_is_open_is_met_on_the_way_down():
    tabletop, arrays = at_rest(BOX)
    assert bullet_endings(tabletop, arrays, [0], np.array([[ALONG]])).tolist() == [[COLLIDED]]


def test_a_weak_hand_or_one_that_hardly_rises_lifts_nothing():
    """The rules are those of the hand that is given, and of the judgement: more than 2 cm."""
    tabletop, arrays = at_rest(BOX)
    grasps = np.array([[ACROSS]])
    for hand in (Hand(force=0.1), Hand(lift=RISE - 0.002)):
        assert bullet_endings(tabletop, arrays, [0], grasps, hand)[0, 0] not in (LIFTED, COLLIDED)
    assert bullet_endings(tabletop, arrays, [0], grasps, Hand(lift=RISE + 0.004)) == LIFTED


@pytest.fixture(scope="module")
def table():
    """A few objects at rest, and grasps near their centroids, (objects, grasps, 3)."""
    tabletop = Tabletop()
    arrays = tabletop.draw(np.random.default_rng(1), 8)
    offsets = np.random.default_rng(2).uniform([-0.02, -0.02, 0], [0.02, 0.02, np.pi], (8, 12, 3))
    offsets[..., :2] += arrays["centroid"][:, None]
    return tabletop, arrays, offsets


@pytest.fixture(scope="module")
def theirs(table):
    tabletop, arrays, grasps = table
    return bullet_endings(tabletop, arrays, range(8), grasps)


@pytest.mark.slow
def test_bullet_agrees_on_nearly_every_grasp(table, theirs):
    tabletop, arrays, grasps = table
    ours = [
        Simulator().endings(
            tabletop.body(arrays, row), arrays["rest"][row], float(arrays["top"][row]), grasps[row]
        )
        for row in range(8)
    ]
    assert theirs.dtype == np.uint8
    assert 0.1 < np.mean(theirs == LIFTED) < 0.9
    assert np.mean(theirs == np.array(ours)) >= 0.93


@pytest.mark.slow
def test_bullet_does_not_depend_on_what_ran_before(table, theirs):
    tabletop, arrays, grasps = table
    backwards = bullet_endings(tabletop, arrays, range(8)[::-1], grasps[::-1, ::-1])
    np.testing.assert_array_equal(backwards[::-1, ::-1], theirs)


def test_bullet_says_nothing_and_tells_how_far_it_is(capfd):
    tabletop, arrays = at_rest("hull")
    told = []
    grasps = np.array([[ACROSS, BESIDE]] * 2)
    bullet_endings(tabletop, arrays, [0, 0], grasps, progress=lambda *now: told.append(now))
    assert told == [(2, 4), (4, 4)]
    assert capfd.readouterr() == ("", "")


def test_grasps_that_do_not_match_the_rows_are_refused():
    tabletop, arrays = at_rest(BOX)
    with pytest.raises(ValueError, match=r"shape \(2, 3\): give \(1, grasps, 3\)"):
        bullet_endings(tabletop, arrays, [0], np.zeros((2, 3)))


def test_without_pybullet_the_line_to_install_it_is_given(monkeypatch):
    monkeypatch.setattr("pacbayes_control.robots.vehicle.bullet.find_spec", lambda _: None)
    tabletop, arrays = at_rest(BOX)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'pacbayes-control\[pybullet\]'"):
        bullet_endings(tabletop, arrays, [0], np.array([[ACROSS]]))
