"""The model of a flight, and least squares over flights: one set of gains and one latency for all.

The yaw is the response of a first-order lag to commands that are held in between. With commands u_j
from times t_j on, arriving a latency τ later, and a rate k,

    Ẋ = k (u(t - τ) - X),    X(t) = u_0 + Σ_j (u_j - u_{j-1}) (1 - exp(-k (t - t_j - τ)))₊

where u_0 has been held for ever. Its slopes by k and by τ are sums of the same kind. All three are
carried from one change of the command to the next, exactly: no step size, and no power that
overflows. Each log has an initial state of its own; the assumptions are in `swing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import cumulative_trapezoid
from scipy.optimize import least_squares

from pacbayes_control.bounds.compiling import compiled_once
from pacbayes_control.robots.swing.identification.logs import FlightLog, Floats
from pacbayes_control.robots.swing.identification.noises import YawNoise, variance_inflation

RATES = (0.03, 20.0)  # 1/s: range of the search for k_p
LATENCIES = (-0.1, 0.5)  # s: negative where the tracker's clock is behind that of the commands
STARTS = [(rate, latency) for rate in np.geomspace(0.06, 10.0, 8) for latency in (0.0, 0.15)]
FEWEST = 20  # measured yaws in a log


# ---- the model ----------------------------------------------------------------------------------


class LagResponse(NamedTuple):
    """X at some times, and its slopes by the rate and by the latency."""

    value: Floats
    by_rate: Floats
    by_latency: Floats


def lag_response(
    times: Floats, since: Floats, commands: Floats, rate: float, latency: float
) -> LagResponse:
    """The response at `times` to `commands`, each held from its time in `since` on.

    >>> since, commands = np.array([-9.0, 0.0]), np.array([0.0, 1.0])
    >>> step = lag_response(np.array([0.0, 1.0]), since, commands, rate=0.4, latency=0.0)
    >>> step.value.round(4).tolist()
    [0.0, 0.3297]
    """
    jumps = np.diff(commands, prepend=commands[0])
    gaps = np.diff(since, prepend=since[0])
    behinds, moments = _after_each_change(np.exp(-rate * gaps), gaps, jumps)
    last = np.searchsorted(since + latency, times, side="right") - 1
    at = np.maximum(last, 0)  # before the first change, X = u_0
    past = np.maximum(times - latency - since[at], 0.0)
    decay, start = np.exp(-rate * past), behinds[at]
    by_rate = decay * (moments[at] + past * start)
    return LagResponse(commands[at] - decay * start, by_rate, -rate * decay * start)


@compiled_once()
def _after_each_change(decays: Floats, gaps: Floats, jumps: Floats) -> tuple[Floats, Floats]:
    """After each change of the command, u - X, and the negative of its slope by the rate."""
    behinds, moments = np.empty_like(gaps), np.empty_like(gaps)
    behind, moment = 0.0, 0.0
    for i in range(len(gaps)):
        moment = decays[i] * (moment + gaps[i] * behind)
        behind = decays[i] * behind + jumps[i]
        behinds[i], moments[i] = behind, moment
    return behinds, moments


def without_repeats(since: Floats, commands: Floats) -> tuple[Floats, Floats]:
    """The same commands without those that repeat the one before."""
    new = np.append(True, np.diff(commands) != 0)
    return since[new], commands[new]


def unit_speed_path(time: Floats, yaw: Floats) -> NDArray[np.complex128]:
    """The path x + iy of a drone of unit speed, from 0 at the first time (trapezoidal rule)."""
    return cumulative_trapezoid(1j * np.exp(1j * yaw), time, initial=0)


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
        self.time, self.yaw = time[tracked], log.yaw[tracked]
        self.since, self.commands = without_repeats(time, log.yaw_percent / 100)
        self.position_time, self.position = time[placed], log.x[placed] + 1j * log.y[placed]

    def response(self, rate: float, latency: float, power: int = 1) -> LagResponse:
        """The response of a lag to a power of the commands, where yaws were measured."""
        return lag_response(self.time, self.since, self.commands**power, rate, latency)

    def model(self, times: Floats, common: Floats, own: Floats) -> tuple[Floats, Floats]:
        """Yaw, and its slopes by (k_u, k_p, τ, a, b), at some times."""
        k_u, k_p, latency = common
        response = lag_response(times, self.since, self.commands, k_p, latency)
        fading = np.exp(-k_p * times)
        by_rate = k_u * response.by_rate - own[0] * times * fading
        columns = (response.value, by_rate, k_u * response.by_latency, fading, np.ones_like(times))
        return k_u * response.value + own[0] * fading + own[1], np.stack(columns, axis=1)


# ---- the fit ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """Parameters (k_u, k_p, τ, a_1, b_1, a_2, …), their residuals and slopes."""

    flights: Sequence[FlightData]
    noise: YawNoise
    parameters: Floats

    @cached_property
    def residuals(self) -> list[Floats]:
        """Measured minus model, for each log (rad)."""
        return [flight.yaw - self._model[i][0] for i, flight in enumerate(self.flights)]

    @cached_property
    def slopes(self) -> list[Floats]:
        """Slopes by all parameters, (samples, parameters) for each log."""
        wide = []
        for i, (_, slopes) in enumerate(self._model):
            wide.append(np.zeros((len(slopes), len(self.parameters))))
            wide[i][:, :3], wide[i][:, 3 + 2 * i : 5 + 2 * i] = slopes[:, :3], slopes[:, 3:]
        return wide

    @cached_property
    def _model(self) -> list[tuple[Floats, Floats]]:
        return [self.model(i, flight.time) for i, flight in enumerate(self.flights)]

    def model(self, i: int, times: Floats) -> tuple[Floats, Floats]:
        """Yaw of log i, and its slopes by (k_u, k_p, τ, a_i, b_i), at some times."""
        own = self.parameters[3 + 2 * i : 5 + 2 * i]
        return self.flights[i].model(times, self.parameters[:3], own)

    def filtered(self, columns: Sequence[Floats]) -> list[Floats]:
        """Columns, (samples, any) for each log, filtered so that the noise becomes white."""
        pairs = zip(self.flights, columns, strict=True)
        return [self.noise.whiten(flight.time, rows) for flight, rows in pairs]

    @cached_property
    def white_residuals(self) -> list[Floats]:
        """Residuals, filtered."""
        return [white[:, 0] for white in self.filtered([r[:, None] for r in self.residuals])]

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
        slopes = np.concatenate(self.filtered(self.slopes))
        scale = np.linalg.norm(slopes, axis=0)
        basis, triangle = np.linalg.qr(slopes / np.where(scale > 0, scale, 1.0))
        if not np.all(scale > 0) or np.linalg.cond(triangle) > 1e8:
            raise ValueError(
                "the commands do not tell the gains apart: add a log with steps and a chirp"
            )
        return basis, np.linalg.inv(triangle) / scale[:, None]

    @property
    def basis(self) -> Floats:
        """An orthonormal basis of the filtered slopes."""
        return self._factors[0]

    @property
    def to_basis(self) -> Floats:
        """The matrix that takes slopes to that basis, (parameters, parameters)."""
        return self._factors[1]

    def squares_at(self, latency: float) -> float:
        """The sum of squared filtered residuals with another latency, other parameters refitted."""
        moved = replace(self, parameters=self.parameters.copy())
        moved.parameters[2] = latency
        parts = [np.column_stack(part) for part in zip(moved.residuals, moved.slopes, strict=True)]
        rows = np.concatenate(self.filtered(parts))
        slopes = np.delete(rows[:, 1:], 2, axis=1)
        slopes /= np.linalg.norm(slopes, axis=0)
        basis = np.linalg.qr(slopes)[0]
        return float(rows[:, 0] @ rows[:, 0] - np.sum((basis.T @ rows[:, 0]) ** 2))

    def orthogonal_to_slopes(self, others: Sequence[Floats]) -> list[Floats]:
        """The parts of these columns, (samples, any) for each log, that the slopes do not have.

        Filtered, they are orthonormal, and orthogonal to the slopes; fewer if some are redundant.
        """
        white = np.concatenate(self.filtered(others))
        size = np.linalg.norm(white, axis=0)
        size = np.where(size > 0, size, 1.0)
        along = self.basis.T @ (white / size)
        new = white / size - self.basis @ along
        squares, directions = np.linalg.eigh(new.T @ new)
        known = squares > 1e-8
        kept = directions[:, known] / np.sqrt(squares[known])
        pairs = zip(self.slopes, others, strict=True)
        return [(o / size - s @ self.to_basis @ along) @ kept for s, o in pairs]


def fit_flights(flights: Sequence[FlightData], noise: YawNoise, start: Floats) -> Fit:
    """Least squares, after a filter that makes the noise white."""

    @lru_cache(maxsize=1)  # the search asks for residuals and slopes at the same parameters
    def at(parameters: bytes) -> Fit:
        inside = np.frombuffer(parameters).copy()
        inside[1:3] = np.clip(inside[1:3], *np.transpose([RATES, LATENCIES]))
        return Fit(flights, noise, inside)

    def residuals(parameters: Floats) -> Floats:
        return np.concatenate(at(parameters.tobytes()).white_residuals)

    def slopes(parameters: Floats) -> Floats:
        fit = at(parameters.tobytes())
        return -np.concatenate(fit.filtered(fit.slopes))

    jacobian: Any = slopes  # SciPy's stubs know only names
    # MINPACK's own arithmetic: the threads of a BLAS would take longer than the work.
    return at(least_squares(residuals, start, jacobian, method="lm").x.tobytes())


def initial_parameters(flights: Sequence[FlightData]) -> Floats:
    """The best of a few rates and latencies on a part of the samples; the rest is linear."""
    best, chosen = math.inf, np.zeros(0)
    for k_p, latency in STARTS:
        common, blocks = np.array([1.0, k_p, latency]), []
        for flight in flights:
            every = 1 + len(flight.time) // 300
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
