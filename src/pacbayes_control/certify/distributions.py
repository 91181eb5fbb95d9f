"""Distributions over policies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds import kl_categorical, kl_gaussian
from pacbayes_control.certify.files import has_type, sha256
from pacbayes_control.certify.ranges import EnvironmentRange, merged_ranges, ranges_from

DIGEST = re.compile("[nvs][0-9a-f]{16}")  # of a row, as in `Costs.rows`
MASS_TOLERANCE = 1e-9  # how far from 1 a sum of probabilities may be by rounding


@dataclass(frozen=True, eq=False)
class Categorical:
    """A probability for each of finitely many policies.

    The vector is checked and scaled to sum to one. Its sum may still differ from 1 by rounding: the
    distribution is defined as `probabilities` divided by their exact sum. It records which
    environments it depends on, also in files: as a prior, it may be used only with others.

    >>> Categorical.uniform(4).probabilities
    array([0.25, 0.25, 0.25, 0.25])
    """

    probabilities: NDArray[np.float64]  # (policies,), at least 0
    seen: tuple[EnvironmentRange, ...] | None = ()  # which it depends on; None if unknown
    rows: frozenset[str] = frozenset()  # the same for rows of tables, by their digests
    words: str = ""  # where it came from, for the certificate it is the prior of; not in its file

    def __init__(
        self,
        probabilities: ArrayLike,
        name: str = "distribution",
        seen: Iterable[EnvironmentRange] | None = (),
        rows: Iterable[str] = (),
        words: str = "",
    ) -> None:
        p = _row_of_numbers(probabilities, name, "policy")
        if np.any(p < 0):
            at = _first(p < 0)
            raise ValueError(f"the {name} is negative ({p[at]:g}) at policy {at}")
        if abs(p.sum() - 1) > MASS_TOLERANCE:
            raise ValueError(f"the {name} sums to {p.sum():.10g}, not to 1: scale it")
        if abs(p.sum() - 1) > 1e-15 * p.size:
            p /= p.sum()
        p.setflags(write=False)
        known = None if seen is None else merged_ranges(seen)
        # The record is frozen: its fields are set past `__setattr__`.
        vars(self).update(probabilities=p, seen=known, rows=frozenset(rows), words=words)

    @classmethod
    def uniform(cls, policies: int) -> Categorical:
        """The same probability for each policy."""
        return cls(np.full(policies, 1 / policies))

    @classmethod
    def uniform_over_distinct(cls, policies: NDArray) -> Categorical:
        """The same probability for each distinct row, divided among equal rows.

        Equal policies have equal costs, so a bound is not tighter with a full share for each.

        >>> Categorical.uniform_over_distinct(np.array([[1.0], [2.0], [2.0]])).probabilities
        array([0.5 , 0.25, 0.25])
        """
        _, group, counts = np.unique(policies, axis=0, return_inverse=True, return_counts=True)
        return cls(1 / len(counts) / counts[group.reshape(-1)])

    @classmethod
    def project(cls, raw: ArrayLike) -> Categorical:
        """A distribution by clipping and scaling, for the result of a solver.

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
        """The policy that has all the mass; an error if there is more than one.

        >>> Categorical.one(2, 4).single()
        2
        """
        policy = int(np.argmax(self.probabilities))
        if self.probabilities[policy] != 1:
            raise ValueError("a certificate for one policy needs all mass on it")
        return policy

    def __len__(self) -> int:
        return self.probabilities.size

    def kl(self, prior: Categorical) -> float:
        """KL(self‖prior); an error if the prior is zero where this distribution is not.

        >>> Categorical.one(0, 4).kl(Categorical.uniform(4)) == np.log(4)
        np.True_
        """
        infinite = (self.probabilities > 0) & (prior.probabilities == 0)
        if np.any(infinite):
            raise ValueError(
                f"the prior is zero at policy {_first(infinite)}, where the posterior is not: "
                "the divergence is infinite and nothing can be certified"
            )
        return kl_categorical(self.probabilities, prior.probabilities)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Any:
        """Draw the indices of policies."""
        return rng.choice(self.probabilities.size, size=size, p=self.probabilities)

    def to_bytes(self) -> bytes:
        """JSON text, from which `from_record` recovers every bit."""
        record = {"kind": "categorical", "probabilities": self.probabilities.tolist()}
        if self.seen is not None:
            record |= {"seen": self.seen, "rows": sorted(self.rows)}
        return (json.dumps(record) + "\n").encode()

    @classmethod
    def from_record(cls, record: Any, name: str = "distribution") -> Categorical:
        """The distribution from its JSON record.

        In records of earlier versions, the environments that it depends on are unknown.
        """
        known = isinstance(record, dict) and record.get("kind") == "categorical"
        probabilities = record.get("probabilities") if known else None
        if not isinstance(probabilities, list):
            raise ValueError(f"the {name} holds no categorical distribution")
        if "seen" not in record and "rows" not in record:
            return cls(probabilities, name=name, seen=None)
        rows: Any = record.get("rows")
        if not has_type(rows, list[str]) or not all(map(DIGEST.fullmatch, rows)):
            raise ValueError(f"the {name} does not say which rows of a table it depends on")
        return cls(probabilities, name, ranges_from(record.get("seen"), f"the {name}"), rows)


@dataclass(frozen=True, eq=False)
class DiagonalGaussian:
    """Independent normal distributions of a policy's parameters, N(μ, diag(s)).

    It records which environments it depends on, also in files: as a prior, it may be used only with
    others.

    >>> DiagonalGaussian([1.0, 2.0], 0.01).variance
    array([0.01, 0.01])
    """

    mean: NDArray[np.float64]  # (parameters,)
    variance: NDArray[np.float64]  # (parameters,), positive
    seen: tuple[EnvironmentRange, ...] = ()  # environments that it depends on

    def __init__(
        self,
        mean: ArrayLike,
        variance: ArrayLike,
        name: str = "Gaussian distribution",
        seen: Iterable[EnvironmentRange] = (),
    ) -> None:
        mean = _row_of_numbers(mean, f"mean of the {name}", "parameter")
        variance = np.asarray(variance)
        if variance.ndim == 0:
            variance = np.full(mean.shape, variance)
        variance = _row_of_numbers(variance, f"variance of the {name}", "parameter")
        if variance.shape != mean.shape:
            raise ValueError(
                f"the {name} has {mean.size} means and {variance.size} variances: give one each"
            )
        if not np.all(variance > 0):
            at = _first(~(variance > 0))
            raise ValueError(
                f"the {name} has variance {variance[at]:g} at parameter {at}: it must be positive"
            )
        variance.setflags(write=False)
        mean.setflags(write=False)
        vars(self).update(mean=mean, variance=variance, seen=merged_ranges(seen))  # it is frozen

    def __len__(self) -> int:
        return self.mean.size

    def __repr__(self) -> str:
        return f"DiagonalGaussian({len(self)} parameters)"

    @property
    def parameters_digest(self) -> str:
        """SHA-256 of the means and the variances alone."""
        return sha256(self.mean.tobytes() + self.variance.tobytes())

    def with_data_used(self, *more: EnvironmentRange) -> DiagonalGaussian:
        """The same distribution with more environments that it depends on."""
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
        numbers = {"mean": self.mean.tolist(), "variance": self.variance.tolist()}
        record = {"kind": "diagonal gaussian", **numbers, "seen": self.seen}
        return (json.dumps(record) + "\n").encode()

    @classmethod
    def from_record(cls, record: Any, name: str = "Gaussian distribution") -> DiagonalGaussian:
        """The distribution from its JSON record."""
        known = isinstance(record, dict) and record.get("kind") == "diagonal gaussian"
        mean = record.get("mean") if known else None
        variance = record.get("variance") if known else None
        if not isinstance(mean, list) or not isinstance(variance, list):
            raise ValueError(f"the {name} holds no Gaussian distribution")
        return cls(mean, variance, name, ranges_from(record.get("seen"), f"the {name}"))


D = TypeVar("D", Categorical, DiagonalGaussian)


def distribution_from_record(record: Any, name: str) -> Categorical | DiagonalGaussian:
    """A distribution of either kind, from its JSON record."""
    if isinstance(record, dict) and record.get("kind") == "diagonal gaussian":
        return DiagonalGaussian.from_record(record, name)
    return Categorical.from_record(record, name)


def check_dimensions(posterior: DiagonalGaussian, prior: DiagonalGaussian) -> None:
    """An error unless both have the same number of parameters."""
    if len(posterior) != len(prior):
        raise ValueError(
            f"the posterior has {len(posterior)} parameters and the prior {len(prior)}: "
            "both must be over the same policies"
        )


def _row_of_numbers(values: ArrayLike, name: str, entry: str) -> NDArray[np.float64]:
    """A row of finite numbers, copied; an error calls its entries by the word `entry`."""
    try:
        raw = np.asarray(values)
    except ValueError:  # rows of different lengths
        raw = np.empty((), object)
    if raw.dtype.kind not in "biuf" or raw.ndim != 1 or raw.size == 0:
        found = f"an array of shape {raw.shape} and type {raw.dtype}"
        raise ValueError(f"the {name} is not a row of numbers, but {found}")
    row = raw.astype(float)
    if not np.all(np.isfinite(row)):
        raise ValueError(f"the {name} is NaN or infinite at {entry} {_first(~np.isfinite(row))}")
    return row


def _first(mask: NDArray[np.bool_]) -> int:
    return int(np.argmax(mask))
