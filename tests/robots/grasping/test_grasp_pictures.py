"""Pictures of grasping show what was simulated, are the same again, and come onto the page."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import PICTURES as SUFFIXES
from pacbayes_control.certify.run import AlteredRun, Run
from pacbayes_control.learn import Plan, SearchSettings, certify_draw, learn_finite, learn_gaussian
from pacbayes_control.report.page import LARGEST_PICTURE
from pacbayes_control.report.pictures import GREEN
from pacbayes_control.robots.grasping import pictures as grasp_pictures
from pacbayes_control.robots.grasping.camera import cast
from pacbayes_control.robots.grasping.models import build, mujoco
from pacbayes_control.robots.grasping.pictures import (
    RED,
    attachments,
    contact_sheet,
    failures,
    film,
    image_corner,
    outlines,
    views,
)
from pacbayes_control.robots.grasping.robots import Arm
from pacbayes_control.robots.grasping.simulator import COLLIDED, DROPPED, LIFTED, MISSED, play
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.rollouts import evaluate
from pacbayes_control.tasks.environments import KEPT_STREAMS, generator
from pages import Outline, Write, words
from shortcuts import coarse_pictures
from sizes import sized

TASK = Grasping()
PNG = b"\x89PNG\r\n\x1a\n"
OPEN_AIR = np.array([[0.2, 0.0, 0.0]])  # a policy that grasps beside every object

PICTURES = Grasping.captions


@pytest.fixture(scope="module", autouse=True)
def _coarse() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        coarse_pictures(patch)
        yield


@pytest.fixture(scope="module")
def run() -> Run[DiagonalGaussian]:
    """Grasps relative to the centroid, learnt on four objects: enough for a page."""
    prior = DiagonalGaussian([0.0, 0.0, 1.0], [1e-5, 1e-5, 0.2])
    train = TASK.environments(4, stream="train")
    return learn_gaussian(
        TASK, train, prior, Plan(search=SearchSettings(steps=1, pairs=2), draws=2)
    )


@pytest.fixture(scope="module")
def pictures(run: Run[Any]) -> dict[str, bytes]:
    return attachments(TASK, run, TASK.environments(6, stream="test"))


def chunks(content: bytes) -> dict[bytes, bytes]:
    """The parts of a PNG, each with a sum that is right."""
    assert content.startswith(PNG)
    found, at = {}, len(PNG)
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        kind, data = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", content[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(kind + data)
        found[kind] = data
        at += 12 + length
    return found


def share(content: bytes, colour: str) -> float:
    """How much of a picture has a colour."""
    pixels = imread(BytesIO(content))[..., :3]
    return float((np.abs(pixels - np.array(to_rgb(colour))) < 0.02).all(axis=-1).mean())


@cache
def lifting(row: int) -> NDArray[np.float64]:
    """A policy that lifts the object in a row."""
    environments = TASK.environments(16, stream="test")[row : row + 1]
    tried = np.array([[0.0, 0.0, angle] for angle in np.linspace(0, np.pi, 12, endpoint=False)])
    lifted = TASK.endings(tried, environments)[0] == LIFTED
    return tried[lifted][:1]


# ---- files --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_gets_four_small_pictures_which_hold_nothing_but_the_picture(
    pictures: dict[str, bytes],
):
    assert list(pictures) == list(PICTURES)
    assert all(name.endswith(SUFFIXES) for name in pictures)  # a run owns them
    assert sum(map(len, pictures.values())) < sized(500_000, full=1_500_000)
    for content in pictures.values():
        parts = chunks(content)
        assert set(parts) == {b"IHDR", b"IDAT", b"IEND"}  # no time, no name of a program
        assert imread(BytesIO(content)).std() > 0.02


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(run: Run[Any], pictures: dict[str, bytes]):
    again = attachments(TASK, run, TASK.environments(30, stream="test")[:6])
    assert again == pictures


def test_policies_are_drawn_from_a_stream_of_their_own(run: Run[Any]):
    drawn = grasp_pictures._drawn(run)
    rng = generator(0, "pictures", of="policies")
    assert np.array_equal(drawn, run.posterior.sample(rng, grasp_pictures.POLICIES))
    assert "pictures" not in KEPT_STREAMS


def test_of_listed_policies_those_of_the_posterior_are_shown_and_of_one_that_one():
    train = TASK.environments(4, stream="train")
    policies = np.array([[0.2, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.5]])
    costs = evaluate(TASK, policies, train)
    mixed, one = learn_finite(costs), learn_finite(costs, method="occam")
    assert {tuple(p) for p in grasp_pictures._drawn(mixed)} <= {tuple(p) for p in policies}
    assert one.certificate.policy is not None
    assert np.array_equal(grasp_pictures._drawn(one), policies[[one.certificate.policy]])
    bare = learn_finite(costs.values)
    with pytest.raises(ValueError, match="holds no policies"):
        grasp_pictures._drawn(bare)


def test_a_single_draw_shows_the_policy_that_was_drawn():
    prior = DiagonalGaussian([0.0, 0.0, 1.0], [1e-5, 1e-5, 0.2])
    certified = certify_draw(TASK, TASK.environments(4, stream="train"), prior, prior)
    drawn = grasp_pictures._drawn(certified)
    assert certified.costs.parameters is not None
    assert np.array_equal(np.unique(drawn, axis=0), certified.costs.parameters)


# ---- what they show -----------------------------------------------------------------------------


@pytest.mark.parametrize("robot", [TASK.robot, Arm()], ids=lambda robot: type(robot).__name__)
def test_fingers_are_drawn_where_the_simulated_fingers_are(robot: Any):
    arrays = TASK.environments(2, stream="test").arrays()
    grasp = np.array([0.06, -0.02, 0.7])  # beside the object, which would push the arm
    body, rest = TASK.tabletop.body(arrays, 0), arrays["rest"][0]
    playback = play(robot, body, rest, float(arrays["top"][0]), grasp)
    model, data = playback.model, playback.at(playback.phases[0][2])
    simulated = []
    for name in ("left", "right"):
        geom = model.geom(name).id
        x, y, z = np.meshgrid([-1, 1], [-1, 1], [-1, 1])
        box = np.stack([x, y, z], axis=-1).reshape(-1, 3) * model.geom_size[geom]
        simulated.append((box @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom])[:, :2])
    drawn, line = outlines(grasp, robot.hand)
    for finger in drawn:
        corners = np.array([playback.place([*corner, 0])[:2] for corner in finger])
        gaps = [
            np.linalg.norm(corners[:, None] - other, axis=-1).min(axis=1) for other in simulated
        ]
        assert np.max(gaps, axis=1).min() < 5e-4  # of one of the two: a hand may be turned about
    assert np.linalg.norm(line[1] - line[0]) == pytest.approx(robot.hand.opening)


def test_a_view_lies_where_the_camera_looked():
    camera, mj = TASK.tabletop.camera, mujoco()
    arrays = TASK.environments(16, stream="test").arrays()
    for row in range(16):
        model = build(TASK.tabletop.body(arrays, row))
        data = mj.MjData(model)
        data.qpos[:] = arrays["rest"][row]
        mj.mj_forward(model, data)
        geoms, _ = cast(model, data, np.array([0.0, 0.0, camera.height]), camera.rays)
        seen = (geoms >= 0) & (model.geom_bodyid[geoms] == model.body("object").id)
        seen = seen.reshape(camera.pixels, camera.pixels)
        middle = [round(float(axis.mean())) for axis in np.nonzero(seen)[::-1]]
        expected = (np.array(middle) - camera.crop // 2) * camera.pixel - camera.reach
        view = (arrays[name][row] for name in ("heights", "mask", "centroid"))
        np.testing.assert_allclose(image_corner(camera, *view), expected, atol=1e-9)


def test_grasps_that_lift_are_green_and_others_are_red():
    environments = TASK.environments(16, stream="test")[1:2]
    good, bad = views(TASK, lifting(1), environments), views(TASK, OPEN_AIR / 5, environments)
    assert TASK.endings(OPEN_AIR / 5, environments)[0, 0] != LIFTED
    assert share(good, GREEN) > 0.001
    assert share(good, RED) == 0
    assert share(bad, RED) > 0.001
    assert share(bad, GREEN) == 0


def test_policies_take_turns_at_the_objects():
    environments = TASK.environments(2, stream="test")
    policies = np.array([[0.0, 0.0, 0.3], [0.0, 0.0, 1.3]])
    pair = imread(BytesIO(views(TASK, policies, environments, columns=2)))
    for row in range(2):
        one = environments[row : row + 1]
        alone = imread(BytesIO(views(TASK, policies[[row]], one, columns=1)))
        left = 8 + 200 * row
        assert np.array_equal(pair[30:, left : left + 190], alone[30:, 8:198])


@pytest.mark.slow
def test_a_sheet_has_a_place_for_each_object():
    def size(count: int) -> tuple[int, int]:
        content = contact_sheet(TASK, TASK.environments(5, stream="test")[:count], columns=2)
        return struct.unpack(">II", content[16:24])

    assert size(2) == (2 * 152 + 8, 152 + 8)
    assert size(3) == size(4) == (2 * 152 + 8, 2 * 152 + 8)
    assert size(40) == (2 * 152 + 8, 3 * 152 + 8)


def test_a_film_goes_from_above_the_object_to_the_ending():
    arrays = TASK.environments(2, stream="test").arrays()
    playback, _ = grasp_pictures._played(TASK, Arm(), arrays, row=1, policy=lifting(1)[0])
    moments = grasp_pictures._moments(playback, 6)
    ends = {phase: last for phase, _, last in playback.phases}
    assert [text for _, text in moments] == [
        "above the object",
        "down",
        "closing",
        "closed",
        "lifting",
        "lifted",
    ]
    places = [moment for moment, _ in moments]
    assert places[0] == 0
    assert (places[1], places[3], places[5]) == (ends["approach"], ends["close"], ends["lift"])


@pytest.mark.slow
def test_a_film_of_the_gripper_leaves_out_the_way_down_which_is_not_simulated():
    environments = TASK.environments(2, stream="test")[1:2]
    playback, _ = grasp_pictures._played(
        TASK, TASK.robot, environments.arrays(), row=0, policy=lifting(1)[0]
    )
    moments = grasp_pictures._moments(playback, 5)
    assert [text for _, text in moments] == ["down", "closing", "closed", "lifting", "lifted"]
    strip = film(TASK, TASK.robot, environments, policy=lifting(1)[0], frames=2)
    arm = film(TASK, Arm(), environments, policy=lifting(1)[0], frames=2)
    assert imread(BytesIO(strip)).shape[1] < imread(BytesIO(arm)).shape[1]  # which is shown whole


def test_the_film_is_of_an_object_that_is_lifted():
    environments = TASK.environments(8, stream="test")
    policy = lifting(3)[0]
    row = grasp_pictures._worth_a_film(TASK, Arm(), environments, policy)
    playback, _ = grasp_pictures._played(TASK, Arm(), environments.arrays(), row=row, policy=policy)
    assert playback.ending == LIFTED
    assert grasp_pictures._worth_a_film(TASK, Arm(), environments[:2], OPEN_AIR[0] / 5) == 0


def test_failures_are_of_every_kind_and_of_many_objects():
    endings = np.full((6, 2), LIFTED)
    endings[1:, 0] = COLLIDED
    endings[4, 0], endings[5, 1] = MISSED, DROPPED
    chosen = grasp_pictures._of_every_kind(endings, 4)
    assert {endings[pair] for pair in chosen[:2]} == {COLLIDED, MISSED}
    assert chosen == [(1, 0), (4, 0), (2, 0), (3, 0)]
    assert grasp_pictures._of_every_kind(endings, 9)[-1] == (5, 1)  # an object again, at last


def test_where_nothing_failed_there_is_a_line_that_says_so():
    environments = TASK.environments(2, stream="test")[1:2]
    some = failures(TASK, OPEN_AIR / 5, environments)
    none = failures(TASK, lifting(1), environments)
    tall, low = (imread(BytesIO(content)).shape[0] for content in (some, none))
    assert low < 40 < tall
    assert imread(BytesIO(none))[..., :3].min() < 0.5


# ---- the page -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_page_shows_the_pictures_with_descriptions_and_captions(
    page: Write, run: Run[Any], pictures: dict[str, bytes]
):
    text = page(run, pictures=pictures)
    outline = Outline(text)
    assert outline.tags["img"] == outline.tags["figcaption"] == len(PICTURES)
    assert len(outline.ids) == len(set(outline.ids))
    assert "pictures" in outline.ids
    assert ("href", "#pictures") in outline.attributes
    sources = [value for name, value in outline.attributes if name == "src"]
    shown = [base64.b64decode(s.removeprefix("data:image/png;base64,")) for s in sources]
    assert shown == list(pictures.values())
    descriptions = [value for name, value in outline.attributes if name == "alt"]
    assert descriptions == [description for description, _ in PICTURES.values()]
    for _, caption in PICTURES.values():
        assert caption in words(text)


def test_without_pictures_there_is_no_place_for_them(page: Write, run: Run[Any]):
    for given in (None, {}, {"picture.svg": b"<svg/>"}):
        outline = Outline(page(run, pictures=given))
        assert "pictures" not in outline.ids
        assert outline.tags["img"] == 0


NO_PICTURES = {
    "empty": b"",
    "signature": PNG,
    "svg": b"<svg onload=alert(1)>",
    "markup": b'"><script>alert(1)</script>',
    "vast": PNG + b"\0\0\0\rIHDR" + b"\xff" * 8,
    "large": PNG + b"\0\0\0\rIHDR\0\0\0\1\0\0\0\1" + bytes(LARGEST_PICTURE),
}


@pytest.mark.slow
def test_what_is_no_picture_and_what_has_another_name_does_not_come_onto_the_page(
    page: Write, run: Run[Any], pictures: dict[str, bytes]
):
    bare = page(run)
    for kind, content in NO_PICTURES.items():
        assert page(run, pictures={"objects.png": content}) == bare, kind
    assert page(run, pictures={"other.png": pictures["objects.png"]}) == bare


def test_the_page_says_why_grasps_are_not_replayed(page: Write, run: Run[Any]):
    train = TASK.environments(4, stream="train")
    for options in ({}, {"task": TASK, "environments": train}):
        text = words(page(run, **options))
        assert "A grasp is a motion in space" in text
        assert "MODULE:TASK" not in text
        assert "cannot show itself" not in text


@pytest.mark.slow
@pytest.mark.usefixtures("blank_plots")
def test_the_command_takes_pictures_from_the_folder_of_the_run(
    quick: Callable[..., Any], tmp_path: Path, run: Run[Any], pictures: dict[str, bytes]
):
    more = {"film.png": b"<script>", "evil.png": pictures["views.png"]}
    folder = run.save(tmp_path / "grasping", attachments=pictures | more)
    result = quick("report", folder)
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "grasping.html").read_text(encoding="utf-8")
    assert len(re.findall(r'<img src="data:image/png;base64,', text)) == 3
    assert base64.b64encode(pictures["failures.png"]).decode() in text


@pytest.mark.slow
def test_pictures_belong_to_the_run(tmp_path: Path, run: Run[Any], pictures: dict[str, bytes]):
    folder = run.save(tmp_path / "run", attachments=pictures)
    run.save(folder, overwrite=True)
    assert not set(PICTURES) & {file.name for file in folder.iterdir()}
    (folder / "film.png").write_bytes(pictures["film.png"])
    with pytest.raises(AlteredRun, match=r"film.png was added"):
        Run.load(folder)
