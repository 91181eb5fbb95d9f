"""The vehicle's finite policy space, and distributions to start a search from."""

from __future__ import annotations

import numpy as np

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.robots.planar.policies import GainGrid, Network, ray_angles, reactive_gains
from pacbayes_control.tasks.environments import generator

RAYS = 20
GRID = GainGrid(x0=(0.1, 5, 5), y0=(0, 10, 10))  # the paper's 50 policies


def paper_prior() -> DiagonalGaussian:
    """The paper's prior over `Linear` policies: around x0 = 2.5, y0 = 10, with variances 0.01."""
    return DiagonalGaussian(reactive_gains(2.5, 10.0, ray_angles())[RAYS // 2 :], 0.01, "prior")


def network_start(network: Network, seed: int = 0) -> DiagonalGaussian:
    """A start for learning a network: the paper's linear policy, and hidden units of output 0.

    The variances are for the first steps of an evolution strategy: each kind of weight has its own.
    """
    rng = generator(seed, "network start", of="policies")
    units = np.zeros((network.hidden, RAYS + 2))
    units[:, : RAYS + 1] = 0.3 * rng.standard_normal((network.hidden, RAYS + 1))
    spread = np.empty_like(units)
    spread[:, :RAYS], spread[:, RAYS], spread[:, RAYS + 1] = 0.06, 0.1, 0.4
    linear = 0.8 * paper_prior().mean
    return DiagonalGaussian(
        np.concatenate([linear, units.ravel()]),
        np.concatenate([np.full(len(linear), 0.2), spread.ravel()]) ** 2,
        "start",
    )
