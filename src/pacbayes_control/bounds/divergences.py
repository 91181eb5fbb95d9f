"""Divergences between a shifted distribution D' and the training distribution D, by name.

An f-divergence is D_f(D'‖D) = E_D[f(dD'/dD)] for a convex f with f(1) = 0 (paper: Definition 1, eq.
27). Adding a multiple of x - 1 to f changes nothing, so each is given here by

    g(t) = f(1+t) - f'(1) t ≥ 0,

and D_f = E_D[g(dD'/dD - 1)]: a sum of terms of at least 0, without cancellation.

name               f(x)                   D_f(D'‖D)
kl                 x ln x                 KL(D'‖D), the paper's
reverse-kl         -ln x                  KL(D‖D')
total-variation    |x-1|/2                the largest difference of a probability, in [0, 1]
chi-squared        (x-1)²                 E_D[(dD'/dD)²] - 1
hellinger          (√x-1)²/2              squared Hellinger distance, 1 - E_D √(dD'/dD), in [0, 1]
renyi-α            x^α, and a logarithm   ln E_D[(dD'/dD)^α]/(α-1), for α from 0.01 to 100 or inf

Rényi's divergences are increasing functions of an f-divergence, which suffices here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds.kl import Floats, in_unit_interval, log1p_minus
from pacbayes_control.bounds.theorems import check_delta, clopper_pearson

NAMES = ("kl", "reverse-kl", "total-variation", "chi-squared", "hellinger", "renyi-ORDER")
ORDERS = (0.01, 100.0)  # of Rényi's divergences; outside, and within 0.01 of 1, digits are lost
SAMPLE_ROUNDING = 1e-9  # relative; far above the rounding error of limits and sums
RENYI = re.compile(r"renyi-(inf|[0-9]+(?:\.[0-9]+)?)", re.ASCII)


@dataclass(frozen=True)
class Divergence:
    """A divergence D(D'‖D): the terms of the sum E_D[g], and the divergence as a function of it."""

    name: str
    excess: Callable[[Floats, Floats], Floats]  # g, given t and 1+t, to full relative precision
    growth: float  # lim g(t)/t: the weight of the mass of D' where D has none
    conjugate: Callable[[Floats], Floats] | None = None  # f*(y) = sup_{x ≥ 0} xy - f(x)
    order: float = 1.0  # of a Rényi divergence; 1 for the others
    smallest: float = 1e-300  # positive probabilities below it are raised to it

    @property
    def largest(self) -> float:
        """The largest sum E_D[g]: that of distributions with disjoint supports."""
        with np.errstate(all="ignore"):
            return float(self.excess(np.array(-1.0), np.array(0.0))) + self.growth

    def of_sum(self, total: ArrayLike) -> Floats:
        """The divergence as a function of the sum E_D[g]."""
        total = np.asarray(total, float)
        if self.order in (1.0, math.inf):
            return total
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log1p((self.order - 1) * total) / (self.order - 1)

    def between_bernoullis(
        self, p: Floats, rest: Floats, gap: Floats, ratios: tuple[Floats, Floats] | None = None
    ) -> Floats:
        """D(Bern(p+gap)‖Bern(p)) for p = 1 - rest in [0, 1), to a relative error below 1e-12.

        `ratios` are those of both probabilities, where p + gap has rounded them away.
        """
        up, down = ratios or ((p + gap) / p, np.maximum(rest - gap, 0) / rest)
        if self.order == math.inf:
            return np.maximum(np.log1p(gap / p), np.log1p(-gap / rest))
        outside = np.where(gap > 0, gap * self.growth, 0.0)  # where D has no mass
        inside = np.where(p > 0, p * self.excess(gap / p, up), outside)
        value = self.of_sum(inside + rest * self.excess(-gap / rest, down))
        if self.order == 1:
            return value
        # Powers overflow long before their logarithms: far from p, logarithms are added instead.
        a = self.order
        logs = a * np.log(up) + np.log(p), a * np.log(down) + np.log(rest)
        far = np.logaddexp(*logs) / (a - 1)
        return np.where((p > 0) & (np.abs(a - 1) * far > 0.5), far, value)


def named_divergence(name: str) -> Divergence:
    """The divergence with this name.

    >>> named_divergence("renyi-2").order
    2.0
    """
    if name in F_DIVERGENCES:
        return F_DIVERGENCES[name]
    match = RENYI.fullmatch(name)
    if not match:
        raise ValueError(f"divergence {name!r} is unknown: choose from {', '.join(NAMES)}")
    order = float(match[1])
    if order != math.inf and not (ORDERS[0] <= order <= ORDERS[1] and abs(order - 1) >= 0.01):
        raise ValueError(
            f"a Rényi divergence of order {match[1]}: give one from {ORDERS[0]:g} to "
            f"{ORDERS[1]:g}, or inf; that of order 1 is kl"
        )
    if name != f"renyi-{order:g}":  # one name for each divergence, as certificates show it
        raise ValueError(f"divergence {name!r}: write renyi-{order:g}")
    growth = order / (1 - order) if order < 1 else math.inf
    return Divergence(name, _power(order), growth, order=order)


def divergence_bernoulli(q: ArrayLike, p: ArrayLike, divergence: str) -> Floats:
    """D(Bern(q)‖Bern(p)): the smallest shift that can change a failure rate from p to q.

    >>> round(float(divergence_bernoulli(0.2, 0.1, "kl")), 6)
    0.044403
    """
    chosen = named_divergence(divergence)
    q, p = np.broadcast_arrays(in_unit_interval(q, "q"), in_unit_interval(p, "p"))
    mirrored = p == 1  # then exchange the two outcomes
    q, p = np.where(mirrored, 1 - q, q), np.where(mirrored, 0.0, p)
    p = np.where(p > 0, np.maximum(p, chosen.smallest), 0.0)
    with np.errstate(all="ignore"):
        value = chosen.between_bernoullis(p, 1 - p, q - p, (q / p, (1 - q) / (1 - p)))
    return np.maximum(np.where(q == p, 0.0, value), 0.0)


# ---- from a sample of each distribution ----------------------------------------------------------


def divergence_of_samples(
    shifted: ArrayLike, training: ArrayLike, delta: float, divergence: str = "kl"
) -> float:
    """An upper confidence bound on D(p'‖p) from the counts of two independent samples, by cells.

    With probability at least 1 - δ over both samples, D(p'‖p) is at most the maximum of
    Σᵢ h(p'ᵢ, pᵢ), h(x, y) = y g(x/y - 1), over all probabilities p' and p whose every entry lies
    between its exact binomial limits at level δ/(4k), k cells: a union bound over 4k limits. With
    two cells four limits at level δ/4 suffice, as those of one cell are one minus those of the
    other. h is convex, so it lies below its chords between corners; for the chords the maximum over
    p' with Σᵢ p'ᵢ = 1 is found by filling the steepest cells first.

    The limits do not depend on the divergence: for the same cells and δ, the bounds on all
    divergences hold at once. The cells must not depend on either sample. With a cell that does not
    occur in the training sample, kl, chi-squared and Rényi's divergences of order 1 and more are
    unbounded; with one that does not occur in the shifted sample, reverse-kl is. Total-variation
    and hellinger stay finite.

    >>> round(divergence_of_samples([210, 390, 400], [200, 400, 400], 0.01), 3)
    0.048
    >>> round(divergence_of_samples([210, 790], [200, 800], 0.01), 3)
    0.022
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
    limited = cells if cells > 2 else 1  # of two frequencies, each is one minus the other
    level = float(delta) / (4 * limited)
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
    total = min(total * (1 + SAMPLE_ROUNDING), chosen.largest)
    return float(min(chosen.of_sum(total) * (1 + SAMPLE_ROUNDING), chosen.of_sum(chosen.largest)))


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


# ---- g and f* of each ---------------------------------------------------------------------------


def _kl_excess(t: Floats, x: Floats) -> Floats:
    # x ln x - t = -x (ln(1+s) - s) with s = -t/x, for which 1+s = 1/x.
    return np.where(x > 0, -x * log1p_minus(-t / x, 1 / x), 1.0)


def _reverse_kl_excess(t: Floats, x: Floats) -> Floats:
    return -log1p_minus(t, x)


def _total_variation_excess(t: Floats, _: Floats) -> Floats:
    return np.abs(t) / 2


def _chi_squared_excess(t: Floats, _: Floats) -> Floats:
    return t * t


def _hellinger_excess(t: Floats, x: Floats) -> Floats:
    return (t / (np.sqrt(x) + 1)) ** 2 / 2


def _power(order: float) -> Callable[[Floats, Floats], Floats]:
    """((1+t)^α - 1 - αt)/(α-1); near 0 by the binomial series, whose first terms cancel."""

    def excess(t: Floats, x: Floats) -> Floats:
        term = order / 2 * t * t
        near = np.zeros_like(t)
        for k in range(2, 24):
            near += term
            term = term * t * (order - k) / (k + 1)
        far = (np.expm1(order * np.log(x)) - order * t) / (order - 1)
        return np.where(np.abs(t) * max(order, 1) < 0.2, near, far)

    return excess


def _kl_conjugate(y: Floats) -> Floats:
    return np.exp(y - 1)


def _reverse_kl_conjugate(y: Floats) -> Floats:
    return np.where(y < 0, -1 - np.log(np.where(y < 0, -y, 1)), np.inf)


def _total_variation_conjugate(y: Floats) -> Floats:
    return np.where(y <= 0.5, np.maximum(y, -0.5), np.inf)


def _chi_squared_conjugate(y: Floats) -> Floats:
    return np.where(y >= -2, y + y * y / 4, -1)


def _hellinger_conjugate(y: Floats) -> Floats:
    return np.where(y < 0.5, y / np.where(y < 0.5, 1 - 2 * y, 1), np.inf)


F_DIVERGENCES = {
    divergence.name: divergence
    for divergence in (
        Divergence("kl", _kl_excess, math.inf, _kl_conjugate),
        Divergence("reverse-kl", _reverse_kl_excess, 1.0, _reverse_kl_conjugate),
        Divergence("total-variation", _total_variation_excess, 0.5, _total_variation_conjugate),
        Divergence(  # squares of larger ratios would overflow
            "chi-squared", _chi_squared_excess, math.inf, _chi_squared_conjugate, smallest=1e-150
        ),
        Divergence("hellinger", _hellinger_excess, 0.5, _hellinger_conjugate),
    )
}
