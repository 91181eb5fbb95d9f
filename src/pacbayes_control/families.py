"""Families that environments are drawn from, and how far one member is from another, exactly.

Each has `sample(rng, size)` and `divergence_from(training, name)`: D(self‖training), self being the
shifted one, in closed form and rounded upwards; the names are those of `bounds.divergences`. It is
infinite if self can be where training never is, unless the divergence allows for it.

For all families but for total variation, one formula serves every divergence: that of
ln E_D[(dD'/dD)^α], from which Rényi's, chi-squared (α = 2) and Hellinger's (α = ½) follow.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, betaincc, betaln, ndtr

from pacbayes_control.bounds import kl_beta, kl_categorical, kl_gaussian
from pacbayes_control.bounds.divergences import named_divergence

Floats = NDArray[np.float64]

ROUNDING = 1e-12  # relative, and of each term where terms cancel


class Family(ABC):
    """A distribution of a known form."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> NDArray:
        """Independent draws."""

    @abstractmethod
    def _kl(self, training: Any) -> float:
        """KL(self‖training)."""

    @abstractmethod
    def _log_moment(self, training: Any, order: float) -> float:
        """ln E_D[(dD'/dD)^α], rounded away from zero."""

    @abstractmethod
    def _total_variation(self, training: Any) -> float:
        """Total variation, or an upper bound on it."""

    def _check_comparable(self, training: Any) -> None:
        if type(training) is not type(self):
            raise ValueError(
                f"{type(self).__name__} and {type(training).__name__} have no divergence in closed "
                "form: compare members of one family"
            )

    def divergence_from(self, training: Any, divergence: str = "kl") -> float:
        """D(self‖training).

        >>> round(Beta(1, 1).divergence_from(Beta(0.8, 1.25)), 5)
        0.08185
        """
        self._check_comparable(training)
        chosen = named_divergence(divergence)
        if divergence == "total-variation":
            return min(self._total_variation(training), 1.0)
        if divergence == "kl":
            return self._kl(training)
        if divergence == "reverse-kl":
            return training._kl(self)
        if divergence == "hellinger":
            return min(-math.expm1(self._log_moment(training, 0.5)) * (1 + ROUNDING), 1.0)
        if divergence == "chi-squared":
            return math.expm1(self._log_moment(training, 2.0)) * (1 + ROUNDING)
        if chosen.order == math.inf:
            raise ValueError("renyi-inf has no closed form here: choose another divergence")
        return self._log_moment(training, chosen.order) / (chosen.order - 1)


@dataclass(frozen=True)
class Beta(Family):
    """Beta(α, β), stretched from [0, 1] to [low, high] (paper: eq. 42)."""

    alpha: float
    beta: float
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.alpha < math.inf and 0 < self.beta < math.inf):
            raise ValueError("the parameters of a Beta distribution must be positive and finite")
        _check_range(self.low, self.high)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Floats:
        """Independent draws."""
        return self.low + rng.beta(self.alpha, self.beta, size) * (self.high - self.low)

    def density(self, x: NDArray) -> Floats:
        """The probability density."""
        width = self.high - self.low
        u = (np.asarray(x, float) - self.low) / width
        with np.errstate(all="ignore"):
            value = u ** (self.alpha - 1) * (1 - u) ** (self.beta - 1)
        return np.where((u < 0) | (u > 1), 0.0, value) / math.exp(self._constant) / width

    @property
    def _constant(self) -> float:
        return float(betaln(self.alpha, self.beta))

    def _check_comparable(self, training: Any) -> None:
        super()._check_comparable(training)
        if (self.low, self.high) != (training.low, training.high):
            raise ValueError("Beta distributions on different ranges have no closed form")

    def _kl(self, training: Beta) -> float:
        return kl_beta(self.alpha, self.beta, training.alpha, training.beta)

    def _log_moment(self, training: Beta, order: float) -> float:
        a = order * self.alpha + (1 - order) * training.alpha
        b = order * self.beta + (1 - order) * training.beta
        if not (a > 0 and b > 0):
            return math.inf
        terms = float(betaln(a, b)), -order * self._constant, (order - 1) * training._constant
        return _outwards(terms, order)

    def _total_variation(self, training: Beta) -> float:
        # The ratio of the densities has at most one extremum, so it is 1 at most twice.
        a, b = self.alpha - training.alpha, self.beta - training.beta
        if a == b == 0:
            return 0.0
        middle = a / (a + b) if a * b > 0 else 0.5
        first, last = 1e-300, 1 - 1e-16  # what lies beyond them is counted as if all differed

        def ratio(x: float) -> float:
            return a * math.log(x) + b * math.log1p(-x) + training._constant - self._constant

        ends = [first, min(max(middle, first), last), last]
        roots = [first]
        for left, right in pairwise(ends):
            if left < right and ratio(left) * ratio(right) < 0:
                roots.append(cast(float, brentq(ratio, left, right, xtol=1e-300)))
        points = np.array([*roots, last])
        mass, difference = 1e-12, 0.0
        for member, sign in ((self, 1), (training, -1)):
            below = betainc(member.alpha, member.beta, points)
            mass += float(below[0] + betaincc(member.alpha, member.beta, last))
            difference = difference + sign * np.diff(below)
        return float(np.abs(difference).sum() / 2) + mass


@dataclass(frozen=True)
class Gaussian(Family):
    """A normal distribution of one number."""

    mean: float
    std: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and 0 < self.std < math.inf):
            raise ValueError("a Gaussian needs a finite mean and a positive standard deviation")

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Floats:
        """Independent draws."""
        return rng.normal(self.mean, self.std, size)

    def _kl(self, training: Gaussian) -> float:
        kl = kl_gaussian([self.mean], [self.std**2], [training.mean], [training.std**2])
        return kl * (1 + ROUNDING) + 1e-15

    def _log_moment(self, training: Gaussian, order: float) -> float:
        s, t = self.std**2, training.std**2
        mixed = order * t + (1 - order) * s  # the variance of the product, but for a factor
        if not mixed > 0:
            return math.inf
        moved = order * (order - 1) * (self.mean - training.mean) ** 2 / (2 * mixed)
        terms = moved, (1 - order) / 2 * math.log(s), order / 2 * math.log(t)
        return _outwards((*terms, -math.log(mixed) / 2), order)

    def _total_variation(self, training: Gaussian) -> float:
        m, s, n, t = self.mean, self.std, training.mean, training.std
        # Where the densities are equal: a x² + 2 b x + c = 0 around the mean of the training.
        d = m - n
        a, b, c = 1 / t**2 - 1 / s**2, d / s**2, 2 * math.log(t / s) - (d / s) ** 2
        if abs(a) * max(s, t) ** 2 < 1e-12:  # equal widths: they meet half way
            roots = [d / 2] if d else []
        else:
            spread = math.sqrt(max(b * b - a * c, 0.0))
            q = -(b + math.copysign(spread, b))
            roots = sorted({q / a, c / q} if q else {0.0})
        points = np.array([-np.inf, *roots, np.inf])
        gained, lost = np.diff(ndtr((points - d) / s)), np.diff(ndtr(points / t))
        return float(np.abs(gained - lost).sum() / 2) + 1e-12


@dataclass(frozen=True)
class Uniform(Family):
    """Uniform on [low, high]; for most divergences the shifted range must lie within the other."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Floats:
        """Independent draws."""
        return rng.uniform(self.low, self.high, size)

    def _overlap(self, training: Uniform) -> tuple[float, float, float]:
        """Widths of both ranges, and of what they share."""
        shared = min(self.high, training.high) - max(self.low, training.low)
        return self.high - self.low, training.high - training.low, max(shared, 0.0)

    def _within(self, training: Uniform) -> bool:
        return training.low <= self.low and self.high <= training.high

    def _kl(self, training: Uniform) -> float:
        here, there, _ = self._overlap(training)
        return math.log(there / here) * (1 + ROUNDING) if self._within(training) else math.inf

    def _log_moment(self, training: Uniform, order: float) -> float:
        here, there, shared = self._overlap(training)
        if shared == 0 or (order > 1 and not self._within(training)):
            return math.inf if order > 1 else -math.inf
        terms = math.log(shared), -order * math.log(here), (order - 1) * math.log(there)
        return _outwards(terms, order)

    def _total_variation(self, training: Uniform) -> float:
        here, there, shared = self._overlap(training)
        return (1 - shared / max(here, there)) * (1 + ROUNDING)


@dataclass(frozen=True)
class Discrete(Family):
    """One of finitely many values, numbered from 0, with these probabilities."""

    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        p = np.asarray(self.probabilities, float)
        if p.ndim != 1 or p.size == 0 or not np.all(p >= 0) or abs(p.sum() - 1) > 1e-9:
            raise ValueError("probabilities must be numbers of at least 0 that sum to 1")
        object.__setattr__(self, "probabilities", tuple((p / p.sum()).tolist()))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> NDArray:
        """Independent draws, as numbers of the values."""
        return rng.choice(len(self.probabilities), size, p=self.probabilities)

    def _check_comparable(self, training: Any) -> None:
        super()._check_comparable(training)
        if len(self.probabilities) != len(training.probabilities):
            raise ValueError(
                f"{len(self.probabilities)} values in one distribution, "
                f"{len(training.probabilities)} in the other"
            )

    def _kl(self, training: Discrete) -> float:
        return kl_categorical(self.probabilities, training.probabilities) * (1 + ROUNDING) + 1e-14

    def _log_moment(self, training: Discrete, order: float) -> float:
        p, q = np.array(self.probabilities), np.array(training.probabilities)
        if order > 1 and np.any((p > 0) & (q == 0)):
            return math.inf
        both = (p > 0) & (q > 0)
        if not both.any():
            return -math.inf
        logs = order * np.log(p[both]) + (1 - order) * np.log(q[both])
        return _outwards((float(np.logaddexp.reduce(logs)),), order)

    def _total_variation(self, training: Discrete) -> float:
        gap = np.abs(np.array(self.probabilities) - np.array(training.probabilities)).sum() / 2
        return float(gap) * (1 + ROUNDING) + 1e-15


@dataclass(frozen=True)
class Product(Family):
    """Independent parts, each of a family: an environment is drawn part by part."""

    parts: tuple[Family, ...]

    def __init__(self, *parts: Family) -> None:
        if not parts:
            raise ValueError("a product needs at least one part")
        object.__setattr__(self, "parts", tuple(parts))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> NDArray:
        """Independent draws; the parts along the last axis."""
        return np.stack([part.sample(rng, size) for part in self.parts], axis=-1)

    def _check_comparable(self, training: Any) -> None:
        super()._check_comparable(training)
        if len(self.parts) != len(training.parts):
            raise ValueError(f"{len(self.parts)} parts in one product, {len(training.parts)}")
        for part, other in zip(self.parts, training.parts, strict=True):
            part._check_comparable(other)

    def _kl(self, training: Product) -> float:
        pairs = zip(self.parts, training.parts, strict=True)
        return sum(part._kl(other) for part, other in pairs) * (1 + ROUNDING)

    def _log_moment(self, training: Product, order: float) -> float:
        pairs = zip(self.parts, training.parts, strict=True)
        return sum(part._log_moment(other, order) for part, other in pairs) * (1 + ROUNDING)

    def _total_variation(self, training: Product) -> float:
        """At most the probability that the best couplings of the parts do not all agree."""
        pairs = zip(self.parts, training.parts, strict=True)
        agree = math.prod(1 - min(part._total_variation(other), 1.0) for part, other in pairs)
        return (1 - agree) * (1 + ROUNDING)


def _check_range(low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"a range from {low} to {high} is none: two finite numbers, rising")


def _outwards(terms: tuple[float, ...], order: float) -> float:
    """A sum that is at least 0 for α > 1 and at most 0 for α < 1, rounded away from 0."""
    loss = ROUNDING * (sum(map(abs, terms)) + 1e-3)
    return max(math.fsum(terms), 0.0) + loss if order > 1 else min(math.fsum(terms), 0.0) - loss
