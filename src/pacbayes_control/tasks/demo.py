"""The smallest task, for examples: drive a way that is given, and stop near a mark."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.tasks.environments import Arrays, Environments, Noise, first_environments
from pacbayes_control.tasks.task import Task


class Stopping(Task):
    """A mark is drawn around 1 m; a policy is the way to drive, and fails if it misses by 0.2 m.

    >>> task = Stopping()
    >>> task.costs(task.policies, task.environments(4, stream="example")).shape
    (4, 5)
    """

    name = "stopping"
    policies = np.linspace(0.5, 1.5, 5)[:, None]  # m
    prior = DiagonalGaussian([1.0], 0.04)
    parameters = 1

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Marks under a named stream."""
        return first_environments(self._draw, "stopping", n, stream=stream, seed=seed)

    def costs(self, policies: NDArray, environments: Environments, *_: Noise) -> NDArray:
        """1 where a policy misses the mark; shape (environments, policies)."""
        return np.abs(policies[..., 0] - environments.arrays()["mark"][:, None]) > 0.2

    def act(self, policy: NDArray, observation: NDArray) -> float:
        """How far to go on, from how far the robot has come."""
        return float(policy[0] - observation[0])

    @staticmethod
    def _draw(rng: np.random.Generator, n: int) -> Arrays:
        return {"mark": rng.normal(1.0, 0.1, n)}
