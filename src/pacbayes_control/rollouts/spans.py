"""Ranges of rollouts, counted along the rows of a table: (first, last), the last exclusive."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Span = tuple[int, int]


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same rollouts in increasing order, without overlaps.

    >>> merged([(4, 6), (0, 2), (2, 5)])
    [(0, 6)]
    """
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def without(spans: Iterable[Span], done: Sequence[Span]) -> list[Span]:
    """The parts of some spans that are not done; `done` is in increasing order, without overlaps.

    >>> without([(0, 10)], [(2, 3), (8, 20)])
    [(0, 2), (3, 8)]
    """
    left: list[Span] = []
    for first, last in spans:
        at, index = first, max(0, bisect_right(done, first, key=lambda span: span[0]) - 1)
        while index < len(done) and done[index][0] < last:
            begin, end = done[index]
            if begin > at:
                left.append((at, begin))
            at, index = max(at, end), index + 1
        if at < last:
            left.append((at, last))
    return left
