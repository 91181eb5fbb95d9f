"""The mean cost of environments by the values of a parameter, or of two, with intervals.

The bins depend on the parameters and on the number of environments, never on the costs. Given the
parameters, the costs of a bin are independent, with means that differ: the intervals are for the
average of these means. For costs of 0 and 1 they are Clopper and Pearson's, for others those of
e-values (`bounds.anytime`), which assume no distribution; both hold where the means differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.bounds.anytime import highest_cost, lowest_mean
from pacbayes_control.bounds.theorems import exact_tail_of_tasks

Kind = Literal["numbers", "words"]
MOST_BINS = 8  # of a parameter
IN_BIN, IN_CELL = 10, 5  # environments, at least: of a bin, and of a cell of two parameters
OTHERS = "other values"


@dataclass(frozen=True, eq=False)
class Groups:
    """Environments grouped by one parameter."""

    name: str  # of the parameter
    labels: tuple[str, ...]  # of the groups: a word, or "2.1 to 3"
    members: NDArray[np.intp]  # the group of each environment
    edges: NDArray[np.float64]  # between ranges of numbers, (groups + 1,); empty for other groups

    @property
    def kind(self) -> Kind:
        """Whether each group is a range of numbers, or one value or word."""
        return "numbers" if len(self.edges) else "words"


@dataclass(frozen=True)
class Bin:
    """Environments with similar values of a parameter, and their cost."""

    label: str
    environments: int
    mean: float
    low: float  # of the interval, simultaneous over all bins of all parameters
    high: float


@dataclass(frozen=True, eq=False)
class Pair:
    """Mean costs by two parameters at once."""

    across: Groups
    down: Groups
    means: NDArray[np.float64]  # (groups down, groups across); NaN where too few were drawn
    low: NDArray[np.float64]  # of the intervals of the cells; the same shape
    high: NDArray[np.float64]
    environments: NDArray[np.intp]  # of each cell


def grouped(name: str, values: NDArray, most: int) -> Groups:
    """Group environments: one group for each of few values, else ranges between quantiles.

    Words and few numbers with less than `IN_BIN` environments join one group of others.

    Args:
        name: of the parameter
        values: numbers or words, (environments,)
        most: groups, at most

    >>> grouped("wind", np.arange(40.0), 4).labels
    ('0 to 9.75', '9.75 to 19.5', '19.5 to 29.25', '29.25 to 39')
    >>> grouped("balls", np.arange(40) % 10, 4).labels
    ('0 to 1', '2 to 4', '5 to 6', '7 to 9')
    """
    distinct, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if values.dtype.kind in "iuf" and len(distinct) > most:
        whole = values.dtype.kind in "iu"
        edges = np.quantile(values, np.linspace(0, 1, most + 1))
        edges = np.unique(np.ceil(edges) if whole else edges)
        members = np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2)
        used, members = np.unique(members, return_inverse=True)  # ranges may be empty among ties
        edges = np.append(edges[used], edges[-1])
        return Groups(name, _ranges(edges, whole=whole), members, edges)
    room = most if len(distinct) <= most else most - 1
    largest = np.argsort(-counts, kind="stable")[:room]
    kept = np.sort(largest[counts[largest] >= IN_BIN])
    place = np.full(len(distinct), len(kept))
    place[kept] = np.arange(len(kept))
    words = distinct[kept]
    labels = map(str, words) if words.dtype.kind not in "f" else numerals(words)
    others = [OTHERS] if len(kept) < len(distinct) else []
    return Groups(name, (*labels, *others), place[codes], np.array([]))


def _ranges(edges: NDArray[np.float64], *, whole: bool) -> tuple[str, ...]:
    """Labels of the ranges between edges; of whole numbers, with the last that is in it."""
    if not whole:
        return tuple(f"{low} to {high}" for low, high in pairwise(numerals(edges)))
    firsts = edges.astype(int)
    lasts = [*(firsts[1:-1] - 1).tolist(), int(firsts[-1])]
    pairs = zip(firsts.tolist(), lasts, strict=False)
    return tuple(str(low) if low == high else f"{low} to {high}" for low, high in pairs)


def numerals(numbers: NDArray[np.float64], fewest: int = 4) -> list[str]:
    """Numbers in the fewest digits, or in as many as tell them apart."""
    for digits in range(fewest, 17):
        words = [f"{number:.{digits}g}" for number in numbers]
        if len({*words}) == len(numbers):
            return words
    return [repr(float(number)) for number in numbers]


def binned(
    groups: Groups, costs: NDArray[np.float64], delta: float, *, binary: bool
) -> tuple[Bin, ...]:
    """The mean cost of each group, and an interval that is wrong with probability δ at most."""
    bins = []
    for number, label in enumerate(groups.labels):
        inside = costs[groups.members == number]
        limits = interval(inside, delta, binary=binary)
        bins.append(Bin(label, len(inside), float(inside.mean()), *limits))
    return tuple(bins)


def interval(costs: NDArray[np.float64], delta: float, *, binary: bool) -> tuple[float, float]:
    """Limits on the average of the means of independent costs in [0, 1].

    Each of the two is wrong with probability δ/2 at most.

    Args:
        costs: (environments,)
        delta: probability of error
        binary: whether costs are 0 or 1, as known without a look at these

    >>> failures = np.array([1.0] * 3 + [0.0] * 17)
    >>> tuple(round(limit, 3) for limit in interval(failures, 0.05, binary=True))
    (0.032, 0.379)
    >>> tuple(round(limit, 3) for limit in interval(np.full(20, 0.15), 0.05, binary=False))
    (0.122, 0.31)
    """
    if binary:
        n, failures = len(costs), int(costs.sum())
        high = float(exact_tail_of_tasks(failures, n, delta / 2))
        return max(1 - float(exact_tail_of_tasks(n - failures, n, delta / 2)), 0.0), high
    return lowest_mean(costs, delta / 2), highest_cost(costs, delta / 2)


def paired(
    across: Groups, down: Groups, costs: NDArray[np.float64], delta: float, *, binary: bool
) -> Pair:
    """Mean costs by the groups of two parameters; each interval is wrong with probability δ."""
    shape = len(down.labels), len(across.labels)
    cells = down.members * shape[1] + across.members
    counts = np.bincount(cells, minlength=shape[0] * shape[1])
    found = np.full((3, len(counts)), np.nan)
    for cell in np.flatnonzero(counts >= IN_CELL):
        inside = costs[cells == cell]
        found[:, cell] = inside.mean(), *interval(inside, delta, binary=binary)
    means, low, high = found.reshape(3, *shape)
    return Pair(across, down, means, low, high, counts.reshape(shape))
