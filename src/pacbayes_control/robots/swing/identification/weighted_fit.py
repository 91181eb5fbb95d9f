"""The fit and its noise, estimated in turn, and the effects that the model may lack.

A minute of a lag with a memory of 2.5 s says little about ρ = q²/σ², and an interval that assumes
one ρ is too narrow. So the linearised fit is made for each ρ on a grid, and weighted by

    (1 + λ)^{-3/4} dλ · (Π S)^{-1/2} |JᵀJ|^{-1/2} (r'r)^{-(n-m)/2},      λ = ρ / (k² Δt),

J and r the slopes and residuals after the filter for ρ (`noises.py`), n samples and m parameters.
The second part is the likelihood of ρ, with the parameters and σ integrated out (Harville, 1974).
The first is Jeffreys' prior: λ is how much gusts add to the noise's spectrum at frequency 0, which
is 1 + λ k²/(k² + ω²) at ω, so that the information ½ ∫ (∂ log spectrum / ∂λ)² dω is proportional to
(1 + λ)^{-3/2}. A parameter is then distributed as the mixture, over ρ, of Student's distributions,
and its interval lies between two quantiles of that mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import fdtrc, stdtr, stdtrit

from pacbayes_control.robots.swing.identification import fitting, noises
from pacbayes_control.robots.swing.identification.fitting import Fit, FlightData
from pacbayes_control.robots.swing.identification.identified import Estimate
from pacbayes_control.robots.swing.identification.logs import Floats
from pacbayes_control.robots.swing.identification.noises import YawNoise

ROUNDS = 2  # of estimating the gusts from the fit, and the fit under these gusts
COLOURED = 1e-3  # p-value below which a tracker's noise is taken as correlated
LONGEST_MEMORY = 0.25  # of a tracker's noise, as a share of 1/k_p
GUSTY = 0.5  # least share of the likeliest gusts that the weakest likely ones must reach
PROFILE, POINTS = 2.5, 25  # of the latency: width as a multiple of its interval, and points in it
INEXACT = 1e-6  # relative error of the search and of the integral of the path
LAG = "it had a second lag or oscillated: it is no first-order lag"
DRIFT = "the gains changed in the course of the logs"
SHAPE = "it were not proportional to the command: it saturates, has a dead zone, or is asymmetric"
STRENGTHS = (1e-2, 1e7)  # of λ: the range of the grid
COARSE, FINE = 28, 24  # strengths in the whole range, and where the weight is
UNLIKELY = 12.0  # natural logarithm of a ratio of weights that may be left out


# ---- fits under gusts of any strength -----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GustMixture:
    """Least squares of one set of columns for each ratio of the noises."""

    ratios: Floats  # ρ, 1/s; (ratios,)
    weights: Floats  # (ratios,), of sum 1
    shifts: Floats  # coefficients, (ratios, columns)
    inverses: Floats  # (JᵀJ)⁻¹, (ratios, columns, columns)
    squares: Floats  # r'r, (ratios,)
    freedom: int  # n - m
    log_density: Floats  # of log λ at each ratio, up to a constant

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
    weights: Floats, centres: Floats, sd: Floats, *, freedom: float, share: float
) -> float:
    """The quantile at `share` of a mixture of Student's distributions.

    >>> one, zero = np.ones(1), np.zeros(1)
    >>> round(mixture_quantile(one, zero, one, freedom=10.0, share=0.975), 3)
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

    def __init__(self, logs: Sequence[tuple[Floats, Floats]], noise: YawNoise) -> None:
        """Compute the products on a coarse grid.

        Args:
            logs: times and columns, (samples, columns), the residuals last, of each log
            noise: its rate and the tracker's autoregression; its ratio is not used
        """
        self._logs, self._noise = logs, noise
        times = [time for time, _ in logs]
        self._unit = noise.rate**2 * _typical_step(times)  # ρ for λ = 1
        self._samples = sum(len(time) - len(noise.tracker) for time in times)
        low, high = (np.log(strength) for strength in STRENGTHS)
        self._grid = self._at(np.linspace(low, high, COARSE))

    def refine(self, which: Sequence[int]) -> None:
        """Add to the grid where the fits of some columns have their weight."""
        density, strengths = self.mixture(which).log_density, self._grid[0]
        near = np.flatnonzero(density > density.max() - UNLIKELY)
        low, high = max(near[0] - 1, 0), min(near[-1] + 1, len(strengths) - 1)
        fine = self._at(np.linspace(strengths[low], strengths[high], FINE + 2)[1:-1])
        strengths, products, scales = map(np.concatenate, zip(self._grid, fine, strict=True))
        order = np.argsort(strengths, kind="stable")
        self._grid = strengths[order], products[order], scales[order]

    def _at(self, strengths: Floats) -> tuple[Floats, Floats, Floats]:
        """Log λ, products of all columns, (strengths, columns, columns), and Σ log S."""
        ratios = self._unit * np.exp(strengths)
        found = [self._noise.products(*log, ratios) for log in self._logs]
        products, scales = (np.sum(part, axis=0) for part in zip(*found, strict=True))
        return strengths, products, scales

    def mixture(self, which: Sequence[int]) -> GustMixture:
        """The fits of some of the columns."""
        chosen, (strengths, products, scales) = np.array(which, np.intp), self._grid
        inverses = np.asarray(np.linalg.inv(products[:, chosen[:, None], chosen]), float)
        along, power = products[:, chosen, -1], products[:, -1, -1]
        shifts = np.einsum("kij,kj->ki", inverses, along)
        squares = np.maximum(power - np.sum(along * shifts, axis=1), 1e-14 * power + 1e-300)
        freedom = self._samples - len(chosen)
        likelihood = np.linalg.slogdet(inverses)[1] - scales - freedom * np.log(squares)
        density = likelihood / 2 + strengths - 0.75 * np.log1p(np.exp(strengths))
        gaps = np.diff(strengths)
        widths = (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2
        weights = np.exp(density - density.max()) * widths
        ratios, weights = self._unit * np.exp(strengths), weights / weights.sum()
        return GustMixture(ratios, weights, shifts, inverses, squares, freedom, density)


def _typical_step(times: Sequence[Floats]) -> float:
    """The median of the steps in time (s)."""
    return float(np.median(np.concatenate([np.diff(time) for time in times])))


# ---- the fit ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightedFit:
    """The fit under the likeliest gusts, and the weighted fits under all others."""

    fit: Fit
    products: FilteredProducts  # of slopes, effects and residuals
    effects: dict[str, list[Floats]]  # columns that the model may lack, for each log

    @cached_property
    def mixture(self) -> GustMixture:
        """Of the parameters, in the fit's basis."""
        return self.products.mixture(range(len(self.fit.parameters)))

    def _shifts_and_covariances(self) -> tuple[Floats, Floats]:
        """Shifts of the parameters, (ratios, parameters), and their covariances for each ratio."""
        variances, to_basis = self.mixture.variances, self.fit.to_basis
        if len(self.fit.noise.tracker):
            # The fit takes slow noise for signal, so that 1 - Σφ is too large, for order 1 by a
            # share of (m + 1)/n with n independent samples (Kendall, 1954, with m regressors).
            variances = variances * (1 + (len(to_basis) + 1) / self.fit.independent_samples) ** 2
        each = to_basis @ self.mixture.inverses @ to_basis.T
        return self.mixture.shifts @ to_basis.T, variances[:, None, None] * each

    def estimate(self, i: int, confidence: float) -> Estimate:
        """One parameter, with its interval."""
        shifts, covariances = self._shifts_and_covariances()
        sd = np.sqrt(covariances[:, i, i])
        value = float(self.fit.parameters[i])
        low, high = (
            mixture_quantile(
                self.mixture.weights, shifts[:, i], sd, freedom=self.fit.freedom, share=share
            )
            for share in ((1 - confidence) / 2, (1 + confidence) / 2)
        )
        if i == 2 and self.gusty:
            reach = float(stdtrit(self.fit.freedom, (1 + confidence) / 2))
            low, high = self._profiled(low, high, reach)
        inexact = INEXACT * abs(value)
        return Estimate(value, value + min(low, 0.0) - inexact, value + max(high, 0.0) + inexact)

    def _profiled(self, low: float, high: float, reach: float) -> tuple[float, float]:
        """An interval of the latency that holds all values that are as likely.

        Where gusts hide all but the kinks that commands make, the likelihood has several maxima.
        """
        fit, variance = self.fit, self.mixture.variances[self.mixture.likeliest]
        steps = np.linspace(PROFILE * low, PROFILE * high, POINTS)
        squares = np.array([fit.squares_at(float(fit.parameters[2]) + step) for step in steps])
        likely = steps[squares <= squares.min() + reach**2 * variance]
        return min(low, float(likely[0])), max(high, float(likely[-1]))

    def covariance(self) -> Floats:
        """Of all parameters, about those of the fit."""
        shifts, covariances = self._shifts_and_covariances()
        each = covariances + shifts[:, :, None] * shifts[:, None, :]
        return np.einsum("k,kij->ij", self.mixture.weights, each)

    @property
    def gust_density(self) -> tuple[float, float]:
        """Density of the gusts, rad/√s: the 0.025 quantile, and the likeliest."""
        mixture = self.mixture
        density = np.sqrt(mixture.ratios * mixture.variances)
        at = int(np.searchsorted(np.cumsum(mixture.weights), 0.025))
        scale = self.fit.noise.slow_response
        return float(density[at]) / scale, float(density[mixture.likeliest]) / scale

    @property
    def gusty(self) -> bool:
        """Whether there are gusts beyond doubt."""
        least, likeliest = self.gust_density
        return least > GUSTY * likeliest


def fit_with_noise(flights: Sequence[FlightData]) -> WeightedFit:
    """Estimate the noise from the fit, and the fit under that noise, a few times."""
    start = fitting.initial_parameters(flights)
    fit = _with_gusts(fitting.fit_flights(flights, YawNoise(), start))
    if noises.whiteness_p_value(fit.white_residuals, fit.basis) < COLOURED:
        step = _typical_step([flight.time for flight in flights])
        for _ in range(2):
            tracker = noises.fit_autoregression(fit.residuals)
            memory = noises.variance_inflation(fit.residuals, tracker) * step / 2  # s
            if memory * fit.parameters[1] > LONGEST_MEMORY:
                break  # too slow for a tracker's noise
            noise = replace(fit.noise, tracker=tracker)
            fit = _with_gusts(fitting.fit_flights(flights, noise, fit.parameters))
    effects = {name: fit.orthogonal_to_slopes(columns) for name, columns in _effects(fit).items()}
    products = _products(fit, effects)
    products.refine(range(len(fit.parameters)))
    return WeightedFit(fit, products, effects)


def _with_gusts(fit: Fit) -> Fit:
    for _ in range(ROUNDS):
        fit = replace(fit, noise=replace(fit.noise, rate=float(fit.parameters[1])))
        mixture = _products(fit, {}).mixture(range(len(fit.parameters)))
        noise = replace(fit.noise, ratio=float(mixture.ratios[mixture.likeliest]))
        fit = fitting.fit_flights(fit.flights, noise, fit.parameters)
    return fit


def _products(fit: Fit, effects: dict[str, list[Floats]]) -> FilteredProducts:
    """Of slopes in the basis, effects and residuals: for the fit under other gusts."""
    logs = []
    for i, flight in enumerate(fit.flights):
        others = (*(each[i] for each in effects.values()), fit.residuals[i])
        logs.append((flight.time, np.column_stack([fit.slopes[i] @ fit.to_basis, *others])))
    return FilteredProducts(logs, fit.noise)


def _effects(fit: Fit) -> dict[str, list[Floats]]:
    """Columns of effects that the model may lack, (samples, 2) for each log."""
    k_p, latency = fit.parameters[1:3]
    total = sum(flight.time[-1] for flight in fit.flights)
    before, effects = 0.0, {name: [] for name in (LAG, DRIFT, SHAPE)}
    for flight in fit.flights:
        here, elapsed = flight.response(k_p, latency), (before + flight.time) / total - 0.5
        before += flight.time[-1]
        columns = {
            LAG: [flight.response(rate, latency).value for rate in (3 * k_p, k_p / 3)],
            DRIFT: [elapsed * here.value, elapsed * here.by_rate],
            SHAPE: [flight.response(k_p, latency, power).value for power in (2, 3)],
        }
        for effect, pair in columns.items():
            effects[effect].append(np.stack(pair, axis=1))
    return effects
