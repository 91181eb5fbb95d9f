"""Objects on the table lie still and whole in sight, and are the same in every process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hand_made import alone, part, points_at
from scipy.spatial.transform import Rotation
from scipy.stats import kstest

from pacbayes_control.robots.grasping import environments
from pacbayes_control.robots.grasping.camera import Camera
from pacbayes_control.robots.grasping.environments import ATTEMPTS, BLOCK, Tabletop, minor_axis
from pacbayes_control.robots.grasping.models import STEP, Body, Part, mujoco
from pacbayes_control.robots.grasping.simulator import Drop
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.tasks.environments import Arrays, generator

N = 48
TABLETOP = Tabletop()


@pytest.fixture(scope="module")
def drawn() -> Arrays:
    return Grasping().environments(N, stream="tests of environments").arrays()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[OrderedDict[Any, Arrays]]:
    """Nothing is remembered of what was drawn, and nothing is kept afterwards."""
    kept: OrderedDict[Any, Arrays] = OrderedDict()
    monkeypatch.setattr(environments, "_kept", kept)
    return kept  # type: ignore[return-value]


def same(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and np.array_equal(a[name], b[name]) for name in a
    )


# ---- drawing ------------------------------------------------------------------------------------


def test_objects_are_drawn_again_to_the_bit(fresh: OrderedDict[Any, Arrays]):
    first = TABLETOP.draw(generator(3, "again"), 5)
    fresh.clear()
    second = TABLETOP.draw(generator(3, "again"), 5)
    assert first is not second
    assert same(first, second)


@pytest.mark.slow
def test_the_first_objects_are_the_same_however_many_follow(drawn: Arrays):
    few = Grasping().environments(BLOCK + 3, stream="tests of environments")
    assert same(few.arrays(), {name: array[: BLOCK + 3] for name, array in drawn.items()})
    part_ = few[BLOCK - 2 : BLOCK + 2].arrays()
    assert same(part_, {name: a[BLOCK - 2 : BLOCK + 2] for name, a in drawn.items()})


def test_streams_seeds_and_blocks_have_objects_of_their_own(drawn: Arrays):
    masses = [drawn["mass"]]
    for stream, seed in (("others", 0), ("tests of environments", 1)):
        others = Grasping().environments(BLOCK, stream=stream, seed=seed).arrays()
        masses.append(others["mass"])
        assert not np.isin(others["rest"][:, 2], drawn["rest"][:, 2]).any()
    assert np.unique(np.concatenate(masses)).size == N + 2 * BLOCK


def test_threads_that_draw_at_once_draw_the_same(fresh: OrderedDict[Any, Arrays]):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: TABLETOP.draw(generator(1, "threads"), 4), range(4)))
    assert all(same(found[0], other) for other in found)
    assert len(fresh) == 1


def test_only_so_many_blocks_are_remembered(fresh, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environments, "KEPT", 2)
    for block in range(3):
        TABLETOP.draw(generator(1, "kept", block), 1)
    assert len(fresh) == 2


def test_another_distribution_is_not_mistaken_for_one_that_is_remembered():
    light, heavy = (Tabletop(mass=(m, 2 * m)) for m in (0.05, 0.3))
    masses = [t.draw(generator(0, "masses"), 3)["mass"] for t in (light, heavy)]
    assert (masses[0] < 0.1).all()
    assert (masses[1] >= 0.3).all()


def test_masses_factors_and_frictions_are_uniform_in_their_ranges(drawn: Arrays):
    assert drawn["inertia"].shape == (N, 3)
    for name, low, high in (("mass", 0.05, 0.15), ("inertia", 0.75, 1.25), ("friction", 0.4, 0.8)):
        assert kstest(drawn[name].ravel(), "uniform", args=(low, high - low)).pvalue > 1e-3


def test_a_row_tells_of_its_body(drawn: Arrays):
    for row in (0, 7):
        one = TABLETOP.body(drawn, row)
        assert one.mass == drawn["mass"][row]
        assert one.friction == drawn["friction"][row]
        assert np.array_equal(one.inertia, drawn["inertia"][row])
        assert len(one.parts) == drawn["count"][row]


# ---- at rest ------------------------------------------------------------------------------------


def bodies(drawn: Arrays) -> Iterator[tuple[Body, Any]]:
    for row in range(N):
        yield TABLETOP.body(drawn, row), drawn["rest"][row]


def test_objects_at_rest_lie_still(drawn: Arrays):
    mj = mujoco()
    for one, rest in bodies(drawn):
        model, data = alone(one, rest)
        mj.mj_step(model, data, round(0.5 / STEP))
        moved = points_at(one, data.qpos) - points_at(one, rest)
        assert np.linalg.norm(moved, axis=1).max() < 1e-3


def test_objects_at_rest_lie_on_the_table_and_not_in_it(drawn: Arrays):
    assert np.isfinite(drawn["rest"]).all()
    np.testing.assert_allclose(np.linalg.norm(drawn["rest"][:, 3:], axis=1), 1, atol=1e-9)
    for one, rest in bodies(drawn):
        lowest = points_at(one, rest)[:, 2].min()
        assert -1.5e-3 < lowest < 1e-3


def test_the_top_is_the_objects_top(drawn: Arrays):
    """Rays a pixel apart may pass beside a corner, which is then as low as it is steep."""
    heights = np.array([points_at(one, rest)[:, 2].max() for one, rest in bodies(drawn)])
    assert (drawn["top"] <= heights + 1e-3).all()  # what is round reaches over its points
    assert (drawn["top"] >= heights - 2 * Camera().pixel).all()
    assert np.median(np.abs(drawn["top"] - heights)) < 1e-3


def test_the_centroid_is_where_the_mask_is(drawn: Arrays):
    """Higher points appear farther out, by a sixth for what is 10 cm high."""
    camera = Camera()
    for row, (one, rest) in enumerate(bodies(drawn)):
        points = points_at(one, rest)
        low, high = points[:, :2].min(axis=0), points[:, :2].max(axis=0)
        centroid = drawn["centroid"][row]
        assert (low - camera.pixel < centroid).all()
        assert (centroid < high + camera.pixel).all()
        assert np.linalg.norm(centroid - (low + high) / 2) < 0.025
        rows, columns = np.nonzero(drawn["mask"][row])
        middle = np.array([columns.mean(), rows.mean()]) + 0.5 - camera.crop / 2
        assert np.abs(middle).max() <= 1.0  # the image is around it


def test_images_show_the_heights_of_the_object_and_zero_around_it(drawn: Arrays):
    assert drawn["heights"].shape == drawn["mask"].shape == (N, 64, 64)
    assert drawn["heights"].dtype == np.float32
    assert drawn["mask"].dtype == bool
    assert (drawn["heights"][~drawn["mask"]] < 1e-6).all()
    tops = np.where(drawn["mask"], drawn["heights"], 0).max(axis=(1, 2))
    np.testing.assert_allclose(tops, drawn["top"], atol=1e-6)
    assert not drawn["mask"][:, [0, -1]].any()
    assert not drawn["mask"][:, :, [0, -1]].any()


@pytest.mark.parametrize("degrees", [0, 30, 45, 90, 120, 179])
def test_the_minor_axis_is_across_a_bar(degrees: float):
    y, x = np.mgrid[-32:32, -32:32] + 0.5
    angle = np.radians(degrees)
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    found = minor_axis((np.abs(along) < 24) & (np.abs(across) < 6))
    assert 0 <= found <= np.pi
    assert np.cos(2 * (found - angle)) == pytest.approx(-1, abs=1e-3)


# ---- what does not settle -----------------------------------------------------------------------


@pytest.mark.parametrize("drop", [Drop(speed=0.0), Drop(turning=0.0), Drop(seconds=0.1)])
def test_objects_that_never_settle_are_an_error_in_a_line(drop: Drop, monkeypatch):
    monkeypatch.setattr(environments, "ATTEMPTS", 3)
    task = Grasping(tabletop=Tabletop(drop=drop))
    with pytest.raises(ValueError, match="3 objects in a row did not settle on the t") as caught:
        task.environments(1, stream="never").arrays()
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Strays:
    """Bricks of which a share is so far away that the camera sees nothing, or half of them."""

    share: float
    away: float = 0.5  # m

    def draw(self, rng: np.random.Generator) -> Arrays:
        away = self.away * (rng.random() < self.share)
        return {"away": np.array(away), "length": rng.uniform(size=1)}

    def parts(self, shape: Arrays) -> list[Part]:
        length = 0.02 + 0.02 * float(shape["length"][0])
        return [part(size=(length, 0.015, 0.015), place=(float(shape["away"]), 0, 0))]


@pytest.mark.slow
@pytest.mark.parametrize("away", [0.5, 0.11], ids=["out of sight", "half in sight"])
def test_objects_not_wholly_in_sight_are_drawn_anew_and_their_number_is_told(away: float):
    tabletop = Tabletop(objects=Strays(0.5, away), drop=Drop(yaw=0.0))
    arrays = tabletop.draw(generator(0, "strays"), 64)
    assert not arrays["away"].any()
    assert arrays["attempts"].min() == 1
    assert 1.5 < arrays["attempts"].mean() < 2.6  # 2 is expected
    assert kstest(arrays["length"].ravel(), "uniform").pvalue > 1e-3
    never = Tabletop(objects=Strays(0.0)).draw(generator(0, "strays"), 4)
    assert never["attempts"].tolist() == [1] * 4


def test_objects_that_are_always_out_of_sight_are_an_error():
    with pytest.raises(ValueError, match=f"^{ATTEMPTS} objects in a row did not .* cannot be used"):
        Tabletop(objects=Strays(1.0)).draw(generator(0, "strays"), 1)


def test_an_object_that_does_not_settle_is_drawn_anew_and_the_others_stay(
    fresh: OrderedDict[Any, Arrays], monkeypatch: pytest.MonkeyPatch
):
    before = TABLETOP.draw(generator(0, "restless"), 6)
    assert before["attempts"].tolist() == [1] * 6
    settle, restless = Drop.settle, before["mass"][2]

    def unless_it_is_that_one(drop: Drop, model: Any, one: Body, turn: Any) -> Any:
        return None if one.mass == restless else settle(drop, model, one, turn)

    monkeypatch.setattr(Drop, "settle", unless_it_is_that_one)
    fresh.clear()
    after = TABLETOP.draw(generator(0, "restless"), 6)
    assert after["attempts"].tolist() == [1, 1, 2, 1, 1, 1]
    assert after["mass"][2] != restless
    others = [0, 1, 3, 4, 5]
    assert same(*({name: a[others] for name, a in arrays.items()} for arrays in (before, after)))


@pytest.mark.slow
def test_what_is_drawn_depends_on_no_policy(fresh: OrderedDict[Any, Arrays]):
    task = Grasping(tabletop=Tabletop(objects=Strays(0.5)))
    found = []
    for policies in (np.zeros((1, 3)), np.full((2, 3), 0.02)):
        fresh.clear()
        objects = task.environments(4, stream="no policy")
        task.costs(policies, objects)
        found.append(objects.arrays())
    assert same(*found)


# ---- turns --------------------------------------------------------------------------------------


def test_turns_have_the_papers_spreads_in_yaw_pitch_and_roll():
    rng = np.random.default_rng(0)
    turns = np.array([Drop().turn(rng) for _ in range(4000)])
    np.testing.assert_allclose(np.linalg.norm(turns, axis=1), 1, atol=1e-12)
    angles = Rotation.from_quat(turns, scalar_first=True).as_euler("ZYX")  # about moving axes
    for column, spread in enumerate((0.5, 0.01, 0.5)):
        assert kstest(angles[:, column], "norm", args=(0, spread)).pvalue > 1e-3
    assert np.abs(np.corrcoef(angles.T) - np.eye(3)).max() < 0.06


def test_a_turn_is_scipys_of_the_same_angles():
    drop = Drop(yaw=1.0, roll=0.7, pitch=0.4)
    for seed in range(20):
        angles = np.random.default_rng(seed).normal(0, [1.0, 0.4, 0.7])
        wanted = Rotation.from_euler("ZYX", angles).as_matrix()
        turn = drop.turn(np.random.default_rng(seed))
        found = Rotation.from_quat(turn, scalar_first=True).as_matrix()
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_each_spread_is_of_its_own_axis():
    for name, axis in (("yaw", 2), ("pitch", 1), ("roll", 0)):
        drop = replace(Drop(yaw=0.0, roll=0.0, pitch=0.0), **{name: 0.3})
        turn = drop.turn(np.random.default_rng(1))
        assert np.flatnonzero(np.abs(turn[1:]) > 1e-12).tolist() == [axis]
