import pickle
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from pacbayes_control.robots.grasping.extractors import Vgg16
from pacbayes_control.robots.grasping.extras import one_thread
from pacbayes_control.robots.grasping.weights import write_weights
from sizes import sized

# Table 1 of Simonyan and Zisserman, column D, and where torchvision has its convolutions.
POOL = 0
COLUMN_D = [64, 64, POOL, 128, 128, POOL, 256, 256, 256, POOL, *(2 * [512, 512, 512, POOL])]
NUMBERS = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28]


@pytest.fixture(scope="module")
def tensors():
    """Weights that keep the size of what passes through them."""
    rng = np.random.default_rng(0)
    made, before = {}, 3
    for number, channels in zip(NUMBERS, [c for c in COLUMN_D if c != POOL], strict=True):
        shape = (channels, before, 3, 3)
        scale = np.float32(np.sqrt(2 / (9 * before)))
        made[f"features.{number}.weight"] = scale * rng.standard_normal(shape, np.float32)
        made[f"features.{number}.bias"] = 0.1 * rng.standard_normal(channels, np.float32)
        before = channels
    return made


@pytest.fixture(scope="module")
def folder(tensors, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vgg")
    write_weights(folder / "vgg16.safetensors", tensors)
    wrapped = {f"module.{name}": torch.from_numpy(array) for name, array in tensors.items()}
    wrapped["module.classifier.6.bias"] = torch.zeros(1000)
    torch.save({"state_dict": wrapped, "epoch": 90}, folder / "vgg16.pt")
    return folder


@pytest.fixture(scope="module")
def vgg(folder):
    return Vgg16(folder / "vgg16.safetensors")


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).random((2, 3, 90, 280), np.float32)


@pytest.fixture(scope="module")
def features(vgg, images):
    return vgg.features(images)


def resized(image, side):
    """Bilinear interpolation between the centres of pixels, one axis after the other."""
    for axis in (1, 2):
        n = image.shape[axis]
        at = np.clip((np.arange(side) + 0.5) * n / side - 0.5, 0, n - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, n - 1)
        part = (at - low).reshape((1, side, 1) if axis == 1 else (1, 1, side))
        image = image.take(low, axis) * (1 - part) + image.take(high, axis) * part
    return image


def convolved(x, kernel, bias):
    """The sum over the nine places of a kernel, with zeros around the image."""
    _, height, width = x.shape
    x = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    total = np.zeros((len(kernel), height, width), x.dtype) + bias[:, None, None]
    for i in range(3):
        for j in range(3):
            total += np.tensordot(kernel[:, :, i, j], x[:, i : i + height, j : j + width], 1)
    return total


def by_hand(image, tensors):
    """The features of one image in NumPy; nothing is torch's."""
    x = resized(image.astype(float), 224)
    mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    x = (x - np.reshape(mean, (3, 1, 1))) / np.reshape(deviation, (3, 1, 1))
    x = x.astype(sized(np.float32, full=np.float64))
    numbers = iter(NUMBERS)
    for entry in COLUMN_D:
        if entry == POOL:
            channels, height, width = x.shape
            x = x.reshape(channels, height // 2, 2, width // 2, 2).max((2, 4))
        else:
            layer = f"features.{next(numbers)}"
            x = convolved(x, tensors[f"{layer}.weight"], tensors[f"{layer}.bias"])
            x = np.maximum(x, 0)
    assert x.shape == (512, 7, 7)
    return x.ravel()


@pytest.mark.slow
def test_features_are_those_of_a_network_written_out_by_hand(features, images, tensors):
    wanted = by_hand(images[0], tensors)
    assert 0.1 < wanted.std() < 10  # neither faded nor grown
    np.testing.assert_allclose(features[0], wanted, rtol=1e-4, atol=1e-4 * wanted.std())


@pytest.mark.slow
def test_an_extractor_says_what_it_is(vgg, features):
    assert (vgg.name, vgg.size, vgg.seen) == ("vgg16", 25088, ())
    assert features.shape == (2, 25088)
    assert features.dtype == np.float32
    with pytest.raises(FrozenInstanceError):
        vgg.weights = "another"


@pytest.mark.slow
def test_features_are_the_same_to_the_bit_however_images_are_batched(vgg, images, features):
    before = torch.get_num_threads()
    torch.set_num_threads(2 if before == 1 else 1)
    try:
        backwards = vgg.features(images[::-1])
        alone = vgg.features(np.asfortranarray(images[1:2].astype(np.float64)))
    finally:
        torch.set_num_threads(before)
    assert backwards[::-1].tobytes() == features.tobytes()
    assert alone.tobytes() == features[1:2].tobytes()


@pytest.mark.slow
def test_no_images_have_no_features(vgg):
    assert vgg.features(np.zeros((0, 3, 8, 8), np.float32)).shape == (0, 25088)


@pytest.mark.slow
def test_both_formats_give_the_same_features_and_digest(vgg, folder, images, features):
    other = Vgg16(folder / "vgg16.pt")
    assert other.features(images[:1]).tobytes() == features[:1].tobytes()
    assert other.digest == vgg.digest
    assert len(vgg.digest) == 64


@pytest.mark.slow
def test_the_digest_tells_weights_apart_by_what_is_used_of_them(tensors, tmp_path, vgg):
    path = tmp_path / "vgg16.safetensors"
    write_weights(path, {**tensors, "classifier.0.bias": np.ones(4096)})
    assert Vgg16(path).digest == vgg.digest
    bias = tensors["features.28.bias"].copy()
    bias[-1] = np.nextafter(bias[-1], np.float32(1))
    write_weights(path, {**tensors, "features.28.bias": bias})
    assert Vgg16(path).digest != vgg.digest


@pytest.mark.slow
def test_a_copy_in_another_process_is_cheap_to_send_and_sees_the_same(vgg, images, features):
    sent = pickle.dumps(vgg)
    assert len(sent) < 1000
    copy = pickle.loads(sent)
    assert copy == vgg
    assert copy.digest == vgg.digest
    assert copy.features(images[1:]).tobytes() == features[1:].tobytes()


@pytest.mark.slow
def test_a_copy_refuses_a_file_that_has_changed_since(tensors, tmp_path):
    path = tmp_path / "vgg16.safetensors"
    write_weights(path, tensors)
    vgg = Vgg16(path)
    vgg.digest  # noqa: B018, asked for
    copy = pickle.loads(pickle.dumps(vgg))
    write_weights(path, {**tensors, "features.0.bias": np.zeros(64, np.float32)})
    with pytest.raises(ValueError, match=r"vgg16.safetensors is not what it was: .* restore"):
        copy.features(np.zeros((1, 3, 8, 8), np.float32))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"features.7.bias": None},
            r"features.7.bias is missing, but vgg16 needs shape \(128,\) .*: give the weights",
        ),
        (
            {"features.5.weight": np.zeros((128, 64, 1, 1), np.float32)},
            r"features.5.weight is of shape \(128, 64, 1, 1\) .* needs shape \(128, 64, 3, 3\)",
        ),
        (
            {"features.0.bias": np.zeros(64, np.int8)},
            r"features.0.bias is of shape \(64,\) and int8, .* needs shape \(64,\) and float32",
        ),
    ],
)
def test_weights_of_another_network_are_refused_by_name(tensors, tmp_path, changes, words):
    first = {name: array for name, array in tensors.items() if name.split(".")[1] in "0257"}
    changed = {**first, **changes}  # what comes after is not looked at
    kept = {name: array for name, array in changed.items() if array is not None}
    write_weights(tmp_path / "other.safetensors", kept)
    with pytest.raises(ValueError, match=f"other.safetensors.*{words}"):
        Vgg16(tmp_path / "other.safetensors").features(np.zeros((1, 3, 8, 8), np.float32))


def test_weights_that_are_not_there_are_an_error_when_they_are_needed(tmp_path):
    vgg = Vgg16(tmp_path / "none.pt")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none.pt"):
        vgg.features(np.zeros((1, 3, 8, 8), np.float32))


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (np.zeros((3, 8, 8), np.float32), r"the shape \(3, 8, 8\): vgg16 takes \(n, 3, height"),
        (np.zeros((1, 8, 8, 3), np.float32), r"the shape \(1, 8, 8, 3\): .* colours on axis 1"),
        (np.zeros((1, 3, 0, 8), np.float32), r"the shape \(1, 3, 0, 8\)"),
        (np.zeros((1, 3, 8, 8), np.uint8), "images are of type uint8: .* divide by 255"),
        (np.full((2, 3, 8, 8), 1.5), r"image 0 has the value 1.5 at \(0, 0, 0\), outside"),
        (np.full((1, 3, 8, 8), np.nan), "image 0 has the value nan at"),
    ],
)
def test_images_of_another_kind_are_refused(vgg, images, words):
    with pytest.raises(ValueError, match=words):
        vgg.features(images)


def test_one_thread_is_given_up_after_use_and_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        with pytest.raises(KeyError), one_thread():
            raise KeyError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_missing_torch_is_told_with_how_to_install_it(vgg, images, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    wanted = r'vgg16 needs torch, which is missing: pip install "pacbayes-control\[grasping\]"$'
    with pytest.raises(ImportError, match=wanted):
        vgg.features(images)
