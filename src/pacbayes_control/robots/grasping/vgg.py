"""VGG16 as eyes: a photograph in, what its convolutions saw in it out.

Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015,
configuration D: thirteen convolutions of 3×3 with five poolings between. The paper on grasping used
it "pretrained on ImageNet and truncated to output a feature representation of size 7×7×512". The
weights are the user's own file; those of torchvision and of timm have the right names.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.threads import one_thread
from pacbayes_control.robots.grasping.weights import read_tensors

SIDE = 224  # pixels, of the images that the network was trained on
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's red, green and blue in [0, 1]
DEVIATION = (0.229, 0.224, 0.225)

# Configuration D: the channels after each convolution, block by block; a pooling ends a block.
BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def layout() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors, in order; names count ReLUs and poolings as layers too.

    >>> list(layout().items())[2:4]
    [('features.2.weight', (64, 64, 3, 3)), ('features.2.bias', (64,))]
    """
    shapes: dict[str, tuple[int, ...]] = {}
    layer, before = 0, 3
    for block in BLOCKS:
        for channels in block:
            shapes[f"features.{layer}.weight"] = (channels, before, 3, 3)
            shapes[f"features.{layer}.bias"] = (channels,)
            layer, before = layer + 2, channels
        layer += 1
    return shapes


@dataclass(frozen=True)
class Vgg16:
    """VGG16 up to its last pooling, frozen, with weights from a file.

    The file is read when it is first needed. A copy in another process reads it again, and refuses
    it if it is no longer what it was when `digest` was asked for.
    """

    weights: Path  # .safetensors, or a state dict in .pt, .pth or .bin

    name = "vgg16"
    size = 7 * 7 * 512  # features of an image
    seen = ()  # no environment of a task went into the weights

    @property
    def digest(self) -> str:
        """SHA-256 of the tensors in use, in hexadecimal: the same from every format of file."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return _digest(self._network)

    def features(self, images: NDArray) -> NDArray[np.float32]:
        """What the network sees in images (n, 3, height, width) in [0, 1]; (n, 25088), float32.

        Features are in the order (512, 7, 7): channel, row, column. Each image goes through the
        network alone and on one thread, so that its features do not depend on its company. On
        another kind of processor the last bits may differ.
        """
        images = np.asarray(images)
        _check_images(images)
        torch = needed("torch", "VGG16")
        weights = {name: torch.from_numpy(array) for name, array in self._network.items()}
        features = np.empty((len(images), self.size), np.float32)
        with one_thread(), torch.inference_mode():
            for image, row in zip(images, features, strict=True):
                row[:] = _forward(torch, weights, image).flatten().numpy()
        return features

    @cached_property
    def _network(self) -> dict[str, NDArray[np.float32]]:
        """The tensors of the layers, by name in their order."""
        network = _layers(Path(self.weights))
        known = self.__dict__.get("_digest")
        if known is not None and known != _digest(network):
            raise ValueError(
                f"{self.weights} is not what it was: its tensors have the digest "
                f"{_digest(network)[:16]}…, and {known[:16]}… before: restore the file"
            )
        return network

    def __getstate__(self) -> dict[str, Any]:  # without the network, 59 MB
        return {name: value for name, value in self.__dict__.items() if name != "_network"}


def _layers(path: Path) -> dict[str, NDArray[np.float32]]:
    tensors = read_tensors(path)
    network = {}
    for name, shape in layout().items():
        if name not in tensors:
            raise ValueError(
                f"{path.name} has no tensor {name} {shape}: give the weights of VGG16 without "
                "batch normalisation, named as in torchvision"
            )
        found = tensors[name]
        if found.shape != shape or found.dtype.kind != "f":
            raise ValueError(
                f"{path.name}: {name} has the shape {found.shape} and type {found.dtype}, and "
                f"VGG16 wants {shape} and float32: give the weights of VGG16"
            )
        network[name] = np.array(found, np.float32, order="C")
    return network


def _digest(network: dict[str, NDArray[np.float32]]) -> str:
    sha = hashlib.sha256()
    for name, tensor in network.items():
        sha.update(f"{name} {tensor.shape}".encode())
        sha.update(tensor.astype("<f4", copy=False).data)
    return sha.hexdigest()


def _forward(torch: Any, weights: dict[str, Any], image: NDArray) -> Any:
    """One image (3, height, width) through the network; (1, 512, 7, 7)."""
    functions = torch.nn.functional
    x = torch.from_numpy(np.array(image, np.float32, order="C"))[None]
    x = functions.interpolate(x, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    x = (x - mean) / deviation
    tensors = iter(weights.values())
    for block in BLOCKS:
        for _ in block:
            x = functions.relu(functions.conv2d(x, next(tensors), next(tensors), padding=1))
        x = functions.max_pool2d(x, 2)
    return x


def _check_images(images: NDArray) -> None:
    if images.ndim != 4 or images.shape[1] != 3 or 0 in images.shape[1:]:
        raise ValueError(
            f"images have the shape {images.shape}: VGG16 takes (n, 3, height, width), so move the "
            "colours to axis 1"
        )
    if images.dtype.kind != "f":
        raise ValueError(
            f"images are of type {images.dtype}: VGG16 takes float32 in [0, 1], so divide by 255"
        )
    inside = (images >= 0) & (images <= 1)  # NaN is not
    if not inside.all():
        where = tuple(int(i) for i in np.argwhere(~inside)[0])
        raise ValueError(
            f"image {where[0]} has the value {images[where]:g} at {where[1:]}, outside [0, 1]: "
            "rescale the images"
        )
