"""Distributions of obstacle fields: the paper's two, and one that reshuffles recorded fields."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.bounds.compiling import compiled_once
from pacbayes_control.certify.families import Beta, Family
from pacbayes_control.tasks.environments import Arrays, Environments


@dataclass(frozen=True)
class ObstacleField:
    """The distribution of environments: how many cylinders, where, and how wide.

    Positions and radii are uniform and independent; the number is uniform over a range.
    """

    fewest: int = 20  # cylinders
    most: int = 40  # cylinders
    x: tuple[float, float] = (-5.0, 5.0)  # m
    y: tuple[float, float] = (2.0, 10.0)  # m
    radius: tuple[float, float] = (0.05, 0.2)  # m

    def __post_init__(self) -> None:
        whole = isinstance(self.fewest, int) and isinstance(self.most, int)
        if not whole or not 0 <= self.fewest <= self.most <= 10_000:
            raise ValueError(
                f"fewest = {self.fewest!r}, most = {self.most!r} cylinders: whole numbers with "
                "0 <= fewest <= most <= 10,000 are needed"
            )
        for name, least in (("x", -1e6), ("y", -1e6), ("radius", 0)):
            low, high = getattr(self, name)
            if not least <= low <= high <= 1e6:
                words = f"two limits from {least:g} to 1e6 m are needed"
                raise ValueError(f"{name} = {low}, {high}: {words}")

    @property
    def words(self) -> str:
        """The distribution in a line, for records."""
        x, y, radius = (f"{low:g} to {high:g} m" for low, high in (self.x, self.y, self.radius))
        return (
            f"{self.fewest} to {self.most} cylinders, uniform and independent: "
            f"x {x}, y {y}, radius {radius}"
        )

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        """`obstacles` (n, most, 3) as x, y, radius in m; the first `counts` (n,) are used."""
        counts = rng.integers(self.fewest, self.most, size=n, endpoint=True)
        low, high = np.array([self.x, self.y, self.radius]).T
        obstacles = np.empty((n, self.most, 3), np.float32)
        _draw_uniform(rng, low, high - low, obstacles)
        return {"obstacles": obstacles, "counts": counts}


@compiled_once(nogil=True)
def _draw_uniform(rng, low, width, drawn):
    """Fill `drawn` (n, most, 3) with what `rng.uniform(low, low + width)` draws.

    Without the lock of the interpreter and in one pass, so that threads draw side by side.
    """
    for i in range(drawn.shape[0]):
        for j in range(drawn.shape[1]):
            for k in range(drawn.shape[2]):
                drawn[i, j, k] = low[k] + width[k] * rng.random()


@dataclass(frozen=True)
class CommonRadius:
    """A fixed number of cylinders, all of one radius, which is drawn for each environment.

    The paper's distribution for policies that are robust to a shift: Beta(0.8, 1.25) in training
    and Beta(1, 1) in its test, scaled to 0.1 … 1.1 m. The divergence between two that differ only
    in the radius is the divergence between the distributions of the radius.

    >>> shifted = CommonRadius(radius=Beta(1, 1, 0.1, 1.1))
    >>> round(shifted.divergence_from(CommonRadius()), 5)
    0.08185
    """

    count: int = 7  # cylinders
    x: tuple[float, float] = (-5.0, 5.0)  # m
    y: tuple[float, float] = (2.0, 10.0)  # m
    radius: Family = field(default_factory=lambda: Beta(0.8, 1.25, 0.1, 1.1))  # m

    @property
    def words(self) -> str:
        """The distribution in a line, for records."""
        x, y = (f"{low:g} to {high:g} m" for low, high in (self.x, self.y))
        return (
            f"{self.count} cylinders, uniform and independent: x {x}, y {y}, all of one radius in "
            f"m drawn from {self.radius}"
        )

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        """`obstacles` (n, count, 3) as x, y, radius in m; all are used."""
        low, high = np.array([self.x, self.y]).T
        places = rng.uniform(low, high, size=(n, self.count, 2))
        radii = np.broadcast_to(self.radius.sample(rng, (n, 1, 1)), (n, self.count, 1))
        obstacles = np.concatenate([places, radii], axis=-1).astype(np.float32)
        return {"obstacles": obstacles, "counts": np.full(n, self.count)}

    def divergence_from(self, training: CommonRadius, divergence: str = "kl") -> float:
        """The divergence D(self‖training) of the distributions of environments."""
        if replace(self, radius=training.radius) != training:
            raise ValueError("only the distribution of the radius may differ between the two")
        return self.radius.divergence_from(training.radius, divergence)


class Distribution(Protocol):
    """A distribution of obstacle fields. Its `repr` must differ from that of any other."""

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        """Obstacles and counts, as `ObstacleField` gives them."""
        ...


@dataclass(frozen=True)
class Reshuffled:
    """New fields from recorded ones: the number of obstacles from one, each obstacle from any.

    For learning from few environments without overfitting. A policy learnt here depends on the
    recorded environments, so no bound on its cost may count them.
    """

    recorded: Environments

    @property
    def words(self) -> str:
        """The distribution in a line, for records."""
        e = self.recorded
        return f"cylinders reshuffled from environments {e.start} to {e.stop} of {e.stream!r}"

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        """`obstacles` (n, most, 3) and `counts` (n,); half of the fields mirrored."""
        counts, pool = self._pool
        chosen = rng.choice(counts, size=n)
        obstacles = pool[rng.integers(len(pool), size=(n, int(counts.max())))]
        obstacles[..., 0] *= rng.choice(np.array([-1, 1], np.float32), size=(n, 1))
        return {"obstacles": obstacles, "counts": chosen}

    @cached_property
    def _pool(self) -> tuple[NDArray, NDArray[np.float32]]:
        arrays = self.recorded.arrays()
        counts, obstacles = arrays["counts"], arrays["obstacles"]
        present = np.arange(obstacles.shape[1]) < counts[:, None]
        return counts, obstacles[present]

    def __repr__(self) -> str:
        e = self.recorded
        return f"Reshuffled({e.task}, {e.stream!r}, seed {e.seed}, {e.start} to {e.stop})"
