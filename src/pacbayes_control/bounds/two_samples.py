"""Upper confidence bounds on a divergence between two distributions, from a sample of each."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds.divergences import Divergence, named_divergence
from pacbayes_control.bounds.theorems import check_delta, clopper_pearson

Floats = NDArray[np.float64]

ROUNDING = 1e-9  # relative; far above the rounding error of limits and sums


def divergence_of_samples(
    shifted: ArrayLike, training: ArrayLike, delta: float, divergence: str | Divergence = "kl"
) -> float:
    """An upper confidence bound on D(p'‖p) from the counts of two independent samples, by cells.

    With probability at least 1 - δ over both samples, D(p'‖p) is at most the maximum of
    Σᵢ h(p'ᵢ, pᵢ), h(x, y) = y g(x/y - 1), over all probabilities p' and p whose every entry lies
    between its exact binomial limits at level δ/(4k), k cells: a union bound over 4k limits. h is
    convex, so it lies below its chords between corners; for the chords the maximum over p' with
    Σᵢ p'ᵢ = 1 is found by filling the steepest cells first.

    The limits do not depend on the divergence: for the same cells and δ, the bounds on all
    divergences hold at once. The cells must not depend on either sample. With a cell that does not
    occur in the training sample, kl, chi-squared and Rényi's divergences of order 1 and more are
    unbounded; with one that does not occur in the shifted sample, reverse-kl is. Total-variation
    and hellinger stay finite.

    >>> round(divergence_of_samples([210, 390, 400], [200, 400, 400], 0.01), 3)
    0.048
    """
    chosen = named_divergence(divergence)
    if chosen.order == np.inf:
        raise ValueError("renyi-inf is not a sum over cells: choose another divergence")
    counts = checked_counts(shifted, "shifted"), checked_counts(training, "training")
    cells = len(counts[0])
    if len(counts[1]) != cells:
        raise ValueError(
            f"the shifted sample has {cells} cells and the training sample {len(counts[1])}: "
            "count both in the same cells"
        )
    check_delta(delta)
    if cells == 1:
        return 0.0
    level = float(delta) / (4 * cells)
    (low, high), (below, above) = (_limits(count, level) for count in counts)
    left = np.maximum(_term(chosen, low, below), _term(chosen, low, above))
    right = np.maximum(_term(chosen, high, below), _term(chosen, high, above))
    if not np.all(np.isfinite(left) & np.isfinite(right)):
        return np.inf
    width = high - low
    rise = (right - left) / width
    steepest = np.argsort(-rise)
    filled = np.minimum(np.cumsum(width[steepest]), 1 - low.sum())
    share = np.diff(filled, prepend=0.0)
    total = float(left.sum() + rise[steepest] @ share)
    total = min(total * (1 + ROUNDING), chosen.largest)
    return float(min(chosen.of_sum(total) * (1 + ROUNDING), chosen.of_sum(chosen.largest)))


def checked_counts(counts: ArrayLike, name: str) -> NDArray[np.int64]:
    """The number of environments in each cell; an error unless these are whole numbers."""
    array = np.asarray(counts)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "biuf":
        raise ValueError(f"the {name} sample needs one count for each cell")
    if not np.all((array >= 0) & (array == np.floor(array)) & (array < 2**53)) or array.sum() < 1:
        raise ValueError(f"the counts of the {name} sample must be whole numbers, not all zero")
    return array.astype(np.int64)


def _limits(counts: NDArray[np.int64], level: float) -> tuple[Floats, Floats]:
    """Lower and upper limits on each cell's probability, each wrong with probability `level`."""
    n = int(counts.sum())
    return 1 - clopper_pearson(n - counts, n, level), clopper_pearson(counts, n, level)


def _term(divergence: Divergence, x: Floats, y: Floats) -> Floats:
    """y g(x/y - 1); where y is zero, the growth of g."""
    with np.errstate(all="ignore"):
        inside = y * divergence.excess((x - y) / y, x / y)
        return np.where(y > 0, inside, np.where(x > 0, x * divergence.growth, 0.0))
