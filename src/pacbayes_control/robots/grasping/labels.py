"""A grid of grasps tried on each object, and the grasp to aim for (paper: Section 7.2).

Labels are for training alone: every number in a certificate comes from grasps that were simulated
for it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.shapes import Floats
from pacbayes_control.tasks.environments import Environments


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
        sha = hashlib.sha256(np.packbits(self.failures).tobytes()).hexdigest()[:16]
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
