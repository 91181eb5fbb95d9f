"""Least squares over flights: one set of gains and one latency, and a beginning for each log.

The model and what is assumed are in `swing.py`.
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

from pacbayes_control.robots.swing.identification.gusts import Noise
from pacbayes_control.robots.swing.identification.lag import changes, lagged
from pacbayes_control.robots.swing.identification.logs import FlightLog
from pacbayes_control.robots.swing.identification.mixture import Moments
from pacbayes_control.robots.swing.identification.residuals import inflation

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
    noise: Noise
    parameters: Floats
    raw: list[Floats]  # residuals, rad
    slopes: list[Floats]  # by all parameters, (samples, parameters) for each log

    @cached_property
    def left(self) -> list[Floats]:
        """Residuals, filtered."""
        parts = zip(self.flights, self.raw, strict=True)
        return [self.noise.white(flight.time, r[:, None])[0][:, 0] for flight, r in parts]

    @property
    def independent(self) -> float:
        """Samples of white noise that tell as much as the tracker's: fewer if that lingers."""
        return len(self.basis) / max(1.0, inflation(self.raw, self.noise.tracker))

    @property
    def freedom(self) -> float:
        """Independent samples less parameters."""
        return max(1.0, self.independent - len(self.parameters))

    @property
    def size(self) -> float:
        """Standard deviation of the noise, both together, before the filter."""
        raw = np.concatenate(self.raw)
        return math.sqrt(float(raw @ raw) / (len(raw) - len(self.parameters)))

    @cached_property
    def _factors(self) -> tuple[Floats, Floats]:
        """An orthonormal basis of the filtered slopes, and what turns slopes into it."""
        parts = zip(self.flights, self.slopes, strict=True)
        slopes = np.concatenate([self.noise.white(flight.time, s)[0] for flight, s in parts])
        scale = np.linalg.norm(slopes, axis=0)
        if not np.all(scale > 0):
            raise ValueError(BADLY_EXCITED)
        basis, triangle = np.linalg.qr(slopes / scale)
        if np.linalg.cond(triangle) > 1e8:
            raise ValueError(BADLY_EXCITED)
        return basis, np.linalg.inv(triangle) / scale[:, None]

    @property
    def basis(self) -> Floats:
        """Orthonormal, of the filtered slopes."""
        return self._factors[0]

    @property
    def turn(self) -> Floats:
        """What turns slopes into that basis, (parameters, parameters)."""
        return self._factors[1]

    def moments(self, others: Sequence[Floats] = (), fine: bool = False) -> Moments:
        """For the fit under other gusts: of slopes, turned, others, and residuals.

        others: columns that the model may lack, (samples, any) for each log.
        """
        columns = [slopes @ self.turn for slopes in self.slopes]
        if len(others):
            columns = [np.column_stack(pair) for pair in zip(columns, others, strict=True)]
        times = [flight.time for flight in self.flights]
        moments = Moments(times, columns, self.raw, self.noise)
        return moments.refined(range(len(self.turn))) if fine else moments

    def rest_at(self, latency: float) -> float:
        """The sum of squares, filtered, that is left over with another latency."""
        moved = self.parameters.copy()
        moved[2] = latency
        parts = zip(self.flights, _parts(self.flights, moved), strict=True)
        both = [self.noise.white(flight.time, np.hstack(part))[0] for flight, part in parts]
        rows = np.concatenate(both)
        slopes = np.delete(rows[:, 1:], 2, axis=1)
        slopes /= np.linalg.norm(slopes, axis=0)
        basis = np.linalg.qr(slopes)[0]
        return float(rows[:, 0] @ rows[:, 0] - np.sum((basis.T @ rows[:, 0]) ** 2))

    def apart(self, others: Sequence[Floats]) -> list[Floats]:
        """What of these columns, (samples, any) for each log, the slopes do not have.

        Filtered, they are orthonormal, and orthogonal to the slopes; fewer if some say the same.
        """
        parts = zip(self.flights, others, strict=True)
        white = np.concatenate([self.noise.white(flight.time, o)[0] for flight, o in parts])
        size = np.linalg.norm(white, axis=0)
        size = np.where(size > 0, size, 1.0)
        along = self.basis.T @ (white / size)
        new = white / size - self.basis @ along
        squares, directions = np.linalg.eigh(new.T @ new)
        known = squares > 1e-8
        kept = directions[:, known] / np.sqrt(squares[known])
        pairs = zip(self.slopes, others, strict=True)
        return [(o / size - s @ self.turn @ along) @ kept for s, o in pairs]


def _parts(flights: Sequence[Flight], parameters: Floats) -> list[tuple[Floats, Floats]]:
    """Residuals and slopes by all parameters, for each log."""
    parts = []
    for i, flight in enumerate(flights):
        own = slice(3 + 2 * i, 5 + 2 * i)
        yaw, slopes = flight.model(flight.time, parameters[:3], parameters[own])
        wide = np.zeros((len(yaw), len(parameters)))
        wide[:, :3], wide[:, own] = slopes[:, :3], slopes[:, 3:]
        parts.append(((flight.yaw - yaw)[:, None], wide))
    return parts


def fitted(flights: Sequence[Flight], noise: Noise, start: Floats) -> Fit:
    """Least squares, after a filter that makes the noise white."""

    @lru_cache(maxsize=1)  # the search asks for both at one place
    def parts(parameters: bytes) -> list[tuple[Floats, Floats]]:
        return _parts(flights, _within(np.frombuffer(parameters)))

    def filtered(which: int, parameters: Floats) -> Floats:
        found = zip(flights, parts(parameters.tobytes()), strict=True)
        rows = [noise.white(flight.time, pair[which])[0] for flight, pair in found]
        return np.concatenate(rows)

    def residuals(parameters: Floats) -> Floats:
        return filtered(0, parameters)[:, 0]

    def slopes(parameters: Floats) -> Floats:
        return -filtered(1, parameters)

    jacobian: Any = slopes  # SciPy's stubs know only names
    # MINPACK's own arithmetic: threads of a BLAS would spend more on each other than on the work.
    found = _within(least_squares(residuals, start, jacobian, method="lm").x)
    both = parts(found.tobytes())
    return Fit(flights, noise, found, [r[:, 0] for r, _ in both], [s for _, s in both])


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
