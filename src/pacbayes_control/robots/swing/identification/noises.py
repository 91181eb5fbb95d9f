"""Two noises in a measured yaw: gusts, which fade as the drone's own yaw does, and the tracker's.

    measured minus model at t_i = g(t_i) + v_i,    dg = -k g dt + q dW,    v_i normal, variance σ²

Gusts push the yaw as commands do, so that g fades at the rate k = k_p. With ρ = q²/σ² (1/s) and
from a sample to the next φ = exp(-k Δt), g given the samples so far has the variance σ²P with

    P⁻ = φ² P + ρ (1 - φ²) / 2k,    S = P⁻ + 1,    P = P⁻ / S,

and each sample minus its prediction from those before, divided by √S, is white with variance σ²
(Kalman, 1960). That filter is linear: residuals and slopes go through it alike, and least squares
of the filtered columns are generalised least squares. P is 0 at a log's first sample, since the
initial g is in the model's term exp(-k t), which is fitted.

A tracker whose own noise is correlated has an autoregression, which is applied first: over its few
samples gusts hardly move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.signal import lfilter
from scipy.stats import chi2

from pacbayes_control.bounds.compiling import compiled_once
from pacbayes_control.robots.swing.identification.logs import Floats

LAGS = 20  # of the test for correlation
LARGEST_ORDER = 8  # of an autoregression


@dataclass(frozen=True, eq=False)
class YawNoise:
    """The noise of a measured yaw, up to its scale σ."""

    rate: float = 1.0  # k, 1/s
    ratio: float = 0.0  # ρ = q²/σ², 1/s; 0 without gusts
    tracker: Floats = field(default_factory=lambda: np.zeros(0))  # autoregression of v

    def whiten(self, time: Floats, columns: Floats) -> Floats:
        """Columns, (samples, any), filtered so that the noise becomes white.

        An autoregression of the tracker takes the first rows.
        """
        rows = np.ascontiguousarray(whitened(columns, self.tracker))
        return _filtered(time[len(self.tracker) :], rows, self.rate, self.ratio)[0]

    def products(self, time: Floats, columns: Floats, ratios: Floats) -> tuple[Floats, Floats]:
        """Products of all filtered columns, (ratios, columns, columns), and Σ log S, for ratios."""
        rows = np.ascontiguousarray(whitened(columns, self.tracker))
        return _products(time[len(self.tracker) :], rows, self.rate, ratios)

    def likeliest_gusts(self, time: Floats, residuals: Floats) -> Floats:
        """The likeliest g at each time (Rauch, Tung and Striebel, 1965)."""
        rows = np.asarray(whitened(residuals, self.tracker))
        return self._smooth(time, rows) / self.slow_response

    def gust_covariance(self, time: Floats, slopes: Floats) -> Floats:
        """The covariance of g given all samples, in σ², times slopes by g at each time."""
        return self._smooth(time, slopes[len(self.tracker) :]) / self.slow_response**2

    @property
    def slow_response(self) -> float:
        """The factor by which the tracker's autoregression scales a slow g."""
        return max(1e-3, 1 - float(self.tracker.sum()))

    def _smooth(self, time: Floats, rows: Floats) -> Floats:
        order = len(self.tracker)
        if not self.ratio:
            return np.zeros(len(time))
        found = _smoothed(time[order:], np.ascontiguousarray(rows), self.rate, self.ratio)
        return np.append(np.full(order, found[0]), found)


@compiled_once()
def _predicted(time: Floats, columns: Floats, rate: float, ratio: float) -> tuple[Floats, Floats]:
    """Each sample as predicted from those before, (samples, columns), and P⁻ at each."""
    predicted, ahead = np.empty_like(columns), np.empty(len(time))
    state, gain, before = np.zeros(columns.shape[1]), 0.0, time[0]
    for i in range(len(time)):
        fade = math.exp(-rate * (time[i] - before))
        before = time[i]
        ahead[i] = fade * fade * gain + ratio * (1 - fade * fade) / (2 * rate)
        gain = ahead[i] / (ahead[i] + 1)  # which is P as well
        for j in range(len(state)):
            predicted[i, j] = fade * state[j]
            state[j] = predicted[i, j] + gain * (columns[i, j] - predicted[i, j])
    return predicted, ahead


@compiled_once()
def _filtered(time: Floats, columns: Floats, rate: float, ratio: float) -> tuple[Floats, Floats]:
    """The columns, white, and S at each sample."""
    predicted, ahead = _predicted(time, columns, rate, ratio)
    total = ahead + 1
    return (1 / np.sqrt(total)).reshape(-1, 1) * (columns - predicted), total


@compiled_once()
def _products(time: Floats, columns: Floats, rate: float, ratios: Floats) -> tuple[Floats, Floats]:
    width = columns.shape[1]
    products, scales = np.zeros((len(ratios), width, width)), np.zeros(len(ratios))
    for k in range(len(ratios)):
        white, total = _filtered(time, columns, rate, ratios[k])
        grown = 1.0
        for i in range(len(time)):
            grown *= total[i]
            if grown > 1e100:  # one logarithm for many samples
                scales[k] += math.log(grown)
                grown = 1.0
            for j in range(width):
                for h in range(width):
                    products[k, j, h] += white[i, j] * white[i, h]
        scales[k] += math.log(grown)
    return products, scales


@compiled_once()
def _smoothed(time: Floats, residuals: Floats, rate: float, ratio: float) -> Floats:
    columns, ahead = _predicted(time, residuals.reshape(-1, 1), rate, ratio)
    predicted, gain = columns[:, 0], ahead / (ahead + 1)
    state = predicted + gain * (residuals - predicted)
    for i in range(len(time) - 2, -1, -1):
        fade = math.exp(-rate * (time[i + 1] - time[i]))
        state[i] += gain[i] * fade / ahead[i + 1] * (state[i + 1] - predicted[i + 1])
    return state


# ---- residuals, one array for each log ----------------------------------------------------------


def whitened(columns: Floats, coefficients: Floats) -> Floats:
    """Each value minus the autoregression's prediction; without the first `order` rows."""
    if not len(coefficients):
        return columns
    filtered = lfilter(np.append(1.0, -coefficients), 1.0, columns, axis=0)
    return np.asarray(filtered)[len(coefficients) :]


def fit_autoregression(residuals: Sequence[Floats]) -> Floats:
    """Coefficients of r_t = Σ_h φ_h r_{t-h} + white noise, of the order with the least BIC.

    >>> noise = lfilter([1.0], [1.0, -0.8], np.random.default_rng(0).standard_normal(5000))
    >>> fit_autoregression([noise]).round(1).tolist()
    [0.8]
    """
    now = np.concatenate([r[LARGEST_ORDER:] for r in residuals])
    lags = range(1, LARGEST_ORDER + 1)
    past = np.concatenate(
        [np.stack([r[LARGEST_ORDER - h : len(r) - h] for h in lags], axis=1) for r in residuals]
    )
    products, along, power = past.T @ past, past.T @ now, float(now @ now)
    best, chosen = math.inf, np.zeros(0)
    for order in range(LARGEST_ORDER + 1):
        coefficients = np.linalg.lstsq(products[:order, :order], along[:order])[0]
        squares = max(power - float(along[:order] @ coefficients), 1e-300)
        score = len(now) * math.log(squares) + order * math.log(len(now))
        if score < best:
            best, chosen = score, np.asarray(coefficients, float)
    return chosen


def variance_inflation(residuals: Sequence[Floats], coefficients: Floats) -> float:
    """Variance of a long mean of this noise, relative to white noise of the same size."""
    if not len(coefficients):
        return 1.0
    raw = np.concatenate(residuals)
    white = np.concatenate([whitened(r, coefficients) for r in residuals])
    damping = max(1 - float(coefficients.sum()), 1e-3)  # 0 is a random walk
    return float(np.mean(white**2) / np.mean(raw**2)) / damping**2


def whiteness_p_value(residuals: Sequence[Floats], basis: Floats, fitted: int = 0) -> float:
    """The p-value of Ljung and Box: how often white noise would look as correlated as this.

    The residuals of a fit are a little correlated even if the noise is white, the more so with few
    samples for each parameter: the correlation that the slopes cause is subtracted.

    Args:
        residuals: one array for each log
        basis: orthonormal basis of the slopes by the fit's parameters, (samples, parameters)
        fitted: coefficients of an autoregression that the residuals were filtered by
    """
    parts = np.split(basis, np.cumsum([len(r) for r in residuals])[:-1])
    samples, freedom = len(basis), basis.shape[0] - basis.shape[1]
    power = max(sum(float(r @ r) for r in residuals), 1e-300)
    lags = min(LAGS, min(len(r) for r in residuals) // 2)
    statistic = 0.0
    for lag in range(1, lags + 1):
        found = sum(float(r[lag:] @ r[:-lag]) for r in residuals) / power
        expected = -sum(float(np.sum(q[lag:] * q[:-lag])) for q in parts) / freedom
        pairs = sum(len(r) - lag for r in residuals)
        statistic += samples**2 / pairs * (found - expected) ** 2
    return float(chi2.sf(statistic, max(1, lags - fitted)))
