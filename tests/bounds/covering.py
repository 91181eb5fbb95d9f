"""Whether what may happen with probability δ at most happened no more often than that allows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sizes import sized

LEVEL = 1e-6  # of the test: how often it may reject a bound that is right
CERTIFICATES = sized(60, full=300)  # data sets where each is certified by itself, the whole way


def most_violations(data_sets: int, delta: float) -> int:
    """The count that is exceeded with probability LEVEL at most if each has probability δ."""
    return int(stats.binom.isf(LEVEL, data_sets, delta))


def covers(violated: NDArray[np.bool_], delta: float, fewest: int = CERTIFICATES) -> bool:
    """Whether a bound was below the truth no more often than δ allows; shape (data sets,)."""
    assert violated.ndim == 1
    assert violated.size >= fewest
    return int(violated.sum()) <= most_violations(violated.size, delta)
