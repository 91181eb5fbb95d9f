"""The Swing's gains from logs of its flights (paper: Section 8).

The model. In log l, with commands u held in between and reaching the drone a latency τ later,

    ψ̇ = k_p (k_u u(t - τ) - (ψ - b_l)),    measured yaw = ψ + noise,

so that   ψ(t) = b_l + a_l exp(-k_p t) + k_u X(t; k_p, τ),   X the answer of the lag (`lag.py`).

The offset b_l is where the drone's zero of yaw lies in the tracker's frame, which each flight may
set anew; a_l is how the log begins. What was commanded before a log is unknown: once the latency
has passed it changes a_l alone, so the first half second of measurements is left out, the longest
latency that is looked for. Gains and latency are common to all logs. The price of the offsets: a
log of one constant command says nothing about k_u, since its offset explains it as well.

The fit is least squares over all logs.

The intervals. If the noise is independent and normal with one variance, n samples and m parameters
give value ± t · sd, with t the quantile of Student's distribution with n - m degrees of freedom and
sd from σ² (JᵀJ)⁻¹, J the slopes by all parameters at the fit. They cover at the stated rate as n
grows; the tests measure how well at a minute. If Ljung and Box's test finds the residuals
correlated (p < 0.01), the noise is taken as autoregressive, of an order by BIC: data and model are
filtered so that it becomes white (generalised least squares), and the statement is of that fit.

Whether it fits. Four tests, each at the level 0.0002, fixed here: F tests of whether the residuals
still hold a lag of another order, gains that drift, or an answer out of proportion to the command;
and Ljung and Box's, after the filter. So about one good log in 1000 is refused. What is found there
counts if it is more than 0.001 rad. It does not fit either where half of the yaw's variance is left
over, where a gain is known to no better than ±25 %, where the residuals wander nearly as slowly as
the drone turns, where the search ends at an edge, or where the drone does not fly where it points.

The speed is that of x + iy = p_l + u_0 exp(iε_l) ∫ i exp(iψ) dt, by least squares, ψ as fitted. The
angle ε_l stands for what is unknown of the offset. Its interval adds the variance that comes from
the positions to that which comes from ψ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from pacbayes_control.identification.fitting import (
    LATENCIES,
    RATES,
    Fit,
    Flight,
    fitted,
    start_of,
)
from pacbayes_control.identification.identified import Estimate, Identified, Response
from pacbayes_control.identification.lag import Lagged, lagged
from pacbayes_control.identification.logs import LARGEST_YAW, RADIANS, FlightLog, travelled
from pacbayes_control.identification.residuals import (
    autoregression,
    inflation,
    still_in,
    whitened,
    whiteness,
)

Floats = NDArray[np.float64]

COLOURED = 0.01  # p-value below which residuals are taken as correlated
ALARM = 2e-4  # level of each test of the model
NEGLIGIBLE = 1e-3  # rad: less is not held against the model
VAGUE = 0.25  # margin of a gain, as a share of it
WANDER = 0.25  # correlation time of the noise, as a share of 1/k_p
ASTRAY = 0.2  # rad between where the drone points and where it flies
LAG = "it had a second lag or oscillated: it is no first-order lag"
DRIFT = "the gains changed in the course of the logs"
SHAPE = "it were out of proportion to the command: it saturates, has a dead zone, or is lopsided"
LOST = 1e-6  # share of a value that the search and the integral of the path may lose


def identify(logs: Sequence[FlightLog], confidence: float = 0.95) -> Identified:
    """Fit gains, latency and speed to all logs together; see the module for what is assumed.

    >>> from pacbayes_control.identification.logs import synthetic_log
    >>> found = identify([synthetic_log(k_u=3.0, k_p=0.4)])
    >>> found.fits, round(found.k_u.value, 1), round(found.k_p.value, 1)
    (True, 3.0, 0.4)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence:g} is outside (0, 1): 0.95 is usual")
    _check(logs)
    flights = [Flight(log) for log in logs]
    fit = fitted(flights, np.zeros(0), start_of(flights))
    if whiteness(fit.left, fit.basis) < COLOURED:
        for _ in range(2):  # the noise from the fit, the fit for the noise
            fit = fitted(flights, autoregression(fit.raw), fit.parameters)
    spread = fit.covariance()
    quantile = float(stdtrit(fit.freedom, (1 + confidence) / 2))
    margins = quantile * np.sqrt(np.diag(spread))
    k_u, k_p, latency = map(_estimate, fit.parameters[:3], margins[:3])
    _check_turning(k_u, k_p)
    speed, astray = _speed(fit, spread, quantile)
    failings = [*_failings(fit, k_u, k_p, latency), *astray]
    return Identified(
        k_u,
        k_p,
        speed,
        latency,
        covariance=(tuple(spread[0, :2].tolist()), tuple(spread[1, :2].tolist())),
        noise=fit.noise,
        confidence=confidence,
        samples=sum(len(flight.time) for flight in flights),
        fits=not failings,
        remarks=(*failings, *_notes(fit, latency)),
        responses=tuple(
            Response(flight.name, flight.time, flight.yaw, flight.yaw - raw)
            for flight, raw in zip(flights, fit.raw, strict=True)
        ),
    )


def _estimate(value: float, margin: float) -> Estimate:
    margin += LOST * abs(value)
    return Estimate(float(value), float(value - margin), float(value + margin))


def _check(logs: Sequence[FlightLog]) -> None:
    if not logs:
        raise ValueError("there are no logs to identify from")
    for i, log in enumerate(logs):
        for other in logs[:i]:
            if np.array_equal(log.yaw, other.yaw, equal_nan=True):
                raise ValueError(f"{log.name} is the same flight as {other.name}: give it once")
    if all(np.ptp(log.yaw_percent) == 0 for log in logs):
        names = ", ".join(log.name for log in logs)
        raise ValueError(
            f"{names}: the command never changes, so k_p cannot be identified: "
            "add a log with a sinusoid or a chirp"
        )


def _check_turning(k_u: Estimate, k_p: Estimate) -> None:
    if k_u.high < 0:
        raise ValueError(
            f"yaw turns against the command (k_u = {k_u.value:.3g}): both are counter-clockwise, "
            "so change the sign of yaw_percent, or of yaw if it was measured clockwise"
        )
    if k_u.low <= 0:
        raise ValueError(
            "the logs do not tell k_u from 0: yaw does not follow the command, or there are too "
            "few commands; add a log with steps and a chirp"
        )
    if k_u.low > LARGEST_YAW and k_p.low > 2 * RATES[0]:
        raise ValueError(
            f"k_u would be {k_u.value:.3g}, so the yaw is no angle of a drone: {RADIANS}"
        )


# ---- whether it fits ----------------------------------------------------------------------------


def _failings(fit: Fit, k_u: Estimate, k_p: Estimate, latency: Estimate) -> list[str]:
    """What speaks against the model, in sentences."""
    said = []
    yaw = np.concatenate([flight.yaw - flight.yaw.mean() for flight in fit.flights])
    raw = np.concatenate(fit.raw)
    lost = float(raw @ raw) / max(float(yaw @ yaw), 1e-300)
    if lost > 0.5:
        said.append(f"The model leaves {lost:.0%} of the yaw's variance unexplained.")
    said += _structure(fit) or _memory(fit)
    for name, gain in (("k_u", k_u), ("k_p", k_p)):
        if gain.margin > VAGUE * gain.value:
            said.append(
                f"{name} is known to ±{gain.margin / gain.value:.0%} only: it is badly excited, or "
                "the noise too large; add a log with steps and a chirp."
            )
    for name, found, (low, high) in (("k_p", k_p, RATES), ("latency", latency, LATENCIES)):
        if min(found.value - low, high - found.value) < 1e-3 * (high - low):
            said.append(f"The search for {name} ended at its edge, {found.value:.3g}.")
    return said


def _structure(fit: Fit) -> list[str]:
    """The largest effect that the residuals have and the model has not, if there is any."""
    k_p, latency = fit.parameters[1:3]
    total = sum(flight.time[-1] for flight in fit.flights)
    before, found = 0.0, []
    effects: dict[str, list[Floats]] = {}
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
            rows = whitened(np.stack(pair, axis=1), fit.filter)
            effects.setdefault(effect, []).append(rows)
    left = np.concatenate(fit.left)
    for effect, rows in effects.items():
        p, size = still_in(left, fit.basis, np.concatenate(rows))
        if p < ALARM and size > NEGLIGIBLE:
            found.append((size, f"The yaw moves as if {effect} (p = {p:.1g})."))
    return [max(found)[1]] if found else []


def _memory(fit: Fit) -> list[str]:
    """Correlation of the residuals that is more than a tracker's."""
    k_p, p = fit.parameters[1], whiteness(fit.left, fit.basis, len(fit.filter))
    step = float(np.median(np.concatenate([np.diff(flight.time) for flight in fit.flights])))
    alike = inflation(fit.raw, fit.filter) * step / 2  # s
    if fit.noise < NEGLIGIBLE:
        return []
    if len(fit.filter) and alike * k_p > WANDER:
        return [
            f"The residuals wander over {alike:.2g} s, nearly as slowly as the drone turns "
            f"({1 / k_p:.2g} s): there is wind, or dynamics that the model lacks."
        ]
    return [f"The residuals are correlated as no noise is (p = {p:.1g})."] if p < ALARM else []


def _notes(fit: Fit, latency: Estimate) -> list[str]:
    """What to know of a fit, good or bad."""
    said = []
    if len(fit.filter):
        said.append(
            "The residuals are correlated: the intervals allow for noise of order "
            f"{len(fit.filter)}."
        )
    if latency.high < 0:
        said.append("The yaw moves before its command: the clocks of tracker and commands differ.")
    raw = np.concatenate(fit.raw)
    usual = 1.4826 * float(np.median(np.abs(raw)))
    far = int(np.sum(np.abs(raw) > 6 * usual))
    if 0 < far < 0.02 * len(raw) and fit.noise > NEGLIGIBLE:
        said.append(
            f"{far} yaws are off by more than six times the usual: if the tracker slipped, leave "
            "those cells empty."
        )
    return said


# ---- the speed ----------------------------------------------------------------------------------


def _speed(fit: Fit, spread: Floats, quantile: float) -> tuple[Estimate, list[str]]:
    """Speed, and what speaks against the drone flying where it points."""
    value, overlaps, power, left = _motion(fit.flights, fit.parameters)
    parts = [part for r in left for part in (r.real, r.imag)]
    together = np.concatenate(parts)
    freedom = len(together) - 3 * len(left) - 1
    variance = max(1.0, inflation(parts, autoregression(parts))) * float(together @ together)
    variance /= freedom * power
    steps = np.sqrt(np.diag(spread))
    gradient = np.zeros(len(steps))
    for i in range(len(steps)):
        if i < 3 or i % 2:  # an offset turns the path, and leaves the speed
            moved = fit.parameters + steps[i] * np.eye(len(steps))[i]
            gradient[i] = (_motion(fit.flights, moved)[0] - value) / max(steps[i], 1e-300)
    variance += float(gradient @ spread @ gradient)
    said, total = [], sum(_power(flight.place) for flight in fit.flights)
    mirrored = _motion(fit.flights, fit.parameters, mirrored=True)[3]
    rest = float(together @ together)
    angle = max((float(np.angle(overlap)) for overlap in overlaps), key=abs)
    if sum(map(_power, mirrored)) < 0.5 * rest:
        said.append(
            "The drone flies as if yaw were measured clockwise: change the signs of yaw and "
            "yaw_percent, or see whether x and y are swapped."
        )
    elif rest > 0.1 * total or abs(angle) > ASTRAY:
        said.append(
            f"The drone does not fly where it points: it is off by {angle:.2f} rad, and "
            f"{rest / total:.0%} of its motion is left over; see that the axes are those of yaw."
        )
    return _estimate(value, quantile * math.sqrt(variance)), said


def _motion(
    flights: Sequence[Flight], parameters: Floats, mirrored: bool = False
) -> tuple[float, list[complex], float, list[NDArray[np.complex128]]]:
    """Speed; overlap of each path with the pointed one; power of those; what is left over."""
    pairs = []
    for i, flight in enumerate(flights):
        fine = np.arange(flight.placed[0], flight.placed[-1], 0.02)
        times = np.union1d(fine, flight.placed)
        yaw, _ = flight.model(times, parameters[:3], parameters[3 + 2 * i : 5 + 2 * i])
        path = travelled(times, -yaw if mirrored else yaw)
        path = path[np.searchsorted(times, flight.placed)]
        pairs.append((path - path.mean(), flight.place - flight.place.mean()))
    overlaps = [complex(np.vdot(path, place)) for path, place in pairs]
    power = sum(_power(path) for path, _ in pairs)
    speed = sum(map(abs, overlaps)) / power
    left = [
        place - speed * np.exp(1j * np.angle(overlap)) * path
        for (path, place), overlap in zip(pairs, overlaps, strict=True)
    ]
    return speed, overlaps, power, left


def _power(path: NDArray[np.complex128]) -> float:
    """The sum of squared distances from the mean."""
    return float(np.sum(np.abs(path - path.mean()) ** 2))
