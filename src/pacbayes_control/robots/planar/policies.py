"""Policies of robots in the plane: from the depths along their rays to one control.

All three classes are one formula, u = K·z + Σ_h v_h (σ(a_h·z + b_h) - σ(a_h·z' + b_h)), where
z = 1/(y - offset) are inverse depths, z' is z in reverse order and σ(x) = x/√(1 + x²). A class
turns a row of its parameters into a row of this formula's `weights`, which the kernel reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from operator import attrgetter
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Controller:
    """A class of policies: the meaning of a row of parameters."""

    kind: str  # for records
    rays: int  # depths that a policy reads
    hidden: int  # units
    offset: float  # m, subtracted from a depth before it is inverted

    @property
    def name(self) -> str:
        """A short name, for records, with the number of rays if it is not 20."""
        return self.kind if self.rays == 20 else f"{self.kind}, {self.rays} rays"

    parameters = property(attrgetter("rays"))  # how many a policy has: a gain for each ray

    def weights(self, policies: Floats) -> Floats:
        """Rows of parameters (…, parameters) as rows of weights (…, rays + hidden (rays + 2))."""
        return policies

    def respond(self, policy: Floats, depths: Floats) -> Floats:
        """The control of one policy for depths (…, rays): the formula, in NumPy.

        >>> alike = Linear().respond(np.arange(10.0), np.full(20, 5.0))  # on both sides
        >>> round(abs(float(alike)), 9)
        0.0
        """
        weights, rays = self.weights(np.asarray(policy, float)), self.rays
        z = 1 / np.maximum(np.asarray(depths, float) - self.offset, 0.0625)
        control = z @ weights[:rays]
        if self.hidden:
            units = weights[rays:].reshape(self.hidden, rays + 2)
            inward, bias, outward = units[:, :rays].T, units[:, rays], units[:, rays + 1]
            sums = z @ inward + bias, z[..., ::-1] @ inward + bias
            there, mirrored = (x / np.sqrt(1 + x * x) for x in sums)
            control = control + (there - mirrored) @ outward
        return control


class OddController(Controller):
    """A class of policies whose control changes its sign in the mirror image of a scene.

    A policy is the gains of the rays to the right, from the innermost to the outermost, then a_h
    (rays), b_h and v_h of each hidden unit.
    """

    fewest: ClassVar[int] = 0  # hidden units

    def __post_init__(self) -> None:
        if self.rays < 2 or self.rays % 2:
            raise ValueError(
                f"{self.rays} rays: an even number is needed, half of them on each side"
            )
        if self.hidden < self.fewest:
            raise ValueError(f"a network of {self.hidden} hidden units: at least one is needed")

    @property
    def parameters(self) -> int:
        """Gains, and a row of weights, a bias and an output weight for each hidden unit."""
        return self.rays // 2 + self.hidden * (self.rays + 2)

    def weights(self, policies: Floats) -> Floats:
        """The gains of both sides, from the leftmost ray to the rightmost, then hidden units."""
        right, units = np.split(policies, [self.rays // 2], axis=-1)
        return np.concatenate([-right[..., ::-1], right, units], axis=-1)


@dataclass(frozen=True)
class Gains(Controller):
    """u = K · (1/y) with any gains K, one for each ray (paper: eq. 40)."""

    rays: int = 20
    hidden: int = field(default=0, init=False)
    offset: float = field(default=0.0, init=False)

    kind = "gains"


@dataclass(frozen=True)
class Linear(OddController):
    """u = K · (1/y) with K odd: K[i] = -K[j] where θ[i] = -θ[j] (paper: Section 7.1)."""

    rays: int = 20
    hidden: int = field(default=0, init=False)
    offset: float = field(default=0.0, init=False)

    kind = "linear"


@dataclass(frozen=True)
class Network(OddController):
    """A linear part as in `Linear`, and hidden units whose sum is odd under reflection too.

    In a mirrored scene the control changes its sign, by construction: this need not be learnt, and
    no policy can have a constant control, with which the robot would avoid every obstacle by
    driving in a circle at the start.
    """

    hidden: int = 4
    offset: float = 0.2  # m; less than the robot's radius, the smallest depth before a contact
    rays: int = 20

    fewest = 1

    @property
    def kind(self) -> str:  # type: ignore[override]
        """With the number of hidden units, and the offset if it is not 0.2 m."""
        return f"network-{self.hidden}" + ("" if self.offset == 0.2 else f"-offset-{self.offset}")


KINDS = {"gains": Gains, "linear": Linear, "network": Network}  # by name in a record


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
    policies: Floats = field(init=False, repr=False, compare=False)  # (policies, rays)
    names: list[str] = field(init=False, repr=False, compare=False)  # of the policies

    def __post_init__(self) -> None:
        angles = ray_angles(self.rays, self.fan)
        intercepts = [*product(np.linspace(*self.x0), np.linspace(*self.y0))]
        policies = np.array([reactive_gains(x0, y0, angles) for x0, y0 in intercepts])
        policies.setflags(write=False)  # every task with this grid has the same array
        names = [f"x0={x0:.3f} y0={y0:.2f}" for x0, y0 in intercepts]
        vars(self).update(policies=policies, names=names)
