"""Fits under gusts of any strength, each weighed by how likely that strength is.

A minute of a lag with a memory of 2.5 s tells ρ = q²/σ² badly, and an interval that takes one ρ for
the true one is too narrow. So the linearised fit is made for each ρ on a grid, and weighed by

    (1 + λ)^{-3/4} dλ · (Π S)^{-1/2} |JᵀJ|^{-1/2} (r'r)^{-(n-m)/2},      λ = ρ / (k² Δt),

J and r the slopes and residuals after the filter for ρ (`gusts.py`), n samples and m parameters.
The second part is the likelihood of ρ, with the parameters and σ integrated out (Harville, 1974).
The first is Jeffreys' prior: λ is how much gusts add to the noise's spectrum at frequency 0, which
is 1 + λ k²/(k² + ω²) at ω, so that the information ½ ∫ (∂ log spectrum / ∂λ)² dω is proportional to
(1 + λ)^{-3/2}. A parameter is then distributed as the mixture, over ρ, of Student's distributions,
and its interval goes from one quantile of that to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import fdtrc, stdtr, stdtrit

from pacbayes_control.robots.swing.identification.gusts import Noise

Floats = NDArray[np.float64]

STRENGTHS = (1e-2, 1e7)  # of λ, as far as it is searched
COARSE, FINE = 28, 24  # strengths in the whole range, and where the weight is
UNLIKELY = 12.0  # natural logarithm of a ratio of weights that may be left out


@dataclass(frozen=True, eq=False)
class Mixture:
    """Least squares of one set of columns for each ratio of the noises."""

    ratios: Floats  # ρ, 1/s; (ratios,)
    weights: Floats  # (ratios,), of sum 1
    shifts: Floats  # coefficients, (ratios, columns)
    inverses: Floats  # (JᵀJ)⁻¹, (ratios, columns, columns)
    powers: Floats  # r'r, (ratios,)
    freedom: int  # n - m

    @property
    def likeliest(self) -> int:
        """Where the weight is largest."""
        return int(np.argmax(self.weights))

    @property
    def variances(self) -> Floats:
        """σ² for each ratio."""
        return self.powers / self.freedom

    def chance(self, columns: slice) -> float:
        """The p-value that coefficients of these columns are 0: of F tests, weighed."""
        some, inverses = self.shifts[:, columns], self.inverses[:, columns, columns]
        along = np.linalg.solve(inverses, some[:, :, None])[:, :, 0]
        ratio = np.sum(some * along, axis=1) / some.shape[1] / np.maximum(self.variances, 1e-300)
        return float(self.weights @ fdtrc(some.shape[1], self.freedom, ratio))


def quantile(weights: Floats, centres: Floats, sd: Floats, freedom: float, share: float) -> float:
    """Of a mixture of Student's distributions.

    >>> one, no = np.ones(1), np.zeros(1)
    >>> round(quantile(one, no, one, 10.0, 0.975), 3)
    2.228
    """
    sd = np.maximum(sd, 1e-300)
    each = centres + sd * float(stdtrit(freedom, share))
    low, high = float(each.min()), float(each.max())
    if high - low <= 1e-12 * float(sd.max()):
        return low

    def excess(x: float) -> float:
        return float(weights @ stdtr(freedom, (x - centres) / sd)) - share

    return float(brentq(excess, low - 1e-9 * (high - low), high + 1e-9 * (high - low)))  # type: ignore[arg-type]


class Moments:
    """Products of columns, filtered for each ratio of the noises on a grid.

    times, residuals: one array for each log; columns: one (samples, columns) for each.
    """

    def __init__(
        self,
        times: Sequence[Floats],
        columns: Sequence[Floats],
        residuals: Sequence[Floats],
        noise: Noise,
    ) -> None:
        both = [np.column_stack(pair) for pair in zip(columns, residuals, strict=True)]
        self._logs = list(zip(times, both, strict=True))
        self._noise = noise
        step = float(np.median(np.concatenate([np.diff(time) for time in times])))
        self._unit = noise.rate**2 * step  # ρ for λ = 1
        self._samples = sum(len(time) - len(noise.tracker) for time in times)
        self._strengths, self._products, self._scales = np.zeros(0), np.zeros(0), np.zeros(0)
        self._look(np.linspace(np.log(STRENGTHS[0]), np.log(STRENGTHS[1]), COARSE))

    def refined(self, which: Sequence[int]) -> Moments:
        """With more of the grid where the fits of some columns have their weight."""
        logarithm, strengths = self._logarithm(np.array(which, np.intp)), self._strengths
        near = np.flatnonzero(logarithm > logarithm.max() - UNLIKELY)
        low, high = max(near[0] - 1, 0), min(near[-1] + 1, len(strengths) - 1)
        self._look(np.linspace(strengths[low], strengths[high], FINE + 2)[1:-1])
        return self

    def _look(self, strengths: Floats) -> None:
        """Add to the grid: products of all columns, (strengths, columns, columns), and Σ log S."""
        ratios = self._unit * np.exp(strengths)
        logs = [self._noise.products(time, both, ratios) for time, both in self._logs]
        products, scales = sum(log[0] for log in logs), sum(log[1] for log in logs)
        if len(self._strengths):
            products = np.concatenate([self._products, products])
            scales = np.append(self._scales, scales)
            strengths = np.append(self._strengths, strengths)
        order = np.argsort(strengths, kind="stable")
        self._strengths = strengths[order]
        self._products, self._scales = np.asarray(products)[order], np.asarray(scales)[order]

    def _solved(self, which: NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
        """Inverses, coefficients and r'r."""
        inverses = np.asarray(np.linalg.inv(self._products[:, which[:, None], which]), float)
        along = self._products[:, which, -1]
        shifts = np.einsum("kij,kj->ki", inverses, along)
        powers = self._products[:, -1, -1] - np.sum(along * shifts, axis=1)
        return inverses, shifts, np.maximum(powers, 1e-14 * self._products[:, -1, -1] + 1e-300)

    def _logarithm(self, which: NDArray[np.intp]) -> Floats:
        """Of the density of log λ."""
        inverses, _, powers = self._solved(which)
        freedom = self._samples - len(which)
        likelihood = np.linalg.slogdet(inverses)[1] - self._scales - freedom * np.log(powers)
        return likelihood / 2 + self._strengths - 0.75 * np.log1p(np.exp(self._strengths))

    def _widths(self) -> Floats:
        gaps = np.diff(self._strengths)
        return (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2

    def mixture(self, which: Sequence[int]) -> Mixture:
        """The fits of some of the columns."""
        chosen = np.array(which, dtype=np.intp)
        logarithm = self._logarithm(chosen)
        weights = np.exp(logarithm - logarithm.max()) * self._widths()
        inverses, shifts, powers = self._solved(chosen)
        ratios = self._unit * np.exp(self._strengths)
        freedom = self._samples - len(chosen)
        return Mixture(ratios, weights / weights.sum(), shifts, inverses, powers, freedom)
