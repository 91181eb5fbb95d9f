"""Training the extractor and a prior: symmetries that are the world's own, and a file that loads.

The symmetries are tested against what they do to a picture, and against the simulator: labels that
were turned or mirrored are the labels of the object that was.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hand_made import body, part
from numpy.typing import NDArray

from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.robots.grasping.extractors import Compact
from pacbayes_control.robots.grasping.extras import one_thread
from pacbayes_control.robots.grasping.labels import Grid, Labels, Surrogate, gradients
from pacbayes_control.robots.grasping.learning import Training, _transformed, label, pretrain
from pacbayes_control.robots.grasping.models import Body, build, mujoco
from pacbayes_control.robots.grasping.policy import GraspNetwork
from pacbayes_control.robots.grasping.simulator import LIFTED, Simulator
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.robots.grasping.weights import read_weights

SYMMETRIES = [(turns, flip) for turns in range(4) for flip in (0, 1)]
EACH = pytest.mark.parametrize(("turns", "flip"), SYMMETRIES)
TASK = Grasping()
TINY = Training(epochs=2, head_epochs=1, batch=8)


class Driven:
    """Torch, but for the random numbers, which are given."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = iter(numbers)

    def randint(self, below: int, size: tuple) -> torch.Tensor:
        number = next(self._numbers)
        assert 0 <= number < below
        assert size == ()
        return torch.tensor(number)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def mirrored(
    images: NDArray, table: NDArray, grid: Grid, turns: int, flip: int
) -> tuple[NDArray, NDArray]:
    seen, failed = _transformed(
        torch.as_tensor(images), torch.as_tensor(table), grid, Driven(turns, flip)
    )
    assert seen.shape == images.shape
    assert failed.shape == table.shape
    return seen.numpy(), failed.numpy()


def map_of(turns: int, flip: int) -> NDArray[np.float64]:
    """The matrix of a symmetry: right angles from x to y, then x to -x."""
    turn = np.linalg.matrix_power(np.array([[0.0, -1.0], [1.0, 0.0]]), turns)
    return np.diag([-1.0, 1.0]) @ turn if flip else turn


# ---- pictures -----------------------------------------------------------------------------------

PIXELS, STRIDE = Grid(places=5, angles=8), 7  # pixels between places


def pixel_at(place: NDArray) -> tuple[int, int]:
    """Row and column of a place, (x, y) in places from the middle."""
    column, row = 32 + STRIDE * place  # the middle of a cut-out is the pixel after half of them
    assert column == int(column)
    assert row == int(row)
    return int(row), int(column)


@EACH
def test_where_the_picture_goes_the_grasp_goes_and_turns_with_it(turns: int, flip: int):
    places = np.arange(5) - 2.0
    symmetry = map_of(turns, flip)
    cases = [(i, j, k) for i in range(5) for j in range(5) for k in range(8)]
    images = np.zeros((len(cases), 3, 64, 64), np.float32)
    table = np.ones((len(cases), 5, 5, 8), np.uint8)
    for n, (i, j, k) in enumerate(cases):
        images[n, 1, *pixel_at(places[[i, j]])] = 1
        table[n, i, j, k] = 0
    seen, failed = mirrored(images, table.reshape(len(cases), -1), PIXELS, turns, flip)
    assert np.array_equal(seen.sum(axis=(1, 2, 3)), np.ones(len(cases)))
    assert not seen[:, [0, 2]].any()
    for n, (i, j, k) in enumerate(cases):
        row, column = np.argwhere(seen[n, 1])[0]
        (best,) = np.flatnonzero(failed[n] == 0)
        x, y, angle = PIXELS.grasps[best]
        place = np.array([x, y]) / PIXELS.half_width * 2
        assert (row, column) == pixel_at(np.round(place, 9))
        np.testing.assert_allclose(place, symmetry @ places[[i, j]], atol=1e-9)
        before = PIXELS.directions[k]
        wanted = symmetry @ [np.cos(before), np.sin(before)]  # a line: it may point either way
        assert abs(wanted @ [np.cos(angle), np.sin(angle)]) == pytest.approx(1)


def test_all_eight_symmetries_are_drawn_and_by_the_seed():
    grid = Grid(places=2, angles=2)
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    table = torch.arange(8).reshape(1, 8)

    def drawn() -> list[tuple]:
        torch.manual_seed(7)
        many = [_transformed(image, table, grid, torch) for _ in range(80)]
        return [(*seen.ravel().tolist(), *failed.ravel().tolist()) for seen, failed in many]

    found = drawn()
    assert len(set(found)) == 8
    assert found == drawn()


def test_a_grid_without_right_angles_is_refused(tmp_path: Path):
    grid = Grid(places=2, angles=5)
    objects = TASK.environments(2, stream="tests of pretraining")
    with pytest.raises(ValueError, match=r"the grid has 5 angles, .*: give an even number"):
        pretrain(Labels(objects, np.ones((2, 20), np.uint8), grid), tmp_path / "prior.safetensors")


# ---- physics ------------------------------------------------------------------------------------


def lifts(one: Body, rest: NDArray, top: float, centroid: NDArray, grid: Grid) -> NDArray:
    """Labels, (grasps,): 1 where a grasp fails."""
    grasps = grid.grasps + np.array([*centroid, 0.0])
    return (Simulator().endings(one, rest, top, grasps) != LIFTED).astype(np.uint8)


def turned(rest: NDArray, centroid: NDArray, angle: float) -> NDArray:
    """A pose after a turn about the vertical through the centroid."""
    mj, quaternion = mujoco(), np.empty(4)
    turn = np.array([np.cos(angle / 2), 0, 0, np.sin(angle / 2)])
    mj.mju_mulQuat(quaternion, turn, np.array(rest[3:]))
    c, s = np.cos(angle), np.sin(angle)
    place = np.array([[c, -s], [s, c]]) @ (rest[:2] - centroid) + centroid
    return np.array([*place, rest[2], *quaternion])


@pytest.mark.slow
def test_turned_labels_are_the_labels_of_the_turned_object():
    grid, differ, alike_anyway = Grid(places=3, angles=6), [], []
    arrays = TASK.environments(16, stream="tests of pretraining").arrays()
    for row in range(6):
        one, rest = TASK.tabletop.body(arrays, row), arrays["rest"][row]
        centroid, top = arrays["centroid"][row], float(arrays["top"][row])
        before = lifts(one, rest, top, centroid, grid)
        after = lifts(one, turned(rest, centroid, np.pi / 2), top, centroid, grid)
        image = np.zeros((1, 3, 64, 64), np.float32)
        _, moved = mirrored(image, before[None], grid, 1, 0)
        differ.append(moved[0] != after)
        alike_anyway.append(before != after)
    assert np.mean(differ) <= 0.02
    assert np.mean(alike_anyway) > 0.1  # else there would be nothing to see


def test_a_turned_picture_is_the_picture_of_the_turned_object():
    grid, mj, camera = Grid(places=2, angles=2), mujoco(), TASK.tabletop.camera
    arrays = TASK.environments(16, stream="tests of pretraining").arrays()
    for row in range(4):
        model = build(TASK.tabletop.body(arrays, row))
        data = mj.MjData(model)
        data.qpos[:] = turned(arrays["rest"][row], np.zeros(2), np.pi / 2)  # below the camera
        mj.mj_forward(model, data)
        view = camera.look(model, data)
        assert view is not None
        before = np.repeat(arrays["mask"][row][None, None], 3, axis=1).astype(np.float32)
        images, _ = mirrored(before, np.zeros((1, 8), np.uint8), grid, 1, 0)
        assert np.mean(images[0, 0] != view.mask) < 0.001
        assert np.mean(before[0, 0] != view.mask) > 0.02


def hook(symmetry: NDArray) -> Body:
    """A long box with a short one at its end, moved by a symmetry of the table."""
    sizes = ((0.012, 0.035, 0.02), (0.014, 0.01, 0.02))
    places = ((0.0, 0.0, 0.0), (0.026, 0.025, 0.0))
    swap = symmetry[0, 0] == 0
    boxes = []
    for size, place in zip(sizes, places, strict=True):
        x, y, z = size
        moved = (*(symmetry @ place[:2]), place[2])
        boxes.append(part(size=(y, x, z) if swap else size, place=moved))
    return body(*boxes)


HOOKED = Grid(half_width=0.03, places=4, angles=6)
LYING = np.array([0.0, 0.0, 0.02, 1.0, 0.0, 0.0, 0.0])


@pytest.fixture(scope="module")
def hooked() -> NDArray[np.uint8]:
    found = lifts(hook(np.eye(2)), LYING, 0.04, np.zeros(2), HOOKED)
    assert 0.05 < 1 - found.mean() < 0.9
    return found


@pytest.mark.slow
@EACH
def test_mirrored_labels_are_the_labels_of_the_mirrored_object(
    hooked: NDArray, turns: int, flip: int
):
    image = np.zeros((1, 3, 64, 64), np.float32)
    _, moved = mirrored(image, hooked[None], HOOKED, turns, flip)
    wanted = lifts(hook(map_of(turns, flip)), LYING, 0.04, np.zeros(2), HOOKED)
    assert np.mean(moved[0] != wanted) <= 0.02
    if (turns, flip) != (0, 0):
        assert np.mean(hooked != wanted) > 0.03


# ---- training -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labels() -> Labels:
    return label(TASK, TASK.environments(16, stream="elsewhere"), Grid(places=3, angles=6))


def trained(labels: Labels, file: Path, training: Training, seed: int = 0, **more: Any) -> Compact:
    with one_thread():  # of which the sums depend, and on busy machines the time
        pretrain(labels, file, training, seed, device="cpu", **more)
    return Compact(file)


@pytest.fixture(scope="module")
def tiny(labels: Labels, tmp_path_factory: pytest.TempPathFactory) -> Compact:
    return trained(labels, tmp_path_factory.mktemp("tiny") / "tiny.safetensors", TINY, seed=3)


@pytest.mark.slow
def test_what_was_trained_loads_as_an_extractor_with_its_prior(tiny: Compact, labels: Labels):
    images = np.random.default_rng(0).random((2, 3, 64, 64), np.float32)
    found = tiny.features(images)
    assert found.shape == (2, Compact.size)
    assert np.isfinite(found).all()
    assert tiny.digest != Compact().digest
    prior, origin = tiny.prior()
    network = GraspNetwork(tiny)
    assert len(prior) == network.parameters
    assert origin == "learnt on 16 other objects, with its extractor"
    task = replace(TASK, controller=network)
    assert task.costs(prior.mean[None], labels.environments[:2]).shape == (2, 1)


@pytest.mark.slow
def test_the_file_says_which_objects_were_seen(tiny: Compact, labels: Labels, tmp_path: Path):
    assert tiny.seen == tiny.prior()[0].seen == (EnvironmentRange("elsewhere", 0, 0, 16),)
    part = Labels(
        TASK.environments(9, stream="others", seed=4)[3:], labels.failures[:6], labels.grid
    )
    other = trained(part, tmp_path / "other.safetensors", Training(1, 1))
    assert other.seen == (EnvironmentRange("others", 4, 3, 9),)
    assert read_weights(other.file)[1]["origin"].startswith("learnt on 6 other objects")


@pytest.mark.slow
def test_the_priors_width_is_the_noise_relative_to_the_weights_of_each_layer(tiny: Compact):
    network, (prior, _) = GraspNetwork(tiny), tiny.prior()
    for weights, biases in network.layers(np.sqrt(prior.variance)):
        assert np.ptp(np.concatenate([weights.ravel(), biases])) < 1e-9
    sizes = [weights.std() for weights, _ in network.layers(prior.mean)]
    widths = [weights[0, 0] for weights, _ in network.layers(np.sqrt(prior.variance))]
    np.testing.assert_allclose(np.divide(widths, sizes), TINY.noise, rtol=0.1)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(
    tiny: Compact, labels: Labels, tmp_path: Path
):
    again = trained(labels, tmp_path / "again.safetensors", TINY, seed=3)
    assert again.file.read_bytes() == tiny.file.read_bytes()
    other = trained(labels, tmp_path / "other.safetensors", TINY, seed=4)
    assert other.digest != tiny.digest
    assert not np.array_equal(other.prior()[0].mean, tiny.prior()[0].mean)


@pytest.mark.slow
def test_progress_counts_the_epochs_of_both_parts(labels: Labels, tmp_path: Path):
    told: list[tuple[int, int]] = []
    few = Labels(labels.environments[:4], labels.failures[:4], labels.grid)
    trained(
        few,
        tmp_path / "counted.safetensors",
        replace(TINY, head_epochs=3),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


@pytest.mark.slow
def test_training_lowers_the_surrogate(labels: Labels, tmp_path: Path):
    def surrogate(eyes: Compact) -> float:
        """Of the prior's draws, on the objects that were trained on."""
        network, (prior, _) = GraspNetwork(eyes), eyes.prior()
        task = replace(TASK, controller=network)
        goal = Surrogate("table").goal(labels, slice(None))
        draws = prior.sample(np.random.default_rng(0), 8)
        return float(gradients(network, draws, task.features(labels.environments), goal)[0].mean())

    still = Training(1, 1, step_size=1e-9)
    start = surrogate(trained(labels, tmp_path / "start.safetensors", still))
    few = Training(epochs=25, head_epochs=10, batch=8)
    end = surrogate(trained(labels, tmp_path / "end.safetensors", few))
    assert end < start - 0.05
