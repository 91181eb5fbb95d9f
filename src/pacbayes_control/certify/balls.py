"""Balls of distributions: how far D', where a robot is sent, may be from D, where it was trained.

The size of a ball is an assumption (`Ball`), follows from how environments are drawn
(`ball_between`), or is estimated from samples of both (`ball_of_samples`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds.divergences import named_divergence
from pacbayes_control.bounds.shift import checked_radius
from pacbayes_control.bounds.two_samples import checked_counts, divergence_of_samples

SYMBOLS = {
    "kl": "KL(D′‖D)",
    "reverse-kl": "KL(D‖D′)",
    "total-variation": "TV(D′, D)",
    "chi-squared": "χ²(D′‖D)",
    "hellinger": "H²(D′, D)",
}
Counts = tuple[int, ...]  # how often each cell was met
MOST_CELLS, MOST_COUNTED = 200, 10_000_000  # of a sample: more would take long to verify


@dataclass(frozen=True)
class Ball:
    """All distributions D' with a divergence D(D'‖D) of at most `radius`.

    >>> print(Ball("kl", 0.0818507503))
    KL(D′‖D) ≤ 0.08185
    """

    divergence: str  # kl, reverse-kl, total-variation, chi-squared, hellinger or renyi-ORDER
    radius: float  # B
    origin: str = "assumed"  # how the radius is known, in words
    delta: float = 0.0  # the probability that an estimated radius is too small
    samples: tuple[Counts, Counts] | None = None  # of D' and of D, where it was estimated

    def __post_init__(self) -> None:
        if not isinstance(self.divergence, str):
            raise ValueError("a ball is a divergence and a radius, such as Ball('kl', 0.05)")
        named_divergence(self.divergence)
        radius = float(checked_radius(self.radius)) + 0.0  # no minus zero
        if (self.samples is not None) != (self.delta > 0) or not 0 <= self.delta < 1:
            raise ValueError("a ball that was estimated has samples, and a delta that pays for it")
        for counts in self.samples or ():
            if len(counts) > MOST_CELLS or sum(counts) > MOST_COUNTED:
                raise ValueError(
                    f"a sample has at most {MOST_CELLS} cells and {MOST_COUNTED:,} environments"
                )
        if not self.origin or not self.origin.isprintable():
            raise ValueError("the ball does not say in plain words how its size is known")
        object.__setattr__(self, "radius", radius)

    @classmethod
    def parse(cls, text: str) -> Ball:
        """From words such as kl:0.08, total-variation:0.1 or renyi-2:0.3.

        >>> Ball.parse("renyi-2:0.3").radius
        0.3
        """
        name, colon, number = text.rpartition(":")
        try:
            radius = float(number.replace("_", "?"))  # Python takes 1_0 for a number
        except ValueError:
            colon, radius = "", math.nan
        if not colon:
            raise ValueError(f"ball {text!r}: write DIVERGENCE:B, such as kl:0.08")
        return cls(name, radius)

    @classmethod
    def from_record(cls, record: Any) -> Ball:
        """Read what `to_record` wrote; a stranger's file may hold anything."""
        kinds = {"divergence": str, "radius": float, "origin": str, "delta": float}
        if not isinstance(record, Mapping) or set(record) != {*kinds, "samples"}:
            raise ValueError("a ball has other fields")
        if any(type(record[name]) is not kind for name, kind in kinds.items()):
            raise ValueError("a ball's fields are of other kinds")
        samples = record["samples"]
        if samples is not None:
            if not isinstance(samples, list) or len(samples) != 2:
                raise ValueError("a ball has two samples, or none")
            if any(type(k) is not int for part in samples for k in _listed(part)):
                raise ValueError("a ball's samples are counts")
            pair = tuple(tuple(checked_counts(part, "a").tolist()) for part in samples)
            if len(pair[0]) != len(pair[1]):
                raise ValueError("a ball's samples have different cells")
            samples = pair
        return cls(**{**record, "samples": samples})

    def to_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        record = asdict(self)
        return record | {"samples": [list(part) for part in self.samples] if self.samples else None}

    @property
    def symbol(self) -> str:
        """The divergence as it is written."""
        return SYMBOLS.get(self.divergence) or f"D_{self.divergence[6:]}(D′‖D)"

    def __str__(self) -> str:
        return f"{self.symbol} ≤ {round_down(self.radius)}"


def round_down(radius: float) -> str:
    """Four digits, rounded downwards: nothing is promised for a ball that is larger.

    >>> round_down(0.0818507503), round_down(0.05)
    ('0.08185', '0.05')
    """
    floor = Context(prec=4, rounding=ROUND_FLOOR).create_decimal(Decimal(repr(float(radius))))
    return format(floor.normalize(), "f")


class Comparable(Protocol):
    """A distribution that knows how far it is from another of its kind: those of `families`."""

    def divergence_from(self, training: Any, divergence: str = "kl") -> float:
        """D(self‖training)."""
        ...


def ball_between(shifted: Comparable, training: Any, divergence: str = "kl") -> Ball:
    """The smallest ball around `training` that holds `shifted`, by closed forms.

    >>> from pacbayes_control.certify.families import Beta
    >>> print(ball_between(Beta(1, 1), Beta(0.8, 1.25)))  # the paper's
    KL(D′‖D) ≤ 0.08185
    """
    radius = shifted.divergence_from(training, divergence)
    if not math.isfinite(radius):
        raise ValueError(
            f"the {divergence} divergence is infinite: {shifted} is often where {training} hardly "
            "ever or never is; choose another divergence, such as total-variation"
        )
    return Ball(divergence, radius, f"that of {shifted} from {training}")


def ball_of_samples(
    shifted: ArrayLike,
    training: ArrayLike,
    delta: float,
    divergence: str = "kl",
    cells: Sequence[Any] | None = None,
    edges: Sequence[float] | None = None,
) -> Ball:
    """A ball that holds D' with probability at least 1 - δ, from a feature of sampled environments.

    shifted, training: the feature of each environment. cells: all values that it can take, met or
    not; or edges: where to cut a number into cells. Neither may depend on the samples, which are
    independent of each other, and each i.i.d. For D' and D to be no further apart than their cells
    are, they must differ in nothing but how often each cell occurs: within a cell, environments are
    drawn alike. For the same cells and δ all divergences hold at once, so the best of them may be
    chosen, even after a look at the samples.

    >>> rng = np.random.default_rng(0)
    >>> city, country = rng.choice(["dry", "wet"], 500), rng.choice(["dry", "wet"], 2000)
    >>> print(ball_of_samples(country, city, 0.005, cells=["dry", "wet"]))
    KL(D′‖D) ≤ 0.04346
    """
    if (cells is None) == (edges is None):
        raise ValueError("give the cells that a feature can fall in, or the edges between them")
    samples = [np.asarray(sample) for sample in (shifted, training)]
    for name, sample in zip(("shifted", "training"), samples, strict=True):
        if sample.ndim != 1 or sample.size == 0:
            raise ValueError(f"the {name} sample is empty, or not one feature an environment")
    if cells is not None:
        there, here = (_in_cells(sample, cells) for sample in samples)
    else:
        cuts = np.asarray(edges, float)
        finite = cuts.ndim == 1 and cuts.size > 0 and bool(np.all(np.isfinite(cuts)))
        if not finite or not np.all(np.diff(cuts) > 0):
            raise ValueError("edges must be rising numbers: the cells are between and beside them")
        there, here = (_between_edges(sample, cuts) for sample in samples)
    radius = divergence_of_samples(there, here, delta, divergence)
    if not math.isfinite(radius):
        raise ValueError(
            f"a cell was never met in one of the samples, or too rarely, so that {divergence} may "
            "be infinite: choose total-variation or hellinger, which hold at once with it; other "
            "cells need new samples, as these have been seen"
        )
    words = f"estimated from {sum(there)} and {sum(here)} environments in {len(here)} cells"
    return Ball(divergence, radius, words, float(delta), (there, here))


def _in_cells(sample: NDArray, cells: Sequence[Any]) -> Counts:
    known = {str(cell): 0 for cell in cells}
    if len(known) != len(cells) or not known:
        raise ValueError("the cells must be told apart by their names")
    labels, counts = np.unique(sample.astype(str), return_counts=True)
    for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
        if label not in known:
            raise ValueError(
                f"{label!r} is none of the cells that were declared: correct it if it is misspelt; "
                "other cells need new samples, as these have been seen"
            )
        known[label] = count
    return tuple(known.values())


def _between_edges(sample: NDArray, cuts: NDArray[np.float64]) -> Counts:
    if sample.dtype.kind not in "biuf" or not np.all(np.isfinite(sample)):
        raise ValueError("edges cut finite numbers, and a sample holds something else")
    counts = np.bincount(np.searchsorted(cuts, sample), minlength=len(cuts) + 1)
    return tuple(counts.tolist())


def _listed(part: Any) -> list[Any]:
    if not isinstance(part, list):
        raise ValueError("a ball's samples are lists of counts")
    return part
