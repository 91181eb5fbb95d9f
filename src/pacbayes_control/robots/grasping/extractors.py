"""Frozen networks from images to features, with weights from a file: `Compact` and `Vgg16`."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.ranges import EnvironmentRange, ranges_from
from pacbayes_control.robots.grasping.extras import needed, one_thread
from pacbayes_control.robots.grasping.weights import Tensors, read_weights

SHIPPED = "pretrained.safetensors"


@dataclass(frozen=True)
class _Content:
    """The content of a file of weights."""

    network: Any  # torch's, with its weights
    others: Tensors  # the file's other tensors that are used
    words: dict[str, str]
    digest: str


class FileExtractor:
    """A frozen network from colour images to features. Its `repr` must tell it from others.

    Its weights are in a file, which is read when it is first needed.
    A copy in another process reads the file again, and refuses one that has changed.
    """

    name: ClassVar[str]
    size: ClassVar[int]  # features of an image
    side: ClassVar[int | None] = None  # pixels along an image; None if images are resized
    others: ClassVar[tuple[str, ...]] = ()  # names of tensors in the file beside the network's
    right_file: ClassVar[str]  # for errors: the file that should have been given
    weights: Path | None  # None: the file that ships with the library
    seen: tuple[EnvironmentRange, ...]  # objects that it was trained on: no bound may count them

    def build(self, torch: Any) -> Any:
        """The network, with its layers named as in the file."""
        raise NotImplementedError

    def digest_parts(self, network: Tensors) -> list[tuple[str, NDArray]]:
        """The network's tensors in the order of the digest, each with a word before it."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        if self.weights is not None:  # the same file in every process
            object.__setattr__(self, "weights", Path(self.weights).absolute())

    def __getstate__(self) -> dict[str, Any]:  # without the network; a copy checks the digest
        return {"weights": self.weights, "_known": self.digest}

    @property
    def file(self) -> Path:
        """The file of the weights."""
        return self.weights or Path(__file__).with_name(SHIPPED)

    @property
    def digest(self) -> str:
        """SHA-256 of the network's tensors, in hexadecimal: the same from every format of file."""
        return self._content.digest

    def features(self, images: NDArray) -> NDArray[np.float32]:
        """(images, size), from images (images, 3, height, width) in [0, 1].

        Each image goes through the network alone and on one thread, so that its features are the
        same to the bit in any batch. On another kind of processor the last bits may differ.
        """
        images = np.asarray(images)
        self._check_images(images)
        torch, network = needed("torch", f"the extractor {self.name}"), self._content.network
        features = np.empty((len(images), self.size), np.float32)
        with one_thread(), torch.inference_mode():
            for image, row in zip(images, features, strict=True):
                tensor = torch.from_numpy(np.array(image, np.float32, order="C"))
                row[:] = network(tensor[None]).flatten().numpy()
        return features

    @cached_property
    def _content(self) -> _Content:
        """The file, read once: the numbers that are checked are those that are used."""
        torch = needed("torch", f"the extractor {self.name}")
        tensors, words = read_weights(self.file)
        with torch.device("meta"):  # which takes no memory and no random numbers
            network = self.build(torch)
        built = network.state_dict()
        found = {name: self._found(tensors, name, tuple(built[name].shape)) for name in built}
        sha = hashlib.sha256()
        for word, tensor in self.digest_parts(found):
            sha.update(word.encode() + tensor.tobytes())
        digest, known = sha.hexdigest(), self.__dict__.get("_known")
        if known not in (None, digest):
            raise ValueError(
                f"{self.file} is not what it was: its weights have the digest {digest[:16]}…, and "
                f"{known[:16]}… before: restore the file"
            )
        weights = {name: torch.from_numpy(tensor) for name, tensor in found.items()}
        network.load_state_dict(weights, assign=True)
        others = {name: tensors[name] for name in self.others if name in tensors}
        return _Content(network.eval().requires_grad_(False), others, words, digest)

    def _found(self, tensors: Tensors, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != shape or tensor.dtype.kind != "f":
            found = "missing" if tensor is None else f"of shape {tensor.shape} and {tensor.dtype}"
            raise ValueError(
                f"{self.file.name}: tensor {name} is {found}, but {self.name} needs shape {shape} "
                f"and float32: give {self.right_file}"
            )
        return np.array(tensor, "<f4", order="C")

    def _check_images(self, images: NDArray) -> None:
        sides = images.shape[2:] if self.side is None else (self.side, self.side)
        if images.ndim != 4 or images.shape[1:] != (3, *sides) or 0 in sides:
            wanted = "height, width" if self.side is None else f"{self.side}, {self.side}"
            raise ValueError(
                f"images have the shape {images.shape}: {self.name} takes (n, 3, {wanted}), with "
                "the colours on axis 1"
            )
        if images.dtype.kind != "f":
            raise ValueError(
                f"images are of type {images.dtype}: {self.name} takes float32 in [0, 1], so "
                "divide by 255"
            )
        inside = (images >= 0) & (images <= 1)  # NaN is not
        if not inside.all():
            where = tuple(int(i) for i in np.argwhere(~inside)[0])
            raise ValueError(
                f"image {where[0]} has the value {images[where]:g} at {where[1:]}, outside [0, 1]: "
                "rescale the images"
            )


# ---- our own ------------------------------------------------------------------------------------

CHANNELS = (3, 24, 48, 64, 96)  # of the image, and after each convolution
FEATURES = 128
SIDE = 64  # pixels of an image


def compact_layers(torch: Any) -> Any:
    """Four convolutions, each halving the image, and a layer of features between -1 and 1."""
    layers: list[Any] = []
    for number, (before, after) in enumerate(pairwise(CHANNELS)):
        size = 5 if number == 0 else 3
        layers += [torch.nn.Conv2d(before, after, size, 2, size // 2), torch.nn.ReLU()]
    side = SIDE // 2 ** (len(CHANNELS) - 1)
    layers += [torch.nn.Flatten(), torch.nn.Linear(CHANNELS[-1] * side**2, FEATURES)]
    return torch.nn.Sequential(*layers, torch.nn.Tanh())


@dataclass(frozen=True)
class Compact(FileExtractor):
    """A small convolutional network, with the weights that ship with the library or from a file.

    It was trained by `pbc grasping pretrain` on objects of a stream of its own, "elsewhere", which
    no bound counts: it is a part of the prior, and costs nothing.
    """

    weights: Path | None = None  # .safetensors of `pbc grasping pretrain`; None: the library's own

    name = "compact"
    size = FEATURES
    side = SIDE
    others = ("prior.mean", "prior.variance")
    right_file = "a file of pbc grasping pretrain"

    @property
    def seen(self) -> tuple[EnvironmentRange, ...]:
        """The objects that it was trained on."""
        try:
            ranges = json.loads(self._content.words.get("seen", ""))
        except (ValueError, RecursionError):
            ranges = None
        return ranges_from(ranges, str(self.file))

    def prior(self) -> tuple[DiagonalGaussian, str]:
        """The prior over the layers that were trained with it, and a phrase for its origin."""
        if len(self._content.others) < len(self.others):
            raise ValueError(f"{self.file} holds no prior: make it with pbc grasping pretrain")
        mean, variance = (self._content.others[name] for name in self.others)
        origin = self._content.words.get("origin", f"from {self.file.name}")
        return DiagonalGaussian(mean, variance, f"prior in {self.file.name}", self.seen), origin

    def build(self, torch: Any) -> Any:
        """The network, with its layers named as in the file."""
        return torch.nn.Sequential(OrderedDict(extractor=compact_layers(torch)))

    def digest_parts(self, network: Tensors) -> list[tuple[str, NDArray]]:
        """The network's tensors in the order of the digest, each with a word before it."""
        return [(name.removeprefix("extractor."), network[name]) for name in sorted(network)]


# ---- VGG16 --------------------------------------------------------------------------------------

VGG_SIDE = 224  # pixels, of the images that the network was trained on
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's red, green and blue in [0, 1]
DEVIATION = (0.229, 0.224, 0.225)

# Configuration D: the channels after each convolution, block by block; a pooling ends a block.
BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


@dataclass(frozen=True)
class Vgg16(FileExtractor):
    """VGG16 up to its last pooling, frozen, with weights from the user's own file.

    Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition",
    2015, configuration D: thirteen convolutions of 3×3 with five poolings between. The paper on
    grasping used it "pretrained on ImageNet and truncated to output a feature representation of
    size 7×7×512". The weights of torchvision and of timm have the right names.

    Features are in the order (512, 7, 7): channel, row, column.
    """

    weights: Path  # .safetensors, or a state dict in .pt, .pth or .bin

    name = "vgg16"
    size = 7 * 7 * 512
    right_file = "the weights of VGG16 without batch normalisation, named as in torchvision"
    seen = ()  # no environment of a task went into the weights

    def build(self, torch: Any) -> Any:
        """The network, with its layers named as in the file."""
        nn = torch.nn

        class Prepare(nn.Module):
            """Resizes images and scales their colours as ImageNet's were."""

            def forward(self, images: Any) -> Any:
                images = nn.functional.interpolate(
                    images, size=(VGG_SIDE, VGG_SIDE), mode="bilinear", align_corners=False
                )
                mean, deviation = (torch.tensor(c).view(3, 1, 1) for c in (MEAN, DEVIATION))
                return (images - mean) / deviation

        layers, before = [], 3
        for block in BLOCKS:
            for channels in block:
                layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
                before = channels
            layers.append(nn.MaxPool2d(2))
        return nn.Sequential(OrderedDict(prepare=Prepare(), features=nn.Sequential(*layers)))

    def digest_parts(self, network: Tensors) -> list[tuple[str, NDArray]]:
        """The network's tensors in the order of the digest, each with a word before it."""
        return [(f"{name} {tensor.shape}", tensor) for name, tensor in network.items()]
