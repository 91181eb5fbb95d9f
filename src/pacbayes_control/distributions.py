"""Distributions over policies."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds import kl_categorical

MASS_TOLERANCE = 1e-9  # how far from 1 a vector's sum may be and still be taken as rounding


@dataclass(frozen=True, eq=False)
class Categorical:
    """A probability for each of finitely many policies.

    The vector is checked and scaled to sum to one; what rounding is left is part of the meaning:
    the distribution is `probabilities` divided by their exact sum.

    >>> Categorical.uniform(4).probabilities
    array([0.25, 0.25, 0.25, 0.25])
    """

    probabilities: NDArray[np.float64]  # (policies,), at least 0

    def __init__(self, probabilities: ArrayLike, name: str = "distribution") -> None:
        raw = np.asarray(probabilities)
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
        record = {"kind": "categorical", "probabilities": self.probabilities.tolist()}
        return (json.dumps(record) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the file that `to_bytes` makes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_record(cls, record: Any, name: str = "distribution") -> Categorical:
        """The distribution that `to_bytes` wrote, from its JSON record."""
        known = isinstance(record, dict) and record.get("kind") == "categorical"
        probabilities = record.get("probabilities") if known else None
        if not isinstance(probabilities, list):
            raise ValueError(f"the {name} holds no categorical distribution")
        return cls(probabilities, name=name)


def _first(mask: NDArray[np.bool_]) -> int:
    return int(np.argmax(mask))
