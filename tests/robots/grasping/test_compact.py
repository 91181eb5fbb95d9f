"""The extractor that ships with the library: its features, what it has seen, and its prior."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.learn.priors import GaussianPrior
from pacbayes_control.robots.grasping.extractors import Compact, compact_layers
from pacbayes_control.robots.grasping.policy import GraspNetwork
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.robots.grasping.weights import read_weights, write_weights

SHIPPED = Compact()
Save = Callable[..., Compact]


@pytest.fixture(scope="module")
def images() -> NDArray[np.float32]:
    """Colours of blobs of different sizes and places."""
    rng = np.random.default_rng(5)
    rows, columns = np.mgrid[:64, :64]
    blobs = [
        np.exp(-((rows - a) ** 2 + (columns - b) ** 2) / s**2)
        for a, b, s in rng.uniform([20, 20, 4], [44, 44, 12], (10, 3))
    ]
    made = np.stack([np.stack([blob, 1 - blob, blob**2]) for blob in blobs])
    return made.astype(np.float32)


@pytest.fixture(scope="module")
def shipped() -> tuple[dict[str, NDArray], dict[str, str]]:
    return read_weights(SHIPPED.file)


@pytest.fixture
def save(tmp_path: Path, shipped: tuple[dict[str, NDArray], dict[str, str]]) -> Save:
    """The weights that ship with the library, with something changed, in another file."""

    def written(
        change: Mapping[str, NDArray] | None = None,
        drop: tuple[str, ...] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> Compact:
        tensors = {name: t for name, t in shipped[0].items() if name not in drop}
        file = tmp_path / "other.safetensors"
        write_weights(file, tensors | dict(change or {}), shipped[1] | dict(metadata or {}))
        return Compact(file)

    return written


# ---- features -----------------------------------------------------------------------------------


def test_the_weights_that_ship_are_small_and_load(images: NDArray):
    assert SHIPPED.file.is_file()
    assert SHIPPED.file.stat().st_size < 1_000_000
    found = SHIPPED.features(images)
    assert found.shape == (10, SHIPPED.size) == (10, 128)
    assert found.dtype == np.float32
    assert np.abs(found).max() <= 1
    assert np.unique(found, axis=0).shape == found.shape  # different objects look different


def test_features_are_those_of_the_network_with_the_weights_of_the_file(
    images: NDArray, shipped: tuple[dict[str, NDArray], dict[str, str]]
):
    built = compact_layers(torch)
    state = {
        name.removeprefix("extractor."): torch.as_tensor(tensor.astype(np.float32))
        for name, tensor in shipped[0].items()
        if name.startswith("extractor.")
    }
    assert built.load_state_dict(state)
    with torch.no_grad():
        wanted = built(torch.as_tensor(images)).numpy()
    np.testing.assert_allclose(SHIPPED.features(images), wanted, atol=1e-5)


def test_features_are_the_same_to_the_bit_in_any_batch(images: NDArray):
    batch = SHIPPED.features(images)
    for i in range(len(images)):
        assert np.array_equal(SHIPPED.features(images[i : i + 1])[0], batch[i])
    order = np.random.default_rng(0).permutation(len(images))
    assert np.array_equal(SHIPPED.features(images[order]), batch[order])
    assert np.array_equal(Compact().features(images), batch)
    assert SHIPPED.features(images[:0]).shape == (0, 128)


def test_threads_at_once_come_to_the_same_features_and_leave_torch_as_it_was(images: NDArray):
    wanted = SHIPPED.features(images)
    before = torch.get_num_threads()
    fresh = Compact()  # which both have to load
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: fresh.features(images), range(6)))
    assert all(np.array_equal(one, wanted) for one in found)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 1, 64, 64), (1, 3, 64, 63), (1, 3, 32, 32)])
def test_images_of_another_shape_are_refused(shape: tuple[int, ...]):
    match = rf"images have the shape {re.escape(str(shape))}: compact takes \(n, 3, 64, 64\)"
    with pytest.raises(ValueError, match=match):
        SHIPPED.features(np.zeros(shape, np.float32))


@pytest.mark.parametrize("module", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_pickling_keeps_the_file_and_no_network(module: Any, images: NDArray):
    wanted = SHIPPED.features(images[:2])
    content = module.dumps(SHIPPED)
    assert len(content) < 1000
    copy = module.loads(content)
    assert copy == SHIPPED
    assert copy.digest == SHIPPED.digest
    assert np.array_equal(copy.features(images[:2]), wanted)


# ---- what tells it apart ------------------------------------------------------------------------


def test_the_digest_is_of_the_weights_of_the_extractor_and_of_nothing_else(
    save: Save, shipped: tuple[dict[str, NDArray], dict[str, str]]
):
    assert len(SHIPPED.digest) == 64
    assert Compact(SHIPPED.file).digest == SHIPPED.digest
    assert repr(GraspNetwork(Compact(SHIPPED.file))) == repr(GraspNetwork(SHIPPED))
    bias = shipped[0]["extractor.9.bias"].copy()
    bias[7] += np.float16(0.25)
    assert save({"extractor.9.bias": bias}).digest != SHIPPED.digest
    mean = shipped[0]["prior.mean"] + 1
    assert save({"prior.mean": mean}, metadata={"origin": "x"}).digest == SHIPPED.digest


# ---- the prior ----------------------------------------------------------------------------------


def test_it_has_seen_objects_from_elsewhere_and_none_to_learn_from_or_to_try():
    assert {part.stream for part in SHIPPED.seen} == {"elsewhere"}
    assert sum(part.stop - part.start for part in SHIPPED.seen) > 1000
    for stream in ("train", "test"):
        for seed in (0, 1, 2**64 - 1):
            other = EnvironmentRange(stream, seed, 0, 10**9)
            assert not any(part.overlaps(other) for part in SHIPPED.seen)


def test_the_prior_is_over_the_default_layers_and_has_seen_what_the_extractor_has():
    gaussian, origin = SHIPPED.prior()
    assert len(gaussian) == GraspNetwork(SHIPPED).parameters
    assert gaussian.seen == SHIPPED.seen
    count = sum(part.stop - part.start for part in SHIPPED.seen)
    assert origin == f"learnt on {count:,} other objects, with its extractor"


def test_the_prior_is_refused_on_objects_that_it_has_seen():
    prior, task = GaussianPrior(*SHIPPED.prior()), Grasping()
    prior.check_unseen(task.environments(50, stream="train"))
    prior.check_unseen(task.environments(50, stream="elsewhere", seed=1))
    last = max(part.stop for part in SHIPPED.seen)
    prior.check_unseen(task.environments(last + 9, stream="elsewhere")[last:])
    with pytest.raises(ValueError, match="the prior has seen some of these environments"):
        prior.check_unseen(task.environments(last + 9, stream="elsewhere")[last - 1 :])


def test_the_paper_prior_knows_what_the_extractor_has_seen():
    assert GraspNetwork(SHIPPED).paper_prior().seen == SHIPPED.seen


def test_the_mean_of_the_prior_grasps_what_is_new():
    """Of grasps near an object that do not look, four in five fail."""
    task = Grasping(GraspNetwork(SHIPPED))
    mean = SHIPPED.prior()[0].mean
    assert task.costs(mean[None], task.environments(16, stream="test")).mean() <= 0.5


# ---- files --------------------------------------------------------------------------------------


def test_a_file_of_ones_own_is_used_in_place_of_the_librarys(save: Save, images: NDArray):
    bias = np.full(128, 0.5, np.float32)
    mine = save({"extractor.9.bias": bias}, metadata={"seen": '[["mine", 3, 5, 9]]'})
    assert not np.allclose(mine.features(images[:1]), SHIPPED.features(images[:1]))
    assert mine.seen == (EnvironmentRange("mine", 3, 5, 9),)
    assert mine.prior()[0].seen == mine.seen


def test_a_tensor_of_another_shape_is_named(save: Save, images: NDArray):
    wrong = save({"extractor.0.weight": np.zeros((24, 3, 3, 3), np.float32)})
    match = (
        r"other\.safetensors: tensor extractor\.0\.weight is of shape \(24, 3, 3, 3\) and float32, "
        r"but compact needs shape \(24, 3, 5, 5\) and float32: give a file of pbc grasping "
        r"pretrain$"
    )
    with pytest.raises(ValueError, match=match):
        wrong.features(images[:1])


def test_a_missing_tensor_is_named(save: Save, images: NDArray):
    match = r"other\.safetensors: tensor extractor\.4\.bias is missing, .* pbc grasping pretrain$"
    with pytest.raises(ValueError, match=match):
        save(drop=("extractor.4.bias",)).features(images[:1])


@pytest.mark.parametrize("name", ["prior.mean", "prior.variance"])
def test_a_file_without_a_prior_says_how_to_make_one(save: Save, name: str, images: NDArray):
    bare = save(drop=(name,))
    with pytest.raises(ValueError, match=r"holds no prior: make it with pbc grasping pretrain$"):
        bare.prior()
    assert np.array_equal(bare.features(images[:1]), SHIPPED.features(images[:1]))


@pytest.mark.parametrize(
    ("variance", "message"),
    [(np.zeros(10468), "it must be positive"), (np.ones(5), "10468 means and 5 variances")],
)
def test_a_prior_without_variances_is_refused(save: Save, variance: NDArray, message: str):
    with pytest.raises(ValueError, match=f"prior in other.safetensors .*{message}"):
        save({"prior.variance": variance.astype(np.float32)}).prior()


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.safetensors"):
        len(Compact(tmp_path / "nothing.safetensors").digest)


@pytest.mark.parametrize(
    "seen",
    [
        '[["elsewhere", 0]]',
        '[["elsewhere", "0", 0, 9]]',
        "{}",
        "7",
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_file_that_is_wrong_about_what_it_has_seen_is_refused_in_a_line(save: Save, seen: str):
    with pytest.raises(ValueError, match=r'other\.safetensors.* "seen"'):
        len(save(metadata={"seen": seen}).seen)


def test_a_file_that_does_not_say_what_it_has_seen_is_refused(
    tmp_path: Path, shipped: tuple[dict[str, NDArray], dict[str, str]]
):
    """As a prior in JSON is: a file that has seen nothing says so."""
    write_weights(tmp_path / "silent.safetensors", shipped[0])
    with pytest.raises(ValueError, match=r'silent\.safetensors.* "seen"'):
        len(Compact(tmp_path / "silent.safetensors").seen)


def test_a_copy_notices_that_the_file_is_another_by_now(
    save: Save, images: NDArray, shipped: tuple[dict[str, NDArray], dict[str, str]]
):
    mine = save()
    content = pickle.dumps(mine)
    assert np.array_equal(pickle.loads(content).features(images[:1]), mine.features(images[:1]))
    save({"extractor.9.bias": shipped[0]["extractor.9.bias"] + 1})
    with pytest.raises(ValueError, match=r"other\.safetensors is not what it was: .*: restore the"):
        pickle.loads(content).features(images[:1])


def test_a_relative_path_means_the_same_file_in_another_folder(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = save().file
    monkeypatch.chdir(tmp_path)
    relative = Compact(Path(file.name))
    monkeypatch.chdir(tmp_path.parent)
    assert relative.digest == SHIPPED.digest
    assert relative == Compact(file)
