"""A small convolutional extractor of our own, which ships with its weights.

It was trained by `pbc pretrain grasping` on objects of a stream of its own, "elsewhere", which no
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

from pacbayes_control.distributions import DiagonalGaussian, Seen
from pacbayes_control.tasks.grasping.extras import needed
from pacbayes_control.tasks.grasping.threads import one_thread
from pacbayes_control.tasks.grasping.weights import read_metadata, read_tensors

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

    weights: Path | None = None  # .safetensors of `pbc pretrain grasping`; None: the library's own

    name = "compact"
    size = FEATURES

    def features(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """(images, features), one image at a time and in one thread: the same in any batch."""
        torch = needed("torch", "looking at objects")
        if images.ndim != 4 or images.shape[1:] != (3, SIDE, SIDE):
            raise ValueError(f"images are (n, 3, {SIDE}, {SIDE}), not {images.shape}")
        with torch.inference_mode(), one_thread():
            found = [self._network(torch.as_tensor(image[None]))[0].numpy() for image in images]
        return np.array(found, np.float32).reshape(len(images), FEATURES)

    @property
    def digest(self) -> str:
        """SHA-256 of the weights."""
        return self._digest

    @property
    def seen(self) -> tuple[Seen, ...]:
        """The objects that it was trained on."""
        return self._seen

    @cached_property
    def _digest(self) -> str:
        sha = hashlib.sha256()
        for name, tensor in sorted(self._tensors.items()):
            sha.update(name.encode() + tensor.tobytes())
        return sha.hexdigest()

    @cached_property
    def _seen(self) -> tuple[Seen, ...]:
        ranges = json.loads(read_metadata(self.file).get("seen", "[]"))
        return tuple(Seen(*part) for part in ranges)

    @property
    def file(self) -> Path:
        """Where the weights are."""
        return self.weights or Path(str(files("pacbayes_control.tasks.grasping").joinpath(FILE)))

    def prior(self) -> tuple[DiagonalGaussian, str]:
        """The prior over the layers that were trained with it, and in words where it is from."""
        everything, words = read_tensors(self.file), read_metadata(self.file)
        if "prior.mean" not in everything or "prior.variance" not in everything:
            raise ValueError(f"{self.file} holds no prior: make it with pbc pretrain grasping")
        mean, variance = everything["prior.mean"], everything["prior.variance"]
        gaussian = DiagonalGaussian(mean, variance, f"prior in {self.file.name}", self.seen)
        return gaussian, words.get("origin", f"from {self.file.name}")

    @cached_property
    def _tensors(self) -> dict[str, NDArray]:
        found = read_tensors(self.file)
        return {
            name.removeprefix("extractor."): tensor.astype(np.float32)
            for name, tensor in found.items()
            if name.startswith("extractor.")
        }

    @cached_property
    def _network(self) -> Any:
        torch = needed("torch", "looking at objects")
        built = network()
        wanted = {name: tuple(tensor.shape) for name, tensor in built.state_dict().items()}
        for name, shape in wanted.items():
            tensor = self._tensors.get(name)
            if tensor is None:
                raise ValueError(f"{self.file} has no tensor 'extractor.{name}'")
            if tensor.shape != shape:
                raise ValueError(
                    f"{self.file}: tensor 'extractor.{name}' has shape {tensor.shape}, not {shape}"
                )
        built.load_state_dict({name: torch.as_tensor(self._tensors[name]) for name in wanted})
        return built.eval().requires_grad_(False)

    def __getstate__(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "weights", state["weights"])
