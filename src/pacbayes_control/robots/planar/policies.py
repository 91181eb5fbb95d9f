"""Policies of robots in the plane: from the depths along their rays to one control.

All three classes are one formula, u = K·z + Σ_h v_h (σ(a_h·z + b_h) - σ(a_h·z' + b_h)), where
z = 1/(y - offset) are inverse depths, z' is z in reverse order and σ(x) = x/√(1 + x²). A class
turns a row of its parameters into a row of this formula's `weights`, which the kernel reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Controller(Protocol):
    """A class of policies: the meaning of a row of parameters."""

    @property
    def name(self) -> str:
        """A short name, for records."""
        ...

    @property
    def rays(self) -> int:
        """How many depths a policy reads."""
        ...

    @property
    def parameters(self) -> int:
        """How many parameters a policy has."""
        ...

    @property
    def hidden(self) -> int:
        """Hidden units."""
        ...

    @property
    def offset(self) -> float:
        """Metres subtracted from a depth before it is inverted."""
        ...

    def weights(self, policies: Floats) -> Floats:
        """Rows of parameters (…, parameters) as rows of weights (…, rays + hidden (rays + 2))."""
        ...


@dataclass(frozen=True)
class Gains:
    """u = K · (1/y) with any gains K, one for each ray (paper: eq. 40)."""

    rays: int = 20
    hidden: int = field(default=0, init=False)
    offset: float = field(default=0.0, init=False)

    @property
    def name(self) -> str:
        """A short name, for records."""
        return named("gains", self.rays)

    @property
    def parameters(self) -> int:
        """A gain for each ray."""
        return self.rays

    def weights(self, policies: Floats) -> Floats:
        """The gains themselves."""
        return policies


@dataclass(frozen=True)
class Linear:
    """u = K · (1/y) with K odd: K[i] = -K[j] where θ[i] = -θ[j] (paper: Section 7.1).

    A policy is the gains of the rays to the right, from the innermost to the outermost.
    """

    rays: int = 20
    hidden: int = field(default=0, init=False)
    offset: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        check_even(self.rays)

    @property
    def name(self) -> str:
        """A short name, for records."""
        return named("linear", self.rays)

    @property
    def parameters(self) -> int:
        """A gain for each ray to the right."""
        return self.rays // 2

    def weights(self, policies: Floats) -> Floats:
        """The gains of both sides, from the leftmost ray to the rightmost."""
        return np.concatenate([-policies[..., ::-1], policies], axis=-1)


@dataclass(frozen=True)
class Network:
    """A linear part as in `Linear`, and hidden units whose sum is odd under reflection too.

    A policy is the gains of the linear part, then a_h (rays), b_h and v_h of each unit. In a
    mirrored scene the control changes its sign, by construction: this need not be learnt, and no
    policy can have a constant control, with which the robot would avoid every obstacle by driving
    in a circle at the start.
    """

    hidden: int = 4
    offset: float = 0.2  # m; less than the robot's radius, the smallest depth before a contact
    rays: int = 20

    def __post_init__(self) -> None:
        check_even(self.rays)
        if self.hidden < 1:
            raise ValueError(f"a network of {self.hidden} hidden units: at least one is needed")

    @property
    def name(self) -> str:
        """A short name, for records."""
        offset = "" if self.offset == 0.2 else f"-offset-{self.offset}"
        return named(f"network-{self.hidden}{offset}", self.rays)

    @property
    def parameters(self) -> int:
        """Gains, and a row of weights, a bias and an output weight for each hidden unit."""
        return self.rays // 2 + self.hidden * (self.rays + 2)

    def weights(self, policies: Floats) -> Floats:
        """The gains of both sides, then the hidden units as they are."""
        linear = Linear(self.rays)
        side = linear.parameters
        return np.concatenate([linear.weights(policies[..., :side]), policies[..., side:]], -1)


def named(kind: str, rays: int) -> str:
    """A name for records, with the number of rays if it is not 20."""
    return kind if rays == 20 else f"{kind}, {rays} rays"


def check_even(rays: int) -> None:
    """Raise an error unless there are as many rays on the left as on the right."""
    if rays < 2 or rays % 2:
        raise ValueError(f"{rays} rays: an even number is needed, half of them on each side")


def respond(controller: Controller, policy: Floats, depths: Floats) -> Floats:
    """The control of one policy for depths (…, rays): the formula, in NumPy.

    >>> round(float(respond(Linear(), np.arange(10.0), np.full(20, 5.0))), 9)  # the same both sides
    0.0
    """
    weights, rays = controller.weights(np.asarray(policy, float)), controller.rays
    z = 1 / np.maximum(np.asarray(depths, float) - controller.offset, 0.0625)
    control = z @ weights[:rays]
    if controller.hidden:
        units = weights[rays:].reshape(controller.hidden, rays + 2)
        inward, bias, outward = units[:, :rays].T, units[:, rays], units[:, rays + 1]
        there, mirrored = z @ inward + bias, z[..., ::-1] @ inward + bias
        control = control + (_squash(there) - _squash(mirrored)) @ outward
    return control


def _squash(x: Floats) -> Floats:
    return x / np.sqrt(1 + x * x)


def ray_angles(rays: int = 20, fan: float = np.pi / 3) -> Floats:
    """Angles of the rays, clockwise from the heading, in rad; shape (rays,)."""
    return np.linspace(-fan, fan, rays)


def reactive_gains(x0: float, y0: float, angles: Floats) -> Floats:
    """K[i] of the paper's eq. 41: a line with intercepts x0 and y0, reflected about the origin.

    >>> reactive_gains(2.0, 10.0, np.array([-1.0, 0.0, 1.0])).tolist()
    [-5.0, 10.0, 5.0]
    """
    return (y0 / x0) * (np.where(angles >= 0, x0, -x0) - angles)


@dataclass(frozen=True)
class GainGrid:
    """A finite policy space: reactive gains for a grid of intercepts x0 and y0."""

    x0: tuple[float, float, int]  # from, to, how many
    y0: tuple[float, float, int]
    rays: int = 20
    fan: float = np.pi / 3  # rad

    @property
    def policies(self) -> Floats:
        """One policy a row; shape (policies, rays)."""
        angles = ray_angles(self.rays, self.fan)
        return np.array([reactive_gains(x0, y0, angles) for x0, y0 in self._intercepts])

    @property
    def names(self) -> list[str]:
        """The names of the policies."""
        return [f"x0={x0:.3f} y0={y0:.2f}" for x0, y0 in self._intercepts]

    @property
    def _intercepts(self) -> list[tuple[float, float]]:
        return [(x0, y0) for x0 in np.linspace(*self.x0) for y0 in np.linspace(*self.y0)]
