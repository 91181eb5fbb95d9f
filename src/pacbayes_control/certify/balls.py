"""Balls of distributions: how far D', of deployment, may be from D, of training.

The radius of a ball is an assumption (`Ball`), or computed from two known distributions
(`ball_between`), or estimated from a sample of each (`ball_of_samples`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds import divergences
from pacbayes_control.bounds.shift import checked_radius
from pacbayes_control.certify.files import check_record
from pacbayes_control.certify.text import as_number, round_down

SYMBOLS = {
    "kl": "KL(D′‖D)",
    "reverse-kl": "KL(D‖D′)",
    "total-variation": "TV(D′, D)",
    "chi-squared": "χ²(D′‖D)",
    "hellinger": "H²(D′, D)",
}
Counts = tuple[int, ...]  # the number of environments in each cell
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
        divergences.named_divergence(self.divergence)
        radius = float(checked_radius(self.radius)) + 0.0  # no minus zero
        if (self.samples is not None) != (self.delta > 0) or not 0 <= self.delta < 1:
            raise ValueError("a ball has samples and a delta above 0, or neither")
        for counts in self.samples or ():
            if len(counts) > MOST_CELLS or sum(counts) > MOST_COUNTED:
                raise ValueError(
                    f"a sample has at most {MOST_CELLS} cells and {MOST_COUNTED:,} environments"
                )
        if not self.origin or not self.origin.isprintable():
            raise ValueError("the ball does not say in plain words how its radius is known")
        object.__setattr__(self, "radius", radius)

    @classmethod
    def parse(cls, text: str) -> Ball:
        """From words such as kl:0.08, total-variation:0.1 or renyi-2:0.3.

        >>> Ball.parse("renyi-2:0.3").radius
        0.3
        """
        name, colon, number = text.rpartition(":")
        radius = as_number(number)
        if not colon or radius is None:
            raise ValueError(f"ball {text!r}: write DIVERGENCE:B, such as kl:0.08")
        return cls(name, radius)

    @classmethod
    def from_record(cls, record: Any) -> Ball:
        """A ball from its fields in a file, which may hold anything."""
        check_record(record, get_type_hints(cls), "ball")
        samples = record["samples"]
        if type(record["radius"]) is not float:
            raise ValueError("bad ball.radius: expected float")  # as it is written
        if samples is not None:
            samples = tuple(
                tuple(divergences.checked_counts(part, "ball's").tolist()) for part in samples
            )
            if len(samples[0]) != len(samples[1]):
                raise ValueError("bad ball.samples: they have different cells")
        return cls(**{**record, "samples": samples})

    @property
    def symbol(self) -> str:
        """The divergence as it is written."""
        return SYMBOLS.get(self.divergence) or f"D_{self.divergence[6:]}(D′‖D)"

    def __str__(self) -> str:
        return f"{self.symbol} ≤ {round_down(self.radius)}"


def ball_between(shifted: Any, training: Any, divergence: str = "kl") -> Ball:
    """The smallest ball around `training` that contains `shifted`, by closed forms.

    `shifted` has a method `divergence_from`, as the distributions of `families` have.

    >>> from pacbayes_control.certify.families import Beta
    >>> print(ball_between(Beta(1, 1), Beta(0.8, 1.25)))  # the paper's
    KL(D′‖D) ≤ 0.08185
    """
    radius = shifted.divergence_from(training, divergence)
    if not math.isfinite(radius):
        raise ValueError(
            f"the {divergence} divergence is infinite: {shifted} has mass where {training} has "
            "little or none; choose another divergence, such as total-variation"
        )
    return Ball(divergence, radius, f"that of {shifted} from {training}")


def ball_of_samples(
    shifted: ArrayLike,
    training: ArrayLike,
    delta: float,
    divergence: str = "kl",
    *,
    cells: Sequence[Any] | None = None,
    edges: Sequence[float] | None = None,
) -> Ball:
    """A ball that contains D' with probability at least 1 - δ, from a feature of the environments.

    The two samples are independent, each i.i.d., and the cells must not depend on them. D' and D
    must differ only in how often each cell occurs: within a cell, environments are drawn alike. For
    the same cells and δ the balls of all divergences hold at once, so the best may be chosen after
    a look at the samples.

    Args:
        shifted: the feature of each environment from D'.
        training: the feature of each environment from D.
        delta: the probability that D' is outside of the ball.
        divergence: the divergence of the ball.
        cells: all values that the feature can take, including those that do not occur.
        edges: instead of `cells`, the numbers that separate the cells of a number.

    >>> rng = np.random.default_rng(0)
    >>> city, country = rng.choice(["dry", "wet"], 500), rng.choice(["dry", "wet"], 2000)
    >>> print(ball_of_samples(country, city, 0.005, cells=["dry", "wet"]))
    KL(D′‖D) ≤ 0.0395
    """
    if (cells is None) == (edges is None):
        raise ValueError("give either the cells of the feature, or the edges between them")
    samples = [np.asarray(sample) for sample in (shifted, training)]
    for name, sample in zip(("shifted", "training"), samples, strict=True):
        if sample.ndim != 1 or sample.size == 0:
            raise ValueError(f"the {name} sample is empty, or not one feature per environment")
    if cells is None:
        cuts = np.asarray(edges, float)
        finite = cuts.ndim == 1 and cuts.size > 0 and bool(np.all(np.isfinite(cuts)))
        if not finite or not np.all(np.diff(cuts) > 0):
            raise ValueError("edges must be increasing numbers: cells are between and beside them")
        if not all(s.dtype.kind in "biuf" and np.all(np.isfinite(s)) for s in samples):
            raise ValueError("edges separate finite numbers, and a sample has another value")
        places = [np.searchsorted(cuts, sample) for sample in samples]
        there, here = (tuple(np.bincount(p, minlength=len(cuts) + 1).tolist()) for p in places)
    else:
        there, here = (_in_cells(sample, cells) for sample in samples)
    radius = divergences.divergence_of_samples(there, here, delta, divergence)
    if not math.isfinite(radius):
        raise ValueError(
            f"a cell never occurs in one of the samples, or too rarely, so that {divergence} may "
            "be infinite: choose total-variation or hellinger, which hold at once with it; other "
            "cells need new samples, as these have been looked at"
        )
    words = f"estimated from {sum(there)} and {sum(here)} environments in {len(here)} cells"
    return Ball(divergence, radius, words, float(delta), (there, here))


def _in_cells(sample: NDArray, cells: Sequence[Any]) -> Counts:
    known = {str(cell): 0 for cell in cells}
    if len(known) != len(cells) or not known:
        raise ValueError("the cells must have different names, and there must be at least one")
    labels, counts = np.unique(sample.astype(str), return_counts=True)
    for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
        if label not in known:
            raise ValueError(
                f"{label!r} is not one of the declared cells: correct it if it is misspelt; other "
                "cells need new samples, as these have been looked at"
            )
        known[label] = count
    return tuple(known.values())
