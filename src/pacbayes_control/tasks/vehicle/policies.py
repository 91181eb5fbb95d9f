"""The vehicle's policies: from the depths along its rays to u_diff.

All three classes are one formula, u = K·z + Σ_h v_h (σ(a_h·z + b_h) - σ(a_h·z' + b_h)), where
z = 1/(y - offset) are inverse depths, z' is z in a mirror and σ(x) = x/√(1 + x²). A row of a
class's own parameters becomes a row of this formula's `weights`, which is what the kernel runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.distributions import DiagonalGaussian
from pacbayes_control.tasks.base import generator

RAYS = 20
FAN = np.pi / 3  # rad, the outermost rays to either side

Floats = NDArray[np.float64]


class Controller(Protocol):
    """A class of policies: what a row of parameters means."""

    @property
    def name(self) -> str:
        """A short name, for records."""
        ...

    @property
    def parameters(self) -> int:
        """How many numbers make a policy."""
        ...

    @property
    def hidden(self) -> int:
        """Hidden units."""
        ...

    @property
    def offset(self) -> float:
        """Metres taken off a depth before it is inverted."""
        ...

    def weights(self, policies: Floats) -> Floats:
        """Rows of parameters (…, parameters) as rows of weights (…, rays + hidden (rays + 2))."""
        ...


@dataclass(frozen=True)
class Gains:
    """u_diff = K · (1/y) with any gains K, one a ray (paper: eq. 40)."""

    name: str = field(default="gains", init=False)
    parameters: int = field(default=RAYS, init=False)
    hidden: int = field(default=0, init=False)
    offset: float = field(default=0.0, init=False)

    def weights(self, policies: Floats) -> Floats:
        """The gains themselves."""
        return policies


@dataclass(frozen=True)
class Linear:
    """u_diff = K · (1/y) with K odd: K[i] = -K[j] where θ[i] = -θ[j] (paper: Section 7.1).

    A policy is the ten gains of the rays to the right, from the innermost to the outermost.
    """

    name: str = field(default="linear", init=False)
    parameters: int = field(default=RAYS // 2, init=False)
    hidden: int = field(default=0, init=False)
    offset: float = field(default=0.0, init=False)

    def weights(self, policies: Floats) -> Floats:
        """Both sides, from the left."""
        return np.concatenate([-policies[..., ::-1], policies], axis=-1)


@dataclass(frozen=True)
class Network:
    """A linear part as in `Linear`, and hidden units whose sum is odd under reflection too.

    A policy is the ten gains of the linear part, then a_h (rays), b_h and v_h of each unit. In a
    mirrored scene the robot steers the mirrored way, by construction: it need not learn that, and
    it cannot hold a constant u_diff, which would avoid every obstacle by circling at the start.
    """

    hidden: int = 4
    offset: float = 0.2  # m; a robot in contact reads at least its radius, 0.27 m

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise ValueError(f"a network of {self.hidden} hidden units: at least one is needed")

    @property
    def name(self) -> str:
        """A short name, for records."""
        return f"network-{self.hidden}" + ("" if self.offset == 0.2 else f"-offset-{self.offset}")

    @property
    def parameters(self) -> int:
        """Ten gains, and a row of weights, a bias and an output weight for each hidden unit."""
        return RAYS // 2 + self.hidden * (RAYS + 2)

    def weights(self, policies: Floats) -> Floats:
        """The linear part for both sides; the rest as it is."""
        side = RAYS // 2
        return np.concatenate([Linear().weights(policies[..., :side]), policies[..., side:]], -1)


def respond(controller: Controller, policy: Floats, depths: Floats) -> Floats:
    """u_diff of one policy for depths (…, rays) along its rays: the formula, written plainly.

    >>> round(float(respond(Linear(), np.arange(10.0), np.full(20, 5.0))), 9)  # the same both sides
    0.0
    """
    weights = controller.weights(np.asarray(policy, float))
    z = 1 / np.maximum(np.asarray(depths, float) - controller.offset, 0.0625)
    control = z @ weights[:RAYS]
    if controller.hidden:
        units = weights[RAYS:].reshape(controller.hidden, RAYS + 2)
        inward, bias, outward = units[:, :RAYS].T, units[:, RAYS], units[:, RAYS + 1]
        there, mirrored = z @ inward + bias, z[..., ::-1] @ inward + bias
        control = control + (_squash(there) - _squash(mirrored)) @ outward
    return control


def _squash(x: Floats) -> Floats:
    return x / np.sqrt(1 + x * x)


# ---- where a search may start -------------------------------------------------------------------


def paper_prior() -> DiagonalGaussian:
    """The paper's prior over `Linear` policies: around x0 = 2.5, y0 = 10, with variances 0.01."""
    return DiagonalGaussian(reactive_gains(2.5, 10.0, ray_angles())[RAYS // 2 :], 0.01, "prior")


def network_start(network: Network, seed: int = 0) -> DiagonalGaussian:
    """Where to begin learning a network: the paper's linear policy, and hidden units with no say.

    The spread is that of an evolution strategy's first steps: each kind of weight has its own.
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


# ---- the paper's policies -----------------------------------------------------------------------


def ray_angles(rays: int = RAYS, fan: float = FAN) -> Floats:
    """Angles of the rays, clockwise from the heading, in rad; shape (rays,)."""
    return np.linspace(-fan, fan, rays)


def reactive_gains(x0: float, y0: float, angles: Floats) -> Floats:
    """K[i] of the paper's eq. 41: a line with intercepts x0 and y0, reflected about the origin.

    >>> reactive_gains(2.0, 10.0, np.array([-1.0, 0.0, 1.0])).tolist()
    [-5.0, 10.0, 5.0]
    """
    return (y0 / x0) * (np.where(angles >= 0, x0, -x0) - angles)


def gain_grid() -> Floats:
    """The paper's 50 policies, for 5 values of x0 and 10 of y0; shape (50, rays)."""
    return np.array([reactive_gains(x0, y0, ray_angles()) for x0, y0 in _intercepts()])


def gain_names() -> list[str]:
    """What to call them."""
    return [f"x0={x0:.3f} y0={y0:.2f}" for x0, y0 in _intercepts()]


def _intercepts() -> list[tuple[float, float]]:
    return [(x0, y0) for x0 in np.linspace(0.1, 5, 5) for y0 in np.linspace(0, 10, 10)]
