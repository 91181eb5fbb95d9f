"""A grid of grasps tried on each object, and the costs to train on that are made from it.

Labels and surrogates are for training alone: every number in a certificate comes from grasps that
were simulated for it (paper: Section 7.2). A surrogate is a cost in [0, 1] that varies smoothly
with a grasp, for training by gradients, in PyTorch:

distance   the paper's: the distance from the grasp to the target, θ on a circle, each of the three
           scaled to [0, 1]; 1 where an object has no target
table      ours: the share of failures among the grid's grasps, weighted by how near they are; close
           to the cost itself, and low at every grasp that succeeds
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.files import sha256
from pacbayes_control.robots.grasping.extras import needed, one_thread
from pacbayes_control.robots.grasping.models import Floats
from pacbayes_control.robots.grasping.policy import GraspNetwork, forward
from pacbayes_control.tasks.environments import Environments

Goal = Callable[[Any, Any], Any]  # from places (objects, 2) and directions to costs (objects,)

KINDS = ("table", "distance")
PLACE_WIDTH, ANGLE_WIDTH = 0.6, 1.2  # of the table's weights, in steps of the grid


@dataclass(frozen=True)
class Grid:
    """Grasps (Δx, Δy, θ) relative to the centroid, at regular distances.

    The paper prints a half width of 0.05 cm for objects of 10 cm, which cannot be meant; ours is
    3 cm.

    >>> Grid().grasps.shape
    (750, 3)
    """

    half_width: float = 0.03  # m, of Δx and Δy
    places: int = 5  # of each
    angles: int = 30  # from 0 to π

    def __post_init__(self) -> None:
        if self.places < 2 or self.angles < 2 or not 0 < self.half_width < 1:
            raise ValueError(
                f"{self!r}: a grid needs at least two places and two angles, and a half width "
                "between 0 and 1 m"
            )

    @property
    def offsets(self) -> Floats:
        """The values of Δx, and of Δy, in m; (places,)."""
        return np.linspace(-self.half_width, self.half_width, self.places)

    @property
    def directions(self) -> Floats:
        """The values of θ, (angles,): π is 0 again, since the hand has two equal fingers."""
        return np.linspace(0, np.pi, self.angles, endpoint=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of Δx, Δy and θ."""
        return self.places, self.places, self.angles

    @cached_property
    def grasps(self) -> Floats:
        """All grasps, (grasps, 3); θ varies fastest, then Δy."""
        axes = np.meshgrid(self.offsets, self.offsets, self.directions, indexing="ij")
        return np.stack([axis.ravel() for axis in axes], axis=1)


def tolerances(failures: NDArray) -> NDArray[np.int64]:
    """The largest error in θ, in steps either way, that each grasp tolerates; -1 where it fails.

    failures: (…, angles), around a circle.

    >>> tolerances(np.array([1, 0, 0, 0, 1])).tolist()
    [-1, 0, 1, 0, -1]
    """
    failures = np.asarray(failures, bool)
    angles = failures.shape[-1]
    reach = np.full(failures.shape, -1)
    good = ~failures
    for step in range(angles):
        reach += good
        good = good & np.roll(~failures, step + 1, -1) & np.roll(~failures, -step - 1, -1)
    return np.minimum(reach, angles // 2)


def targets(failures: NDArray, grid: Grid) -> tuple[Floats, NDArray[np.bool_]]:
    """The grasp to aim for in each object, (objects, 3), and whether there is one, (objects,).

    It is the one that tolerates the largest error in θ, and of several the nearest to the
    centroid. failures: (objects, grasps of the grid).
    """
    table = np.asarray(failures).reshape(-1, *grid.shape)
    reach = tolerances(table).reshape(len(table), -1)
    near = np.linalg.norm(grid.grasps[:, :2], axis=1) / (2 * grid.half_width)  # below 1
    best = np.argmax(np.where(reach >= 0, reach - near, -np.inf), axis=1)
    return grid.grasps[best], np.any(reach >= 0, axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class Labels:
    """The results of every grasp of a grid on each of some objects."""

    environments: Environments
    failures: NDArray[np.uint8]  # (objects, grasps of the grid), 1 where a grasp failed
    grid: Grid = Grid()

    def __post_init__(self) -> None:
        expected = len(self.environments), len(self.grid.grasps)
        if self.failures.shape != expected:
            raise ValueError(
                f"labels of shape {self.failures.shape} were given for {expected[0]} objects and "
                f"{expected[1]} grasps each"
            )

    def __repr__(self) -> str:
        e = self.environments
        sha = sha256(np.packbits(self.failures).tobytes())[:16]
        return f"Labels({e.stream!r}, seed {e.seed}, {e.start} to {e.stop}, {self.grid}, {sha})"

    def rows(self, environments: Environments) -> slice:
        """The rows of these objects among the labelled ones; an error if they are not labelled."""
        mine, asked = self.environments.range, environments.range
        same = self.environments.task == environments.task and mine[:2] == asked[:2]
        if not same or asked.start < mine.start or asked.stop > mine.stop:
            raise ValueError(
                f"objects {asked.start} to {asked.stop} of stream {asked.stream!r} have no labels: "
                "label them first"
            )
        return slice(asked.start - mine.start, asked.stop - mine.start)

    @cached_property
    def targets(self) -> tuple[Floats, NDArray[np.bool_]]:
        """The grasp to aim for in each object, and whether there is one."""
        return targets(self.failures, self.grid)


# ---- surrogates ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Surrogate:
    """The surrogate that a task trains with."""

    kind: Literal["table", "distance"] = "table"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"surrogate {self.kind!r} is unknown: choose from {', '.join(KINDS)}")

    def goal(self, labels: Labels, rows: slice) -> Goal:
        """The cost of grasps of the labelled objects in these rows."""
        torch = needed("torch", "training a network")
        if self.kind == "table":
            table = torch.as_tensor(labels.failures[rows], dtype=torch.float64)
            return partial(near_failures, table, labels.grid)
        aims, known = (torch.as_tensor(np.ascontiguousarray(a[rows])) for a in labels.targets)
        return partial(distance, aims, known, labels.grid.half_width)


def distance(aims: Any, known: Any, half_width: float, places: Any, directions: Any) -> Any:
    """The distance in [0, 1] from grasps to targets; (objects,).

    Args:
        aims: (objects, 3), the targets as Δx and Δy in m and θ.
        known: (objects,), whether there is a target; the distance is 1 where there is not.
        half_width: of the grid, in m.
        places: (objects, 2), Δx and Δy of the grasps in m.
        directions: (objects, 2), cos 2θ and sin 2θ of the grasps.
    """
    torch = needed("torch", "training a network")
    wanted = torch.stack([torch.cos(2 * aims[:, 2]), torch.sin(2 * aims[:, 2])], 1)
    cosine = (directions * wanted).sum(1).clamp(-1 + 1e-9, 1 - 1e-9)
    turn = torch.acos(cosine) / np.pi  # of the doubled angles: 1 is a right angle
    shift = (places - aims[:, :2]) / (2 * half_width)
    size = torch.sqrt(((shift**2).sum(1) + turn**2) / 3 + 1e-12)
    return torch.where(known, size.clamp(max=1.0), torch.ones_like(size))


def near_failures(table: Any, grid: Grid, places: Any, directions: Any) -> Any:
    """The share of failures near grasps; (objects,).

    Args:
        table: (objects, grasps of the grid), 1 where a grasp failed.
        grid: the grasps of the table.
        places: (objects, 2), Δx and Δy of the grasps in m.
        directions: (objects, 2), cos 2θ and sin 2θ of the grasps.
    """
    torch = needed("torch", "training a network")
    kind: dict[str, Any] = {"dtype": table.dtype, "device": table.device}
    spacing = 2 * grid.half_width / (grid.places - 1)
    offsets = torch.as_tensor(grid.offsets, **kind)
    far = ((places[:, :, None] - offsets) / (PLACE_WIDTH * spacing)) ** 2
    place = torch.softmax(-far / 2, dim=2)  # (objects, 2, places)
    double = 2 * torch.as_tensor(grid.directions, **kind)
    waves = torch.stack([torch.cos(double), torch.sin(double)])  # (2, angles)
    sharpness = (ANGLE_WIDTH * 2 * np.pi / grid.angles) ** -2
    angle = torch.softmax(sharpness * (directions @ waves), dim=1)  # (objects, angles)
    by_place = torch.bmm(table.reshape(-1, grid.places**2, grid.angles), angle[:, :, None])
    places_both = place[:, 0, :, None] * place[:, 1, None, :]
    return (by_place.reshape(places_both.shape) * places_both).sum(dim=(1, 2))


def gradients(
    network: GraspNetwork, policies: NDArray, features: NDArray, goal: Goal
) -> tuple[Floats, Floats]:
    """The mean cost of each policy over objects, and its derivatives: (policies,), (policies, d).

    In one thread, so that the sums are the same on any number of cores.

    Args:
        network: whose layers the policies are.
        policies: (policies, parameters).
        features: (objects, features), by the network's extractor.
        goal: the surrogate cost of grasps of these objects.
    """
    torch = needed("torch", "training a network")
    inputs = torch.as_tensor(features, dtype=torch.float64)
    means, slopes = [], []
    with one_thread():
        for policy in policies:
            weights = torch.tensor(np.asarray(policy, float), requires_grad=True)
            mean = goal(*network.decoded(forward(network, weights, inputs))).mean()
            mean.backward()
            means.append(float(mean.detach()))
            slopes.append(weights.grad.numpy())
    return np.clip(means, 0, 1), np.array(slopes)


def descend(
    network: GraspNetwork,
    start: Floats,
    sizes: Floats,
    steps: int,
    features: NDArray,
    goal: Goal,
) -> Floats:
    """A policy that minimises the mean cost over objects, without a regulariser; (parameters,).

    Args:
        network: whose layers the policy is.
        start: (parameters,), where Adam begins.
        sizes: (parameters,), its first steps, which shrink as a cosine does.
        steps: how many.
        features: (objects, features), by the network's extractor.
        goal: the surrogate cost of grasps of these objects.
    """
    torch = needed("torch", "training a network")
    inputs = torch.as_tensor(features, dtype=torch.float64)
    scale = torch.tensor(sizes)
    with one_thread():
        moved = torch.zeros(len(start), dtype=torch.float64, requires_grad=True)
        origin = torch.tensor(start)
        optimiser = torch.optim.Adam([moved], lr=1.0)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for _ in range(steps):
            optimiser.zero_grad()
            outputs = forward(network, origin + scale * moved, inputs)
            goal(*network.decoded(outputs)).mean().backward()
            optimiser.step()
            schedule.step()
        return (origin + scale * moved).detach().numpy()
