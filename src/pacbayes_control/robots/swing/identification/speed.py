"""The speed, from positions and the yaw that was fitted to the same logs.

    x + iy = p_l + u_0 exp(iε_l) ∫ i exp(iψ) dt,

by least squares for u_0, with a place p_l and an angle ε_l for each log, which stands for what is
unknown of the offset. ψ is the model's with the likeliest gusts, or without any if the positions
are nearer to that: then it was not the drone that wandered, but the tracker's yaw. The interval
adds three variances: from the positions, from the parameters of ψ, and from the gusts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.swing.identification.fitting import Fit
from pacbayes_control.robots.swing.identification.gusts import Noise
from pacbayes_control.robots.swing.identification.identified import Estimate
from pacbayes_control.robots.swing.identification.logs import travelled
from pacbayes_control.robots.swing.identification.residuals import autoregression, inflation
from pacbayes_control.robots.swing.identification.settling import LOST, Settled

Floats = NDArray[np.float64]
Complex = NDArray[np.complex128]

ASTRAY = 0.2  # rad between where the drone points and where it flies


def speed_of(found: Settled, spread: Floats, reach: float) -> tuple[Estimate, list[str]]:
    """Speed, and what speaks against the drone flying where it points."""
    fit = found.fit
    gusty, still = (
        _motion(fit, fit.parameters),
        _motion(replace(fit, noise=Noise()), fit.parameters),
    )
    if gusty.rest > still.rest:  # the drone did not turn with them: it was the tracker
        fit, gusty = replace(fit, noise=Noise()), still
    motion = gusty
    value, together = motion.speed, np.concatenate(motion.left)
    parts = [part for r in motion.left for part in (r.real, r.imag)]
    rest = motion.rest
    variance = max(1.0, inflation(parts, autoregression(parts))) * rest
    variance /= (2 * len(together) - 3 * len(motion.left) - 1) * motion.power
    variance += _of_gusts(found, motion)
    steps = np.sqrt(np.diag(spread))
    gradient = np.zeros(len(steps))
    for i in range(len(steps)):
        if i < 3 or i % 2:  # an offset turns the path, and leaves the speed
            moved = fit.parameters + steps[i] * np.eye(len(steps))[i]
            gradient[i] = (_motion(fit, moved).speed - value) / max(steps[i], 1e-300)
    variance += float(gradient @ spread @ gradient)
    said, total = [], sum(_power(flight.place) for flight in fit.flights)
    mirrored = _motion(fit, fit.parameters, mirrored=True)
    angle = max((float(np.angle(overlap)) for overlap in motion.overlaps), key=abs)
    if mirrored.rest < 0.5 * rest:
        said.append(
            "The drone flies as if yaw were measured clockwise: change the signs of yaw and "
            "yaw_percent, or see whether x and y are swapped."
        )
    elif rest > 0.1 * total or abs(angle) > ASTRAY:
        said.append(
            f"The drone does not fly where it points: it is off by {angle:.2f} rad, and "
            f"{rest / total:.0%} of its motion is left over; see that the axes are those of yaw."
        )
    margin = reach * math.sqrt(variance) + LOST * value
    return Estimate(value, value - margin, value + margin), said


@dataclass(frozen=True)
class _Motion:
    """Paths of unit speed, about their means, and what they make of the positions."""

    times: list[Floats]  # on a fine grid, for each log
    yaws: list[Floats]  # there
    paths: list[Complex]  # where positions were measured
    overlaps: list[complex]  # with the positions
    power: float
    speed: float
    left: list[Complex]

    @property
    def rest(self) -> float:
        """Of the positions' power, what is left over."""
        return sum(map(_power, self.left))


def _motion(fit: Fit, parameters: Floats, mirrored: bool = False) -> _Motion:
    times, yaws, paths, places = [], [], [], []
    for i, flight in enumerate(fit.flights):
        own = parameters[3 + 2 * i : 5 + 2 * i]
        fine = np.union1d(np.arange(flight.placed[0], flight.placed[-1], 0.02), flight.placed)
        seen = flight.model(flight.time, parameters[:3], own)[0]
        gusts = fit.noise.gusts(flight.time, flight.yaw - seen)
        yaw = flight.model(fine, parameters[:3], own)[0] + np.interp(fine, flight.time, gusts)
        path = travelled(fine, -yaw if mirrored else yaw)
        path = path[np.searchsorted(fine, flight.placed)]
        times.append(fine)
        yaws.append(yaw)
        paths.append(path - path.mean())
        places.append(flight.place - flight.place.mean())
    overlaps = [complex(np.vdot(*pair)) for pair in zip(paths, places, strict=True)]
    power = sum(map(_power, paths))
    speed = sum(map(abs, overlaps)) / power
    left = [
        place - speed * np.exp(1j * np.angle(overlap)) * path
        for path, place, overlap in zip(paths, places, overlaps, strict=True)
    ]
    return _Motion(times, yaws, paths, overlaps, power, speed, left)


def _of_gusts(found: Settled, motion: _Motion) -> float:
    """Variance of the speed from what the yaws leave unknown of the gusts.

    The speed's slope by the yaw at t is -Re(exp(iψ) R*) / power, R the sum of exp(-iε) (x + iy) -
    2 u_0 path over the positions from t on. Given the yaws, g has the covariance σ² G, and G is
    the smoother: it takes residuals to the likeliest g.
    """
    mixture, likely, variance = found.mixture, found.mixture.weights > 1e-3, 0.0
    for i, flight in enumerate(found.fit.flights):
        time, yaw = motion.times[i], motion.yaws[i]
        turned = np.exp(-1j * np.angle(motion.overlaps[i])) * motion.left[i]
        pull = turned - motion.speed * motion.paths[i]
        pull = np.append(np.cumsum(pull[::-1])[::-1], 0.0)[np.searchsorted(flight.placed, time)]
        slope = -np.real(np.exp(1j * yaw) * np.conj(pull)) * np.gradient(time) / motion.power
        at = np.clip(np.searchsorted(flight.time, time), 1, len(flight.time) - 1)
        gap = flight.time[at] - flight.time[at - 1]
        share = np.clip((time - flight.time[at - 1]) / gap, 0.0, 1.0)
        seen = np.bincount(at, slope * share, len(flight.time)).astype(float)
        seen += np.bincount(at - 1, slope * (1 - share), len(flight.time))
        for j in np.flatnonzero(likely):
            noise = replace(found.fit.noise, ratio=float(mixture.ratios[j]))
            unknown = mixture.variances[j] * float(seen @ noise.covered(flight.time, seen))
            variance += mixture.weights[j] * unknown
    return variance


def _power(path: Complex) -> float:
    """The sum of squared distances from the mean."""
    return float(np.sum(np.abs(path - path.mean()) ** 2))
