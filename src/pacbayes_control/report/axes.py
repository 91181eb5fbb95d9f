"""Axes of plots, and labels that have room beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from unicodedata import east_asian_width

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pacbayes_control.certify.text import printable

WIDTH = 5.4  # inches; narrow, so that letters can be read on a telephone
LONGEST = 26  # letters of a name
LETTER = 0.013  # width of a small one, as a part of the axis of a histogram


def new_figure(height: float, *subplots: int, **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes, or its one axis, without lines above and on the right."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(*subplots, **options)
    for axis in np.atleast_1d(axes):
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_axisbelow(True)
    return figure, axes


def legend_above(axis: Any, **options: Any) -> None:
    """A legend that hides no line: above them, in two columns if its words are short."""
    _, labels = axis.get_legend_handles_labels()
    columns = 2 if max(map(len, labels), default=0) <= LONGEST else 1
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "frameon": False, "fontsize": 9}
    axis.legend(**({"ncols": columns} | place | options))


def short(name: str) -> str:
    """A name for an axis: on one line, its middle left out where it is wider than LONGEST letters.

    >>> short("checkpoint of the wide policy, step 4000"), short("机" * 20)
    ('checkpoint o…y, step 4000', '机机机机机机…机机机机机机')
    """
    line = " ".join(printable(name).split())
    if _width(line) <= LONGEST:
        return line
    first = last = ""
    for head, tail in zip(line, reversed(line), strict=True):  # which meet after it is full
        if max(_width(first + head), _width(tail + last)) > (LONGEST - 1) // 2:
            break
        first, last = first + head, tail + last
    return f"{first}…{last}"


def _width(text: str) -> int:
    """In letters; those of East Asia are twice as wide."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def few_ticks(numbers: Sequence[int]) -> list[int]:
    """At most five of some ascending numbers with room between them on a logarithmic axis."""
    kept, room = [numbers[-1]], 0.2 * math.log(numbers[-1] / numbers[0])
    for number in reversed(numbers):
        if math.log(kept[-1] / number) > room:
            kept.append(number)
    return kept[::-1]


def labelled_bars(counts: NDArray[np.intp]) -> list[int]:
    """Bars of a histogram of [0, 1] whose counts have room beside each other, the tallest first."""
    kept: list[int] = []
    for bar in np.argsort(-counts, kind="stable").tolist():
        widths = [len(f"{counts[bar]:,}") + len(f"{counts[other]:,}") + 1 for other in kept]
        apart = [abs(bar - other) / len(counts) for other in kept]
        if counts[bar] and all(a > LETTER * w / 2 for a, w in zip(apart, widths, strict=True)):
            kept.append(bar)
    return kept
