"""Least squares over flights: one set of gains and one latency, and a beginning for each log.

The model and what is assumed are in `identification.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import least_squares

from pacbayes_control.identification.lag import changes, lagged
from pacbayes_control.identification.logs import FlightLog
from pacbayes_control.identification.residuals import inflation, whitened

Floats = NDArray[np.float64]

RATES = (0.03, 20.0)  # 1/s: of k_p, as far as it is searched
LATENCIES = (-0.1, 0.5)  # s: below 0 where the tracker's clock is late against the commands'
STARTS = [(rate, latency) for rate in np.geomspace(0.06, 10.0, 8) for latency in (0.0, 0.15)]
FEWEST = 20  # measured yaws in a log
BADLY_EXCITED = "the commands do not tell the gains apart: add a log with steps and a chirp"


class Flight:
    """What the fit takes from a log: measurements after the first half second."""

    def __init__(self, log: FlightLog) -> None:
        time = log.time - log.time[0]
        late = time >= LATENCIES[1]
        seen, placed = late & np.isfinite(log.yaw), late & np.isfinite(log.x + log.y)
        for what, count in (("yaws", seen.sum()), ("positions", placed.sum())):
            if count < FEWEST:
                raise ValueError(
                    f"{log.name}: {count} measured {what} after the first {LATENCIES[1]:g} s are "
                    f"too few: a log needs {FEWEST}, and a minute of them tells the gains well"
                )
        self.name = log.name
        self.time, self.yaw = time[seen], log.yaw[seen]
        self.since, self.commands = changes(time, log.yaw_percent / 100)
        self.placed, self.place = time[placed], log.x[placed] + 1j * log.y[placed]

    def model(self, times: Floats, common: Floats, own: Floats) -> tuple[Floats, Floats]:
        """Yaw, and its slopes by (k_u, k_p, τ, a, b), at some times."""
        k_u, k_p, latency = common
        answer = lagged(times, self.since, self.commands, k_p, latency)
        fading = np.exp(-k_p * times)
        by_rate = k_u * answer.by_rate - own[0] * times * fading
        columns = (answer.value, by_rate, k_u * answer.by_latency, fading, np.ones_like(times))
        return k_u * answer.value + own[0] * fading + own[1], np.stack(columns, axis=1)


@dataclass(frozen=True)
class Fit:
    """Parameters (k_u, k_p, τ, a_1, b_1, a_2, …), and what they leave over."""

    flights: Sequence[Flight]
    filter: Floats  # autoregression of the noise; empty if it is white
    parameters: Floats
    raw: list[Floats]  # residuals, rad
    slopes: Floats  # filtered; (samples, parameters)

    @property
    def left(self) -> list[Floats]:
        """Residuals, filtered."""
        return [whitened(raw, self.filter) for raw in self.raw]

    @property
    def independent(self) -> float:
        """Samples of white noise that would tell as much as these: fewer if the noise lingers."""
        return self.slopes.shape[0] / max(1.0, inflation(self.raw, self.filter))

    @property
    def freedom(self) -> float:
        """Independent samples less parameters."""
        return max(1.0, self.independent - self.slopes.shape[1])

    @property
    def noise(self) -> float:
        """Standard deviation of the noise, before the filter."""
        raw = np.concatenate(self.raw)
        return math.sqrt(float(raw @ raw) / (len(raw) - self.slopes.shape[1]))

    @cached_property
    def _factors(self) -> tuple[Floats, Floats, Floats]:
        """Lengths of the slopes; of those at length 1, an orthonormal basis and coordinates."""
        scale = np.linalg.norm(self.slopes, axis=0)
        if not np.all(scale > 0):
            raise ValueError(BADLY_EXCITED)
        basis, triangle = np.linalg.qr(self.slopes / scale)
        if np.linalg.cond(triangle) > 1e8:
            raise ValueError(BADLY_EXCITED)
        return scale, basis, triangle

    @property
    def basis(self) -> Floats:
        """Orthonormal, of the slopes."""
        return self._factors[1]

    def covariance(self) -> Floats:
        """Of all parameters."""
        scale, _, triangle = self._factors
        left = np.concatenate(self.left)
        inverse = solve_triangular(triangle, np.eye(len(scale))) / scale[:, None]
        variance = float(left @ left) / (len(left) - len(scale))
        if len(self.filter):
            # The fit takes slow noise for signal, so that 1 - Σφ is too large, for order 1 by a
            # share of (m + 1)/n with n independent samples (Kendall, 1954, with m regressors).
            variance *= (1 + (len(scale) + 1) / self.independent) ** 2
        return variance * inverse @ inverse.T


def _parts(flights: Sequence[Flight], parameters: Floats) -> list[tuple[Floats, Floats]]:
    """Residuals and slopes by all parameters, for each log."""
    parts = []
    for i, flight in enumerate(flights):
        own = slice(3 + 2 * i, 5 + 2 * i)
        yaw, slopes = flight.model(flight.time, parameters[:3], parameters[own])
        wide = np.zeros((len(yaw), len(parameters)))
        wide[:, :3], wide[:, own] = slopes[:, :3], slopes[:, 3:]
        parts.append((flight.yaw - yaw, wide))
    return parts


def fitted(flights: Sequence[Flight], noise: Floats, start: Floats) -> Fit:
    """Least squares, after a filter that makes the noise white."""

    @lru_cache(maxsize=1)  # the search asks for both at one place
    def parts(parameters: bytes) -> list[tuple[Floats, Floats]]:
        return _parts(flights, _within(np.frombuffer(parameters)))

    def residuals(parameters: Floats) -> Floats:
        return np.concatenate([whitened(r, noise) for r, _ in parts(parameters.tobytes())])

    def slopes(parameters: Floats) -> Floats:
        return -np.concatenate([whitened(s, noise) for _, s in parts(parameters.tobytes())])

    jacobian: Any = slopes  # SciPy's stubs know only names
    # MINPACK's own arithmetic: threads of a BLAS would spend more on each other than on the work.
    found = _within(least_squares(residuals, start, jacobian, method="lm").x)
    raw = [rest for rest, _ in parts(found.tobytes())]
    return Fit(flights, noise, found, raw, -slopes(found))


def _within(parameters: Floats) -> Floats:
    """The same, with k_p and latency no further than the edges of what is searched."""
    inside = parameters.copy()
    inside[1] = min(max(inside[1], RATES[0]), RATES[1])
    inside[2] = min(max(inside[2], LATENCIES[0]), LATENCIES[1])
    return inside


def start_of(flights: Sequence[Flight]) -> Floats:
    """The best of a few rates and latencies, by a part of the samples: the rest is linear."""
    thin = [1 + len(flight.time) // 300 for flight in flights]
    best, chosen = math.inf, np.zeros(0)
    for k_p, latency in STARTS:
        common, blocks = np.array([1.0, k_p, latency]), []
        for flight, every in zip(flights, thin, strict=True):
            slopes = flight.model(flight.time[::every], common, np.zeros(2))[1]
            own = np.linalg.qr(slopes[:, 3:])[0]
            both = np.stack([slopes[:, 0], flight.yaw[::every]], axis=1)
            blocks.append(both - own @ (own.T @ both))
        answer, yaw = np.concatenate(blocks).T
        k_u = float(answer @ yaw) / max(float(answer @ answer), 1e-300)
        rest = float(np.sum((yaw - k_u * answer) ** 2))
        if rest < best:
            best, chosen = rest, np.array([k_u, k_p, latency])
    owns = []
    for flight in flights:
        yaw, slopes = flight.model(flight.time, chosen, np.zeros(2))
        owns.append(np.linalg.lstsq(slopes[:, 3:], flight.yaw - yaw)[0])
    return np.concatenate([chosen, *owns])
