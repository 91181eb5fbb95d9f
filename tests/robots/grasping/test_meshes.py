"""Folders of meshes that the tests write themselves."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import trimesh
from scipy.spatial import ConvexHull
from trimesh.exchange.gltf import export_gltf

from here import Here
from pacbayes_control.certify.files import sha256
from pacbayes_control.robots.grasping import meshes
from pacbayes_control.robots.grasping.decomposition import content_digest, read_hulls
from pacbayes_control.robots.grasping.extras import cache_folder
from pacbayes_control.robots.grasping.meshes import MeshFolder, remembered_hulls
from pacbayes_control.robots.grasping.models import Hull, bounding_box
from sizes import sized

SYNSET, MODEL = "03797390", "1a0bc9ab92c915167ae33d942430658c"
PROCESSES = meshes.Processes
TALL = (1.0, 2.0, 4.0)  # a box: its sides tell the axes apart


def box(*sides: float, at: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> trimesh.Trimesh:
    mesh = trimesh.creation.box(sides)
    mesh.apply_translation(at)
    return mesh


def write(mesh: trimesh.Trimesh | str, file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(mesh, str):
        file.write_text(mesh)
    else:
        mesh.export(file)
    return file


def sheet() -> trimesh.Trimesh:
    """A square that lies askew, so that its bounding box has a volume."""
    mesh = trimesh.Trimesh([[0, 0, 0], [1, 0, 1], [1, 1, 2], [0, 1, 1]], [[0, 1, 2], [0, 2, 3]])
    mesh.apply_translation((0.3, 0.1, 0.7))
    return mesh


def shape(number: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    return {"mesh": np.array(number), "scale": np.array(scale)}


def hulls(objects: MeshFolder, number: int) -> list[np.ndarray]:
    parts = objects.parts(shape(number))
    assert all(isinstance(part, Hull) for part in parts)
    return [part.corners for part in parts if isinstance(part, Hull)]


def sides(objects: MeshFolder, number: int = 0) -> np.ndarray:
    low, high = bounding_box(objects.parts(shape(number)))
    np.testing.assert_allclose(low + high, 0, atol=1e-12)
    return high - low


def holds(corners: np.ndarray, point: tuple[float, float, float]) -> bool:
    planes = ConvexHull(corners).equations
    return bool((planes[:, :3] @ point + planes[:, 3] <= 0).all())


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meshes, "Processes", Here)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One box, 1 × 2 × 4."""
    write(box(*TALL), tmp_path / "meshes" / "tall.obj")
    return tmp_path / "meshes"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def l_of_one_piece() -> trimesh.Trimesh:
    outline = [(0, 0), (1.3, 0), (1.3, 0.3), (0.3, 0.3), (0.3, 1), (0, 1)]
    corners = [(x, y, z) for z in (0, 0.3) for x, y in outline]
    fan = [(0, i, i + 1) for i in range(1, 5)]  # every corner is seen from the first
    faces = [(a, c, b) for a, b, c in fan] + [(a + 6, b + 6, c + 6) for a, b, c in fan]
    for i, j in zip(range(6), (1, 2, 3, 4, 5, 0), strict=True):
        faces += [(i, j, j + 6), (i, j + 6, i + 6)]
    return trimesh.Trimesh(corners, faces)


def l_of_two_boxes() -> trimesh.Trimesh:
    """They overlap, which takes CoACD seconds to mend."""
    arms = [box(1.3, 0.3, 0.3, at=(0.65, 0.15, 0.15)), box(0.3, 1.0, 0.3, at=(0.15, 0.5, 0.15))]
    return trimesh.Scene(arms).to_mesh()


@pytest.fixture(scope="module")
def hollow(tmp_path_factory: pytest.TempPathFactory) -> MeshFolder:
    """An L, 1.3 × 1.0 × 0.3, and a ring; in a process of their own."""
    place = tmp_path_factory.mktemp("hollow")
    write(sized(l_of_one_piece, full=l_of_two_boxes)(), place / "meshes" / "L.stl")
    ring = trimesh.creation.torus(0.35, 0.12, major_sections=sized(12, full=16), minor_sections=8)
    write(ring, place / "meshes" / "ring.ply")
    return MeshFolder(
        place / "meshes", concavity=0.1, cache=place / "cache", workers=sized(1, full=2)
    )


# ---- shapes --------------------------------------------------------------------------------------


def test_a_box_keeps_its_proportions_in_the_middle_with_its_longest_side_one(folder, cache):
    objects = MeshFolder(folder, cache=cache)
    np.testing.assert_allclose(sides(objects), np.array(TALL) / 4, atol=1e-6)
    [corners] = hulls(objects, 0)
    assert corners.shape == (8, 3)


@pytest.mark.slow
def test_the_notch_of_an_l_is_empty(hollow):
    parts = hulls(hollow, 0)
    lower_left = np.array([1.3, 1.0, 0.3]) / 2

    def inside(x: float, y: float) -> bool:
        x, y, z = (np.array([x, y, 0.15]) - lower_left) / 1.3
        return any(holds(part, (x, y, z)) for part in parts)

    assert inside(0.15, 0.15)
    assert inside(1.2, 0.15)
    assert inside(0.15, 0.9)
    assert not inside(0.8, 0.65)
    assert not inside(0.45, 0.45)


@pytest.mark.slow
def test_the_hole_of_a_ring_is_empty_and_the_ring_is_not(hollow):
    parts = hulls(hollow, 1)
    assert not any(holds(part, (x, y, 0.0)) for part in parts for x, y in ((0, 0), (0.1, 0.1)))
    for angle in np.linspace(0, 2 * np.pi, 16):
        point = (0.35 / 0.94 * np.cos(angle), 0.35 / 0.94 * np.sin(angle), 0.0)
        assert any(holds(part, point) for part in parts), angle


@pytest.mark.slow
def test_parts_and_corners_are_as_few_as_asked(hollow, tmp_path):
    for number in range(2):
        parts = hulls(hollow, number)
        assert 2 <= len(parts) <= 16
        assert all(8 <= len(part) <= 64 for part in parts)
    ball = trimesh.creation.icosphere(3)
    write(ball, tmp_path / "meshes" / "ball.off")
    few = MeshFolder(tmp_path / "meshes", most_corners=20, cache=tmp_path)
    many = MeshFolder(tmp_path / "meshes", cache=tmp_path)
    ([twenty], [more]) = hulls(few, 0), hulls(many, 0)
    assert (len(twenty), len(more)) == (20, 64)
    assert few != many
    np.testing.assert_allclose(sides(many), 1, atol=1e-3)
    filled = ConvexHull(more).volume / (np.pi / 6)
    assert 0.9 < filled < 1
    assert ConvexHull(twenty).volume < ConvexHull(more).volume


def test_scenes_of_several_meshes_are_one_object(tmp_path):
    scene = trimesh.Scene([box(1, 1, 1), box(1, 1, 1, at=(3, 0, 0))])
    file = tmp_path / "meshes" / "two.glb"
    file.parent.mkdir()
    scene.export(file)
    objects = MeshFolder(tmp_path / "meshes", cache=tmp_path)
    assert len(hulls(objects, 0)) == 2
    np.testing.assert_allclose(sides(objects), (1, 0.25, 0.25), atol=0.01)


def test_every_format_gives_the_same_box(tmp_path):
    place = tmp_path / "meshes"
    for suffix in (".obj", ".stl", ".ply", ".off"):
        write(box(*TALL), place / f"small{suffix}")
        write(box(*TALL), place / f"large{suffix}").rename(place / f"large{suffix.upper()}")
    objects = MeshFolder(place, cache=tmp_path)
    assert len(objects.meshes) == 8
    for number in range(8):
        np.testing.assert_allclose(sides(objects, number), np.array(TALL) / 4, atol=1e-6)


# ---- drawing -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_draws_are_uniform_over_meshes_and_sizes_and_repeat(hollow):
    def draws(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        drawn = [hollow.draw(rng) for _ in range(2000)]
        assert all(d["mesh"].shape == d["scale"].shape == () for d in drawn)
        return np.array([(d["mesh"], d["scale"]) for d in drawn])

    numbers, scales = draws(0).T
    assert 0.45 < np.mean(numbers == 1) < 0.55
    assert 0.07 <= scales.min() < 0.071
    assert 0.099 < scales.max() <= 0.1
    np.testing.assert_array_equal(draws(3), draws(3))
    assert not np.array_equal(draws(3), draws(4))


@pytest.mark.slow
def test_every_object_fits_a_cube_of_ten_centimetres(hollow):
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = hollow.draw(rng)
        low, high = bounding_box(hollow.parts(drawn))
        assert (high - low).max() == pytest.approx(float(drawn["scale"]))
        assert (high - low).max() <= 0.1 + 1e-12


@pytest.mark.slow
def test_a_number_beyond_the_last_mesh_is_an_error(hollow):
    with pytest.raises(ValueError, match="no mesh 2 among 2"):
        hollow.parts(shape(2))


# ---- files ---------------------------------------------------------------------------------------


def test_the_order_is_that_of_relative_paths_and_hidden_files_do_not_count(tmp_path, cache):
    place = tmp_path / "meshes"
    for name in ("b.obj", "a/z.stl", "a.ply", "B.off", ".hidden.obj", ".git/c.obj", "c.txt"):
        content = box(*TALL) if not name.endswith(".txt") else "no mesh"
        write(content, place / name)
    objects = MeshFolder(place, cache=cache)
    assert [mesh.path for mesh in objects.meshes] == ["B.off", "a.ply", "a/z.stl", "b.obj"]


@pytest.mark.parametrize(
    ("path", "also"),
    [
        (f"{SYNSET}/{MODEL}/models/model_normalized.obj", f"{SYNSET}/{MODEL}/models/solid.stl"),
        (f"{SYNSET}/abc/models/model_normalized.obj", f"{SYNSET}/abc/images/plate.obj"),
        (f"{MODEL}/models/model_normalized.obj", f"{MODEL}/extra.obj"),
        (f"{SYNSET}/abc/model.obj", f"{SYNSET}/abc/model_watertight.off"),
        (f"core/{SYNSET}/abc/model.obj", f"core/{SYNSET}/abc/images/plate.obj"),
        (f"{MODEL}/model.obj", f"{MODEL}/other.ply"),
    ],
)
def test_of_a_shapenet_model_only_the_model_counts_and_its_y_points_up(tmp_path, path, also):
    place = tmp_path / "meshes"
    write(box(*TALL), place / path)
    write(box(1, 1, 1), place / also)
    write(box(*TALL), place / "mine.obj")
    objects = MeshFolder(place, cache=tmp_path)
    assert [(mesh.path, mesh.up) for mesh in objects.meshes] == sorted(
        [(path, "y"), ("mine.obj", "z")]
    )
    number = [mesh.path for mesh in objects.meshes].index(path)
    np.testing.assert_allclose(sides(objects, number), (0.25, 1, 0.5), atol=1e-6)
    np.testing.assert_allclose(sides(objects, 1 - number), (0.25, 0.5, 1), atol=1e-6)


def test_a_model_file_elsewhere_is_not_taken_for_shapenets(tmp_path):
    for name in ("mug/model.obj", "mug/other.obj", "models/model_normalized.obj"):
        write(box(*TALL), tmp_path / "meshes" / name)
    objects = MeshFolder(tmp_path / "meshes", cache=tmp_path)
    assert len(objects.meshes) == 3
    assert {mesh.up for mesh in objects.meshes} == {"z"}


def test_the_axis_that_points_up_can_be_told_and_is_y_in_gltf(tmp_path):
    place = tmp_path / "meshes"
    cone = trimesh.creation.cone(1.0, 3.0)  # its tip towards z
    write(cone, place / "cone.glb")
    [standard] = hulls(MeshFolder(place, cache=tmp_path), 0)
    [told] = hulls(MeshFolder(place, up="z", cache=tmp_path), 0)
    for tip_to_base in (-standard[:, 1], told[:, 2]):  # z of the file becomes -y
        assert np.sum(np.isclose(tip_to_base, 0.5)) == 1
        assert np.sum(np.isclose(tip_to_base, -0.5)) > 8


def test_the_numbers_that_a_gltf_keeps_in_another_file_count_as_its_content(tmp_path):
    place = tmp_path / "meshes"
    place.mkdir()
    for name, data in export_gltf(trimesh.Scene(box(*TALL))).items():
        (place / name).write_bytes(data)
    first = MeshFolder(place, cache=tmp_path)
    for name, data in export_gltf(trimesh.Scene(box(1, 1, 1))).items():
        if not name.endswith(".gltf"):
            (place / name).write_bytes(data)
    second = MeshFolder(place, cache=tmp_path)
    assert first != second
    assert sides(first).min() < sides(second).min() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("uri", ["../away.bin", "%2e%2e/away.bin", "{folder}/away.bin", "{quoted}"])
def test_a_gltf_reads_no_file_outside_of_its_folder(tmp_path, uri):
    away, mesh = tmp_path / "away.bin", tmp_path / "meshes" / "mesh.gltf"
    mesh.parent.mkdir()
    uri = uri.format(folder=tmp_path, quoted=quote(str(away), safe=""))
    mesh.write_text(json.dumps({"buffers": [{"uri": uri}]}))
    digests = set()
    for content in (b"one", b"two"):
        away.write_bytes(content)
        digests.add(content_digest(mesh))
    assert len(digests) == 1


def test_a_gltf_of_any_depth_has_a_digest(tmp_path):
    (tmp_path / "deep.gltf").write_text("[" * 100_000)
    assert content_digest(tmp_path / "deep.gltf") == sha256(b"[" * 100_000)


# ---- the cache -----------------------------------------------------------------------------------


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("nothing was to be decomposed")

    monkeypatch.setattr(meshes, "Processes", fail)


@pytest.mark.slow
def test_a_second_time_decomposes_nothing_and_is_the_same(hollow, monkeypatch):
    forbid(monkeypatch)
    again = MeshFolder(hollow.folder, concavity=0.1, cache=hollow.cache)
    assert again == hollow
    assert repr(again) == repr(hollow)
    assert len(hulls(again, 1)) == len(hulls(hollow, 1))


@pytest.mark.slow
def test_without_the_cache_the_same_hulls_are_found_again(folder, cache, tmp_path):
    write(l_of_one_piece(), folder / "L.stl")
    first = MeshFolder(folder, concavity=0.2, cache=cache)
    second = MeshFolder(folder, concavity=0.2, cache=tmp_path / "other", workers=2)
    assert len(hulls(first, 0)) > 1
    for number in range(2):
        for one, other in zip(hulls(first, number), hulls(second, number), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 torn", None])
def test_damaged_hulls_are_computed_again(folder, cache, damage):
    before = MeshFolder(folder, cache=cache)
    [file] = cache.iterdir()
    if damage is None:  # a whole archive of something else
        np.savez(file, corners=np.full((8, 3), np.nan), counts=np.array([8]))
    else:
        file.write_bytes(damage)
    after = MeshFolder(folder, cache=cache)
    assert after == before
    again = read_hulls(file)
    assert again is not None
    np.testing.assert_allclose(np.ptp(again[0], axis=0), np.array(TALL) / 4, atol=1e-6)
    assert list(cache.iterdir()) == [file]


def test_an_emptied_cache_is_filled_again_while_objects_are_in_use(folder, cache):
    objects = MeshFolder(folder, cache=cache)
    [file] = cache.iterdir()
    file.unlink()
    remembered_hulls.cache_clear()
    assert len(hulls(objects, 0)) == 1
    assert file.exists()
    file.unlink()
    remembered_hulls.cache_clear()
    write(box(1, 1, 1), folder / "tall.obj")
    with pytest.raises(ValueError, match=r"tall.obj is no longer what it was"):
        objects.parts(shape(0))


def test_what_was_stopped_goes_on_where_it_was(folder, cache, monkeypatch):
    write(box(1, 1, 1), folder / "cube.obj")
    decompose = meshes.decomposition.decompose

    def stop(place: Path, mesh: meshes.Mesh, *rest: object) -> str:
        if mesh.path == "tall.obj":
            raise KeyboardInterrupt
        return decompose(place, mesh, *rest)  # pyright: ignore[reportArgumentType]

    with monkeypatch.context() as patch:
        patch.setattr(meshes.decomposition, "decompose", stop)
        with pytest.raises(KeyboardInterrupt):
            MeshFolder(folder, cache=cache)
    assert len(list(cache.iterdir())) == 1
    seen: list[tuple[int, int]] = []
    MeshFolder(folder, cache=cache, progress=lambda *done: seen.append(done))
    assert seen == [(2, 2)]


def test_the_cache_is_the_users_unless_another_is_given(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "pacbayes-control"
    objects = MeshFolder(folder)
    assert [f.parent for f in cache_folder().rglob("*.npz")] == [objects.cache]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "pacbayes-control"


@pytest.mark.slow
def test_it_pickles_without_its_progress(hollow):
    told = MeshFolder(hollow.folder, concavity=0.1, cache=hollow.cache, progress=lambda *_: None)
    copy = pickle.loads(pickle.dumps(told))
    assert copy == hollow
    assert copy.progress is None
    np.testing.assert_array_equal(hulls(copy, 0)[0], hulls(hollow, 0)[0])


# ---- repr ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_its_repr_knows_content_and_settings_but_no_place(folder, cache, tmp_path):
    first = MeshFolder(folder, cache=cache)
    elsewhere = folder.rename(tmp_path / "moved")
    moved = MeshFolder(elsewhere, cache=cache)
    assert repr(first) == repr(moved)
    assert str(tmp_path) not in repr(first)
    assert repr(first).startswith("MeshFolder(1 mesh, sha256 ")
    others = [
        MeshFolder(elsewhere, longest=(0.05, 0.1), cache=cache),
        MeshFolder(elsewhere, up="y", cache=cache),
        MeshFolder(elsewhere, concavity=0.2, cache=cache),
        MeshFolder(elsewhere, most_parts=2, cache=cache),
    ]
    (elsewhere / "tall.obj").rename(elsewhere / "other.obj")
    others.append(MeshFolder(elsewhere, cache=cache))
    write(box(1, 2, 3.9), elsewhere / "other.obj")
    others.append(MeshFolder(elsewhere, cache=cache))
    assert len({repr(one) for one in [first, *others]}) == 7
    assert len({first, moved, *others}) == 7


# ---- bad input -----------------------------------------------------------------------------------


def test_a_folder_without_meshes_is_an_error_in_a_line(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such folder") as missing:
        MeshFolder(tmp_path / "nowhere", cache=tmp_path)
    file = write(box(1, 1, 1), tmp_path / "cube.obj")
    with pytest.raises(ValueError, match=r"cube.obj is a file: give the folder"):
        MeshFolder(file, cache=tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty holds no mesh: expected .obj, .stl"):
        MeshFolder(tmp_path / "empty", cache=tmp_path)
    assert "\n" not in str(missing.value)


def nan() -> str:
    corners = "\n".join(["0 0 0", "1 0 0", "0 1 0", "0 nan 1"])
    return f"OFF\n4 4 0\n{corners}\n3 0 2 1\n3 0 1 3\n3 0 3 2\n3 1 2 3\n"


BROKEN: dict[str, tuple[Callable[[], trimesh.Trimesh | str], str]] = {
    "garbage.obj": (lambda: "this is no mesh\n", "cannot be read"),
    "garbage.stl": (lambda: "this is no mesh\n", "cannot be read"),
    "garbage.glb": (lambda: "this is no mesh\n", "cannot be read"),
    "garbage.gltf": (lambda: "{", "cannot be read"),
    "empty.ply": (lambda: "", "cannot be read"),
    "points.obj": (lambda: "v 0 0 0\nv 1 0 0\nv 0 1 0\n", "cannot be read"),
    "far.obj": (lambda: "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", "cannot be read"),
    "sheet.obj": (sheet, "has no volume"),
    "triangle.obj": (lambda: "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", "has no volume"),
    "dot.obj": (lambda: "v 1 1 1\nv 1 1 1\nv 1 1 1\nf 1 2 3\n", "has no volume"),
    "plate.stl": (lambda: box(1, 1, 0.005), "has no volume"),
    "nan.off": (nan, "NaN or infinite"),
}


def test_each_kind_of_broken_mesh_is_named_and_left_out_only_if_asked(folder, cache):
    for name, (content, _) in BROKEN.items():
        write(content(), folder / name)
    with pytest.raises(ValueError, match=r"dot.obj has no volume .*and 11 more of 13 meshes"):
        MeshFolder(folder, cache=cache)
    objects = MeshFolder(folder, skip_broken=True, cache=cache)
    assert [mesh.path for mesh in objects.meshes] == ["tall.obj"]
    found = dict(objects.skipped)
    assert list(found) == sorted(BROKEN)
    for name, (_, why) in BROKEN.items():
        assert why in found[name], (name, found[name])
        assert "\n" not in found[name]
        (folder / name).unlink()
    assert repr(MeshFolder(folder, cache=cache)) == repr(objects)


def test_where_everything_is_broken_skipping_is_an_error_too(tmp_path):
    write(sheet(), tmp_path / "meshes" / "sheet.obj")
    with pytest.raises(ValueError, match=r"sheet.obj has no volume .* take it out, or give skip"):
        MeshFolder(tmp_path / "meshes", cache=tmp_path)
    with pytest.raises(ValueError, match=r"sheet.obj has no volume .* take it out$"):
        MeshFolder(tmp_path / "meshes", skip_broken=True, cache=tmp_path)


@pytest.mark.slow
def test_a_mesh_that_crashes_coacd_is_named_and_the_others_go_on(folder, cache, monkeypatch):
    decompose = meshes.decomposition.decompose
    monkeypatch.setattr(meshes, "Processes", PROCESSES)
    for name in ("a.obj", "z.obj"):
        write(box(1, 1, 1 + ord(name[0]) / 1000), folder / name)

    def crash(place: Path, mesh: meshes.Mesh, *rest: object) -> str:
        if mesh.path == "a.obj":
            os._exit(1)
        return decompose(place, mesh, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(meshes.decomposition, "decompose", crash)
    objects = MeshFolder(folder, skip_broken=True, cache=cache)
    assert objects.skipped == (("a.obj", "makes CoACD crash, or run out of memory"),)
    assert [mesh.path for mesh in objects.meshes] == ["tall.obj", "z.obj"]


@pytest.mark.parametrize("library", ["trimesh", "coacd"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(folder, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=r'pip install "pacbayes-control\[grasping\]"'):
        MeshFolder(folder)


def test_a_cache_that_cannot_be_written_is_an_error_in_a_line(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file/cache cannot keep hulls: .*: give another folder"):
        MeshFolder(folder, cache=tmp_path / "file" / "cache")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"longest": (0.1, 0.07)}, r"longest \(0.1, 0.07\) is not a range"),
        ({"longest": (0.0, 0.1)}, "is not a range"),
        ({"longest": (0.1,)}, "is not a range"),
        ({"longest": (0.1, np.nan)}, "is not a range"),
        ({"up": "x"}, "up 'x' is not an axis"),
        ({"concavity": 0.001}, r"concavity 0.001 is outside \[0.01, 1\]"),
        ({"concavity": np.nan}, "concavity nan is outside"),
        ({"most_parts": 0}, "most_parts 0 is too few: give 1 or more"),
        ({"most_corners": 4}, "most_corners 4 is too few: give 8 or more"),
        ({"workers": 0}, "workers 0 is too few"),
    ],
)
def test_settings_that_make_no_sense_are_told(folder, wrong, words):
    with pytest.raises(ValueError, match=words):
        MeshFolder(folder, **wrong)
