"""The fit for the noise, the noise from the fit, and what a fit may lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from pacbayes_control.robots.swing.identification.fitting import Fit, Flight, fitted, start_of
from pacbayes_control.robots.swing.identification.gusts import Noise
from pacbayes_control.robots.swing.identification.identified import Estimate
from pacbayes_control.robots.swing.identification.lag import Lagged, lagged
from pacbayes_control.robots.swing.identification.mixture import Mixture, Moments, quantile
from pacbayes_control.robots.swing.identification.residuals import (
    autoregression,
    inflation,
    whiteness,
)

Floats = NDArray[np.float64]

ROUNDS = 2  # of the gusts from the fit, and the fit for the gusts
COLOURED = 1e-3  # p-value below which a tracker's noise is taken as correlated
WANDER = 0.25  # correlation time of a tracker's noise, as a share of 1/k_p, at most
GUSTY = 0.5  # of the likeliest gusts, that the weakest likely ones must be
PROFILE, POINTS = 2.5, 25  # of the latency: how many times its interval, and at how many places
LOST = 1e-6  # share of a value that the search and the integral of the path may lose
LAG = "it had a second lag or oscillated: it is no first-order lag"
DRIFT = "the gains changed in the course of the logs"
SHAPE = "it were out of proportion to the command: it saturates, has a dead zone, or is lopsided"


@dataclass(frozen=True)
class Settled:
    """The fit for the likeliest gusts, and those for all others, weighed."""

    fit: Fit
    moments: Moments  # of slopes, effects and residuals
    effects: dict[str, list[Floats]]  # that the model may lack, for each log

    @cached_property
    def mixture(self) -> Mixture:
        """Of the parameters, turned."""
        return self.moments.mixture(range(len(self.fit.turn)))

    def _spreads(self) -> tuple[Floats, Floats]:
        """Shifts of the parameters, (ratios, parameters), and their covariances for each ratio."""
        variances = self.mixture.variances
        if len(self.fit.noise.tracker):
            # The fit takes slow noise for signal, so that 1 - Σφ is too large, for order 1 by a
            # share of (m + 1)/n with n independent samples (Kendall, 1954, with m regressors).
            variances = variances * (1 + (len(self.fit.turn) + 1) / self.fit.independent) ** 2
        each = self.fit.turn @ self.mixture.inverses @ self.fit.turn.T
        return self.mixture.shifts @ self.fit.turn.T, variances[:, None, None] * each

    def estimate(self, i: int, confidence: float) -> Estimate:
        """Of one parameter."""
        shifts, covariances = self._spreads()
        sd = np.sqrt(covariances[:, i, i])
        value = float(self.fit.parameters[i])
        low, high = (
            quantile(self.mixture.weights, shifts[:, i], sd, self.fit.freedom, share)
            for share in ((1 - confidence) / 2, (1 + confidence) / 2)
        )
        if i == 2 and self.gusty:
            low, high = self._profiled(
                low, high, float(stdtrit(self.fit.freedom, (1 + confidence) / 2))
            )
        lost = LOST * abs(value)
        return Estimate(value, value + min(low, 0.0) - lost, value + max(high, 0.0) + lost)

    def _profiled(self, low: float, high: float, reach: float) -> tuple[float, float]:
        """An interval of the latency, with all that is as likely.

        Where gusts hide all but the kinks that commands make, the likelihood has several tops.
        """
        fit, variance = self.fit, self.mixture.variances[self.mixture.likeliest]
        steps = np.linspace(PROFILE * low, PROFILE * high, POINTS)
        rests = np.array([fit.rest_at(float(fit.parameters[2]) + step) for step in steps])
        likely = steps[rests <= rests.min() + reach**2 * variance]
        return min(low, float(likely[0])), max(high, float(likely[-1]))

    def covariance(self) -> Floats:
        """Of all parameters, about those of the fit."""
        shifts, covariances = self._spreads()
        each = covariances + shifts[:, :, None] * shifts[:, None, :]
        return np.einsum("k,kij->ij", self.mixture.weights, each)

    @property
    def gusts(self) -> tuple[float, float]:
        """Their density, rad/√s: the 0.025 quantile, and the likeliest."""
        mixture = self.mixture
        density = np.sqrt(mixture.ratios * mixture.variances)
        at = int(np.searchsorted(np.cumsum(mixture.weights), 0.025))
        scale = max(1e-3, 1 - float(self.fit.noise.tracker.sum()))
        return float(density[at]) / scale, float(density[mixture.likeliest]) / scale

    @property
    def gusty(self) -> bool:
        """Whether there are gusts for certain."""
        least, likeliest = self.gusts
        return least > GUSTY * likeliest


def settled(flights: Sequence[Flight]) -> Settled:
    """The noise from the fit, and the fit for the noise, a few times over."""
    fit = _with_gusts(fitted(flights, Noise(), start_of(flights)))
    if whiteness(fit.left, fit.basis) < COLOURED:
        for _ in range(2):
            tracker = autoregression(fit.raw)
            if _memory(fit, tracker) * fit.parameters[1] > WANDER:
                break  # a tracker's noise is not as slow as that
            noise = replace(fit.noise, tracker=tracker)
            fit = _with_gusts(fitted(flights, noise, fit.parameters))
    effects = {name: fit.apart(columns) for name, columns in _effects(fit).items()}
    others = [np.column_stack(rows) for rows in zip(*effects.values(), strict=True)]
    return Settled(fit, fit.moments(others, fine=True), effects)


def _memory(fit: Fit, tracker: Floats) -> float:
    """How long the tracker's noise lingers, s."""
    step = float(np.median(np.concatenate([np.diff(flight.time) for flight in fit.flights])))
    return inflation(fit.raw, tracker) * step / 2


def _with_gusts(fit: Fit) -> Fit:
    for _ in range(ROUNDS):
        noise = replace(fit.noise, rate=float(fit.parameters[1]))
        fit = replace(fit, noise=noise)
        mixture = fit.moments().mixture(range(len(fit.turn)))
        noise = replace(noise, ratio=float(mixture.ratios[mixture.likeliest]))
        fit = fitted(fit.flights, noise, fit.parameters)
    return fit


def _effects(fit: Fit) -> dict[str, list[Floats]]:
    """Columns of what the model may lack, (samples, 2) for each log."""
    k_p, latency = fit.parameters[1:3]
    total = sum(flight.time[-1] for flight in fit.flights)
    before, effects = 0.0, {name: [] for name in (LAG, DRIFT, SHAPE)}
    for flight in fit.flights:

        def answer(rate: float, power: int = 1, flight: Flight = flight) -> Lagged:
            return lagged(flight.time, flight.since, flight.commands**power, rate, latency)

        here, elapsed = answer(k_p), (before + flight.time) / total - 0.5
        before += flight.time[-1]
        columns = {
            LAG: (answer(3 * k_p).value, answer(k_p / 3).value),
            DRIFT: (elapsed * here.value, elapsed * here.by_rate),
            SHAPE: (answer(k_p, 2).value, answer(k_p, 3).value),
        }
        for effect, pair in columns.items():
            effects[effect].append(np.stack(pair, axis=1))
    return effects
