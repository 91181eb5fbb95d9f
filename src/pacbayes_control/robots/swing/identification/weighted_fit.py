"""The fit and its noise, estimated in turn, and the effects that the model may lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from pacbayes_control.robots.swing.identification.fitting import (
    Fit,
    FlightData,
    fit_flights,
    initial_parameters,
)
from pacbayes_control.robots.swing.identification.identified import Estimate
from pacbayes_control.robots.swing.identification.lag import LagResponse, lag_response
from pacbayes_control.robots.swing.identification.mixture import (
    FilteredProducts,
    GustMixture,
    mixture_quantile,
)
from pacbayes_control.robots.swing.identification.noise import (
    YawNoise,
    fit_autoregression,
    variance_inflation,
    whiteness_p_value,
)

Floats = NDArray[np.float64]

ROUNDS = 2  # of estimating the gusts from the fit, and the fit under these gusts
COLOURED = 1e-3  # p-value below which a tracker's noise is taken as correlated
LONGEST_MEMORY = 0.25  # of a tracker's noise, as a share of 1/k_p
GUSTY = 0.5  # least share of the likeliest gusts that the weakest likely ones must reach
PROFILE, POINTS = 2.5, 25  # of the latency: width as a multiple of its interval, and points in it
INEXACT = 1e-6  # relative error of the search and of the integral of the path
LAG = "it had a second lag or oscillated: it is no first-order lag"
DRIFT = "the gains changed in the course of the logs"
SHAPE = "it were not proportional to the command: it saturates, has a dead zone, or is asymmetric"


@dataclass(frozen=True)
class WeightedFit:
    """The fit under the likeliest gusts, and the weighted fits under all others."""

    fit: Fit
    products: FilteredProducts  # of slopes, effects and residuals
    effects: dict[str, list[Floats]]  # columns that the model may lack, for each log

    @cached_property
    def mixture(self) -> GustMixture:
        """Of the parameters, in the fit's basis."""
        return self.products.mixture(range(len(self.fit.to_basis)))

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
            mixture_quantile(self.mixture.weights, shifts[:, i], sd, self.fit.freedom, share)
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
    fit = _with_gusts(fit_flights(flights, YawNoise(), initial_parameters(flights)))
    if whiteness_p_value(fit.white_residuals, fit.basis) < COLOURED:
        for _ in range(2):
            tracker = fit_autoregression(fit.residuals)
            if _memory(fit, tracker) * fit.parameters[1] > LONGEST_MEMORY:
                break  # too slow for a tracker's noise
            noise = replace(fit.noise, tracker=tracker)
            fit = _with_gusts(fit_flights(flights, noise, fit.parameters))
    effects = {name: fit.orthogonal_to_slopes(columns) for name, columns in _effects(fit).items()}
    others = [np.column_stack(rows) for rows in zip(*effects.values(), strict=True)]
    products = fit.products(others)
    products.refine(range(len(fit.to_basis)))
    return WeightedFit(fit, products, effects)


def _memory(fit: Fit, tracker: Floats) -> float:
    """Correlation time of the tracker's noise (s)."""
    step = float(np.median(np.concatenate([np.diff(flight.time) for flight in fit.flights])))
    return variance_inflation(fit.residuals, tracker) * step / 2


def _with_gusts(fit: Fit) -> Fit:
    for _ in range(ROUNDS):
        noise = replace(fit.noise, rate=float(fit.parameters[1]))
        fit = replace(fit, noise=noise)
        mixture = fit.products().mixture(range(len(fit.to_basis)))
        noise = replace(noise, ratio=float(mixture.ratios[mixture.likeliest]))
        fit = fit_flights(fit.flights, noise, fit.parameters)
    return fit


def _effects(fit: Fit) -> dict[str, list[Floats]]:
    """Columns of effects that the model may lack, (samples, 2) for each log."""
    k_p, latency = fit.parameters[1:3]
    total = sum(flight.time[-1] for flight in fit.flights)
    before, effects = 0.0, {name: [] for name in (LAG, DRIFT, SHAPE)}
    for flight in fit.flights:

        def response(rate: float, power: int = 1, flight: FlightData = flight) -> LagResponse:
            return lag_response(flight.time, flight.since, flight.commands**power, rate, latency)

        here, elapsed = response(k_p), (before + flight.time) / total - 0.5
        before += flight.time[-1]
        columns = {
            LAG: (response(3 * k_p).value, response(k_p / 3).value),
            DRIFT: (elapsed * here.value, elapsed * here.by_rate),
            SHAPE: (response(k_p, 2).value, response(k_p, 3).value),
        }
        for effect, pair in columns.items():
            effects[effect].append(np.stack(pair, axis=1))
    return effects
