"""A small convolutional extractor of our own, which ships with its weights.

It was trained by `pbc grasping pretrain` on objects of a stream of its own, "elsewhere", which no
bound counts: it is a part of the prior, and free.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian, Seen, ranges_from
from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.threads import one_thread
from pacbayes_control.robots.grasping.weights import read_metadata, read_tensors

CHANNELS = (3, 24, 48, 64, 96)  # of the image, and after each convolution
FEATURES = 128
SIDE = 64  # pixels of an image
FILE = "pretrained.safetensors"


def network() -> Any:
    """Four convolutions, each halving the image, and a layer of features between -1 and 1."""
    torch = needed("torch", "looking at objects")
    layers: list[Any] = []
    for number, (before, after) in enumerate(pairwise(CHANNELS)):
        size = 5 if number == 0 else 3
        layers += [torch.nn.Conv2d(before, after, size, 2, size // 2), torch.nn.ReLU()]
    side = SIDE // 2 ** (len(CHANNELS) - 1)
    layers += [torch.nn.Flatten(), torch.nn.Linear(CHANNELS[-1] * side**2, FEATURES)]
    return torch.nn.Sequential(*layers, torch.nn.Tanh())


@dataclass(frozen=True)
class Compact:
    """The extractor, with the weights that ship with the library or others from a file."""

    weights: Path | None = None  # .safetensors of `pbc grasping pretrain`; None: the library's own

    name = "compact"
    size = FEATURES

    def __post_init__(self) -> None:
        if self.weights is not None:  # the same file wherever a copy is used
            object.__setattr__(self, "weights", Path(self.weights).absolute())

    def features(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """(images, features), one image at a time and in one thread: the same in any batch."""
        torch = needed("torch", "looking at objects")
        if images.ndim != 4 or images.shape[1:] != (3, SIDE, SIDE):
            raise ValueError(f"images are (n, 3, {SIDE}, {SIDE}), not {images.shape}")
        with torch.inference_mode(), one_thread():
            inputs = (torch.as_tensor(np.array(image[None], np.float32)) for image in images)
            found = [self._network(image)[0].numpy() for image in inputs]
        return np.array(found, np.float32).reshape(len(images), FEATURES)

    @property
    def digest(self) -> str:
        """SHA-256 of the weights."""
        return self._digest

    @property
    def seen(self) -> tuple[Seen, ...]:
        """The objects that it was trained on."""
        return self._content.seen

    @property
    def file(self) -> Path:
        """Where the weights are."""
        return self.weights or Path(str(files("pacbayes_control.robots.grasping").joinpath(FILE)))

    def prior(self) -> tuple[DiagonalGaussian, str]:
        """The prior over the layers that were trained with it, and in words where it is from."""
        tensors, origin = self._content.tensors, self._content.origin
        if "prior.mean" not in tensors or "prior.variance" not in tensors:
            raise ValueError(f"{self.file} holds no prior: make it with pbc grasping pretrain")
        mean, variance = tensors["prior.mean"], tensors["prior.variance"]
        return DiagonalGaussian(mean, variance, f"prior in {self.file.name}", self.seen), origin

    @cached_property
    def _digest(self) -> str:
        return self._content.digest

    @cached_property
    def _content(self) -> _Content:
        """All of the file, read once: what is checked is what is used."""
        content = _read(self.file)
        known = self.__dict__.get("_digest", content.digest)
        if known != content.digest:
            raise ValueError(
                f"{self.file} is not what it was: its weights have the digest "
                f"{content.digest[:16]}…, and {known[:16]}… before: restore the file"
            )
        return content

    @cached_property
    def _network(self) -> Any:
        torch = needed("torch", "looking at objects")
        built, tensors = network(), self._content.tensors
        named = {name: tensors[f"extractor.{name}"] for name in built.state_dict()}
        built.load_state_dict(
            {name: torch.as_tensor(tensor.astype(np.float32)) for name, tensor in named.items()}
        )
        return built.eval().requires_grad_(False)

    def __getstate__(self) -> dict[str, Any]:  # without the network; a copy checks the digest
        return {"weights": self.weights, "_digest": self.digest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True)
class _Content:
    """What a file of weights holds."""

    tensors: dict[str, NDArray]
    seen: tuple[Seen, ...]
    origin: str
    digest: str  # of the extractor


def _read(file: Path) -> _Content:
    tensors, words = read_tensors(file), read_metadata(file)
    sha = hashlib.sha256()
    for name, shape in sorted(_layout().items()):
        tensor = tensors.get(f"extractor.{name}")
        if tensor is None:
            raise ValueError(f"{file} has no tensor 'extractor.{name}'")
        if tensor.shape != shape:
            raise ValueError(
                f"{file}: tensor 'extractor.{name}' has shape {tensor.shape}, not {shape}"
            )
        sha.update(name.encode() + tensor.astype(np.float32).tobytes())
    origin = words.get("origin", f"from {file.name}")
    return _Content(tensors, seen_in(words.get("seen"), str(file)), origin, sha.hexdigest())


def _layout() -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in network().state_dict().items()}


def seen_in(text: str | None, name: str) -> tuple[Seen, ...]:
    """The objects that a file says it has seen; an error where it does not say.

    >>> seen_in('[["elsewhere", 0, 0, 16]]', "an example")
    (Seen(stream='elsewhere', seed=0, start=0, stop=16),)
    """
    try:
        ranges = json.loads(text or "")
    except ValueError:
        ranges = None
    return ranges_from(ranges, name)
