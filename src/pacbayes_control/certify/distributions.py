"""Distributions over policies."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds import kl_categorical, kl_gaussian

MASS_TOLERANCE = 1e-9  # how far from 1 a vector's sum may be and still be taken as rounding


class Seen(NamedTuple):
    """Environments that a distribution depends on: a range of a stream."""

    stream: str
    seed: int
    start: int
    stop: int

    def overlaps(self, other: Seen) -> bool:
        """Whether any environment was drawn by the same random numbers as one of the other's."""
        same = (self.stream, self.seed) == (other.stream, other.seed)
        return same and self.start < other.stop and other.start < self.stop


@dataclass(frozen=True, eq=False)
class Categorical:
    """A probability for each of finitely many policies.

    The vector is checked and scaled to sum to one; what rounding is left is part of the meaning:
    the distribution is `probabilities` divided by their exact sum. It carries with it which
    environments it depends on, into files too: as a prior, it may only be used for others.

    >>> Categorical.uniform(4).probabilities
    array([0.25, 0.25, 0.25, 0.25])
    """

    probabilities: NDArray[np.float64]  # (policies,), at least 0
    seen: tuple[Seen, ...] | None = ()  # environments that it depends on; None if nobody tells
    rows: frozenset[str] = frozenset()  # the same for rows of tables, by their digests

    def __init__(
        self,
        probabilities: ArrayLike,
        name: str = "distribution",
        seen: Iterable[Seen] | None = (),
        rows: Iterable[str] = (),
    ) -> None:
        try:
            raw = np.asarray(probabilities)
        except ValueError:  # rows of different lengths
            raise ValueError(f"the {name} is not a row of numbers") from None
        if raw.dtype.kind not in "biuf":
            raise ValueError(f"the {name} is not a row of numbers")
        p = raw.astype(float)
        if p.ndim != 1 or p.size == 0:
            raise ValueError(f"the {name} must be one row of numbers, not of shape {p.shape}")
        if not np.all(np.isfinite(p)):
            raise ValueError(
                f"the {name} has a NaN or infinite entry at policy {_first(~np.isfinite(p))}"
            )
        if np.any(p < 0):
            at = _first(p < 0)
            raise ValueError(f"the {name} is negative ({p[at]:g}) at policy {at}")
        if abs(p.sum() - 1) > MASS_TOLERANCE:
            raise ValueError(f"the {name} sums to {p.sum():.10g}, not to 1: scale it")
        if abs(p.sum() - 1) > 1e-15 * p.size:
            p /= p.sum()
        p.setflags(write=False)
        object.__setattr__(self, "probabilities", p)
        object.__setattr__(self, "seen", None if seen is None else merged_ranges(seen))
        object.__setattr__(self, "rows", frozenset(rows))

    @classmethod
    def uniform(cls, policies: int) -> Categorical:
        """The same probability for each policy."""
        return cls(np.full(policies, 1 / policies))

    @classmethod
    def uniform_over_distinct(cls, policies: NDArray) -> Categorical:
        """The same probability for each distinct row, shared among rows that are equal.

        Equal policies cost the same everywhere, so nothing is gained by paying for each of them.

        >>> Categorical.uniform_over_distinct(np.array([[1.0], [2.0], [2.0]])).probabilities
        array([0.5 , 0.25, 0.25])
        """
        _, group, counts = np.unique(policies, axis=0, return_inverse=True, return_counts=True)
        return cls(1 / len(counts) / counts[group.reshape(-1)])

    @classmethod
    def project(cls, raw: ArrayLike) -> Categorical:
        """The nearest distribution by clipping and scaling: for what a solver returned.

        >>> Categorical.project([-1e-9, 1.0 + 1e-5]).probabilities
        array([0., 1.])
        """
        clipped = np.clip(np.asarray(raw, dtype=float), 0, None)
        if not np.all(np.isfinite(clipped)) or clipped.sum() == 0:
            raise ValueError("the vector has no mass to project onto the simplex")
        return cls(clipped / clipped.sum())

    @classmethod
    def one(cls, policy: int, policies: int) -> Categorical:
        """All mass on a single policy."""
        p = np.zeros(policies)
        p[policy] = 1
        return cls(p)

    def single(self) -> int:
        """The policy that has all the mass; an error where it is shared.

        >>> Categorical.one(2, 4).single()
        2
        """
        policy = int(np.argmax(self.probabilities))
        if self.probabilities[policy] != 1:
            raise ValueError("a certificate for one policy needs all mass on it")
        return policy

    def __len__(self) -> int:
        return self.probabilities.size

    def with_data_used(
        self, ranges: Iterable[Seen] | None = (), rows: Iterable[str] = ()
    ) -> Categorical:
        """The same distribution, which depends on further environments; None if on unknown ones."""
        known = None if ranges is None or self.seen is None else (*self.seen, *ranges)
        return Categorical(self.probabilities, seen=known, rows=self.rows.union(rows))

    def kl(self, prior: Categorical) -> float:
        """KL(self‖prior); an error, not infinity, where the prior has no mass and this has.

        >>> Categorical.one(0, 4).kl(Categorical.uniform(4)) == np.log(4)
        np.True_
        """
        orphan = (self.probabilities > 0) & (prior.probabilities == 0)
        if np.any(orphan):
            raise ValueError(
                f"the prior is zero at policy {_first(orphan)}, where the posterior is not: "
                "the divergence is infinite and nothing can be certified"
            )
        return kl_categorical(self.probabilities, prior.probabilities)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Any:
        """Draw the indices of policies."""
        return rng.choice(len(self), size=size, p=self.probabilities)

    def to_bytes(self) -> bytes:
        """JSON text, from which `from_record` recovers every bit."""
        record: dict[str, Any] = {
            "kind": "categorical",
            "probabilities": self.probabilities.tolist(),
        }
        if self.seen is not None:
            record |= {"seen": [list(part) for part in self.seen], "rows": sorted(self.rows)}
        return (json.dumps(record) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the file that `to_bytes` makes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_record(cls, record: Any, name: str = "distribution") -> Categorical:
        """The distribution that `to_bytes` wrote, from its JSON record.

        Earlier versions did not write which environments it has seen: that stays unknown.
        """
        known = isinstance(record, dict) and record.get("kind") == "categorical"
        probabilities = record.get("probabilities") if known else None
        if not isinstance(probabilities, list):
            raise ValueError(f"the {name} holds no categorical distribution")
        if "seen" not in record and "rows" not in record:
            return cls(probabilities, name=name, seen=None)
        rows = record.get("rows")
        if not isinstance(rows, list) or not all(_is_digest(row) for row in rows):
            raise ValueError(f"the {name} does not say which rows of a table it has seen")
        return cls(probabilities, name, ranges_from(record.get("seen"), f"the {name}"), rows)


@dataclass(frozen=True, eq=False)
class DiagonalGaussian:
    """Independent normal distributions of a policy's parameters, N(μ, diag(s)).

    It carries with it which environments it depends on, into files too: as a prior, it may only be
    used where the bound counts others.

    >>> DiagonalGaussian([1.0, 2.0], 0.01).variance
    array([0.01, 0.01])
    """

    mean: NDArray[np.float64]  # (parameters,)
    variance: NDArray[np.float64]  # (parameters,), positive
    seen: tuple[Seen, ...] = ()  # sorted, and joined where ranges meet

    def __init__(
        self,
        mean: ArrayLike,
        variance: ArrayLike,
        name: str = "Gaussian distribution",
        seen: Iterable[Seen] = (),
    ) -> None:
        mean = _numbers(mean, f"mean of the {name}")
        variance = np.asarray(variance)
        if variance.ndim == 0:
            variance = np.full(mean.shape, variance)
        variance = _numbers(variance, f"variance of the {name}")
        if variance.shape != mean.shape:
            raise ValueError(
                f"the {name} has {mean.size} means and {variance.size} variances: give one each"
            )
        if not np.all(variance > 0):
            at = _first(~(variance > 0))
            raise ValueError(
                f"the {name} has variance {variance[at]:g} at parameter {at}: it must be positive"
            )
        for array in (mean, variance):
            array.setflags(write=False)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "variance", variance)
        object.__setattr__(self, "seen", merged_ranges(seen))

    def __len__(self) -> int:
        return self.mean.size

    def __repr__(self) -> str:
        return f"DiagonalGaussian({len(self)} parameters)"

    @property
    def parameters_digest(self) -> str:
        """SHA-256 of the means and the variances alone: which distribution it is."""
        return hashlib.sha256(self.mean.tobytes() + self.variance.tobytes()).hexdigest()

    def with_data_used(self, *more: Seen) -> DiagonalGaussian:
        """The same distribution, which depends on further environments."""
        return DiagonalGaussian(self.mean, self.variance, seen=(*self.seen, *more))

    def kl(self, prior: DiagonalGaussian) -> float:
        """KL(self‖prior) (paper: eq. 6).

        >>> DiagonalGaussian([1.0], 1.0).kl(DiagonalGaussian([0.0], 1.0))
        0.5
        """
        check_dimensions(self, prior)
        with np.errstate(all="ignore"):
            kl = kl_gaussian(self.mean, self.variance, prior.mean, prior.variance)
        if not np.isfinite(kl):
            raise ValueError(
                "the posterior is so far from the prior that their divergence overflows"
            )
        return kl

    def log_ratio(self, prior: DiagonalGaussian, policy: NDArray) -> float:
        """ln of this density over the prior's at one policy.

        >>> DiagonalGaussian([1.0], 1.0).log_ratio(DiagonalGaussian([0.0], 1.0), np.array([1.0]))
        0.5
        """
        check_dimensions(self, prior)
        policy = np.asarray(policy, float)
        if policy.shape != self.mean.shape:
            raise ValueError(f"a policy of {len(self)} parameters is needed, not {policy.shape}")
        with np.errstate(all="ignore"):
            here = (policy - self.mean) ** 2 / self.variance + np.log(self.variance)
            there = (policy - prior.mean) ** 2 / prior.variance + np.log(prior.variance)
            ratio = float(np.sum(there - here)) / 2
        if not np.isfinite(ratio):
            raise ValueError("the posterior is so far from the prior that their ratio overflows")
        return ratio

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Draw policies; shape (size, parameters)."""
        return self.mean + np.sqrt(self.variance) * rng.standard_normal((size, len(self)))

    def to_bytes(self) -> bytes:
        """JSON text, from which `from_record` recovers every bit."""
        record = {
            "kind": "diagonal gaussian",
            "mean": self.mean.tolist(),
            "variance": self.variance.tolist(),
            "seen": [list(part) for part in self.seen],
        }
        return (json.dumps(record) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the file that `to_bytes` makes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_record(cls, record: Any, name: str = "Gaussian distribution") -> DiagonalGaussian:
        """The distribution that `to_bytes` wrote, from its JSON record."""
        known = isinstance(record, dict) and record.get("kind") == "diagonal gaussian"
        mean = record.get("mean") if known else None
        variance = record.get("variance") if known else None
        if not isinstance(mean, list) or not isinstance(variance, list):
            raise ValueError(f"the {name} holds no Gaussian distribution")
        return cls(mean, variance, name, ranges_from(record.get("seen"), f"the {name}"))


def distribution_from_record(record: Any, name: str) -> Categorical | DiagonalGaussian:
    """Either kind of distribution, from its JSON record."""
    if isinstance(record, dict) and record.get("kind") == "diagonal gaussian":
        return DiagonalGaussian.from_record(record, name)
    return Categorical.from_record(record, name)


def merged_ranges(ranges: Iterable[Seen]) -> tuple[Seen, ...]:
    """The same environments, in as few ranges as possible."""
    merged: list[Seen] = []
    for part in sorted(ranges):
        last = merged[-1] if merged else None
        if last and last[:2] == part[:2] and part.start <= last.stop:
            merged[-1] = last._replace(stop=max(last.stop, part.stop))
        else:
            merged.append(part)
    return tuple(merged)


def ranges_from(record: Any, name: str) -> tuple[Seen, ...]:
    """The environments that a record says something has seen; an error where it does not say."""
    if not isinstance(record, list) or not all(_is_range(part) for part in record):
        raise ValueError(
            f"{name} does not say which environments it has seen: add "
            '"seen", a list of [stream, seed, start, stop]; empty only if it has learnt from none'
        )
    return tuple(Seen(*part) for part in record)


def _is_digest(row: Any) -> bool:
    """Whether it is a digest of a row as `Costs.rows` makes them: a kind and 16 hex digits."""
    return isinstance(row, str) and re.fullmatch("[nvs][0-9a-f]{16}", row) is not None


def _is_range(part: Any) -> bool:
    return (
        isinstance(part, list)
        and [type(value) for value in part] == [str, int, int, int]
        and 0 <= part[2] <= part[3]
    )


def check_dimensions(posterior: DiagonalGaussian, prior: DiagonalGaussian) -> None:
    """An error if the two are not over as many parameters."""
    if len(posterior) != len(prior):
        raise ValueError(
            f"the posterior has {len(posterior)} parameters and the prior {len(prior)}: "
            "both must be over the same policies"
        )


def _numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """A row of finite numbers, copied."""
    try:
        raw = np.asarray(values)
    except ValueError:  # rows of different lengths
        raw = np.empty(0)
    if raw.dtype.kind not in "biuf" or raw.ndim != 1 or raw.size == 0:
        raise ValueError(f"the {what} is not a row of numbers")
    row = raw.astype(float)
    if not np.all(np.isfinite(row)):
        raise ValueError(f"the {what} is NaN or infinite at parameter {_first(~np.isfinite(row))}")
    return row


def _first(mask: NDArray[np.bool_]) -> int:
    return int(np.argmax(mask))
