"""Time and memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """One size of a run that shows how time and memory grow."""

    environments: int
    policies: int
    microseconds: float  # a rollout
    peak_mib: float  # of the whole process so far


def repeat(work: Callable[[], T], at_least: float = 1.0) -> tuple[T, float]:
    """Run until `at_least` seconds are spent; the result and the mean seconds of one run."""
    count, started = 0, time.perf_counter()
    while True:
        result = work()
        count += 1
        spent = time.perf_counter() - started
        if spent >= at_least:
            return result, spent / count


def peak_mib() -> float:
    """The largest memory that this process has held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
