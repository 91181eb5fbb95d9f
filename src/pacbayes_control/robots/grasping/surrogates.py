"""Costs in [0, 1] that vary smoothly with a grasp, for training by gradients, in PyTorch.

distance   the paper's: the distance from the grasp to the target, θ on a circle, each of the three
           scaled to [0, 1]; 1 where an object has no target
table      ours: the share of failures among the grid's grasps, weighted by how near they are; close
           to the cost itself, and low at every grasp that succeeds
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.extras import needed, one_thread
from pacbayes_control.robots.grasping.labels import Grid, Labels
from pacbayes_control.robots.grasping.policy import GraspNetwork, forward
from pacbayes_control.robots.grasping.shapes import Floats

Goal = Callable[[Any, Any], Any]  # from places (objects, 2) and directions to costs (objects,)

KINDS = ("table", "distance")
PLACE_WIDTH, ANGLE_WIDTH = 0.6, 1.2  # of the table's weights, in steps of the grid


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
        grid = labels.grid
        if self.kind == "table":
            table = torch.as_tensor(labels.failures[rows], dtype=torch.float64)
            return lambda places, directions: near_failures(table, grid, places, directions)
        aims, known = (torch.as_tensor(np.ascontiguousarray(a[rows])) for a in labels.targets)
        width = grid.half_width
        return lambda places, directions: distance(aims, known, width, places, directions)


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
