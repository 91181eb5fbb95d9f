"""What a fit leaves over: whether it is white, and how it is correlated.

Residuals come as one array for each log: nothing is carried from the end of a log to the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.stats import chi2

Floats = NDArray[np.float64]

LAGS = 20  # of the test for correlation
ORDERS = 8  # of an autoregression, at most


def whitened(columns: Floats, coefficients: Floats) -> Floats:
    """Each value less what the autoregression foretells; the first few rows are lost."""
    if not len(coefficients):
        return columns
    filtered = lfilter(np.append(1.0, -coefficients), 1.0, columns, axis=0)
    return np.asarray(filtered)[len(coefficients) :]


def autoregression(residuals: Sequence[Floats]) -> Floats:
    """Coefficients of r_t = Σ_h φ_h r_{t-h} + white noise, of the order with the least BIC.

    >>> noise = lfilter([1.0], [1.0, -0.8], np.random.default_rng(0).standard_normal(5000))
    >>> autoregression([noise]).round(1).tolist()
    [0.8]
    """
    now = np.concatenate([r[ORDERS:] for r in residuals])
    before = [
        np.stack([r[ORDERS - h : len(r) - h] for h in range(1, ORDERS + 1)], axis=1)
        for r in residuals
    ]
    past = np.concatenate(before)
    products, along, power = past.T @ past, past.T @ now, float(now @ now)
    best, chosen = math.inf, np.zeros(0)
    for order in range(ORDERS + 1):
        coefficients = np.linalg.lstsq(products[:order, :order], along[:order])[0]
        rest = max(power - float(along[:order] @ coefficients), 1e-300)
        score = len(now) * math.log(rest) + order * math.log(len(now))
        if score < best:
            best, chosen = score, np.asarray(coefficients, float)
    return chosen


def inflation(residuals: Sequence[Floats], coefficients: Floats) -> float:
    """Variance of a long mean of this noise, relative to one of white noise of the same size."""
    if not len(coefficients):
        return 1.0
    raw = np.concatenate(residuals)
    white = np.concatenate([whitened(r, coefficients) for r in residuals])
    damped = max(1 - float(coefficients.sum()), 1e-3)  # 0 is a random walk
    return float(np.mean(white**2) / np.mean(raw**2)) / damped**2


def whiteness(residuals: Sequence[Floats], basis: Floats, fitted: int = 0) -> float:
    """The p-value of Ljung and Box: how often white noise would look as correlated as this.

    basis: orthonormal, of the slopes by the fit's parameters, (samples, parameters). A fit leaves
    residuals that are a little correlated, the more so with few samples for each parameter: as far
    as the slopes tell, that is subtracted. fitted: coefficients of an autoregression that the
    residuals were filtered by.
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
