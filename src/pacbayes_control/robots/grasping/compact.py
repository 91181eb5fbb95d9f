"""A small convolutional extractor of our own, which ships with its weights.

It was trained by `pbc grasping pretrain` on objects of a stream of its own, "elsewhere", which no
bound counts: it is a part of the prior, and costs nothing.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.ranges import EnvironmentRange, ranges_from
from pacbayes_control.robots.grasping.extractors import FileExtractor
from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.weights import Tensors

CHANNELS = (3, 24, 48, 64, 96)  # of the image, and after each convolution
FEATURES = 128
SIDE = 64  # pixels of an image


def network() -> Any:
    """Four convolutions, each halving the image, and a layer of features between -1 and 1."""
    torch = needed("torch", "the extractor compact")
    layers: list[Any] = []
    for number, (before, after) in enumerate(pairwise(CHANNELS)):
        size = 5 if number == 0 else 3
        layers += [torch.nn.Conv2d(before, after, size, 2, size // 2), torch.nn.ReLU()]
    side = SIDE // 2 ** (len(CHANNELS) - 1)
    layers += [torch.nn.Flatten(), torch.nn.Linear(CHANNELS[-1] * side**2, FEATURES)]
    return torch.nn.Sequential(*layers, torch.nn.Tanh())


@dataclass(frozen=True)
class Compact(FileExtractor):
    """The extractor, with the weights that ship with the library or others from a file."""

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
        except ValueError:
            ranges = None
        return ranges_from(ranges, str(self.file))

    def prior(self) -> tuple[DiagonalGaussian, str]:
        """The prior over the layers that were trained with it, and a phrase for its origin."""
        if len(self._content.others) < len(self.others):
            raise ValueError(f"{self.file} holds no prior: make it with pbc grasping pretrain")
        mean, variance = (self._content.others[name] for name in self.others)
        origin = self._content.words.get("origin", f"from {self.file.name}")
        return DiagonalGaussian(mean, variance, f"prior in {self.file.name}", self.seen), origin

    def build(self) -> Any:
        """The network in torch, with its layers named as in the file."""
        torch = needed("torch", "the extractor compact")
        return torch.nn.Sequential(OrderedDict(extractor=network()))

    def digest_parts(self, network: Tensors) -> list[tuple[str, NDArray]]:
        """The network's tensors in the order of the digest, each with a word before it."""
        return [(name.removeprefix("extractor."), network[name]) for name in sorted(network)]
