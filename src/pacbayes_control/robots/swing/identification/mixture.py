"""Fits under gusts of any strength, each weighted by how likely that strength is.

A minute of a lag with a memory of 2.5 s says little about ρ = q²/σ², and an interval that assumes
one ρ is too narrow. So the linearised fit is made for each ρ on a grid, and weighted by

    (1 + λ)^{-3/4} dλ · (Π S)^{-1/2} |JᵀJ|^{-1/2} (r'r)^{-(n-m)/2},      λ = ρ / (k² Δt),

J and r the slopes and residuals after the filter for ρ (`noise.py`), n samples and m parameters.
The second part is the likelihood of ρ, with the parameters and σ integrated out (Harville, 1974).
The first is Jeffreys' prior: λ is how much gusts add to the noise's spectrum at frequency 0, which
is 1 + λ k²/(k² + ω²) at ω, so that the information ½ ∫ (∂ log spectrum / ∂λ)² dω is proportional to
(1 + λ)^{-3/2}. A parameter is then distributed as the mixture, over ρ, of Student's distributions,
and its interval lies between two quantiles of that mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import fdtrc, stdtr, stdtrit

from pacbayes_control.robots.swing.identification.noise import YawNoise

Floats = NDArray[np.float64]

STRENGTHS = (1e-2, 1e7)  # of λ: the range of the grid
COARSE, FINE = 28, 24  # strengths in the whole range, and where the weight is
UNLIKELY = 12.0  # natural logarithm of a ratio of weights that may be left out


@dataclass(frozen=True, eq=False)
class GustMixture:
    """Least squares of one set of columns for each ratio of the noises."""

    ratios: Floats  # ρ, 1/s; (ratios,)
    weights: Floats  # (ratios,), of sum 1
    shifts: Floats  # coefficients, (ratios, columns)
    inverses: Floats  # (JᵀJ)⁻¹, (ratios, columns, columns)
    squares: Floats  # r'r, (ratios,)
    freedom: int  # n - m

    @property
    def likeliest(self) -> int:
        """Index of the largest weight."""
        return int(np.argmax(self.weights))

    @property
    def variances(self) -> Floats:
        """σ² for each ratio."""
        return self.squares / self.freedom

    def p_value(self, columns: slice) -> float:
        """The p-value that the coefficients of these columns are 0: a weighted mean of F tests."""
        some, inverses = self.shifts[:, columns], self.inverses[:, columns, columns]
        along = np.linalg.solve(inverses, some[:, :, None])[:, :, 0]
        ratio = np.sum(some * along, axis=1) / some.shape[1] / np.maximum(self.variances, 1e-300)
        return float(self.weights @ fdtrc(some.shape[1], self.freedom, ratio))


def mixture_quantile(
    weights: Floats, centres: Floats, sd: Floats, freedom: float, share: float
) -> float:
    """The quantile at `share` of a mixture of Student's distributions.

    >>> one, zero = np.ones(1), np.zeros(1)
    >>> round(mixture_quantile(one, zero, one, 10.0, 0.975), 3)
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


class FilteredProducts:
    """Products of columns, filtered for each ratio of the noises on a grid."""

    def __init__(
        self,
        times: Sequence[Floats],
        columns: Sequence[Floats],
        residuals: Sequence[Floats],
        noise: YawNoise,
    ) -> None:
        """Compute the products on a coarse grid.

        Args:
            times: one array for each log
            columns: one array for each log, (samples, columns)
            residuals: one array for each log
            noise: its rate and the tracker's autoregression; its ratio is not used
        """
        both = [np.column_stack(pair) for pair in zip(columns, residuals, strict=True)]
        self._logs = list(zip(times, both, strict=True))
        self._noise = noise
        step = float(np.median(np.concatenate([np.diff(time) for time in times])))
        self._unit = noise.rate**2 * step  # ρ for λ = 1
        self._samples = sum(len(time) - len(noise.tracker) for time in times)
        coarse = np.linspace(np.log(STRENGTHS[0]), np.log(STRENGTHS[1]), COARSE)
        self._strengths, self._products, self._scales = self._at(coarse)

    def refine(self, which: Sequence[int]) -> None:
        """Add to the grid where the fits of some columns have their weight."""
        density, strengths = self._log_density(np.array(which, np.intp)), self._strengths
        near = np.flatnonzero(density > density.max() - UNLIKELY)
        low, high = max(near[0] - 1, 0), min(near[-1] + 1, len(strengths) - 1)
        fine = self._at(np.linspace(strengths[low], strengths[high], FINE + 2)[1:-1])
        coarse = strengths, self._products, self._scales
        both = [np.concatenate(pair) for pair in zip(coarse, fine, strict=True)]
        order = np.argsort(both[0], kind="stable")
        self._strengths, self._products, self._scales = (part[order] for part in both)

    def _at(self, strengths: Floats) -> tuple[Floats, Floats, Floats]:
        """Log λ, products of all columns, (strengths, columns, columns), and Σ log S."""
        ratios = self._unit * np.exp(strengths)
        logs = [self._noise.products(time, both, ratios) for time, both in self._logs]
        products, scales = sum(log[0] for log in logs), sum(log[1] for log in logs)
        return strengths, np.asarray(products), np.asarray(scales)

    def _solved(self, which: NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
        """Inverses, coefficients and r'r."""
        inverses = np.asarray(np.linalg.inv(self._products[:, which[:, None], which]), float)
        along = self._products[:, which, -1]
        shifts = np.einsum("kij,kj->ki", inverses, along)
        squares = self._products[:, -1, -1] - np.sum(along * shifts, axis=1)
        return inverses, shifts, np.maximum(squares, 1e-14 * self._products[:, -1, -1] + 1e-300)

    def _log_density(self, which: NDArray[np.intp]) -> Floats:
        """The logarithm of the density of log λ, up to a constant."""
        inverses, _, squares = self._solved(which)
        freedom = self._samples - len(which)
        likelihood = np.linalg.slogdet(inverses)[1] - self._scales - freedom * np.log(squares)
        return likelihood / 2 + self._strengths - 0.75 * np.log1p(np.exp(self._strengths))

    def mixture(self, which: Sequence[int]) -> GustMixture:
        """The fits of some of the columns."""
        chosen = np.array(which, dtype=np.intp)
        density, gaps = self._log_density(chosen), np.diff(self._strengths)
        widths = (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2
        weights = np.exp(density - density.max()) * widths
        inverses, shifts, squares = self._solved(chosen)
        ratios = self._unit * np.exp(self._strengths)
        freedom = self._samples - len(chosen)
        return GustMixture(ratios, weights / weights.sum(), shifts, inverses, squares, freedom)
