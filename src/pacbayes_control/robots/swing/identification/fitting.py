"""Least squares over flights: one set of gains and one latency, and an initial state for each log.

The model and its assumptions are in `swing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from pacbayes_control.robots.swing.identification.lag import lag_response, without_repeats
from pacbayes_control.robots.swing.identification.logs import FlightLog
from pacbayes_control.robots.swing.identification.mixture import FilteredProducts
from pacbayes_control.robots.swing.identification.noise import YawNoise, variance_inflation

Floats = NDArray[np.float64]

RATES = (0.03, 20.0)  # 1/s: range of the search for k_p
LATENCIES = (-0.1, 0.5)  # s: negative where the tracker's clock is behind that of the commands
STARTS = [(rate, latency) for rate in np.geomspace(0.06, 10.0, 8) for latency in (0.0, 0.15)]
FEWEST = 20  # measured yaws in a log
BADLY_EXCITED = "the commands do not tell the gains apart: add a log with steps and a chirp"


class FlightData:
    """The data of a log that are fitted: measurements after the first half second."""

    def __init__(self, log: FlightLog) -> None:
        time = log.time - log.time[0]
        late = time >= LATENCIES[1]
        tracked, placed = late & np.isfinite(log.yaw), late & np.isfinite(log.x + log.y)
        for what, count in (("yaws", tracked.sum()), ("positions", placed.sum())):
            if count < FEWEST:
                raise ValueError(
                    f"{log.name}: {count} measured {what} after the first {LATENCIES[1]:g} s are "
                    f"too few: a log needs {FEWEST}, and a minute of them gives good estimates"
                )
        self.name = log.name
        self.time, self.yaw = time[tracked], log.yaw[tracked]
        self.since, self.commands = without_repeats(time, log.yaw_percent / 100)
        self.position_time, self.position = time[placed], log.x[placed] + 1j * log.y[placed]

    def model(self, times: Floats, common: Floats, own: Floats) -> tuple[Floats, Floats]:
        """Yaw, and its slopes by (k_u, k_p, τ, a, b), at some times."""
        k_u, k_p, latency = common
        response = lag_response(times, self.since, self.commands, k_p, latency)
        fading = np.exp(-k_p * times)
        by_rate = k_u * response.by_rate - own[0] * times * fading
        columns = (response.value, by_rate, k_u * response.by_latency, fading, np.ones_like(times))
        return k_u * response.value + own[0] * fading + own[1], np.stack(columns, axis=1)


@dataclass(frozen=True)
class Fit:
    """Parameters (k_u, k_p, τ, a_1, b_1, a_2, …), their residuals and slopes."""

    flights: Sequence[FlightData]
    noise: YawNoise
    parameters: Floats
    residuals: list[Floats]  # rad, for each log
    slopes: list[Floats]  # by all parameters, (samples, parameters) for each log

    @cached_property
    def white_residuals(self) -> list[Floats]:
        """Residuals, filtered."""
        columns = [r[:, None] for r in self.residuals]
        return [white[:, 0] for white in _filtered(self.flights, self.noise, columns)]

    @property
    def independent_samples(self) -> float:
        """Samples of white noise with as much information: fewer if the tracker's is correlated."""
        return len(self.basis) / max(1.0, variance_inflation(self.residuals, self.noise.tracker))

    @property
    def freedom(self) -> float:
        """Independent samples minus parameters."""
        return max(1.0, self.independent_samples - len(self.parameters))

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise, both kinds together, before the filter (rad)."""
        residuals = np.concatenate(self.residuals)
        squares = float(residuals @ residuals)
        return math.sqrt(squares / (len(residuals) - len(self.parameters)))

    @cached_property
    def _factors(self) -> tuple[Floats, Floats]:
        slopes = np.concatenate(_filtered(self.flights, self.noise, self.slopes))
        scale = np.linalg.norm(slopes, axis=0)
        if not np.all(scale > 0):
            raise ValueError(BADLY_EXCITED)
        basis, triangle = np.linalg.qr(slopes / scale)
        if np.linalg.cond(triangle) > 1e8:
            raise ValueError(BADLY_EXCITED)
        return basis, np.linalg.inv(triangle) / scale[:, None]

    @property
    def basis(self) -> Floats:
        """An orthonormal basis of the filtered slopes."""
        return self._factors[0]

    @property
    def to_basis(self) -> Floats:
        """The matrix that takes slopes to that basis, (parameters, parameters)."""
        return self._factors[1]

    def products(self, others: Sequence[Floats] = ()) -> FilteredProducts:
        """Of slopes in the basis, other columns, and residuals: for the fit under other gusts.

        others: columns that the model may lack, (samples, any) for each log.
        """
        columns = [slopes @ self.to_basis for slopes in self.slopes]
        if len(others):
            columns = [np.column_stack(pair) for pair in zip(columns, others, strict=True)]
        times = [flight.time for flight in self.flights]
        return FilteredProducts(times, columns, self.residuals, self.noise)

    def squares_at(self, latency: float) -> float:
        """The sum of squared filtered residuals with another latency, other parameters refitted."""
        moved = self.parameters.copy()
        moved[2] = latency
        parts = [np.hstack(part) for part in _residuals_and_slopes(self.flights, moved)]
        rows = np.concatenate(_filtered(self.flights, self.noise, parts))
        slopes = np.delete(rows[:, 1:], 2, axis=1)
        slopes /= np.linalg.norm(slopes, axis=0)
        basis = np.linalg.qr(slopes)[0]
        return float(rows[:, 0] @ rows[:, 0] - np.sum((basis.T @ rows[:, 0]) ** 2))

    def orthogonal_to_slopes(self, others: Sequence[Floats]) -> list[Floats]:
        """The parts of these columns, (samples, any) for each log, that the slopes do not have.

        Filtered, they are orthonormal, and orthogonal to the slopes; fewer if some are redundant.
        """
        white = np.concatenate(_filtered(self.flights, self.noise, others))
        size = np.linalg.norm(white, axis=0)
        size = np.where(size > 0, size, 1.0)
        along = self.basis.T @ (white / size)
        new = white / size - self.basis @ along
        squares, directions = np.linalg.eigh(new.T @ new)
        known = squares > 1e-8
        kept = directions[:, known] / np.sqrt(squares[known])
        pairs = zip(self.slopes, others, strict=True)
        return [(o / size - s @ self.to_basis @ along) @ kept for s, o in pairs]


def _filtered(
    flights: Sequence[FlightData], noise: YawNoise, columns: Sequence[Floats]
) -> list[Floats]:
    """Columns, (samples, any) for each log, filtered so that the noise becomes white."""
    return [noise.whiten(f.time, rows) for f, rows in zip(flights, columns, strict=True)]


def _residuals_and_slopes(
    flights: Sequence[FlightData], parameters: Floats
) -> list[tuple[Floats, Floats]]:
    """Residuals, (samples, 1), and slopes by all parameters, for each log."""
    parts = []
    for i, flight in enumerate(flights):
        own = slice(3 + 2 * i, 5 + 2 * i)
        yaw, slopes = flight.model(flight.time, parameters[:3], parameters[own])
        wide = np.zeros((len(yaw), len(parameters)))
        wide[:, :3], wide[:, own] = slopes[:, :3], slopes[:, 3:]
        parts.append(((flight.yaw - yaw)[:, None], wide))
    return parts


def fit_flights(flights: Sequence[FlightData], noise: YawNoise, start: Floats) -> Fit:
    """Least squares, after a filter that makes the noise white."""

    @lru_cache(maxsize=1)  # the search asks for both at the same parameters
    def parts(parameters: bytes) -> list[tuple[Floats, Floats]]:
        return _residuals_and_slopes(flights, _clipped(np.frombuffer(parameters)))

    def filtered(which: int, parameters: Floats) -> Floats:
        columns = [pair[which] for pair in parts(parameters.tobytes())]
        return np.concatenate(_filtered(flights, noise, columns))

    def residuals(parameters: Floats) -> Floats:
        return filtered(0, parameters)[:, 0]

    def slopes(parameters: Floats) -> Floats:
        return -filtered(1, parameters)

    jacobian: Any = slopes  # SciPy's stubs know only names
    # MINPACK's own arithmetic: the threads of a BLAS would take longer than the work.
    found = _clipped(least_squares(residuals, start, jacobian, method="lm").x)
    both = parts(found.tobytes())
    return Fit(flights, noise, found, [r[:, 0] for r, _ in both], [s for _, s in both])


def _clipped(parameters: Floats) -> Floats:
    """The same, with k_p and latency within the range of the search."""
    inside = parameters.copy()
    inside[1] = min(max(inside[1], RATES[0]), RATES[1])
    inside[2] = min(max(inside[2], LATENCIES[0]), LATENCIES[1])
    return inside


def initial_parameters(flights: Sequence[FlightData]) -> Floats:
    """The best of a few rates and latencies on a part of the samples; the rest is linear."""
    thin = [1 + len(flight.time) // 300 for flight in flights]
    best, chosen = math.inf, np.zeros(0)
    for k_p, latency in STARTS:
        common, blocks = np.array([1.0, k_p, latency]), []
        for flight, every in zip(flights, thin, strict=True):
            slopes = flight.model(flight.time[::every], common, np.zeros(2))[1]
            own = np.linalg.qr(slopes[:, 3:])[0]
            both = np.stack([slopes[:, 0], flight.yaw[::every]], axis=1)
            blocks.append(both - own @ (own.T @ both))
        response, yaw = np.concatenate(blocks).T
        k_u = float(response @ yaw) / max(float(response @ response), 1e-300)
        squares = float(np.sum((yaw - k_u * response) ** 2))
        if squares < best:
            best, chosen = squares, np.array([k_u, k_p, latency])
    owns = []
    for flight in flights:
        yaw, slopes = flight.model(flight.time, chosen, np.zeros(2))
        owns.append(np.linalg.lstsq(slopes[:, 3:], flight.yaw - yaw)[0])
    return np.concatenate([chosen, *owns])
