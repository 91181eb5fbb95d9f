"""Environments to test the vehicle in, and how far two trajectories are apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks import Environments
from pacbayes_control.tasks.environments import Arrays


def scene(*discs: tuple[float, float, float]) -> Environments:
    """One environment with these discs and no others."""
    obstacles = np.array(discs, float).reshape(1, -1, 3)

    def draw(_: np.random.Generator, n: int) -> dict[str, NDArray]:
        return {
            "obstacles": np.tile(obstacles, (n, 1, 1)),
            "counts": np.full(n, obstacles.shape[1]),
        }

    return Environments(draw, task="vehicle", stream="scene", seed=0, start=0, stop=1)


def mirrored(environments: Environments) -> Environments:
    """The same reflected about x = 0, where the vehicle starts and the arena is symmetric."""

    def draw(rng: np.random.Generator, n: int) -> Arrays:
        drawn = environments.draw(rng, n)
        return {**drawn, "obstacles": drawn["obstacles"] * np.array([-1, 1, 1], np.float32)}

    return replace(environments, draw=draw)


def discs_in(environments: Environments) -> list[NDArray]:
    """The discs that count, by environment, (discs, 3) each."""
    arrays = environments.arrays()
    return [
        discs[:count].astype(float)
        for discs, count in zip(arrays["obstacles"], arrays["counts"], strict=True)
    ]


def difference(poses: NDArray, expected: NDArray) -> NDArray:
    """By coordinate, with headings compared around the circle."""
    apart = poses - expected
    apart[..., 2] = (apart[..., 2] + np.pi) % (2 * np.pi) - np.pi
    return np.abs(apart)
