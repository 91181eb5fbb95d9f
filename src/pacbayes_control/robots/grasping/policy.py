"""From an image of an object to a grasp (Δx, Δy, θ) relative to its centroid.

A frozen extractor turns the colour image of the heights into features; three fully-connected layers
with sigmoids, whose weights and biases are the policy's parameters, turn those into a grasp.

Two heads. The paper's three outputs are Δx, Δy and θ, each a sigmoid stretched to its range: at
θ = 0 and θ = π, which are the same grasp, the outputs are farthest apart, and a network has to jump
between them. Ours, the default, is `circle`: four outputs, the last two a point (c, s) of the plane
with θ = ½·atan2(s, c), so that grasps which are near each other have outputs near each other.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.robots.grasping.extractors import FileExtractor
from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.models import Floats
from pacbayes_control.tasks.environments import generator

Head = Literal["circle", "paper"]

HEADS: dict[str, int] = {"circle": 4, "paper": 3}  # outputs
TALLEST = 0.1  # m, the height of the last colour
REMEMBERED = 1 << 28  # bytes of features that a process keeps in memory


@dataclass(frozen=True)
class Offsets:
    """A policy is a grasp (Δx, Δy, θ) relative to the centroid, the same for every image."""

    parameters = 3

    def offsets(self, policies: NDArray, heights: NDArray) -> Floats:  # noqa: ARG002 - it is blind
        """The policies themselves."""
        return np.asarray(policies, float)


def jet(heights: NDArray) -> NDArray[np.float32]:
    """Heights in the colours of `jet`, from blue to red; (…, 3, rows, columns) in [0, 1].

    >>> jet(np.array([[0.0, 0.1]])).shape
    (3, 1, 2)
    """
    from matplotlib import colormaps

    colours = colormaps["jet"](np.clip(np.asarray(heights, float) / TALLEST, 0, 1))[..., :3]
    return np.moveaxis(colours, -1, -3).astype(np.float32)


@dataclass(frozen=True)
class GraspNetwork:
    """Three fully-connected layers with sigmoids over an extractor's features."""

    extractor: FileExtractor
    hidden: tuple[int, int] = (64, 32)
    head: Head = "circle"
    half_width: float = 0.03  # m, the largest |Δx| and |Δy|

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise ValueError(f"head {self.head!r} is unknown: choose from {', '.join(HEADS)}")

    def __repr__(self) -> str:
        extractor = f"{self.extractor.name} {self.extractor.digest[:16]}"
        # "Network" stands in the records of runs: another word would be another class of policies.
        layers = f"{self.extractor.size}-{self.hidden[0]}-{self.hidden[1]}"
        return f"Network({extractor}, {layers}, {self.head} head, half_width={self.half_width!r})"

    @cached_property
    def shapes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer; in a policy, its weights stand before its biases."""
        sizes = (self.extractor.size, *self.hidden, HEADS[self.head])
        return list(pairwise(sizes))

    @property
    def parameters(self) -> int:
        """The number of parameters of a policy."""
        return sum((inputs + 1) * outputs for inputs, outputs in self.shapes)

    def layers(self, policy: Any) -> list[tuple[Any, Any]]:
        """Weights (inputs, outputs) and biases (outputs,) of each layer of a policy."""
        found, at = [], 0
        for inputs, outputs in self.shapes:
            weights = policy[at : at + inputs * outputs].reshape(inputs, outputs)
            at += inputs * outputs
            found.append((weights, policy[at : at + outputs]))
            at += outputs
        return found

    def features(self, heights: NDArray) -> NDArray[np.float32]:
        """The extractor's features of an image of heights; kept in memory, as they may be slow."""
        key = (self.extractor.digest, np.ascontiguousarray(heights).tobytes())
        with _lock:
            if key not in _remembered:
                _remembered[key] = self.extractor.features(jet(heights)[None])[0]
                if len(_remembered) > REMEMBERED // (4 * self.extractor.size):
                    _remembered.popitem(last=False)
            return _remembered[key]

    def offsets(self, policies: NDArray, heights: NDArray) -> Floats:
        """(policies, 3), Δx and Δy in m and θ, of each policy for one image of heights.

        One policy at a time and without a matrix library, whose sums depend on the size of the
        batch: a policy must choose the same grasp, to the bit, in any batch.
        """
        features = self.features(heights).astype(float)
        outputs = []
        for policy in np.asarray(policies, float):
            values = features
            for weights, biases in self.layers(policy):
                with np.errstate(over="ignore"):
                    values = 1 / (1 + np.exp(-((values[:, None] * weights).sum(axis=0) + biases)))
            outputs.append(values)
        return self.grasps(np.array(outputs))

    def grasps(self, outputs: Floats) -> Floats:
        """(…, 3), Δx and Δy in m and θ in [0, π), from the head's outputs in [0, 1]."""
        places = (2 * outputs[..., :2] - 1) * self.half_width
        if self.head == "paper":
            angles = np.pi * outputs[..., 2] % np.pi
        else:
            c, s = 2 * outputs[..., 2] - 1, 2 * outputs[..., 3] - 1
            angles = np.arctan2(s, c) / 2 % np.pi
        return np.concatenate([places, angles[..., None]], axis=-1)

    def decoded(self, outputs: Any) -> tuple[Any, Any]:
        """Places (…, 2) in m and directions (cos 2θ, sin 2θ) from outputs, as tensors."""
        torch = needed("torch", "training a network")
        places = (2 * outputs[..., :2] - 1) * self.half_width
        if self.head == "paper":
            double = 2 * np.pi * outputs[..., 2]
            return places, torch.stack([torch.cos(double), torch.sin(double)], -1)
        point = 2 * outputs[..., 2:] - 1
        return places, point / torch.sqrt((point**2).sum(-1, keepdim=True) + 1e-6)

    def paper_prior(self, seed: int = 0) -> DiagonalGaussian:
        """The paper's prior: means drawn from N(0, 0.001²) to break symmetry, variances 0.01."""
        rng = generator(seed, "paper prior", of="policies")
        mean = rng.normal(0, 0.001, self.parameters)
        return DiagonalGaussian(mean, 0.01, "prior", self.extractor.seen)


GraspController = Offsets | GraspNetwork  # whose `repr` tells it from every other

_remembered: OrderedDict[tuple[str, bytes], NDArray[np.float32]] = OrderedDict()
_lock = Lock()


def forward(network: GraspNetwork, policy: Any, features: Any) -> Any:
    """The head's outputs for many objects, as tensors: (objects, outputs)."""
    values = features
    for weights, biases in network.layers(policy):
        values = (values @ weights + biases).sigmoid()
    return values
