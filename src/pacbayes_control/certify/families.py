"""Families of distributions of environments, and the divergence between two members, exactly.

Each has `sample(rng, size)` and `divergence_from(training, name)`: D(self‖training), where self is
the shifted one, in closed form and rounded upwards; the names are those of `bounds.divergences`. It
is infinite if self has mass where training has none, unless the divergence allows for it.

Each family has formulas for kl, for total variation, and for ln E_D[(dD'/dD)^α], from which
Rényi's, chi-squared (α = 2) and Hellinger's (α = ½) divergences follow.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from pacbayes_control.bounds import kl_beta, kl_categorical, kl_gaussian
from pacbayes_control.bounds.divergences import named_divergence

Floats = NDArray[np.float64]

ROUNDING = 1e-12  # relative, and of each term if terms cancel
TINY = 1e-15  # absolute rounding error of a few operations on numbers near 1
FAR = 690.0  # logits beyond it belong to probabilities that underflow


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

    def _space(self) -> tuple[Any, ...]:
        """The family and the values, which are the same for distributions that are compared."""
        return (type(self),)

    def divergence_from(self, training: Any, divergence: str = "kl") -> float:
        """D(self‖training).

        >>> round(Beta(1, 1).divergence_from(Beta(0.8, 1.25)), 5)
        0.08185
        """
        if not isinstance(training, Family) or self._space() != training._space():
            raise ValueError(
                f"{self} and {training} have no divergence in closed form: compare members of one "
                "family, on the same values"
            )
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
            moment = self._log_moment(training, 2.0)
            return math.expm1(moment) * (1 + ROUNDING) if moment < 700 else math.inf
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
        return float(scipy.special.betaln(self.alpha, self.beta))

    def _space(self) -> tuple[Any, ...]:
        return Beta, self.low, self.high

    def _kl(self, training: Beta) -> float:
        return kl_beta(self.alpha, self.beta, training.alpha, training.beta)

    def _log_moment(self, training: Beta, order: float) -> float:
        a = order * self.alpha + (1 - order) * training.alpha
        b = order * self.beta + (1 - order) * training.beta
        if not (a > 0 and b > 0):
            return math.inf
        constant = float(scipy.special.betaln(a, b))
        terms = constant, -order * self._constant, (order - 1) * training._constant
        # A logarithm of B is a sum of logarithms of Γ, which cancel.
        largest = max(a + b, self.alpha + self.beta, training.alpha + training.beta)
        lost = 1 + 0.1 * (1 + order) * abs(math.lgamma(largest))
        lost *= 1 + _cancelled(order * self.alpha, (1 - order) * training.alpha)
        lost *= 1 + _cancelled(order * self.beta, (1 - order) * training.beta)
        return _outwards(terms, order, lost)

    def _total_variation(self, training: Beta) -> float:
        if max(self.alpha + self.beta, training.alpha + training.beta) > 1e7:
            # There the logarithms of B are too coarse to find where the densities cross.
            distance = self.divergence_from(training, "hellinger")
            return math.sqrt(distance * (2 - distance))
        # By s = ln(x/(1-x)), so that both ends are as finely resolved as the middle. The ratio of
        # the densities has at most one extremum, so it is 1 at most twice. Further points do no
        # harm: the sum grows towards the exact value, and never exceeds it.
        a, b = self.alpha - training.alpha, self.beta - training.beta
        constant = training._constant - self._constant

        def ratio(s: float) -> float:
            return constant - a * float(np.logaddexp(0, -s)) - b * float(np.logaddexp(0, s))

        middle = math.log(a / b) if a * b > 0 else 0.0
        ends = [-FAR, min(max(middle, -FAR), FAR), FAR]
        points = set(ends)
        for left, right in pairwise(ends):
            if ratio(left) * ratio(right) < 0:
                root = scipy.optimize.brentq(ratio, left, right, xtol=1e-13, maxiter=1000)
                points.add(cast(float, root))
        cuts = np.array(sorted(points))
        difference = np.diff(self._below(cuts) - training._below(cuts))
        beyond = self._beyond() + training._beyond()  # counted as if all of this mass differed
        return float(np.abs(difference).sum() / 2) + beyond + 1e-12

    def _below(self, s: Floats) -> Floats:
        """The distribution function at logit s."""
        x, rest = 1 / (1 + np.exp(-s)), 1 / (1 + np.exp(s))
        lower = scipy.special.betainc(self.alpha, self.beta, x)
        return np.where(s < 0, lower, 1 - scipy.special.betainc(self.beta, self.alpha, rest))

    def _beyond(self) -> float:
        """The mass at both ends that is beyond logits of ±FAR."""
        end = math.exp(-FAR)
        low = scipy.special.betainc(self.alpha, self.beta, end)
        return float(low + scipy.special.betainc(self.beta, self.alpha, end))


@dataclass(frozen=True)
class Gaussian(Family):
    """A normal distribution of one number."""

    mean: float
    std: float

    def __post_init__(self) -> None:
        if not (abs(self.mean) < 1e100 and 1e-100 < self.std < 1e100):
            raise ValueError("a Gaussian needs a finite mean and a positive standard deviation")

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Floats:
        """Independent draws."""
        return rng.normal(self.mean, self.std, size)

    def _kl(self, training: Gaussian) -> float:
        kl = kl_gaussian([self.mean], [self.std**2], [training.mean], [training.std**2])
        return kl * (1 + ROUNDING) + TINY

    def _log_moment(self, training: Gaussian, order: float) -> float:
        s, t = self.std**2, training.std**2
        mixed = order * t + (1 - order) * s  # proportional to the variance of the product
        if not mixed > 0:
            return math.inf
        moved = order * (order - 1) * (self.mean - training.mean) ** 2 / (2 * mixed)
        terms = moved, (1 - order) / 2 * math.log(s), order / 2 * math.log(t)
        lost = _cancelled(order * t, (1 - order) * s) * (1 + abs(moved))
        return _outwards((*terms, -math.log(mixed) / 2), order, lost)

    def _total_variation(self, training: Gaussian) -> float:
        # In units of the narrower, around its mean: x = m + s z, and (x - n)/t = d + r z. Densities
        # are equal where (1-r²) z² - 2rd z - (d² + 2 ln(1/r)) = 0, whose discriminant is a sum.
        narrow, wide = (self, training) if self.std <= training.std else (training, self)
        r, d = narrow.std / wide.std, (narrow.mean - wide.mean) / wide.std
        a, c = (1 - r) * (1 + r), -(d * d + 2 * math.log(1 / r))
        root = math.sqrt(d * d - 2 * a * math.log(r))
        far = r * d + math.copysign(root, d)  # the root of larger size, times a
        roots = {far / a} if a > 1e-300 and abs(far) < 1e300 * a else set()
        roots |= {c / far} if far else set()
        points = np.array([-np.inf, *sorted(roots), np.inf])
        ours, theirs = scipy.special.ndtr(points), scipy.special.ndtr(d + r * points)
        difference = np.diff(ours) - np.diff(theirs)
        return float(np.abs(difference).sum() / 2) + 1e-12


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
        """Widths of both ranges, and of their intersection."""
        shared = min(self.high, training.high) - max(self.low, training.low)
        return self.high - self.low, training.high - training.low, max(shared, 0.0)

    def _within(self, training: Uniform) -> bool:
        return training.low <= self.low and self.high <= training.high

    def _kl(self, training: Uniform) -> float:
        here, there, _ = self._overlap(training)
        if not self._within(training):
            return math.inf
        return math.log(there / here) * (1 + ROUNDING) + TINY

    def _log_moment(self, training: Uniform, order: float) -> float:
        here, there, shared = self._overlap(training)
        if shared == 0 or (order > 1 and not self._within(training)):
            return math.inf if order > 1 else -math.inf
        terms = math.log(shared), -order * math.log(here), (order - 1) * math.log(there)
        return _outwards(terms, order)

    def _total_variation(self, training: Uniform) -> float:
        here, there, shared = self._overlap(training)
        return (1 - shared / max(here, there)) * (1 + ROUNDING) + TINY


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

    def _space(self) -> tuple[Any, ...]:
        return Discrete, len(self.probabilities)

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
        return _outwards((float(np.logaddexp.reduce(logs)),), order, float(np.abs(logs).max()))

    def _total_variation(self, training: Discrete) -> float:
        gap = np.abs(np.array(self.probabilities) - np.array(training.probabilities)).sum() / 2
        return float(gap) * (1 + ROUNDING) + TINY


@dataclass(frozen=True)
class Product(Family):
    """Independent parts, each of a family."""

    parts: tuple[Family, ...]

    def __init__(self, *parts: Family) -> None:
        if not parts:
            raise ValueError("a product needs at least one part")
        object.__setattr__(self, "parts", tuple(parts))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> NDArray:
        """Independent draws; the parts along the last axis."""
        return np.stack([part.sample(rng, size) for part in self.parts], axis=-1)

    def _space(self) -> tuple[Any, ...]:
        return Product, *(part._space() for part in self.parts)

    def _pairs(self, training: Product) -> zip[tuple[Family, Family]]:
        return zip(self.parts, training.parts, strict=True)

    def _kl(self, training: Product) -> float:
        return sum(part._kl(other) for part, other in self._pairs(training)) * (1 + ROUNDING)

    def _log_moment(self, training: Product, order: float) -> float:
        moments = [part._log_moment(other, order) for part, other in self._pairs(training)]
        return sum(moments) * (1 + ROUNDING)

    def _total_variation(self, training: Product) -> float:
        """At most the probability that the best couplings of the parts do not all agree."""
        pairs = self._pairs(training)
        agree = math.prod(1 - min(part._total_variation(other), 1.0) for part, other in pairs)
        return (1 - agree) * (1 + ROUNDING)


def _cancelled(x: float, y: float) -> float:
    """A bound on the relative rounding error of x + y, in units of ROUNDING."""
    return 1e-3 * (abs(x) + abs(y)) / abs(x + y)


def _check_range(low: float, high: float) -> None:
    if not (low < high and math.isfinite(low) and math.isfinite(high - low)):
        raise ValueError(f"the range from {low} to {high} is not two increasing finite numbers")


def _outwards(terms: tuple[float, ...], order: float, more: float = 0.0) -> float:
    """A sum that is at least 0 for α > 1 and at most 0 for α < 1, rounded away from 0."""
    loss = ROUNDING * (sum(map(abs, terms)) + more + 1e-3)
    return max(math.fsum(terms), 0.0) + loss if order > 1 else min(math.fsum(terms), 0.0) - loss
