"""Two noises in a measured yaw: gusts, which the drone's own lag remembers, and the tracker's.

    measured less model at t_i = g(t_i) + v_i,    dg = -k g dt + q dW,    v_i normal, variance σ²

Gusts push the yaw as commands do, so that g fades at the rate k = k_p. With ρ = q²/σ² (1/s) and
from a sample to the next φ = exp(-k Δt), g given the samples so far has the variance σ²P with

    P⁻ = φ² P + ρ (1 - φ²) / 2k,    S = P⁻ + 1,    P = P⁻ / S,

and each sample less what the ones before it foretell, divided by √S, is white with variance σ²
(Kalman, 1960). That filter is linear: residuals and slopes go through it alike, and least squares
of what comes out are generalised least squares. P is 0 at a log's first sample, since how g stands
there is in the model's term exp(-k t), which is fitted.

A tracker whose own noise is correlated has an autoregression, which goes first: over its few
samples gusts hardly move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.swing.identification.residuals import whitened
from pacbayes_control.tasks.compiling import compiled_once

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Noise:
    """What the noise is like, but for its size."""

    rate: float = 1.0  # k, 1/s
    ratio: float = 0.0  # ρ = q²/σ², 1/s; 0 without gusts
    tracker: Floats = field(default_factory=lambda: np.zeros(0))  # autoregression of the tracker's

    def white(self, time: Floats, columns: Floats) -> tuple[Floats, float]:
        """Columns, (samples, any), filtered so that noise becomes white; and Σ log S.

        The first few rows are lost to an autoregression.
        """
        rows = np.ascontiguousarray(whitened(columns, self.tracker))
        if not self.ratio:
            return rows, 0.0
        return _filtered(time[len(self.tracker) :], rows, self.rate, self.ratio)

    def products(self, time: Floats, columns: Floats, ratios: Floats) -> tuple[Floats, Floats]:
        """Products of all columns, (ratios, columns, columns), and Σ log S, for other ratios."""
        rows = np.ascontiguousarray(whitened(columns, self.tracker))
        return _products(time[len(self.tracker) :], rows, self.rate, ratios)

    def gusts(self, time: Floats, residuals: Floats) -> Floats:
        """The likeliest g at each time (Rauch, Tung and Striebel, 1965)."""
        return self._smooth(time, np.asarray(whitened(residuals, self.tracker))) / self._still

    def covered(self, time: Floats, slopes: Floats) -> Floats:
        """The covariance of g given all samples, in σ², times slopes by g at each time."""
        return self._smooth(time, slopes[len(self.tracker) :]) / self._still**2

    @property
    def _still(self) -> float:
        """What an autoregression leaves of a slow g."""
        return max(1e-3, 1 - float(self.tracker.sum()))

    def _smooth(self, time: Floats, rows: Floats) -> Floats:
        lost = len(self.tracker)
        if not self.ratio:
            return np.zeros(len(time))
        found = _smoothed(time[lost:], np.ascontiguousarray(rows), self.rate, self.ratio)
        return np.append(np.full(lost, found[0]), found)


@compiled_once()
def _filtered(time: Floats, columns: Floats, rate: float, ratio: float) -> tuple[Floats, float]:
    samples, width = columns.shape
    white = np.empty_like(columns)
    state = np.zeros(width)
    spread, scale, before = 0.0, 0.0, time[0]
    for i in range(samples):
        fade = math.exp(-rate * (time[i] - before))
        before = time[i]
        spread = fade * fade * spread + ratio * (1 - fade * fade) / (2 * rate)
        total = spread + 1
        gain, root = spread / total, 1 / math.sqrt(total)
        spread = gain
        scale += math.log(total)
        for j in range(width):
            foretold = fade * state[j]
            new = columns[i, j] - foretold
            state[j] = foretold + gain * new
            white[i, j] = root * new
    return white, scale


@compiled_once()
def _products(time: Floats, columns: Floats, rate: float, ratios: Floats) -> tuple[Floats, Floats]:
    samples, width = columns.shape
    products, scales = np.zeros((len(ratios), width, width)), np.zeros(len(ratios))
    fades = np.ones(samples)
    for i in range(1, samples):
        fades[i] = math.exp(-rate * (time[i] - time[i - 1]))
    state, white = np.empty(width), np.empty(width)
    for k in range(len(ratios)):
        state[:] = 0.0
        spread, scale, grown = 0.0, 0.0, 1.0
        for i in range(samples):
            fade = fades[i]
            spread = fade * fade * spread + ratios[k] * (1 - fade * fade) / (2 * rate)
            total = spread + 1
            gain, root = spread / total, 1 / math.sqrt(total)
            spread = gain
            grown *= total
            if grown > 1e100:  # one logarithm for many samples
                scale += math.log(grown)
                grown = 1.0
            for j in range(width):
                foretold = fade * state[j]
                new = columns[i, j] - foretold
                state[j] = foretold + gain * new
                white[j] = root * new
            for j in range(width):
                for h in range(j + 1):
                    products[k, j, h] += white[j] * white[h]
        scales[k] = scale + math.log(grown)
        for j in range(width):
            for h in range(j):
                products[k, h, j] = products[k, j, h]
    return products, scales


@compiled_once()
def _smoothed(time: Floats, residuals: Floats, rate: float, ratio: float) -> Floats:
    samples = len(time)
    state, spread = np.empty(samples), np.empty(samples)
    foretold, ahead = np.empty(samples), np.empty(samples)
    value, variance, before = 0.0, 0.0, time[0]
    for i in range(samples):
        fade = math.exp(-rate * (time[i] - before))
        before = time[i]
        foretold[i] = fade * value
        ahead[i] = fade * fade * variance + ratio * (1 - fade * fade) / (2 * rate)
        variance = ahead[i] / (ahead[i] + 1)
        value = foretold[i] + variance * (residuals[i] - foretold[i])
        state[i], spread[i] = value, variance
    for i in range(samples - 2, -1, -1):
        fade = math.exp(-rate * (time[i + 1] - time[i]))
        state[i] += spread[i] * fade / ahead[i + 1] * (state[i + 1] - foretold[i + 1])
    return state
