"""Tasks small enough to know the answer, for the tests of learning over continuous policies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks import Environments, Noise


@dataclass(frozen=True)
class Reach:
    """A policy is a point and an environment a goal: a failure where the point is too far away."""

    parameters: int = 2
    centre: float = 1.0  # of the goals, in every coordinate
    radius: float = 1.0  # how far away is too far
    graded: bool = False  # whether the cost grows with the distance, from 0 to 1 at the radius
    name: str = "reach"

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        return Environments(self._draw, f"{self.name} {self.centre:g}", stream, seed, 0, n)

    def _draw(self, rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        return {"goal": self.centre + 0.2 * rng.standard_normal((n, self.parameters))}

    def distances(self, policies: NDArray, environments: Environments) -> NDArray:
        """Of each policy from each goal, relative to the radius; shape (environments, policies)."""
        if policies.shape[-1] != self.parameters:
            raise ValueError(
                f"policies of {policies.shape[-1]} parameters were given to a task "
                f"whose policies have {self.parameters}"
            )
        goal = environments.arrays()["goal"][:, None]
        return np.sqrt(((policies - goal) ** 2).sum(axis=-1)) / self.radius

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        distance = self.distances(policies, environments)
        return np.minimum(distance, 1.0) if self.graded else distance > 1


@dataclass(frozen=True)
class Slippery(Reach):
    """The same on ice: where a rollout ends has noise of its own."""

    noise_kind: str = "ice"

    def costs(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray:
        assert noise is not None
        bits = noise.keys(environments, policies.shape[-2])
        return self.distances(policies, environments) + 0.5 * (bits / 2.0**64) > 1


@dataclass(frozen=True)
class Smooth(Reach):
    """One that has derivatives: the mean of 1 - exp(-distance²/2) over the environments."""

    name: str = "smooth"
    graded: bool = True

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return -np.expm1(-(self.distances(policies, environments) ** 2) / 2)

    def gradients(self, policies: NDArray, environments: Environments) -> tuple[NDArray, NDArray]:
        costs = self.costs(policies, environments)
        away = (policies - environments.arrays()["goal"][:, None]) / self.radius**2
        return costs.mean(axis=0), ((1 - costs)[..., None] * away).mean(axis=0)
