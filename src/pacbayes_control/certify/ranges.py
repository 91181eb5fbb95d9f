"""Ranges of environments: which ones a distribution over policies depends on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pacbayes_control.certify.files import has_type


class EnvironmentRange(NamedTuple):
    """A range of the environments of a stream, on which a distribution depends."""

    stream: str
    seed: int
    start: int
    stop: int

    def overlaps(self, other: EnvironmentRange) -> bool:
        """Whether an environment is in both ranges: drawn by the same random numbers."""
        same = (self.stream, self.seed) == (other.stream, other.seed)
        return same and self.start < other.stop and other.start < self.stop


def merged_ranges(ranges: Iterable[EnvironmentRange]) -> tuple[EnvironmentRange, ...]:
    """The same environments, in as few ranges as possible."""
    merged: list[EnvironmentRange] = []
    for part in sorted(ranges):
        last = merged[-1] if merged else None
        if last and last[:2] == part[:2] and part.start <= last.stop:
            merged[-1] = last._replace(stop=max(last.stop, part.stop))
        else:
            merged.append(part)
    return tuple(merged)


def ranges_from(record: Any, name: str) -> tuple[EnvironmentRange, ...]:
    """The ranges in a record of the environments that something depends on."""
    known = has_type(record, list[tuple[str, int, int, int]])
    if not known or not all(0 <= start <= stop for *_, start, stop in record):
        raise ValueError(
            f"{name} does not say which environments it depends on: add "
            '"seen", a list of [stream, seed, start, stop]; empty only if it depends on none'
        )
    return tuple(EnvironmentRange(*part) for part in record)
